//! Statements that are about the session, and that the engine does not see: settings and transactions.

use std::time::Duration;

/// Settings that clients make and that this server has no use for. They are kept for `SHOW`.
const KEPT: [&str; 13] = [
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "datestyle",
    "default_transaction_read_only",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "search_path",
    "standard_conforming_strings",
    "timezone",
];

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Begin,
    Commit,
    Rollback,
    /// A setting and its value.
    Set(String, String),
    Timeout(Option<Duration>),
    Show(String),
    /// A prepared statement; all without a name.
    Deallocate(Option<String>),
    /// The value stays: this server has no use for it.
    Reset,
}

/// The command that a statement is; `None` for one of the engine. The error has a SQLSTATE and a text.
pub fn parse(text: &str) -> Option<Result<Command, (&'static str, String)>> {
    let spaced = text.trim().trim_end_matches(';').replacen('=', " = ", 1);
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let lower: Vec<String> = words
        .iter()
        .take(4)
        .map(|word| word.to_lowercase())
        .collect();
    let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
    Some(Ok(match lower[..] {
        ["begin", ..] | ["start", "transaction", ..] => Command::Begin,
        ["commit" | "end", ..] => Command::Commit,
        ["rollback" | "abort", ..] => Command::Rollback,
        ["discard", ..] => Command::Deallocate(None),
        ["reset", name] if name == "all" || KEPT.contains(&name) => Command::Reset,
        ["reset", "statement_timeout"] => Command::Timeout(None),
        ["deallocate", "all"] | ["deallocate", "prepare", "all"] => Command::Deallocate(None),
        ["deallocate", "prepare", _] => Command::Deallocate(Some(words[2].to_owned())),
        ["deallocate", _] => Command::Deallocate(Some(words[1].to_owned())),
        ["show", "transaction", "isolation", "level"] => {
            Command::Show("transaction_isolation".into())
        }
        ["show", "time", "zone"] => Command::Show("timezone".into()),
        ["show", name] if !name.contains('.') && name != "all" => Command::Show(name.to_owned()),
        ["set", "time", "zone", ..] => Command::Set("timezone".into(), value(&words[3..])),
        ["set", "transaction", ..] | ["set", "session", "characteristics", ..] => {
            Command::Set("transaction".into(), value(&words[2..]))
        }
        ["set", "session" | "local", name, ..] => return set(name, &words[3..]),
        ["set", name, ..] => return set(name, &words[2..]),
        _ => return None,
    }))
}

fn value(words: &[&str]) -> String {
    words.join(" ").trim_matches(['\'', '"']).to_owned()
}

fn set(name: &str, words: &[&str]) -> Option<Result<Command, (&'static str, String)>> {
    // The engine's options: it has its own rules for them.
    if name.contains('.') {
        return None;
    }
    let value = match words {
        ["=", rest @ ..] => value(rest),
        [to, rest @ ..] if to.eq_ignore_ascii_case("to") => value(rest),
        _ => return Some(Err(("42601", format!("SET {name} needs TO and a value")))),
    };
    Some(match name {
        "statement_timeout" => timeout(&value).map(Command::Timeout),
        _ if KEPT.contains(&name) => Ok(Command::Set(name.to_owned(), value)),
        _ => Err((
            "42704",
            format!("unrecognized configuration parameter \"{name}\""),
        )),
    })
}

/// A time in milliseconds, or with a unit. 0 is none.
fn timeout(text: &str) -> Result<Option<Duration>, (&'static str, String)> {
    let digits = text
        .trim_end_matches(|letter: char| letter.is_ascii_alphabetic())
        .trim_end();
    let milliseconds = match text[digits.len()..].trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let bad = || {
        (
            "22023",
            format!(
                "invalid value for parameter \"statement_timeout\": \"{text}\": write for example 500ms, 5s or 1min"
            ),
        )
    };
    let number: u64 = if text == "default" {
        0
    } else {
        digits.parse().map_err(|_| bad())?
    };
    if milliseconds == 0 || number > u64::from(u32::MAX) {
        return Err(bad());
    }
    Ok((number > 0).then(|| Duration::from_millis(number * milliseconds)))
}

/// Splits a text at the semicolons that end statements. Empty statements are left out.
pub fn statements(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut found, mut from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let rest = &text[at..];
        // The end of what may have a semicolon inside, from its beginning.
        let length = match bytes[at] {
            b';' => {
                found.push(&text[from..at]);
                from = at + 1;
                1
            }
            quote @ (b'\'' | b'"') => past(rest, 1, &char::from(quote).to_string()),
            b'-' if rest.starts_with("--") => past(rest, 2, "\n"),
            b'/' if rest.starts_with("/*") => past(rest, 2, "*/"),
            b'$' => {
                let is_tag = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
                let tag = bytes[at + 1..].iter().position(|byte| !is_tag(*byte));
                match tag.filter(|tag| bytes[at + 1 + tag] == b'$') {
                    Some(tag) => past(rest, tag + 2, &rest[..tag + 2]),
                    None => 1,
                }
            }
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        at += length;
    }
    found.push(&text[from.min(text.len())..]);
    found.retain(|statement| !statement.trim().is_empty());
    found
}

/// The length of `text` up to the end of the first `end` from `from` on.
fn past(text: &str, from: usize, end: &str) -> usize {
    text[from..]
        .find(end)
        .map_or(text.len(), |at| from + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_where_statements_end() {
        let text =
            "SELECT ';'; -- a;\nSELECT \";\" /* ; */;; SELECT $$;$$, $a$;$$;$a$, $1; ä; 'open;";
        let expected = [
            "SELECT ';'",
            " -- a;\nSELECT \";\" /* ; */",
            " SELECT $$;$$, $a$;$$;$a$, $1",
            " ä",
            " 'open;",
        ];
        assert_eq!(statements(text), expected);
        assert!(statements(" ;; \n;").is_empty());
        assert_eq!(statements("$"), ["$"]);
    }

    #[test]
    fn commands_are_known() {
        let of = |text: &str| parse(text).map(|parsed| parsed.map_err(|(code, _)| code));
        let timeout = |ms| Some(Ok(Command::Timeout(Some(Duration::from_millis(ms)))));
        assert_eq!(of("SET statement_timeout = '5s';"), timeout(5000));
        assert_eq!(of("set session statement_timeout to 250"), timeout(250));
        assert_eq!(of("SET statement_timeout=1min"), timeout(60_000));
        assert_eq!(
            of("SET statement_timeout TO 0"),
            Some(Ok(Command::Timeout(None)))
        );
        for bad in ["soon", "-1", "5 years", "99999999999"] {
            let text = format!("SET statement_timeout = '{bad}'");
            assert_eq!(of(&text), Some(Err("22023")), "{bad}");
        }
        assert_eq!(of("SET work_mem = '1GB'"), Some(Err("42704")));
        assert_eq!(of("SET datafusion.execution.batch_size = 1"), None);
        assert_eq!(of("BEGIN"), Some(Ok(Command::Begin)));
        assert_eq!(of("END;"), Some(Ok(Command::Commit)));
        assert_eq!(of("DEALLOCATE ALL"), Some(Ok(Command::Deallocate(None))));
        assert_eq!(of("SELECT 1 = 1"), None);
    }
}
