//! Shapes and texts as SVG, from the top of a sheet to its bottom, and the frame of a plot.
//!
//! Nothing here names a font file, a style sheet or another document, and there are no identifiers, so that several pictures
//! may stand on one page. Labels that would touch are left out.

use std::fmt::{Arguments, Write};

use bursar_term::escape::escaped;

use super::axis::Mark;
use super::style::{EDGE, FONTS, GRID, INK, PAPER, SMALL, Stroke, Type};

/// A sheet under construction.
pub struct Canvas {
    body: String,
    /// Top of the next block.
    pub top: f64,
}

/// The point of a text that its coordinates name.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// Width of a sheet, pixels. Narrow, so that a telephone shows readable text.
pub const WIDTH: f64 = 400.0;
/// Distance of all contents from the left edge.
pub const MARGIN: f64 = 4.0;
/// Distance of a plot from the right edge, half a label at least.
pub const RIGHT: f64 = 26.0;
/// Height of a line of small text.
pub const LINE: f64 = 15.0;
/// Space between two labels, and between a label and the frame.
const GAP: f64 = 7.0;

impl Canvas {
    /// An empty sheet.
    pub fn new() -> Self {
        Self {
            body: String::new(),
            top: 0.0,
        }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, width: f64) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(px);
        self.shape(format_args!(
            r#"line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="{width}""#
        ));
    }

    /// A line by its commands, as a variant's.
    pub fn path(&mut self, commands: &str, stroke: Stroke) {
        let Stroke { color, dash, width } = stroke;
        self.shape(format_args!(
            r#"path d="{commands}" fill="none" stroke="{color}" stroke-width="{width}" stroke-linejoin="round" stroke-dasharray="{}""#,
            if dash.is_empty() { "none" } else { dash }
        ));
    }

    /// Filled points of this width, as one element.
    pub fn points(&mut self, points: impl Iterator<Item = (f64, f64)>, color: &str, width: f64) {
        let commands: String = points
            .map(|(x, y)| format!("M{} {}h0", px(x), px(y)))
            .collect();
        self.shape(format_args!(
            r#"path d="{commands}" fill="none" stroke="{color}" stroke-width="{width}" stroke-linecap="round""#
        ));
    }

    /// A hollow diamond, which no line has.
    pub fn diamond(&mut self, (x, y): (f64, f64), color: &str) {
        const HALF: f64 = 5.5;
        let [left, right, above, below] = [x - HALF, x + HALF, y - HALF, y + HALF].map(px);
        let [x, y] = [x, y].map(px);
        self.shape(format_args!(
            r#"path d="M{x} {above}L{right} {y}L{x} {below}L{left} {y}Z" fill="{PAPER}" stroke="{color}" stroke-width="2""#
        ));
    }

    /// A text on one line.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, look: Type, text: &str) {
        let (x, y, Type { size, color, bold }) = (px(x), px(y), look);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if bold { "bold" } else { "normal" };
        let _ = writeln!(
            self.body,
            r#"<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{color}">{}</text>"#,
            escaped(text)
        );
    }

    fn shape(&mut self, shape: Arguments<'_>) {
        let _ = writeln!(self.body, "<{shape}/>");
    }

    /// The whole picture, as high as what is on it.
    pub fn finish(self, title: &str) -> String {
        let (height, title) = (px(self.top), escaped(title));
        bursar_term::page::legal(format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" font-family="{FONTS}" fill="{INK}">
<title>{title}</title>
<rect width="100%" height="100%" fill="{PAPER}"/>
{}</svg>
"#,
            self.body
        ))
    }
}

/// The frame of a plot.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Panel {
    /// The place of a point whose coordinates go from 0 to 1.
    pub fn at(&self, across: f64, up: f64) -> (f64, f64) {
        (
            self.left + across * self.width,
            self.top + (1.0 - up) * self.height,
        )
    }

    /// Draws the frame, and a line or a tick for each mark.
    pub fn grid(&self, canvas: &mut Canvas, across: &[Mark], up: &[Mark]) {
        for mark in across {
            let (x, bottom) = self.at(mark.place, 0.0);
            match mark.label.as_str() {
                "" => canvas.line((x, bottom), (x, bottom - 4.0), EDGE, 1.0),
                _ => canvas.line((x, self.top), (x, bottom), GRID, 1.0),
            }
        }
        for mark in up {
            let (left, y) = self.at(0.0, mark.place);
            canvas.line((left, y), (left + self.width, y), GRID, 1.0);
        }
        let [x, y, width, height] = [self.left, self.top, self.width, self.height].map(px);
        canvas.shape(format_args!(
            r#"rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" stroke="{EDGE}""#
        ));
    }

    /// Writes labels below the frame, and the name of the axis below them.
    pub fn label_across(&self, canvas: &mut Canvas, marks: &[Mark], name: &str) {
        let mut end = 0.0;
        for mark in named(marks) {
            let (x, bottom) = self.at(mark.place, 0.0);
            let half = text_width(&mark.label, SMALL) / 2.0;
            if x - half >= end && x + half <= WIDTH {
                canvas.text((x, bottom + LINE), Anchor::Middle, SMALL, &mark.label);
                end = x + half + GAP;
            }
        }
        let (middle, bottom) = self.at(0.5, 0.0);
        // A long name of the axis is no wider than the sheet.
        let half = text_width(name, SMALL) / 2.0;
        let middle = middle.min(WIDTH - half).max(half);
        let at = (middle, bottom + 2.0 * LINE + 4.0);
        canvas.text(at, Anchor::Middle, SMALL, name);
        canvas.top = bottom + 2.0 * LINE + 12.0;
    }

    /// Writes labels to the left of the frame.
    pub fn label_up(&self, canvas: &mut Canvas, marks: &[Mark]) {
        let mut above = f64::INFINITY;
        for mark in named(marks) {
            let (left, y) = self.at(0.0, mark.place);
            if y <= above {
                let at = (left - GAP, y + 4.0);
                canvas.text(at, Anchor::End, SMALL, &mark.label);
                above = y - SMALL.size - 1.0;
            }
        }
    }
}

fn named(marks: &[Mark]) -> impl Iterator<Item = &Mark> {
    marks.iter().filter(|mark| !mark.label.is_empty())
}

/// Width of labels beside a frame, with the space to it.
pub fn label_width<'a>(labels: impl Iterator<Item = &'a str>, look: Type) -> f64 {
    let widths = labels.map(|label| text_width(label, look));
    widths.fold(0.0, f64::max) + GAP
}

/// The beginning of a text that is no wider than `width`.
pub fn shortened(text: &str, look: Type, width: f64) -> String {
    if text_width(text, look) <= width {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while !kept.is_empty() && text_width(&kept, look) + look.size > width {
        kept.pop();
    }
    kept + "…"
}

/// A length with as many digits as a screen shows.
pub fn px(length: f64) -> String {
    let tenths = (length * 10.0).round() / 10.0;
    // Without a minus at zero.
    (tenths + 0.0).to_string()
}

/// An upper bound of a text's width in the fonts of pictures, of which DejaVu Sans is the widest.
pub fn text_width(text: &str, look: Type) -> f64 {
    let em = |character: char| match character {
        ' ' | '.' | ',' | ':' | ';' | 'i' | 'j' | 'l' | '|' | '\'' => 0.34,
        'f' | 'r' | 't' | '(' | ')' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '…' => 1.0,
        '0'..='9' | 'a'..='z' => 0.64,
        _ => 0.78,
    };
    let boldness = if look.bold { 1.12 } else { 1.0 };
    text.chars().map(em).sum::<f64>() * look.size * boldness
}
