//! Users' files of the SQL server.

use std::fmt::Write;

use crate::common::{assert_harmless, text};
use crate::users::{Users, parse};

pub(super) fn run(input: &[u8]) {
    let Some(text) = text(input) else {
        return;
    };
    match parse(text) {
        Ok(users) => {
            assert!(!users.is_empty());
            assert!(users.values().all(|it| it.min <= it.max && it.queries > 0));
            assert_eq!(parse(&print(&users)).as_ref(), Ok(&users));
        }
        Err(error) => check_place(text, &error),
    }
}

fn print(users: &Users) -> String {
    let mut text = String::new();
    for (name, it) in users {
        let password = toml::Value::from(it.password.as_str());
        let _ = writeln!(
            text,
            "[{name}]\npassword = {password}\nscore = {}\nqueries = {}\nadmin = {}\nmin = {}",
            it.score, it.queries, it.admin, it.min
        );
        for (key, bytes) in [("max", it.max), ("spill", it.spill)] {
            if bytes != u64::MAX {
                let _ = writeln!(text, "{key} = {bytes}");
            }
        }
    }
    text
}

/// Checks that an error names a place of the text.
fn check_place(text: &str, error: &str) {
    let place = error.strip_prefix("line ").and_then(|rest| {
        let (line, rest) = rest.split_once(", column ")?;
        let (column, what) = rest.split_once(": ")?;
        Some((line.parse().ok()?, column.parse().ok()?, what))
    });
    let (line, column, what): (usize, usize, _) = place.expect("a line and a column");
    let line = text.split('\n').nth(line - 1).expect("a line of the text");
    assert!(column <= line.chars().count() + 1, "{error}");
    assert!(!what.contains('\n'), "{error}");
    assert_harmless(what);
}
