//! Distributions as small pictures: a bar for each power of two.

use bursar_experiments::measure::{Distribution, Octave, Unit};

use crate::units::rough;

/// Bars from a few to the most; a space means none.
pub const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of one power of two, where there is room; else 1.
const WIDTH: usize = 2;
/// Columns from one mark of the axis to the next.
const MARK_WIDTH: usize = 8;

/// One line for each distribution, on one axis, and the axis below. Bars grow with the logarithm of the number of values, or
/// the one read in a thousand that took long would not be seen. Nothing if it does not fit into `columns`.
pub fn picture(rows: &[(&str, &Distribution)], columns: Option<usize>) -> String {
    let unit = rows.first().map_or(Unit::Ns, |(_, first)| first.unit());
    let rows: Vec<(&str, Vec<Octave>)> = rows
        .iter()
        .map(|(name, distribution)| (*name, distribution.octaves()))
        .collect();
    of_octaves(&rows, unit, columns)
}

/// As [`picture`], of values that were counted by powers of two.
pub fn of_octaves(rows: &[(&str, Vec<Octave>)], unit: Unit, columns: Option<usize>) -> String {
    let octaves = || rows.iter().flat_map(|(_, octaves)| octaves);
    let (Some(first), Some(last)) = (octaves().map(column).min(), octaves().map(column).max())
    else {
        return String::new();
    };
    let name_width = rows
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let beside = name_width + 4;
    let octaves = (last - first) as usize + 1;
    let fits = |width: &usize| columns.is_none_or(|columns| beside + octaves * width <= columns);
    let Some(width) = [WIDTH, 1].into_iter().find(fits) else {
        return String::new();
    };
    let mut text = String::new();
    for (name, octaves) in rows {
        let bars: String = (first..=last)
            .flat_map(|column| std::iter::repeat_n(bar(octaves, column), width))
            .collect();
        text.push_str(&format!("  {name:name_width$}  {}\n", bars.trim_end()));
    }
    // The last mark may be wider than its bar.
    let marks = (first..=last).step_by(MARK_WIDTH / width).enumerate();
    let marks = marks.map(|(place, column)| (place * MARK_WIDTH, mark(column, unit)));
    let fits = |(begin, mark): &(usize, String)| {
        columns.is_none_or(|columns| beside + begin + mark.len() <= columns)
    };
    let axis: String = marks
        .filter(fits)
        .map(|(_, mark)| format!("{mark:<MARK_WIDTH$}"))
        .collect();
    let axis = axis.trim_end();
    text.push_str(&format!("  {:name_width$}  {axis}\n", ""));
    text
}

/// The power of two that the values of a bar are below.
fn column(octave: &Octave) -> u32 {
    octave.below.checked_ilog2().unwrap_or(0)
}

fn bar(octaves: &[Octave], at: u32) -> char {
    let count = octaves
        .iter()
        .find(|octave| column(octave) == at)
        .map_or(0, |octave| octave.count);
    if count == 0 {
        return ' ';
    }
    let most = octaves.iter().map(|octave| octave.count).max().unwrap_or(1);
    let height = (1.0 + count as f64).ln() / (1.0 + most as f64).ln();
    BARS[((height * BARS.len() as f64) as usize).min(BARS.len() - 1)]
}

/// Where the bar of `column` begins on the axis.
fn mark(column: u32, unit: Unit) -> String {
    let begins = if column == 0 {
        0.0
    } else {
        2_f64.powi(column as i32 - 1)
    };
    rough(begins, unit)
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
