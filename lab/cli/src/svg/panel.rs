//! Frame, grid and labels of one plot.
//!
//! Labels that would touch are left out, and the frame begins where the widest label ends. The name of the axis that goes up
//! stands above the frame, where no label is.

use super::axis::Mark;
use super::canvas::{Anchor, Canvas, text_width};

use super::style::{EDGE, GRID, SMALL};

/// The frame of a plot.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// Space between two labels, and between a label and the frame.
const GAP: f64 = 7.0;
/// Height of a line of small text.
pub const LINE: f64 = 15.0;

impl Panel {
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
            match mark.label.as_str() {
                "" => canvas.line((left, y), (left + 4.0, y), EDGE, 1.0),
                _ => canvas.line((left, y), (left + self.width, y), GRID, 1.0),
            }
        }
        canvas.frame((self.left, self.top), (self.width, self.height), EDGE);
    }

    /// Writes labels below the frame, as far as they reach no more than `beyond` pixels beyond it.
    pub fn label_across(&self, canvas: &mut Canvas, marks: &[Mark], beyond: f64) {
        let mut end = self.left - beyond;
        let limit = self.left + self.width + beyond;
        for mark in named(marks) {
            let (x, bottom) = self.at(mark.place, 0.0);
            let half = text_width(&mark.label, SMALL) / 2.0;
            if x - half >= end && x + half <= limit {
                canvas.text((x, bottom + LINE), Anchor::Middle, SMALL, &mark.label);
                end = x + half + GAP;
            }
        }
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

    /// The place of a point whose coordinates go from 0 to 1.
    pub fn at(&self, across: f64, up: f64) -> (f64, f64) {
        (
            self.left + across * self.width,
            self.top + (1.0 - up) * self.height,
        )
    }
}

fn named(marks: &[Mark]) -> impl Iterator<Item = &Mark> {
    marks.iter().filter(|mark| !mark.label.is_empty())
}

/// Width of the labels of an axis that goes up, with the space to the frame.
pub fn label_width(marks: &[Mark]) -> f64 {
    let widths = marks.iter().map(|mark| text_width(&mark.label, SMALL));
    widths.fold(0.0, f64::max) + GAP
}

/// The beginning of a text that is no wider than `width`.
pub fn shortened(text: &str, look: super::style::Type, width: f64) -> String {
    if text_width(text, look) <= width {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while !kept.is_empty() && text_width(&kept, look) + look.size > width {
        kept.pop();
    }
    kept + "…"
}
