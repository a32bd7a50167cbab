//! Distributions as small pictures: a bar for each power of two.

/// Bars from a few to the most; a space means none.
pub const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of one power of two, where there is room; else 1.
const WIDTH: usize = 2;
/// Columns from one mark of the axis to the next.
const MARK_WIDTH: usize = 8;

/// A power of two that values are below, and their number.
pub type Octave = (u64, u64);

/// One line for each name with its octaves, on one axis, and the axis below, with its marks by `mark`. Bars grow with the logarithm of
/// the number of values, or the one read in a thousand that took long would not be seen. Nothing if it does not fit into `columns`.
pub fn picture(
    rows: &[(&str, Vec<Octave>)],
    mark: impl Fn(f64) -> String,
    columns: Option<usize>,
) -> String {
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
    let marks = marks.map(|(place, column)| (place * MARK_WIDTH, mark(begin(column))));
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
    octave.0.checked_ilog2().unwrap_or(0)
}

fn bar(octaves: &[Octave], at: u32) -> char {
    let count = octaves
        .iter()
        .find(|octave| column(octave) == at)
        .map_or(0, |octave| octave.1);
    if count == 0 {
        return ' ';
    }
    let most = octaves.iter().map(|octave| octave.1).max().unwrap_or(1);
    let height = (1.0 + count as f64).ln() / (1.0 + most as f64).ln();
    BARS[((height * BARS.len() as f64) as usize).min(BARS.len() - 1)]
}

/// Begin of the bar of `column` on the axis.
fn begin(column: u32) -> f64 {
    match column {
        0 => 0.0,
        column => 2_f64.powi(column as i32 - 1),
    }
}
