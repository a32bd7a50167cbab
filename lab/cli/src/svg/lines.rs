//! Lines of variants on two axes: all in one plot where they can be told apart, else a small plot for each variant.
//!
//! In a small plot the variant's line lies on those of Bursar and of the kernel before the thread, if they ran.

use std::fmt::Write;

use super::axis::Mark;
use super::canvas::{Anchor, Canvas, px};
use super::cast::Part;
use super::panel::{LINE, Panel, label_width, shortened};
use super::style::Stroke;
use super::style::{FEATURED, NAME, SMALL, THIN};

/// Lines, and the axes that they are on.
pub struct Lines<'a> {
    /// Name of the axis that goes to the right.
    pub across: String,
    /// Name of the axis that goes up.
    pub up: String,
    pub across_marks: Vec<Mark>,
    pub up_marks: Vec<Mark>,
    pub shape: Shape,
    pub lines: Vec<Line<'a>>,
}

/// Connection of the points of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// To the right, then up. A dot ends the line.
    Steps,
    /// Straight. Each point is a dot.
    Straight,
}

/// The line of a variant. Its coordinates go from 0 to 1.
pub struct Line<'a> {
    pub part: Part<'a>,
    /// Figures for the legend.
    pub figures: String,
    pub points: Vec<(f64, f64)>,
    /// Published figures.
    pub published: Vec<Published>,
}

/// A published figure and the bounds that the experiment accepts, bottom to top.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub across: f64,
    pub up: [f64; 3],
}

/// An entry of a legend.
pub struct Entry {
    pub sign: Sign,
    pub name: String,
    /// Figures or words below the name.
    pub figures: String,
}

/// Sign of a thing in a plot.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    Line(Stroke),
    /// A diamond.
    Published(&'static str),
}

const HEIGHT: f64 = 270.0;
/// Small plots in a row.
const COLUMNS: usize = 2;
/// Height of a small plot.
const SMALL_HEIGHT: f64 = 120.0;
/// Space between two small plots.
const GAP: f64 = 18.0;
/// Steps that a screen cannot show.
const STEP: f64 = 0.4;

