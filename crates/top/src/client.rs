//! Requests to the socket of `bursar-serve`.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::Target;
use crate::document::{Decision, Document, Leftover, Waiter, is_below};
use bursar_term::failure::{Failure, warn};

/// Time without a byte after which a server counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of one answer: about 250,000 groups. A server that lies costs no more.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Bytes before its body.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A server, and the request for its groups.
#[derive(Clone, Debug)]
pub struct Client {
    pub socket: PathBuf,
    request: String,
}

impl Client {
    /// The server that is asked for: by its socket, by its process, or the only one that this user may ask.
    pub fn of(target: &Target) -> Result<Self, Failure> {
        let socket = match (&target.socket, target.pid) {
            (Some(path), _) => path.clone(),
            (None, Some(process)) => {
                let mut paths = bursar_serve::default_paths(process as u32);
                let used = paths.iter().position(|path| path.exists());
                paths.swap_remove(used.unwrap_or(0))
            }
            (None, None) => only_server()?,
        };
        let encoded: String = target
            .path
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                    char::from(byte).to_string()
                }
                other => format!("%{other:02X}"),
            })
            .collect();
        let depth = target
            .depth
            .map_or(String::new(), |levels| format!("&depth={levels}"));
        let freshness = &target.freshness;
        let request = format!("/v1/tree?freshness={freshness}&path={encoded}{depth}");
        Ok(Self { socket, request })
    }

    /// The groups that have ended with bytes charged, the biggest first. None from a server that is too old to tell.
    pub fn leftovers(&self) -> Vec<Leftover> {
        let body = get(&self.socket, "/v1/leftovers");
        body.map_or_else(|_| Vec::new(), |body| Leftover::parse(&body))
    }

    /// The groups and those that wait, and the server's document of the groups as it sent it.
    pub fn tree(&self) -> Result<(Document, String), Failure> {
        let body = get(&self.socket, &self.request)?;
        let mut document = Document::parse(&body)
            .map_err(|error| Failure::unavailable(format!("{}: {error}", self.socket.display())))?;
        // None from a server without an arbiter.
        let asks = get(&self.socket, "/v1/admissions").unwrap_or_default();
        let top = &document.groups[0].path;
        let mut waiters = Waiter::parse(&asks);
        waiters.retain(|waiter| is_below(&waiter.path, top));
        let decided = get(&self.socket, "/v1/decisions").unwrap_or_default();
        let mut decisions = Decision::parse(&decided);
        decisions.retain(|decision| is_below(&decision.query, top));
        decisions.reverse();
        document.decisions = decisions;
        document.waiters.splice(..0, waiters);
        Ok((document, body))
    }
}

/// The socket of the only server that this user may ask.
fn only_server() -> Result<PathBuf, Failure> {
    let found = bursar_serve::find();
    for socket in &found.dead {
        let done = match socket.is_removed {
            true => "removed, because its server has ended",
            false => "no server listens there any more",
        };
        warn(&format!("{}: {done}", socket.path.display()));
    }
    match &found.servers[..] {
        [one] => Ok(one.clone()),
        [] => Err(Failure::unavailable(format!(
            "no server has a socket in {}. A server opens one with bursar_serve::Server::start; --socket names one in another place",
            found
                .directories
                .iter()
                .map(|it| it.display().to_string())
                .collect::<Vec<_>>()
                .join(" or ")
        ))),
        many => {
            let list = many.iter().map(|path| format!("\n  {}", described(path)));
            Err(Failure::usage(format!(
                "{} servers have a socket: choose one with --pid{}",
                many.len(),
                list.collect::<String>()
            )))
        }
    }
}

/// Process and program behind a socket.
fn described(socket: &Path) -> String {
    let pid = socket
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    let program = get(socket, "/v1/tree?depth=0").ok();
    let program = program.and_then(|body| Document::parse(&body).ok());
    let name = program.map_or_else(|| "?".to_owned(), |document| document.program);
    format!(
        "--pid {}  {}",
        bursar::printable(&pid.unwrap_or_default()),
        bursar::printable(&name)
    )
}

