//! One plot: frame, axes, title, and the legend beside it.

use super::axis::Mark;
use super::canvas::{Anchor, Canvas, Stroke};
use super::style::{
    BODY, EDGE, GRID, LEGEND_LEFT, MARGIN, PLOT_LEFT, PLOT_RIGHT, SMALL, SUBTITLE, WIDTH,
};

/// Where a plot is on its page.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    top: f64,
    height: f64,
}

/// What a plot says about itself.
pub struct Frame<'a> {
    pub title: &'a str,
    /// What is to the right.
    pub across: &'a str,
    /// What is above.
    pub up: &'a str,
    pub across_marks: Vec<Mark>,
    pub up_marks: Vec<Mark>,
    pub legend: Vec<Entry>,
}

/// One line of a legend.
pub struct Entry {
    pub sign: Sign,
    pub name: String,
    /// Figures, below the name.
    pub figures: String,
}

/// What stands for something in the plot.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    Line(Stroke),
    Published(&'static str),
}

const ENTRY: f64 = 32.0;
const LEAST_HEIGHT: f64 = 270.0;
/// Characters of a name in the legend.
const NAME: usize = 24;

impl Panel {
    /// Draws all but the data, below what is there.
    pub fn draw(canvas: &mut Canvas, frame: &Frame<'_>) -> Self {
        let top = canvas.top + 34.0;
        let height = LEAST_HEIGHT.max(ENTRY * frame.legend.len() as f64);
        let panel = Self { top, height };
        let bottom = top + height;
        canvas.text(
            (PLOT_LEFT, top - 12.0),
            Anchor::Start,
            SUBTITLE,
            frame.title,
        );
        for mark in &frame.across_marks {
            let x = panel.at(mark.place, 0.0).0;
            if mark.label.is_empty() {
                canvas.line((x, bottom), (x, bottom - 4.0), EDGE, 1.0);
            } else {
                canvas.line((x, top), (x, bottom), GRID, 1.0);
                canvas.text((x, bottom + 16.0), Anchor::Middle, SMALL, &mark.label);
            }
        }
        for mark in &frame.up_marks {
            let y = panel.at(0.0, mark.place).1;
            if mark.label.is_empty() {
                canvas.line((PLOT_LEFT, y), (PLOT_LEFT + 4.0, y), EDGE, 1.0);
            } else {
                canvas.line((PLOT_LEFT, y), (PLOT_RIGHT, y), GRID, 1.0);
                let at = (PLOT_LEFT - 6.0, y + 4.0);
                canvas.text(at, Anchor::End, SMALL, &mark.label);
            }
        }
        canvas.frame((PLOT_LEFT, top), (PLOT_RIGHT - PLOT_LEFT, height), EDGE);
        let middle = f64::midpoint(PLOT_LEFT, PLOT_RIGHT);
        canvas.text((middle, bottom + 34.0), Anchor::Middle, SMALL, frame.across);
        canvas.upright((MARGIN, top + height / 2.0), SMALL, frame.up);
        for (place, entry) in frame.legend.iter().enumerate() {
            panel.entry(canvas, place, entry);
        }
        canvas.top = bottom + 50.0;
        panel
    }

    fn entry(self, canvas: &mut Canvas, place: usize, entry: &Entry) {
        let y = self.top + 10.0 + ENTRY * place as f64;
        match entry.sign {
            Sign::Line(stroke) => {
                let (from, to) = (LEGEND_LEFT, LEGEND_LEFT + 34.0);
                canvas.path(&format!("M{from} {y}H{to}"), stroke);
            }
            Sign::Published(color) => canvas.diamond((LEGEND_LEFT + 17.0, y), color),
        }
        let left = LEGEND_LEFT + 42.0;
        canvas.text(
            (left, y + 4.0),
            Anchor::Start,
            BODY,
            &shortened(&entry.name),
        );
        canvas.text((left, y + 17.0), Anchor::Start, SMALL, &entry.figures);
    }

    /// The place of a point whose coordinates go from 0 to 1.
    pub fn at(&self, across: f64, up: f64) -> (f64, f64) {
        (
            PLOT_LEFT + across * (PLOT_RIGHT - PLOT_LEFT),
            self.top + (1.0 - up) * self.height,
        )
    }
}

/// A name that fits beside the plot.
fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    let kept: String = name.chars().take(NAME - 1).collect();
    kept + "…"
}

/// Texts on lines no longer than the page, parted between words.
pub fn paragraph(canvas: &mut Canvas, text: &str) {
    // Pixels of a character of 11 pixels, on average and with some room.
    const CHARACTER: f64 = 6.3;
    let length = ((WIDTH - 2.0 * MARGIN) / CHARACTER) as usize;
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > length {
            canvas.top += 15.0;
            canvas.text((MARGIN, canvas.top), Anchor::Start, SMALL, &line);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    canvas.top += 15.0;
    canvas.text((MARGIN, canvas.top), Anchor::Start, SMALL, &line);
}