impl Lines<'_> {
    /// Whether lines look alike.
    fn has_small_plots(&self) -> bool {
        let mut alike = self.lines.iter().filter(|line| line.part.is_one_of_many());
        alike.nth(1).is_some()
    }

    /// Draws all lines, below what is there.
    pub fn draw(&self, canvas: &mut Canvas) {
        if self.has_small_plots() {
            self.draw_small(canvas);
        } else {
            self.draw_together(canvas);
        }
    }

    /// Meaning of the colours and signs.
    pub fn legend(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for line in &self.lines {
            if line.part.is_reference() || !self.has_small_plots() {
                entries.push(Entry {
                    sign: Sign::Line(line.part.stroke),
                    name: line.part.label(),
                    figures: line.figures.clone(),
                });
            }
        }
        if self.has_small_plots() {
            entries.push(Entry {
                sign: Sign::Line(FEATURED),
                name: "the variant above the plot".to_owned(),
                figures: String::new(),
            });
        }
        for line in self.lines.iter().filter(|line| !line.published.is_empty()) {
            entries.push(Entry {
                sign: Sign::Published(line.part.stroke.color),
                name: "PUBLISHED".to_owned(),
                figures: format!("of {}, with tolerance", line.part.result.name),
            });
        }
        entries
    }

    fn draw_together(&self, canvas: &mut Canvas) {
        let sheet = canvas.sheet;
        let left = sheet.margin + label_width(&self.up_marks);
        let panel = Panel {
            left,
            top: canvas.top + LINE + 6.0,
            width: sheet.plot_right - left,
            height: HEIGHT,
        };
        self.name_up(canvas);
        panel.grid(canvas, &self.across_marks, &self.up_marks);
        panel.label_across(canvas, &self.across_marks, sheet.width - sheet.plot_right);
        panel.label_up(canvas, &self.up_marks);
        for line in &self.lines {
            self.line(canvas, panel, line, line.part.stroke);
        }
        for line in &self.lines {
            published(canvas, panel, line);
        }
        let bottom = panel.top + panel.height;
        let middle = panel.left + panel.width / 2.0;
        let at = (middle, bottom + 2.0 * LINE + 4.0);
        canvas.text(at, Anchor::Middle, SMALL, &self.across);
        canvas.top = bottom + 2.0 * LINE + 12.0;
    }

    fn draw_small(&self, canvas: &mut Canvas) {
        let sheet = canvas.sheet;
        self.name_up(canvas);
        canvas.top += LINE;
        let left = sheet.margin + label_width(&self.up_marks);
        let columns = COLUMNS.min(self.lines.len()).max(1);
        let room = sheet.width - sheet.margin - 12.0 - left;
        let width = (room - GAP * (columns - 1) as f64) / columns as f64;
        for (row, lines) in self.lines.chunks(columns).enumerate() {
            let top = canvas.top + 2.0 * LINE + 6.0;
            for (column, line) in lines.iter().enumerate() {
                let panel = Panel {
                    left: left + (width + GAP) * column as f64,
                    top,
                    width,
                    height: SMALL_HEIGHT,
                };
                if column == 0 {
                    panel.label_up(canvas, &self.up_marks);
                }
                if row * columns + column + columns >= self.lines.len() {
                    panel.label_across(canvas, &self.across_marks, GAP / 2.0);
                }
                self.small(canvas, panel, line);
            }
            canvas.top = top + SMALL_HEIGHT;
        }
        let at = (sheet.width / 2.0, canvas.top + 2.0 * LINE + 4.0);
        canvas.text(at, Anchor::Middle, SMALL, &self.across);
        canvas.top += 2.0 * LINE + 12.0;
    }

    /// A plot of one variant.
    fn small(&self, canvas: &mut Canvas, panel: Panel, line: &Line<'_>) {
        let name = shortened(&line.part.label(), NAME, panel.width);
        let above = (panel.left, panel.top - LINE - 4.0);
        canvas.text(above, Anchor::Start, NAME, &name);
        let figures = shortened(&line.figures, SMALL, panel.width);
        let above = (panel.left, panel.top - 5.0);
        canvas.text(above, Anchor::Start, SMALL, &figures);
        let is_named = |mark: &&Mark| !mark.label.is_empty();
        let [across, up] = [&self.across_marks, &self.up_marks]
            .map(|marks| marks.iter().filter(is_named).cloned().collect::<Vec<_>>());
        panel.grid(canvas, &across, &up);
        let name = &line.part.result.name;
        for reference in &self.lines {
            if reference.part.is_reference() && reference.part.result.name != *name {
                let thin = Stroke {
                    width: THIN,
                    ..reference.part.stroke
                };
                self.line(canvas, panel, reference, thin);
            }
        }
        let stroke = match line.part.is_reference() {
            true => line.part.stroke,
            false => FEATURED,
        };
        self.line(canvas, panel, line, stroke);
        published(canvas, panel, line);
    }

    fn name_up(&self, canvas: &mut Canvas) {
        let at = (canvas.sheet.margin, canvas.top + SMALL.size);
        canvas.text(at, Anchor::Start, SMALL, &format!("↑ {}", self.up));
    }

    fn line(&self, canvas: &mut Canvas, panel: Panel, line: &Line<'_>, stroke: Stroke) {
        let points = line.points.iter().map(|(x, y)| panel.at(*x, *y));
        match self.shape {
            Shape::Steps => {
                if let Some((path, end)) = steps(panel, points) {
                    canvas.path(&path, stroke);
                    canvas.dot(end, stroke.color);
                }
            }
            Shape::Straight => {
                let steps = points
                    .clone()
                    .map(|(x, y)| format!("{} {}", px(x), px(y)))
                    .collect::<Vec<_>>();
                canvas.path(&format!("M{}", steps.join("L")), stroke);
                points.for_each(|point| canvas.dot(point, stroke.color));
            }
        }
    }
}

/// The commands of a line of steps, and where it ends. Steps that a screen cannot show are left out.
fn steps(
    panel: Panel,
    points: impl ExactSizeIterator<Item = (f64, f64)>,
) -> Option<(String, (f64, f64))> {
    let last = points.len().checked_sub(1)?;
    let mut at: Option<(f64, f64)> = None;
    let mut path = String::new();
    for (place, (x, y)) in points.enumerate() {
        let (from_x, from_y) = *at.get_or_insert_with(|| {
            let bottom = panel.top + panel.height;
            let _ = write!(path, "M{} {}", px(x), px(bottom));
            (x, bottom)
        });
        if (x - from_x).abs() >= STEP || (y - from_y).abs() >= STEP || place == last {
            let _ = write!(path, "H{}V{}", px(x), px(y));
            at = Some((x, y));
        }
    }
    Some((path, at?))
}

fn published(canvas: &mut Canvas, panel: Panel, line: &Line<'_>) {
    let color = line.part.stroke.color;
    for figure in &line.published {
        let [lo, at, hi] = figure.up.map(|up| panel.at(figure.across, up));
        canvas.line(lo, hi, color, 1.5);
        canvas.diamond(at, color);
    }
}
