//! Axes: from a figure to its place between 0 and 1.

use bursar_lab::measure::Unit;

use crate::units::exact;

/// A logarithmic axis, over whole decades where it can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogAxis {
    from: f64,
    to: f64,
    /// The part of the axis before its logarithmic part, where 0 is.
    zero: f64,
}

/// A mark of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub place: f64,
    /// Nothing for a line without a number.
    pub label: String,
}

/// The part of an axis that belongs to 0, where 0 is on it.
const ZERO: f64 = 0.05;

impl LogAxis {
    /// The least axis of whole decades with all these values on it; none if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut has_zero = false;
        let mut ends: Option<(f64, f64)> = None;
        for value in values {
            if value <= 0.0 {
                has_zero = true;
                continue;
            }
            let (least, most) = ends.unwrap_or((value, value));
            ends = Some((least.min(value), most.max(value)));
        }
        let (least, most) = ends?;
        let from = (least.log10() + 1e-9).floor();
        let to = (most.log10() - 1e-9).ceil().max(from + 1.0);
        Some(Self {
            from,
            to,
            zero: if has_zero { ZERO } else { 0.0 },
        })
    }

    /// An axis with these values on it, near its ends, and no zero.
    pub fn tight(values: &[f64]) -> Option<Self> {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        let room = 0.08 * (most / least).log10();
        (least > 0.0 && most > least).then(|| Self {
            from: least.log10() - room,
            to: most.log10() + room,
            zero: 0.0,
        })
    }

    /// Where a value is.
    pub fn place(&self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        let along = (value.log10() - self.from) / (self.to - self.from);
        self.zero + along.clamp(0.0, 1.0) * (1.0 - self.zero)
    }

    /// Decades, and what is between them, of numbers in this unit.
    pub fn marks(&self, unit: Unit) -> Vec<Mark> {
        let mut marks = Vec::new();
        if self.zero > 0.0 {
            marks.push(Mark {
                place: 0.0,
                label: "0".to_owned(),
            });
        }
        let decades = self.to - self.from;
        let named: &[u32] = if decades <= 2.0 { &[1, 2, 5] } else { &[1] };
        let drawn: &[u32] = if decades <= 5.0 {
            &[1, 2, 3, 4, 5, 6, 7, 8, 9]
        } else {
            &[1]
        };
        for decade in self.from as i32..=self.to as i32 {
            for digit in drawn {
                let value = f64::from(*digit) * 10_f64.powi(decade);
                if value.log10() > self.to + 1e-9 {
                    break;
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

    /// Where a share is; the whole is at the end.
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
    fn times_are_on_whole_decades() {
        let axis = LogAxis::of([900.0, 5e6].into_iter()).expect("an axis");
        assert_eq!(
            labels(axis.marks(Unit::Ns)),
            ["100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms"]
        );
        assert_eq!([100.0, 1e7].map(|value| axis.place(value)), [0.0, 1.0]);
        assert_eq!(LogAxis::of([0.0].into_iter()), None);
        assert_eq!(LogAxis::of([].into_iter()), None);
    }

    #[test]
    fn zero_has_a_place_of_its_own() {
        let axis = LogAxis::of([0.0, 1_000.0].into_iter()).expect("an axis");
        assert_eq!((axis.place(0.0), axis.place(1_000.0)), (0.0, ZERO));
        assert_eq!(labels(axis.marks(Unit::Ns))[..2], ["0", "1 us"]);
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
