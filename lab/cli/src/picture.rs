//! Distributions of metrics as small pictures.

use bursar_experiments::measure::{Distribution, Unit};
use bursar_term::bars;

use crate::units::rough;

/// One line for each distribution, on one axis. Nothing if it does not fit into `columns`.
pub fn picture(rows: &[(&str, &Distribution)], columns: Option<usize>) -> String {
    let unit = rows.first().map_or(Unit::Ns, |(_, first)| first.unit());
    let octaves = |of: &Distribution| -> Vec<bars::Octave> {
        let octaves = of.octaves().into_iter();
        octaves.map(|it| (it.below, it.count)).collect()
    };
    let rows: Vec<_> = rows.iter().map(|(name, of)| (*name, octaves(of))).collect();
    bars::picture(&rows, |value| rough(value, unit), columns)
}

#[cfg(test)]
mod tests {
    use bursar_experiments::measure::Unit;

    use super::*;

    fn distribution(values: &[u64]) -> Distribution {
        Distribution::of(Unit::Ns, values.iter().copied())
    }

    #[test]
    fn bars_stand_on_one_axis() {
        let (fast, slow) = (distribution(&[4, 5, 6, 4]), distribution(&[4, 64]));
        let drawn = picture(&[("fast", &fast), ("slower", &slow)], None);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines[0], "  fast    ██");
        assert_eq!(lines[1], "  slower  ██      ██");
        assert_eq!(lines[2], "          4ns     64ns");
    }

    #[test]
    fn bars_get_narrow_with_the_terminal() {
        let slow = distribution(&[4, 64]);
        let drawn = |columns| picture(&[("slow", &slow)], Some(columns));
        assert_eq!(drawn(20), "  slow  ██      ██\n        4ns     64ns\n");
        assert_eq!(drawn(18), "  slow  ██      ██\n        4ns\n");
        assert_eq!(drawn(17), "  slow  █   █\n        4ns\n");
        assert_eq!(drawn(12), "");
    }

    #[test]
    fn nothing_gives_no_picture() {
        assert_eq!(picture(&[("nothing", &distribution(&[]))], None), "");
    }
}
