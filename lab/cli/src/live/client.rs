//! Requests to the socket of `bursar-serve`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Target;
use super::document::{Document, Leftover};
use crate::failure::Failure;

/// Time without a byte after which a server counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of one answer: more than that of a million groups.
const ANSWER_BYTES_MAX: usize = 2 << 30;

/// A server, and the request for its groups.
#[derive(Clone, Debug)]
pub struct Client {
    pub socket: PathBuf,
    request: String,
}

impl Client {
    /// The server that is asked for: by its socket, by its process, or the only one of this user.
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

    /// The groups, and the server's document as it sent it.
    pub fn tree(&self) -> Result<(Document, String), Failure> {
        let body = get(&self.socket, &self.request)?;
        let document = Document::parse(&body)
            .map_err(|error| Failure::unavailable(format!("{}: {error}", self.socket.display())))?;
        Ok((document, body))
    }
}

/// The socket of the only server of this user that answers.
fn only_server() -> Result<PathBuf, Failure> {
    let usual = bursar_serve::default_paths(0);
    let directories = || usual.iter().filter_map(|path| path.parent());
    let answers = |path: &PathBuf| {
        path.extension().is_some_and(|it| it == "sock") && UnixStream::connect(path).is_ok()
    };
    let found = directories().map(|directory| -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(answers).collect()
    });
    // The first directory that has any.
    let mut found = found
        .into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    found.sort();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Failure::unavailable(format!(
            "no server has a socket in {}. A server opens one with bursar_serve::Server::start; --socket names one in another place",
            directories()
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
        pid.unwrap_or_default(),
        bursar::printable(&name)
    )
}

/// Asks for a path, and returns the body of the answer.
fn get(socket: &Path, request: &str) -> Result<String, Failure> {
    let place = socket.display();
    let failed = |doing: &str, error: std::io::Error| {
        let why = match error.kind() {
            ErrorKind::NotFound => "there is no such socket; has the server ended?".to_owned(),
            ErrorKind::ConnectionRefused => "no server listens there any more".to_owned(),
            ErrorKind::PermissionDenied => {
                "only the server's own user and root may ask it".to_owned()
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "no byte for {} s: the server is stuck or stopped",
                PATIENCE.as_secs()
            ),
            _ => error.to_string(),
        };
        Failure::unavailable(format!("{why} (cannot {doing} {place})"))
    };
    let mut stream = UnixStream::connect(socket).map_err(|error| failed("connect to", error))?;
    let timeouts = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    timeouts.map_err(|error| failed("ask", error))?;
    let request = format!("GET {request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    // A server that has no place for us answers without reading.
    let is_gone = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    };
    match stream.write_all(request.as_bytes()) {
        Err(error) if !is_gone(&error) => return Err(failed("ask", error)),
        _ => {}
    }
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Err(error) if is_gone(&error) => break,
            Ok(bytes) => answer.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read from", error)),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(Failure::unavailable(format!(
                "{place}: the answer is too big: ask for a --path or a --depth"
            )));
        }
    }
    let cut = || Failure::unavailable(format!("{place}: the answer is cut off"));
    let answer = String::from_utf8(answer).map_err(|_| {
        Failure::unavailable(format!(
            "{place}: the answer is not text: is this a socket of bursar-serve?"
        ))
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut)?;
    let mut status = head.lines().next().unwrap_or_default().splitn(3, ' ');
    match (status.next(), status.next()) {
        (Some("HTTP/1.1"), Some("200")) => Ok(body.to_owned()),
        (Some("HTTP/1.1"), Some("404" | "400")) => Err(Failure::usage(body.trim_end())),
        (Some("HTTP/1.1"), Some(_)) => Err(Failure::unavailable(format!(
            "{place}: {}",
            body.trim_end()
        ))),
        _ => Err(Failure::unavailable(format!(
            "{place} does not speak HTTP: is this a socket of bursar-serve?"
        ))),
    }
}
