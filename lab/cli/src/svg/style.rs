//! Colours, types and sizes of pictures: readable on paper and screen, in light and dark surroundings, and without telling
//! red from green.

/// Size, colour and weight of a text.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    pub size: f64,
    pub color: &'static str,
    pub bold: bool,
}

/// The line of a variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    pub color: &'static str,
    pub dash: &'static str,
    pub width: f64,
}

/// Fonts that are there anyway.
pub const FONTS: &str = "system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif";
pub const PAPER: &str = "#ffffff";
pub const INK: &str = "#1a1a1a";
const FAINT_INK: &str = "#555555";
/// Lines behind the data.
pub const GRID: &str = "#e2e2e2";
pub const EDGE: &str = "#8a8a8a";
/// Width of a variant's line.
const PEN: f64 = 1.8;

pub const NAME: Type = text(11.0, INK, true);
pub const BODY: Type = text(12.0, INK, false);
pub const SMALL: Type = text(11.0, FAINT_INK, false);

const fn text(size: f64, color: &'static str, bold: bool) -> Type {
    Type { size, color, bold }
}

/// Okabe and Ito's colours, which differ for every kind of sight, but for yellow, which is too light for a line.
const BLUE: &str = "#0072b2";
const VERMILION: &str = "#d55e00";
const OTHERS: [(&str, &str); 5] = [
    ("#009e73", "2 2.5"),
    ("#cc79a7", "9 3 2 3"),
    ("#000000", "7 3"),
    ("#e69f00", ""),
    ("#56b4e9", "2 2.5"),
];
const GREY: &str = "#7a7a7a";

/// Lines that can be told apart in one plot.
pub const MOST_LINES: usize = OTHERS.len();
/// Bursar's line.
pub const OWN: Stroke = stroke(BLUE, "", PEN);
/// The line of the kernel before the thread.
pub const UPSTREAM: Stroke = stroke(VERMILION, "7 3", PEN);
/// A line among too many.
pub const ONE_OF_MANY: Stroke = stroke(GREY, "", PEN);

/// The line of the `place`-th of the other variants, which are [`MOST_LINES`] at most.
pub fn other(place: usize) -> Stroke {
    let (color, dash) = OTHERS[place % OTHERS.len()];
    stroke(color, dash, PEN)
}

const fn stroke(color: &'static str, dash: &'static str, width: f64) -> Stroke {
    Stroke { color, dash, width }
}

/// Each colour of a picture, and the colour that replaces it on a dark page.
pub const DARK: [(&str, &str); 14] = [
    (PAPER, "#15181c"),
    (INK, "#e8e8e8"),
    (FAINT_INK, "#b0b4ba"),
    (GRID, "#30353b"),
    (EDGE, "#7d838b"),
    (BLUE, "#4fb0ee"),
    (VERMILION, "#ff8b45"),
    (OTHERS[0].0, "#35cf9f"),
    (OTHERS[1].0, "#e6a3c9"),
    (OTHERS[2].0, "#ffffff"),
    (OTHERS[3].0, "#f0c63e"),
    (OTHERS[4].0, "#b5e2fb"),
    (GREY, "#9aa0a8"),
    (TRACK, "#262b31"),
];
/// The whole of a row.
pub const TRACK: &str = "#eeeeee";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lines_of_one_plot_differ() {
        let lines: BTreeSet<_> = (0..MOST_LINES)
            .map(other)
            .chain([OWN, UPSTREAM])
            .map(|stroke| stroke.color)
            .collect();
        assert_eq!(lines.len(), MOST_LINES + 2);
    }

    #[test]
    fn colours_differ_in_the_dark_as_well() {
        let [light, dark]: [BTreeSet<_>; 2] = [
            DARK.map(|(light, _)| light).into(),
            DARK.map(|(_, dark)| dark).into(),
        ];
        assert_eq!((light.len(), dark.len()), (DARK.len(), DARK.len()));
    }
}
