//! Axes: from a figure to its place between 0 and 1.

use bursar_experiments::measure::Unit;

use crate::units::exact;

/// An axis of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    /// From 0 to 1.
    Share,
    /// Between two powers of ten. It has no place for 0, which is at its left end.
    Log { from: f64, to: f64 },
}

/// A mark of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub place: f64,
    /// Empty for a mark without a number.
    pub label: String,
}

/// Digits at which an axis may begin or end.
const ENDS: [u32; 4] = [1, 2, 5, 10];

impl Axis {
    /// The shortest logarithmic axis with all these values above 0 on it that begins and ends at 1, 2 or 5 of a decade; `None`
    /// if there are no such values.
    pub fn log(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut ends: Option<(f64, f64)> = None;
        for value in values.filter(|value| *value > 0.0) {
            let (least, most) = ends.unwrap_or((value, value));
            ends = Some((least.min(value), most.max(value)));
        }
        let (least, most) = ends?;
        let steps = |decade: f64| ENDS.map(|digit| decade + f64::from(digit).log10());
        let below = steps((least.log10() + 1e-9).floor());
        let above = steps((most.log10() - 1e-9).floor());
        let is_below = |step: &f64| *step <= least.log10() + 1e-9;
        let is_above = |step: &f64| *step >= most.log10() - 1e-9;
        let from = below.into_iter().rev().find(is_below)?;
        let to = above.into_iter().find(is_above)?;
        // The values may all be one.
        let to = if to - from < 0.2 { from + 1.0 } else { to };
        Some(Self::Log { from, to })
    }

    /// The place of a value.
    pub fn place(&self, value: f64) -> f64 {
        match self {
            Self::Share => value,
            Self::Log { from, to } => ((value.log10() - from) / (to - from)).clamp(0.0, 1.0),
        }
    }

    /// Quarters of a share; decades, and what is between them, of numbers in this unit.
    pub fn marks(&self, unit: Unit) -> Vec<Mark> {
        let (from, to) = match *self {
            Self::Log { from, to } => (from, to),
            Self::Share => {
                let quarter = |quarter: u8| Mark {
                    place: f64::from(quarter) / 4.0,
                    label: format!("{} %", 25 * u32::from(quarter)),
                };
                return (0..=4).map(quarter).collect();
            }
        };
        let mut marks = Vec::new();
        let decades = to - from;
        let named: &[u32] = if decades <= 3.0 { &[1, 2, 5] } else { &[1] };
        let most = if decades <= 5.0 { 9 } else { 1 };
        for decade in from.floor() as i32..=to.ceil() as i32 {
            for digit in 1..=most {
                let value = f64::from(digit) * 10_f64.powi(decade);
                if value.log10() < from - 1e-9 || value.log10() > to + 1e-9 {
                    continue;
                }
                marks.push(Mark {
                    place: self.place(value),
                    label: match named.contains(&digit) {
                        true => exact(value, unit),
                        false => String::new(),
                    },
                });
            }
        }
        marks
    }
}

/// The largest unit of time that is no longer than this, and its nanoseconds.
pub fn time_unit(ns: f64) -> (&'static str, f64) {
    const UNITS: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
    let mut units = UNITS.into_iter();
    units.find(|(_, each)| *each <= ns).unwrap_or(("ns", 1.0))
}

/// An axis of shares that shows their tail: each decade takes nine tenths of what is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TailAxis {
    decades: f64,
}

impl TailAxis {
    /// An axis on which one of `samples` can be seen.
    pub fn of(samples: u64) -> Self {
        let decades = (2.0 * samples.max(5) as f64).log10();
        // A little room, or the slowest value is on the frame.
        Self {
            decades: 1.03 * decades,
        }
    }

    /// The place of a share; the whole is at the end.
    pub fn place(&self, share: f64) -> f64 {
        let left = 1.0 - share;
        if left <= 0.0 {
            return 1.0;
        }
        (-left.log10() / self.decades).clamp(0.0, 1.0)
    }

    /// 0, 50, 90, 99, 99.9 % and so on.
    pub fn marks(&self) -> Vec<Mark> {
        let mark = |left: f64, label: String| Mark {
            place: self.place(1.0 - left),
            label,
        };
        let mut marks = vec![mark(1.0, "0 %".to_owned()), mark(0.5, "50 %".to_owned())];
        for decade in 1..=self.decades as i32 {
            let digits = usize::try_from(decade - 2).unwrap_or(0);
            let label = format!("{:.digits$} %", 100.0 * (1.0 - 10_f64.powi(-decade)));
            marks.push(mark(10_f64.powi(-decade), label));
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(marks: Vec<Mark>) -> Vec<String> {
        let named = marks.into_iter().map(|mark| mark.label);
        named.filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn axes_end_near_their_values() {
        let log = |values: &[f64]| Axis::log(values.iter().copied());
        let axis = log(&[900.0, 4e6, 0.0]).expect("an axis");
        assert_eq!(
            labels(axis.marks(Unit::Ns)),
            ["1 us", "10 us", "100 us", "1 ms"]
        );
        let places = [0.0, 500.0, 5e6].map(|value| axis.place(value));
        assert_eq!(places, [0.0, 0.0, 1.0]);
        let axis = log(&[1e8, 1.9e8]).expect("an axis");
        assert_eq!(labels(axis.marks(Unit::Ns)), ["100 ms", "200 ms"]);
        let axis = log(&[7.0, 7.0]).expect("an axis");
        assert_eq!(labels(axis.marks(Unit::Ns)), ["5 ns", "10 ns"]);
        assert_eq!((log(&[0.0]), log(&[])), (None, None));
    }

    #[test]
    fn tails_are_as_high_as_their_first_decade() {
        let axis = TailAxis::of(5_000);
        assert_eq!(
            labels(axis.marks()),
            ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]
        );
        let places = [0.0, 0.9, 0.99, 0.999].map(|share| axis.place(share));
        for (place, expected) in places.into_iter().zip([0.0, 0.25, 0.5, 0.75]) {
            assert!((place - expected / 1.03).abs() < 1e-9, "{place}");
        }
        assert_eq!(axis.place(1.0), 1.0);
    }
}
