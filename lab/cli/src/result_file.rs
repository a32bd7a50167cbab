//! Reading back what `bursar-lab run -f json` wrote.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use bursar_experiments::document::{Document, SCHEMA};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use bursar_term::failure::Failure;

/// A result file: its name, for messages, and its documents.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    /// One document for each experiment and point.
    pub documents: Vec<Document>,
}

/// The documents of a file.
pub fn read(path: &Path) -> Result<Source, Failure> {
    let name = path.display().to_string();
    let text = fs::read(path).map_err(|error| {
        let message = format!("cannot read {name}: {error}");
        match error.kind() {
            ErrorKind::PermissionDenied => Failure::unavailable(message),
            _ => Failure::usage(message),
        }
    })?;
    parse(name, &text)
}

/// The documents of a file's contents.
pub fn parse(name: String, text: &[u8]) -> Result<Source, Failure> {
    let refused = |problem: String| Failure::usage(format!("{name}: {problem}"));
    let values: Vec<Value> = one_or_several(text).map_err(refused)?;
    if values.is_empty() {
        return Err(refused("holds no result".to_owned()));
    }
    for value in values {
        check_version(&value).map_err(refused)?;
        if let Some(text) = unprintable(&value) {
            let text: String = text.chars().take(60).collect();
            return Err(refused(foreign(&format!("it has the text {text:?}"))));
        }
    }
    let documents: Vec<Document> = one_or_several(text).map_err(refused)?;
    for document in &documents {
        document
            .check()
            .map_err(|problem| refused(foreign(&problem)))?;
    }
    Ok(Source { name, documents })
}

/// A text of the document that a terminal might obey instead of showing it.
fn unprintable(value: &Value) -> Option<&str> {
    let obeyed = |text: &&str| {
        let mut letters = text.chars();
        letters.any(|it| !matches!(it, '"' | '\'' | '\\') && it.escape_debug().len() > 1)
    };
    match value {
        Value::String(text) => Some(text.as_str()).filter(obeyed),
        Value::Array(values) => values.iter().find_map(unprintable),
        Value::Object(values) => {
            let key = values.keys().map(String::as_str).find(obeyed);
            key.or_else(|| values.values().find_map(unprintable))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn check_version(document: &Value) -> Result<(), String> {
    match document.get("schema") {
        None => Err(foreign("it has no key `schema`")),
        Some(schema) if *schema == SCHEMA => Ok(()),
        Some(other) => Err(format!(
            "is of schema {other}, and this program reads schema {SCHEMA}"
        )),
    }
}

/// A document, or a list of them.
fn one_or_several<T: DeserializeOwned>(text: &[u8]) -> Result<Vec<T>, String> {
    if text.trim_ascii().is_empty() {
        return Err("is empty".to_owned());
    }
    let is_list = text.trim_ascii_start().starts_with(b"[");
    let read = if is_list {
        serde_json::from_slice(text)
    } else {
        serde_json::from_slice(text).map(|one| vec![one])
    };
    // A text that ends after the sign of a number is no end of input to the parser.
    let ends_in_sign = text.ends_with(b"-") || text.ends_with(b"e") || text.ends_with(b"E");
    read.map_err(|error: serde_json::Error| match error.classify() {
        category if category == Category::Eof || category == Category::Syntax && ends_in_sign => {
            format!(
                "is truncated: it ends in the middle, at line {}, column {}",
                error.line(),
                error.column()
            )
        }
        Category::Eof | Category::Syntax => format!("is not JSON: {error}"),
        Category::Data | Category::Io => foreign(&error.to_string()),
    })
}

fn foreign(problem: &str) -> String {
    format!("is not a result of `bursar-lab run -f json`: {problem}")
}
