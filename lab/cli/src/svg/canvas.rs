//! Shapes and texts as SVG, from the top of a page to its bottom.
//!
//! Nothing here names a font file, a style sheet or another document, and there are no identifiers, so that several pictures
//! may stand on one page.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

use super::style::{FONTS, INK, PAPER, Sheet, Stroke, Type};

/// A page under construction.
pub struct Canvas {
    writer: Writer<Vec<u8>>,
    pub sheet: Sheet,
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

impl Canvas {
    /// An empty page.
    pub fn new(sheet: Sheet) -> Self {
        Self {
            writer: Writer::new(Vec::new()),
            sheet,
            top: 0.0,
        }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, width: f64) {
        self.shape(
            "line",
            &[
                ("x1", &px(from.0)),
                ("y1", &px(from.1)),
                ("x2", &px(to.0)),
                ("y2", &px(to.1)),
                ("stroke", color),
                ("stroke-width", &px(width)),
            ],
        );
    }

    /// A line by its commands, as a variant's.
    pub fn path(&mut self, commands: &str, stroke: Stroke) {
        let width = px(stroke.width);
        let mut attributes = vec![
            ("d", commands),
            ("fill", "none"),
            ("stroke", stroke.color),
            ("stroke-width", &width),
            ("stroke-linejoin", "round"),
        ];
        if !stroke.dash.is_empty() {
            attributes.push(("stroke-dasharray", stroke.dash));
        }
        self.shape("path", &attributes);
    }

    /// A filled point.
    pub fn dot(&mut self, (x, y): (f64, f64), color: &str) {
        let attributes = [("cx", &*px(x)), ("cy", &px(y)), ("r", "3"), ("fill", color)];
        self.shape("circle", &attributes);
    }

    /// Many small points, as one element.
    pub fn specks(&mut self, points: impl Iterator<Item = (f64, f64)>, color: &str) {
        let commands: String = points
            .map(|(x, y)| format!("M{} {}h0", px(x), px(y)))
            .collect();
        if commands.is_empty() {
            return;
        }
        let attributes = [
            ("d", &*commands),
            ("fill", "none"),
            ("stroke", color),
            ("stroke-width", "2.4"),
            ("stroke-linecap", "round"),
        ];
        self.shape("path", &attributes);
    }

    /// A hollow diamond, which no line has.
    pub fn diamond(&mut self, (x, y): (f64, f64), color: &str) {
        const HALF: f64 = 5.5;
        let [left, right] = [x - HALF, x + HALF].map(px);
        let [above, below] = [y - HALF, y + HALF].map(px);
        let [x, y] = [x, y].map(px);
        let commands = format!("M{x} {above}L{right} {y}L{x} {below}L{left} {y}Z");
        self.shape(
            "path",
            &[
                ("d", &commands),
                ("fill", PAPER),
                ("stroke", color),
                ("stroke-width", "2"),
            ],
        );
    }

    /// An outline.
    pub fn frame(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
        self.shape(
            "rect",
            &[
                ("x", &px(x)),
                ("y", &px(y)),
                ("width", &px(width)),
                ("height", &px(height)),
                ("fill", "none"),
                ("stroke", color),
            ],
        );
    }

    /// A filled rectangle.
    pub fn block(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
        self.shape(
            "rect",
            &[
                ("x", &px(x)),
                ("y", &px(y)),
                ("width", &px(width)),
                ("height", &px(height)),
                ("fill", color),
            ],
        );
    }

    /// A text on one line.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, look: Type, text: &str) {
        let (x, y, size) = (px(x), px(y), px(look.size));
        let mut attributes = vec![("x", &*x), ("y", &y), ("font-size", &size)];
        match anchor {
            Anchor::Start => {}
            Anchor::Middle => attributes.push(("text-anchor", "middle")),
            Anchor::End => attributes.push(("text-anchor", "end")),
        }
        if look.bold {
            attributes.push(("font-weight", "bold"));
        }
        attributes.push(("fill", look.color));
        self.named("text", &attributes, text);
    }

    fn shape(&mut self, name: &str, attributes: &[(&str, &str)]) {
        let start = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.write(Event::Empty(start));
        self.write(Event::Text(BytesText::new("\n")));
    }

    fn named(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        let start = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.write(Event::Start(start));
        self.write(Event::Text(BytesText::new(text)));
        self.write(Event::End(BytesEnd::new(name)));
        self.write(Event::Text(BytesText::new("\n")));
    }

    fn write(&mut self, event: Event<'_>) {
        self.writer
            .write_event(event)
            .expect("memory takes what is written");
    }

    /// The whole document, as high as what is on it.
    pub fn finish(self, title: &str) -> String {
        let (width, height) = (px(self.sheet.width), px(self.top));
        let mut whole = Self::new(self.sheet);
        let attributes = [
            ("xmlns", "http://www.w3.org/2000/svg"),
            ("width", &*width),
            ("height", &height),
            ("viewBox", &format!("0 0 {width} {height}")),
            ("role", "img"),
            ("font-family", FONTS),
            ("fill", INK),
        ];
        whole.write(Event::Start(
            BytesStart::new("svg").with_attributes(attributes),
        ));
        whole.named("title", &[], title);
        let paper = [("width", "100%"), ("height", "100%"), ("fill", PAPER)];
        whole.shape("rect", &paper);
        whole.writer.get_mut().extend(self.writer.into_inner());
        whole.write(Event::End(BytesEnd::new("svg")));
        whole.write(Event::Text(BytesText::new("\n")));
        let written = whole.writer.into_inner();
        bursar_term::page::legal(String::from_utf8(written).expect("only text is written"))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short() {
        assert_eq!([0.04, -0.04, 1.25, 300.0].map(px), ["0", "0", "1.3", "300"]);
    }
}
