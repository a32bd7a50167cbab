//! Documents as JSON and as lines of fields.

use std::fmt::Display;

use serde::Serialize;

use crate::failure::Failure;

/// An indented JSON document.
pub fn json(document: &impl Serialize) -> Result<String, Failure> {
    let written = serde_json::to_string_pretty(document).map_err(Failure::unavailable)?;
    Ok(written + "\n")
}

/// A JSON document on one line.
pub fn json_line(document: &impl Serialize) -> Result<String, Failure> {
    let written = serde_json::to_string(document).map_err(Failure::unavailable)?;
    Ok(written + "\n")
}

/// Adds a line of these fields.
pub fn csv_line(lines: &mut String, fields: &[&dyn Display]) {
    let fields: Vec<_> = fields
        .iter()
        .map(|field| csv_field(&field.to_string()))
        .collect();
    lines.push_str(&fields.join(","));
    lines.push('\n');
}

/// A field as RFC 4180 wants it.
pub fn csv_field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::csv_field;

    #[test]
    fn fields_with_separators_are_quoted() {
        assert_eq!(csv_field("plain"), "plain");
        assert_eq!(csv_field("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
