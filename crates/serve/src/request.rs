//! The head of a request, parsed.

use std::borrow::Cow;

use bursar::printable;
use percent_encoding::percent_decode_str;

/// Bytes of a request's head that are read at most.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
/// Headers of a request at most.
const HEADERS_MAX: usize = 64;
/// Characters of a request's text that an error repeats.
const QUOTED_MAX: usize = 80;

/// A request that is refused: status, and one line that says why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) reason: String,
}

impl Refusal {
    pub(crate) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
        }
    }
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    HeadTooLarge,
    Unavailable,
}

impl Status {
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::BadRequest => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::HeadTooLarge => 431,
            Self::Unavailable => 503,
        }
    }

    /// Number and reason, as in the first line of an answer.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// A request of the two methods that are served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Whether only the head of the answer is wanted.
    pub(crate) head_only: bool,
    /// Path, still percent-encoded.
    pub(crate) path: String,
    /// Keys and values, decoded, in the request's order.
    pub(crate) query: Vec<(String, String)>,
}

/// Parses what has arrived of a request. `None` if its head is not complete.
///
/// # Errors
/// The refusal of a request that cannot be served, as soon as that is known.
pub(crate) fn parse(arrived: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(arrived) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if arrived.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => {
            return Err(Refusal::new(
                Status::HeadTooLarge,
                format!("the head of a request has at most {HEAD_BYTES_MAX} bytes"),
            ));
        }
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::new(
                Status::HeadTooLarge,
                format!("a request has at most {HEADERS_MAX} headers"),
            ));
        }
        Err(error) => {
            return Err(Refusal::new(
                Status::BadRequest,
                format!("this is no HTTP/1.1 request: {error}"),
            ));
        }
    }
    // The parser has seen the whole first line.
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
        return Err(Refusal::new(
            Status::BadRequest,
            "the request has no target",
        ));
    };
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => {
            return Err(Refusal::new(
                Status::MethodNotAllowed,
                format!("{} is not allowed: use GET or HEAD", quoted(method)),
            ));
        }
    };
    let has_body = |header: &&httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || header.name.eq_ignore_ascii_case("content-length") && header.value != b"0"
    };
    if let Some(header) = parsed.headers.iter().find(has_body) {
        return Err(Refusal::new(
            Status::BadRequest,
            format!("a request has no body: remove the header {}", header.name),
        ));
    }
    parse_target(target, head_only).map(Some)
}

/// Parses the target of a request: its path and its query.
///
/// # Errors
/// The refusal of a target that cannot be served.
pub(crate) fn parse_target(target: &str, head_only: bool) -> Result<Request, Refusal> {
    if !target.starts_with('/') {
        return Err(Refusal::new(
            Status::BadRequest,
            format!("a target begins with '/': {}", quoted(target)),
        ));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(key)?.into_owned(), decode(value)?.into_owned()))
    });
    Ok(Request {
        head_only,
        path: path.to_owned(),
        query: query.collect::<Result<_, Refusal>>()?,
    })
}

/// Decodes one part of a path or a query.
///
/// # Errors
/// A `%` without two hexadecimal digits, or bytes that are not UTF-8, as names of groups are.
pub(crate) fn decode(encoded: &str) -> Result<Cow<'_, str>, Refusal> {
    let is_code = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !encoded.split('%').skip(1).all(is_code) {
        return Err(Refusal::new(
            Status::BadRequest,
            format!(
                "a '%' comes before two hexadecimal digits ('%25' is the character itself): {}",
                quoted(encoded)
            ),
        ));
    }
    percent_decode_str(encoded).decode_utf8().map_err(|_| {
        Refusal::new(
            Status::BadRequest,
            format!("this does not decode to UTF-8: {}", quoted(encoded)),
        )
    })
}

/// A text of the request as errors repeat it: on one line, harmless in a terminal, not long.
pub(crate) fn quoted(text: &str) -> String {
    let shown = printable(text);
    match shown.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("'{}'..", &shown[..end]),
        None => format!("'{shown}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// splitmix64.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// No bytes stop the parser, and the places at which a request is cut on its way do not change what it means. Errors are one
    /// harmless line.
    #[test]
    fn any_bytes_in_any_parts() {
        const RIGHT: &[&[u8]] = &[
            b"GET /v1/tree?freshness=500ms&path=/a%20b&depth=3 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
            b"HEAD /v1/groups/a%20b%0a/memory.events.local HTTP/1.0\r\nHost: localhost\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        ];
        const PARTS: &[&[u8]] = &[
            b"\r\n",
            b"\r\n\r\n",
            b"%",
            b"%f",
            b"?",
            b"&",
            b"=",
            b"/",
            b" ",
            b"\0",
            b"\xff",
            b":",
            b"HTTP/1.1",
        ];
        let seed = std::env::var("BURSAR_SEED").map_or(1, |seed| seed.parse().unwrap());
        let mut state: u64 = seed;
        let mut outcomes = [0; 3];
        for round in 0..200_000 {
            let mut below = |bound: usize| (random(&mut state) % bound as u64) as usize;
            let mut bytes = RIGHT[below(RIGHT.len())].to_vec();
            for _ in 0..below(6) {
                let at = below(bytes.len() + 1);
                match below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, below(256) as u8),
                    2 if at < bytes.len() => bytes[at] = below(256) as u8,
                    _ => drop(bytes.splice(at..at, PARTS[below(PARTS.len())].iter().copied())),
                }
            }
            let whole = parse(&bytes);
            let cut = below(bytes.len() + 1);
            let what = || {
                format!(
                    "seed {seed}, round {round}: {:?}",
                    String::from_utf8_lossy(&bytes)
                )
            };
            match parse(&bytes[..cut]) {
                Ok(None) => {}
                Ok(found) => assert_eq!(Ok(found), whole, "{}", what()),
                Err(_) => assert!(whole.is_err(), "{}", what()),
            }
            match whole {
                Ok(None) => outcomes[0] += 1,
                Ok(Some(request)) => {
                    outcomes[1] += 1;
                    assert!(request.path.starts_with('/'), "{}", what());
                }
                Err(refusal) => {
                    outcomes[2] += 1;
                    assert!(!refusal.reason.contains(char::is_control), "{}", what());
                    assert!(refusal.reason.chars().count() < 400, "{}", what());
                }
            }
        }
        assert!(outcomes.iter().all(|&count| count > 10_000), "{outcomes:?}");
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for (encoded, decoded) in [
            ("a%20b", "a b"),
            ("%25", "%"),
            ("%e2%80%AE", "\u{202e}"),
            ("a+b", "a+b"),
            ("", ""),
        ] {
            assert_eq!(decode(encoded).unwrap(), decoded);
        }
        for wrong in ["%", "%4", "%4g", "a%", "%%", "%2%20", "%ff", "%c3"] {
            assert_eq!(
                decode(wrong).unwrap_err().status,
                Status::BadRequest,
                "{wrong}"
            );
        }
    }

    #[test]
    fn long_texts_are_cut_in_errors() {
        assert_eq!(quoted("a\nb"), "'a\\nb'");
        assert_eq!(
            quoted(&"\u{202e}".repeat(100)).chars().count(),
            QUOTED_MAX + 4
        );
        assert_eq!(quoted(&"x".repeat(80)), format!("'{}'", "x".repeat(80)));
    }
}
