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
    Ok(Some(Request {
        head_only,
        path: path.to_owned(),
        query: query.collect::<Result<_, Refusal>>()?,
    }))
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