/// Reason why a step of a request failed.
fn failed(doing: &str, socket: &Path, error: &io::Error) -> Failure {
    let why = match error.kind() {
        ErrorKind::NotFound => "there is no such socket; has the server ended?".to_owned(),
        ErrorKind::ConnectionRefused => "no server listens there any more".to_owned(),
        ErrorKind::PermissionDenied => "only the server's own user and root may ask it".to_owned(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
            "no byte for {} s: the server is stuck or stopped",
            PATIENCE.as_secs()
        ),
        _ => error.to_string(),
    };
    Failure::unavailable(format!("{why} (cannot {doing} {})", socket.display()))
}

/// Whether a server ended the connection: one that has no place for us answers without reading.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}

/// Asks for a path, and returns the body of the answer.
fn get(socket: &Path, request: &str) -> Result<String, Failure> {
    let mut stream =
        UnixStream::connect(socket).map_err(|error| failed("connect to", socket, &error))?;
    let timeouts = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    timeouts.map_err(|error| failed("ask", socket, &error))?;
    let request = format!("GET {request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    match stream.write_all(request.as_bytes()) {
        Err(error) if !is_gone(&error) => Err(failed("ask", socket, &error)),
        _ => receive(stream, socket),
    }
}

/// Receives an answer, and returns its body.
pub fn receive(mut stream: impl Read, socket: &Path) -> Result<String, Failure> {
    let place = socket.display();
    let refused = |why: &str| Failure::unavailable(format!("{place}: {why}"));
    let too_big = || refused("the answer is too big: ask for a --path or a --depth");
    let no_http = || refused("it does not speak HTTP: is this a socket of bursar-serve?");
    let no_text = || refused("the answer is not text: is this a socket of bursar-serve?");
    let mut head = None;
    // The body, once the head is whole.
    let mut received = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let bytes = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if is_gone(&error) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed("read from", socket, &error)),
        };
        if received.len() + bytes > ANSWER_BYTES_MAX {
            return Err(too_big());
        }
        received.extend_from_slice(&piece[..bytes]);
        if head.is_none() {
            let end = received.windows(4).position(|it| it == b"\r\n\r\n");
            match end {
                Some(end) => {
                    let body = received.split_off(end + 4);
                    let bytes = std::mem::replace(&mut received, body);
                    let it = Head::parse(bytes).ok_or_else(no_http)?;
                    if it.body_bytes > ANSWER_BYTES_MAX as u64 {
                        return Err(too_big());
                    }
                    head = Some(it);
                }
                None if received.len() > HEAD_BYTES_MAX => return Err(no_http()),
                None => {}
            }
        }
    }
    let body = String::from_utf8(received).map_err(|_| no_text())?;
    let head = head.ok_or_else(|| refused("the answer is cut off"))?;
    if head.status == "200" {
        return Ok(body);
    }
    let said = match body.trim() {
        "" => &head.line,
        said => said,
    };
    let said = bursar::printable(said);
    Err(match head.status.as_str() {
        "404" | "400" => Failure::usage(said),
        _ => refused(&said),
    })
}

/// The head of an answer, as far as it is used.
struct Head {
    /// The first line without the protocol.
    line: String,
    status: String,
    /// Length of the body; 0 if the head does not tell.
    body_bytes: u64,
}

impl Head {
    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let text = String::from_utf8(bytes).ok()?;
        let line = text.lines().next()?.strip_prefix("HTTP/1.1 ")?.trim();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let length = fields
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .find_map(|(_, value)| value.trim().parse().ok());
        Some(Self {
            status: line.split(' ').next()?.to_owned(),
            line: line.to_owned(),
            body_bytes: length.unwrap_or(0),
        })
    }
}
