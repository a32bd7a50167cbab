//! Bound on the parser's readings of a text.
//!
//! DataFusion's parser tries several readings of some constructs, one after the other, and so reads twice or more what is inside them.
//! Inside each other they take time that doubles with each level. So the readings of each token are estimated before the text is parsed.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Words with a syntax of their own, which the parser reads as a name if that fails. `[` or `(` follows.
const SPECIAL: [Keyword; 34] = [
    Keyword::ARRAY,
    Keyword::BOX,
    Keyword::CASE,
    Keyword::CAST,
    Keyword::CEIL,
    Keyword::CIRCLE,
    Keyword::CONVERT,
    Keyword::CURRENT_DATE,
    Keyword::CURRENT_TIME,
    Keyword::CURRENT_TIMESTAMP,
    Keyword::EXISTS,
    Keyword::EXTRACT,
    Keyword::FLOOR,
    Keyword::INTERVAL,
    Keyword::LAMBDA,
    Keyword::LINE,
    Keyword::LOCALTIME,
    Keyword::LOCALTIMESTAMP,
    Keyword::LSEG,
    Keyword::MAP,
    Keyword::MATCH,
    Keyword::NOT,
    Keyword::OVERLAY,
    Keyword::PATH,
    Keyword::POINT,
    Keyword::POLYGON,
    Keyword::POSITION,
    Keyword::SAFE_CAST,
    Keyword::STRUCT,
    Keyword::SUBSTR,
    Keyword::SUBSTRING,
    Keyword::TRIM,
    Keyword::TRY_CAST,
    Keyword::TRY_CONVERT,
];

/// A bracket or `CASE` that is open.
struct Open {
    /// Readings of what follows its end.
    outside: u64,
    /// Readings of what follows a comma inside.
    inside: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bracket,
    /// A bracket where a table may be.
    Table,
    /// `CASE`, where another may be read as a name: then the next `WHEN` belongs to the first.
    Case,
    /// `CASE` after `WHEN` or `ELSE`.
    PlainCase,
}

/// Sums the readings of all tokens: an estimate, from how long sqlparser 0.62 took for each construct below when it was nested. A construct
/// that was not measured counts as read once.
pub(super) fn readings(tokens: &[TokenWithSpan], dialect: &dyn Dialect) -> u64 {
    // The name of an argument may be an expression, so each argument is read once more.
    let has_named = dialect.supports_named_fn_args_with_expr_name()
        || dialect.supports_named_fn_args_with_eq_operator();
    let of_call = 1 + u64::from(has_named);
    let mut open: Vec<Open> = Vec::new();
    let (mut now, mut sum) = (1_u64, 0_u64);
    let mut last = &Token::EOF;
    for token in tokens.iter().map(|token| &token.token) {
        let (after, mut kind) = match last {
            Token::Word(word) => (word.keyword, Kind::Bracket),
            _ => (Keyword::NoKeyword, Kind::Bracket),
        };
        let top = open.last().map(|open| open.kind);
        match token {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket | Token::LBrace => {
                let is_in_table = *last == Token::LParen && top == Some(Kind::Table);
                let times = match last {
                    Token::Word(_) if after == Keyword::POSITION => 1 + 2 * of_call,
                    Token::Word(_) if SPECIAL.contains(&after) => 2 * of_call,
                    Token::Word(_) => of_call,
                    _ => 1 + u64::from(is_in_table),
                };
                let is_table =
                    [Keyword::APPLY, Keyword::FROM, Keyword::JOIN, Keyword::USING].contains(&after);
                if is_table || is_in_table || *last == Token::Comma {
                    kind = Kind::Table;
                }
                let outside = now;
                now = now.saturating_mul(times);
                open.push(Open {
                    outside,
                    inside: now,
                    kind,
                });
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                while let Some(closed) = open.pop() {
                    now = closed.outside;
                    if matches!(closed.kind, Kind::Bracket | Kind::Table) {
                        break;
                    }
                }
            }
            Token::Comma => now = open.last().map_or(1, |open| open.inside),
            Token::Arrow if *last == Token::RParen => now = now.saturating_mul(2),
            Token::Assignment => now = now.saturating_mul(2),
            Token::Word(word) => match (word.keyword, top) {
                (Keyword::INTERVAL, _) => now = now.saturating_mul(2),
                (Keyword::CASE, _) => {
                    let outside = now;
                    now = now.saturating_mul(1 + u64::from(top == Some(Kind::Case)));
                    open.push(Open {
                        outside,
                        inside: now,
                        kind: Kind::Case,
                    });
                }
                (
                    Keyword::WHEN | Keyword::ELSE | Keyword::THEN,
                    Some(Kind::Case | Kind::PlainCase),
                ) => {
                    if let Some(case) = open.last_mut() {
                        case.kind = match word.keyword {
                            Keyword::THEN => Kind::Case,
                            _ => Kind::PlainCase,
                        };
                    }
                }
                // Elsewhere it may be a name.
                (Keyword::END, Some(Kind::Case | Kind::PlainCase)) if ends_value(last) => {
                    now = open.pop().map_or(1, |case| case.outside);
                }
                _ => {}
            },
            _ => {}
        }
        sum = sum.saturating_add(now);
        last = token;
    }
    sum
}

/// Whether a token ends a value, so that no name can follow.
fn ends_value(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::NoKeyword | Keyword::NULL | Keyword::TRUE | Keyword::FALSE | Keyword::END
        ),
        Token::Number(..) | Token::SingleQuotedString(_) => true,
        Token::RParen | Token::RBracket | Token::RBrace => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::dialect_from_str;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn of(text: &str, dialect: &str) -> u64 {
        let dialect = dialect_from_str(dialect).unwrap();
        let tokens = Tokenizer::new(dialect.as_ref(), text).tokenize_with_location();
        readings(&tokens.unwrap(), dialect.as_ref())
    }

    #[test]
    fn what_is_read_again_doubles() {
        let double = [
            "CAST(",
            "POSITION(",
            "NOT (",
            "CASE(",
            "CASE WHEN a THEN ",
            "ARRAY[",
            "INTERVAL ",
            "(x) -> ",
            "f(a := ",
            "a + CURRENT_DATE(",
            "CASE WHEN a THEN b + ",
        ];
        for open in double {
            for dialect in ["generic", "mysql", "postgresql", "duckdb", "bigquery"] {
                let [fewer, more] = [20, 21].map(|n| of(&open.repeat(n), dialect));
                assert!(
                    more >= 2 * fewer - 1 && fewer > 1 << 20,
                    "{open}, {dialect}"
                );
            }
        }
        assert!(of(&"f(".repeat(20), "postgresql") > 1 << 20);
        assert!(
            of(
                &("SELECT * FROM ".to_owned() + &"((SELECT * FROM ".repeat(20)),
                "generic"
            ) > 1 << 20
        );
    }

    #[test]
    fn what_is_read_once_does_not() {
        let calls = "abs(".repeat(30) + "1" + &")".repeat(30);
        let lists = "a IN (CAST(1 AS int), 2) AND NOT (b) OR ".repeat(500) + "c";
        let sums = "CASE WHEN a THEN 1 ELSE 0 END + ".repeat(500) + "1";
        let elses = "CASE WHEN a THEN 1 ELSE ".repeat(30) + "0" + &" END".repeat(30);
        for text in [calls, lists, sums, elses] {
            let once = of(&text.replace(['(', ')'], "+"), "generic");
            assert!(of(&text, "generic") <= 3 * once, "{text}");
        }
    }
}
