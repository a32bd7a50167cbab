//! The rule for agreement between what was seen and what the replay gives.
//!
//! It was written before any run, and has been made stricter once since. At first the range was widened by at least 0.5, by
//! which herds of one CPU and of two agreed.

use bursar_experiments::measure::Unit;

use crate::measure::Measure;

/// The rule, in words.
pub const CRITERION: &str = "A measure agrees if the seen figure lies within the replay's range over the draws of the cost \
     model. Counts and shares depend little on costs, so their range is widened by a tenth at both ends, and by at least 0.05.";

/// Result of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The seen figure lies within the range.
    Agrees,
    /// The seen figure is below the range.
    SeenBelow,
    /// The seen figure is above the range.
    SeenAbove,
    /// The recording sets the measure, so that the rule says nothing.
    Input,
    /// There is no seen figure, or no replayed one.
    NotComparable,
}

impl Agreement {
    /// Word for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::SeenBelow => "no: seen is below",
            Self::SeenAbove => "no: seen is above",
            Self::Input => "taken from the recording",
            Self::NotComparable => "cannot tell",
        }
    }
}

/// Applies the rule. `replayed` has the figure of each draw.
pub fn agreement(
    measure: &Measure,
    is_input: bool,
    seen: Option<f64>,
    replayed: &[f64],
) -> Agreement {
    let least = replayed.iter().copied().reduce(f64::min);
    let most = replayed.iter().copied().reduce(f64::max);
    let (Some(seen), Some(least), Some(most)) = (seen, least, most) else {
        return Agreement::NotComparable;
    };
    if is_input {
        return Agreement::Input;
    }
    let slack = |end: f64| match measure.unit {
        Unit::Ns => 0.0,
        _ => (end / 10.0).max(0.05),
    };
    if seen < least - slack(least) {
        Agreement::SeenBelow
    } else if seen > most + slack(most) {
        Agreement::SeenAbove
    } else {
        Agreement::Agrees
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::MEASURES;

    fn of(name: &str, seen: Option<f64>, replayed: &[f64]) -> Agreement {
        let measure = MEASURES.iter().find(|it| it.name == name);
        agreement(measure.expect(name), false, seen, replayed)
    }

    #[test]
    fn times_must_lie_within_the_range() {
        let range = [100.0, 300.0];
        assert_eq!(of("upkeep_p99_ns", Some(100.0), &range), Agreement::Agrees);
        assert_eq!(
            of("upkeep_p99_ns", Some(99.0), &range),
            Agreement::SeenBelow
        );
        assert_eq!(
            of("upkeep_p99_ns", Some(301.0), &range),
            Agreement::SeenAbove
        );
        assert_eq!(of("upkeep_p99_ns", None, &range), Agreement::NotComparable);
        assert_eq!(
            of("upkeep_p99_ns", Some(1.0), &[]),
            Agreement::NotComparable
        );
    }

    #[test]
    fn counts_may_be_a_tenth_off() {
        assert_eq!(of("herd_max", Some(22.0), &[20.0]), Agreement::Agrees);
        assert_eq!(of("herd_max", Some(23.0), &[20.0]), Agreement::SeenAbove);
        assert_eq!(of("herd_mean", Some(1.1), &[1.5]), Agreement::SeenBelow);
    }
}
