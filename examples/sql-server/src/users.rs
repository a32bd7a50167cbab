//! The file of users: a user is a tenant. A mistake names its line and column, and what to write.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::Spanned;

/// Settings of one user.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub password: String,
    /// Limit of all queries of the user together; the server's limit unless set.
    #[serde(default = "unlimited", deserialize_with = "size")]
    pub max: u64,
    /// Bytes that reclaim leaves to the user.
    #[serde(default, deserialize_with = "size")]
    pub min: u64,
    /// Most bytes of the user's spill files.
    #[serde(default = "unlimited", deserialize_with = "size")]
    pub spill: u64,
    /// Score of the user's queries: a point is worth a second of waiting.
    #[serde(default)]
    pub score: i32,
    /// Queries that run or wait for memory at a time. The others wait for their turn.
    #[serde(default = "four", deserialize_with = "count")]
    pub queries: u32,
    /// Whether the user sees all groups.
    #[serde(default)]
    pub admin: bool,
}

/// Users by name.
pub type Users = BTreeMap<String, Settings>;

/// Reads the file. Nothing of a file with a mistake is used.
pub fn read(path: &Path) -> Result<Users, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{shown}: {error}: name a file with --users"))?;
    parse(&text).map_err(|error| format!("{shown}: {error}"))
}

pub fn parse(text: &str) -> Result<Users, String> {
    let users: BTreeMap<Spanned<String>, Settings> = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        mistake(text, at, error.message())
    })?;
    for (name, settings) in &users {
        let at = || name.span().start;
        let name = name.get_ref();
        let is_name =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        if name.is_empty() || name.len() > 63 || !name.chars().all(is_name) {
            return Err(mistake(
                text,
                at(),
                "a user's name has 1 to 63 letters, digits, _ and -",
            ));
        }
        if settings.min > settings.max {
            let (min, max) = (settings.min, settings.max);
            let what = format!(
                "`min` of {name} is {min} bytes and `max` {max}: `min` must not exceed `max`"
            );
            return Err(mistake(text, at(), &what));
        }
    }
    match users.is_empty() {
        true => Err(mistake(
            text,
            0,
            "no user: write `[acme]` and `password = \"...\"` below it",
        )),
        false => Ok(users
            .into_iter()
            .map(|(name, settings)| (name.into_inner(), settings))
            .collect()),
    }
}

fn mistake(text: &str, at: usize, what: &str) -> String {
    let ends_a_character = |at: &usize| text.is_char_boundary(*at);
    let at = (0..=at.min(text.len())).rev().find(ends_a_character);
    let before = &text[..at.unwrap_or(0)];
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |line| line.chars().count())
        + 1;
    // It may quote the file, which must not write to the terminal of its reader.
    let what = bursar::printable(what);
    format!("line {line}, column {column}: {what}")
}

fn unlimited() -> u64 {
    u64::MAX
}

fn four() -> u32 {
    4
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(de::Error::custom(
            "0 queries at a time would never run: write 1 or more",
        )),
        queries => Ok(queries),
    }
}

/// A number of bytes, or text such as `"256MiB"`.
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes, such as 1048576 or \"256MiB\"")
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
            u64::try_from(bytes).map_err(|_| E::custom("bytes must not be negative"))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            bytes(text).map_err(E::custom)
        }
    }
    from.deserialize_any(Size)
}

/// Bytes of a text such as `256MiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text
        .trim()
        .trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text.trim()[digits.len()..].to_ascii_lowercase();
    let shift = match &*unit {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(format!("`{unit}` is no unit: write KiB, MiB, GiB or TiB")),
    };
    let number: u64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is no number of bytes: write for example 256MiB"))?;
    let most = || format!("`{text}` is more than 2^56 bytes");
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= 1 << 56)
        .ok_or_else(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read() {
        let text = "[acme]\npassword = 'a'\nmax = '1GiB'\nmin = 1048576\nscore = -3\nqueries = 2\n\
                    [root]\npassword = 'r'\nadmin = true\n";
        let users = parse(text).unwrap();
        let acme = &users["acme"];
        assert_eq!(
            (acme.max, acme.min, acme.score, acme.queries),
            (1 << 30, 1 << 20, -3, 2)
        );
        assert!(users["root"].admin && users["root"].max == u64::MAX);
    }

    #[test]
    fn mistakes_have_a_line_a_column_and_advice() {
        for (text, said) in [
            (
                "[acme]\npassword = 'a'\nmaxx = 1\n",
                "line 3, column 1: unknown field `maxx`, expected one of",
            ),
            (
                "[acme]\npassword = 'a'\nmax = '12 parsecs'\n",
                "line 3, column 7: `parsecs` is no unit: write KiB",
            ),
            (
                "[acme]\npassword = 'a'\nmax = 'GiB'\n",
                "line 3, column 7: `GiB` is no number of bytes",
            ),
            (
                "[acme]\npassword = 'a'\nmax = \"\\e[2\\n\"\n",
                "line 3, column 7: `\\u{1b}[2\\n` is no number of bytes",
            ),
            (
                "[acme]\npassword = 'a'\nmin = -1\n",
                "line 3, column 7: bytes must not be negative",
            ),
            (
                "[acme]\npassword = 'a'\nmin = true\n",
                "line 3, column 7: invalid type: boolean `true`, expected bytes, such as",
            ),
            (
                "[acme]\npassword = 'a'\nqueries = 0\n",
                "line 3, column 11: 0 queries at a time",
            ),
            (
                "[acme]\nmax = 1\n",
                "line 1, column 1: missing field `password`",
            ),
            (
                "[acme]\npassword = 'a'\nmin = 2\nmax = 1\n",
                "line 1, column 2: `min` of acme is 2 bytes and `max` 1",
            ),
            (
                "# acme\n[acme]\npassword = 'a'\nmin = 2\nmax = 1\n",
                "line 2, column 2: `min` of acme is 2 bytes and `max` 1",
            ),
            (
                "['a b']\npassword = 'a'\n",
                "line 1, column 2: a user's name has 1 to 63",
            ),
            ("[acme\n", "line 1, column 6: "),
            ("", "line 1, column 1: no user: write `[acme]`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(said), "{text:?}: {error}");
        }
    }
}
