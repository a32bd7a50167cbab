//! Text as a part of a page.

/// A sentence in which only `code` is markup.
pub fn sentence(text: &str) -> String {
    let text = escaped(text);
    let mut parts = text.split('`');
    let mut sentence = parts.next().unwrap_or_default().to_owned();
    while let Some(code) = parts.next() {
        match parts.next() {
            Some(rest) => sentence += &format!("<code>{code}</code>{rest}"),
            None => sentence += &format!("`{code}"),
        }
    }
    sentence
}

/// A text in which no letter is markup.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#x27;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn code_is_marked_and_nothing_else() {
        let marked = "Run <code>a &lt;b&gt;</code> or <code>c</code>.";
        assert_eq!(sentence("Run `a <b>` or `c`."), marked);
        assert_eq!(sentence("`a` b `c"), "<code>a</code> b `c");
        assert_eq!(sentence("plain"), "plain");
    }
}
