//! Pages of HTML: one file that needs no network, no script and no other file.

use crate::escape::escaped;

/// The head of every page, with its style: a part of a template, with `{{ title }}`, and `{{ dark|safe }}` for rules of style in the dark.
pub const HEAD: &str = include_str!("head.html");

/// A page with this body, which is HTML.
pub fn of_text(title: &str, body: &str) -> String {
    let page = include_str!("text.html")
        .replace("{{ head }}", HEAD.trim_end())
        .replace("{{ dark|safe }}", "")
        .replace("{{ title }}", &escaped(title))
        .replace("{{ body|safe }}", body);
    legal(page)
}

/// Without the characters that no XML document may have, however they are written.
pub fn legal(text: String) -> String {
    let illegal = |c: char| {
        (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    if text.contains(illegal) {
        return text.replace(illegal, "\u{fffd}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_have_is_replaced() {
        assert_eq!(
            legal("a\u{0}b\u{1b}[31m\tc".to_owned()),
            "a\u{fffd}b\u{fffd}[31m\tc"
        );
    }
}
