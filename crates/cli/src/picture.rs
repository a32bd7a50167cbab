//! Distributions as small pictures: a bar for each power of two.

use bursar_lab::measure::{Distribution, Octave, Unit};

use crate::units::rough;

/// Bars from a few to the most; a space means none.
pub const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of one power of two.
const WIDTH: usize = 2;
/// Powers of two from one mark of the axis to the next.
const MARK_EVERY: usize = 4;

/// One line for each distribution, on one axis, and the axis below. Bars grow with the logarithm of the number of values, or
/// the one read in a thousand that took long would not be seen.
pub fn picture(rows: &[(&str, &Distribution)]) -> String {
    let unit = rows.first().map_or(Unit::Ns, |(_, first)| first.unit());
    let rows: Vec<(&str, Vec<Octave>)> = rows
        .iter()
        .map(|(name, distribution)| (*name, distribution.octaves()))
        .collect();
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
    let mut text = String::new();
    for (name, octaves) in &rows {
        let bars: String = (first..=last)
            .flat_map(|column| [bar(octaves, column); WIDTH])
            .collect();
        text.push_str(&format!("  {name:name_width$}  {}\n", bars.trim_end()));
    }
    let axis: String = (first..=last)
        .step_by(MARK_EVERY)
        .map(|column| format!("{:<width$}", mark(column, unit), width = WIDTH * MARK_EVERY))
        .collect();
    text.push_str(&format!("  {:name_width$}  {}\n", "", axis.trim_end()));
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
    use bursar_lab::measure::{Samples, Unit};

    use super::*;

    fn distribution(values: &[u64]) -> Distribution {
        let mut samples = Samples::new(Unit::Ns);
        values.iter().for_each(|&value| samples.record(value));
        samples.distribution()
    }

    #[test]
    fn bars_stand_on_one_axis() {
        let (fast, slow) = (distribution(&[4, 5, 6, 4]), distribution(&[4, 64]));
        let drawn = picture(&[("fast", &fast), ("slower", &slow)]);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines[0], "  fast    ██");
        assert_eq!(lines[1], "  slower  ██      ██");
        assert_eq!(lines[2], "          4ns     64ns");
    }

    #[test]
    fn nothing_gives_no_picture() {
        assert_eq!(picture(&[("nothing", &distribution(&[]))]), "");
    }
}
