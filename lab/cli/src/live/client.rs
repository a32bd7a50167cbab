//! Requests to the socket of `bursar-serve`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Target;
use super::document::Document;
use crate::failure::Failure;

/// Time without a byte after which a server counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for one answer.
const ANSWER: Duration = Duration::from_secs(60);

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
            (None, Some(process)) => bursar_serve::default_path(process as u32),
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

    /// The groups, and the server's document as it sent it.
    pub fn tree(&self) -> Result<(Document, String), Failure> {
        let body = get(&self.socket, &self.request)?;
        let document = Document::parse(&body)
            .map_err(|error| Failure::unavailable(format!("{}: {error}", self.socket.display())))?;
        Ok((document, body))
    }
}

/// The socket of the only server that answers in the directory of this user.
fn only_server() -> Result<PathBuf, Failure> {
    let usual = bursar_serve::default_path(0);
    let directory = usual.parent().expect("a socket is in a directory");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path());
    let mut found: Vec<PathBuf> = sockets
        .filter(|path| {
            path.extension().is_some_and(|it| it == "sock") && UnixStream::connect(path).is_ok()
        })
        .collect();
    found.sort();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Failure::unavailable(format!(
            "no server has a socket in {}. A server opens one with bursar_serve::Server::start; --socket names one in another place",
            directory.display()
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
            ErrorKind::NotFound => "there is no such socket: has the server ended?".to_owned(),
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
        Failure::unavailable(format!("cannot {doing} {place}: {why}"))
    };
    let mut stream = UnixStream::connect(socket).map_err(|error| failed("connect to", error))?;
    let timeouts = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    timeouts.map_err(|error| failed("ask", error))?;
    write!(
        stream,
        "GET {request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .map_err(|error| failed("ask", error))?;
    let begun = Instant::now();
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => answer.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read from", error)),
        }
        if begun.elapsed() > ANSWER {
            return Err(Failure::unavailable(format!(
                "{place}: the answer takes more than {} s: ask for a --path or a --depth",
                ANSWER.as_secs()
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
