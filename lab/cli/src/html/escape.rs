//! Text as a part of a page.

use minijinja::HtmlEscape;

/// A text in which no letter is markup.
pub fn escaped(text: &str) -> String {
    HtmlEscape(text).to_string()
}
