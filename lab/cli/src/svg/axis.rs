//! Axes: from a figure to its place between 0 and 1.
//!
//! Values that are all of one size have a plain axis from 0, others a logarithmic one.

use bursar_experiments::measure::Unit;

use crate::units::exact;

/// A logarithmic axis. It has no place for 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogAxis {
    from: f64,
    to: f64,
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

impl LogAxis {
    /// The shortest axis with all these values above 0 on it that begins and ends at 1, 2 or 5 of a decade; `None` if there are
    /// no such values.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
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
        Some(Self { from, to })
    }

    /// An axis with these values on it, near its ends, and no zero.
    pub fn tight(values: &[f64]) -> Option<Self> {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        let room = 0.08 * (most / least).log10();
        (least > 0.0 && most > least).then(|| Self {
            from: least.log10() - room,
            to: most.log10() + room,
        })
    }

    /// The place of a value.
    pub fn place(&self, value: f64) -> f64 {
        ((value.log10() - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    /// Decades, and what is between them, of numbers in this unit.
    pub fn marks(&self, unit: Unit) -> Vec<Mark> {
        let mut marks = Vec::new();
        let decades = self.to - self.from;
        let named: &[u32] = if decades <= 3.0 { &[1, 2, 5] } else { &[1] };
        let drawn: &[u32] = if decades <= 5.0 {
            &[1, 2, 3, 4, 5, 6, 7, 8, 9]
        } else {
            &[1]
        };
        for decade in self.from.floor() as i32..=self.to.ceil() as i32 {
            for digit in drawn {
                let value = f64::from(*digit) * 10_f64.powi(decade);
                if value.log10() < self.from - 1e-9 || value.log10() > self.to + 1e-9 {
                    continue;
                }
                marks.push(Mark {
                    place: self.place(value),
                    label: if named.contains(digit) {
                        exact(value, unit)
                    } else {
                        String::new()
                    },
                });
            }
        }
        marks
    }
}

/// An axis of values above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueAxis {
    /// From 0 to a value.
    Plain(f64),
    Log(LogAxis),
}

/// Values are of one size if the largest is no more than so many times the tenth part's.
const ONE_SIZE: f64 = 40.0;
/// Steps of a plain axis, at most.
const STEPS: f64 = 6.0;

impl ValueAxis {
    /// An axis for these values, of which nine in ten are no less than `tenth`; `None` if none is above 0. A logarithmic axis
    /// begins near `tenth`, and all below it is at its left end.
    pub fn of(values: &[f64], tenth: f64) -> Option<Self> {
        // Or the picture would be half empty: a scale of tails does not show the least tenth.
        let seen = values.iter().copied().filter(|value| *value >= tenth);
        let log = LogAxis::of(seen)?;
        let most = values.iter().copied().fold(0.0, f64::max);
        Some(match most <= ONE_SIZE * tenth {
            true => Self::Plain(1.04 * most),
            false => Self::Log(log),
        })
    }

    /// The place of a value.
    pub fn place(&self, value: f64) -> f64 {
        match self {
            Self::Plain(to) => (value / to).clamp(0.0, 1.0),
            Self::Log(axis) => axis.place(value),
        }
    }

    /// Numbers in this unit.
    pub fn marks(&self, unit: Unit) -> Vec<Mark> {
        let to = match self {
            Self::Plain(to) => *to,
            Self::Log(axis) => return axis.marks(unit),
        };
        let least = to / STEPS;
        let decade = 10_f64.powf((least.log10() + 1e-9).floor());
        let steps = ENDS.map(|digit| f64::from(digit) * decade);
        let mut step = steps.into_iter().find(|step| *step >= least).unwrap_or(to);
        if unit == Unit::Count {
            step = step.max(1.0);
        }
        let marks = (0..=STEPS as u32).map(|number| f64::from(number) * step);
        let marks = marks.filter(|value| *value <= to);
        let mark = |value: f64| Mark {
            place: value / to,
            label: match unit {
                _ if value == 0.0 => "0".to_owned(),
                Unit::Ns => {
                    let (name, ns) = time_unit(to);
                    format!("{} {name}", (value / ns * 1e3).round() / 1e3)
                }
                unit => exact(value, unit),
            },
        };
        marks.map(mark).collect()
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
        let axis = LogAxis::of([900.0, 4e6, 0.0].into_iter()).expect("an axis");
        assert_eq!(
            labels(axis.marks(Unit::Ns)),
            ["1 us", "10 us", "100 us", "1 ms"]
        );
        assert_eq!([500.0, 5e6].map(|value| axis.place(value)), [0.0, 1.0]);
        let axis = LogAxis::of([1e8, 1.9e8].into_iter()).expect("an axis");
        assert_eq!(labels(axis.marks(Unit::Ns)), ["100 ms", "200 ms"]);
        let axis = LogAxis::of([7.0, 7.0].into_iter()).expect("an axis");
        assert_eq!(labels(axis.marks(Unit::Ns)), ["5 ns", "10 ns"]);
        assert_eq!(LogAxis::of([0.0].into_iter()), None);
        assert_eq!(LogAxis::of([].into_iter()), None);
    }

    #[test]
    fn values_of_one_size_have_a_plain_axis() {
        let axis = ValueAxis::of(&[4e6, 4e7, 1.5e8], 4e6).expect("an axis");
        assert_eq!(
            labels(axis.marks(Unit::Ns)),
            ["0", "50 ms", "100 ms", "150 ms"]
        );
        assert_eq!((axis.place(0.0), axis.place(1.56e8)), (0.0, 1.0));
        let axis = ValueAxis::of(&[900.0, 1_500.0], 900.0).expect("an axis");
        assert_eq!(
            labels(axis.marks(Unit::Ns)),
            ["0", "0.5 us", "1 us", "1.5 us"]
        );
        let axis = ValueAxis::of(&[1.0, 3.0], 1.0).expect("an axis");
        assert_eq!(labels(axis.marks(Unit::Count)), ["0", "1", "2", "3"]);
        let axis = ValueAxis::of(&[4e6, 4e9], 4e6).expect("an axis");
        assert!(matches!(axis, ValueAxis::Log(_)));
        let axis = ValueAxis::of(&[3.0, 2e6, 4e9], 2e6).expect("an axis");
        assert_eq!((axis.place(3.0), axis.place(2e6)), (0.0, 0.0));
        assert!(axis.place(4e6) > 0.0);
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
