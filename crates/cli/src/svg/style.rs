//! How pictures look: readable on paper and screen, in light and dark surroundings, and without telling red from green.

use super::canvas::{Stroke, Type};

/// Of a page, in pixels.
pub const WIDTH: f64 = 960.0;
/// From the page's edge.
pub const MARGIN: f64 = 24.0;
/// From the page's left edge to the plot.
pub const PLOT_LEFT: f64 = 84.0;
/// From the page's left edge to the plot's right one.
pub const PLOT_RIGHT: f64 = 716.0;
/// From the page's left edge to the legend.
pub const LEGEND_LEFT: f64 = 740.0;

/// Fonts that are there anyway.
pub const FONTS: &str = "system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif";
pub const PAPER: &str = "#ffffff";
pub const INK: &str = "#1a1a1a";
/// Lines behind the data.
pub const GRID: &str = "#e2e2e2";
pub const EDGE: &str = "#8a8a8a";
/// Width of a variant's line.
pub const PEN: &str = "1.8";

pub const TITLE: Type = text(16.0, INK, true);
pub const SUBTITLE: Type = text(13.0, INK, true);
pub const BODY: Type = text(12.0, INK, false);
pub const SMALL: Type = text(11.0, "#555555", false);
/// What must not be overlooked.
pub const LABEL: Type = text(11.0, "#a33c00", true);

const fn text(size: f64, color: &'static str, bold: bool) -> Type {
    Type { size, color, bold }
}

/// Okabe and Ito's colours, which differ for every kind of sight, but for yellow, which is too light for a line; grey
/// instead.
const COLORS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#7a7a7a",
];
const DASHES: [&str; 4] = ["", "7 3", "2 2.5", "9 3 2 3"];

/// The line of the `place`-th variant. Sixteen differ, each from its neighbours in both colour and dashes; they begin anew
/// then.
pub fn stroke(place: usize) -> Stroke {
    Stroke {
        color: COLORS[place % COLORS.len()],
        dash: DASHES[(place + place / COLORS.len()) % DASHES.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_lines_differ() {
        let lines: std::collections::BTreeSet<_> = (0..16)
            .map(|place| (stroke(place).color, stroke(place).dash))
            .collect();
        assert_eq!(lines.len(), 16);
    }
}
