//! A client that sends exactly the given bytes.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar::{Counter, Gauge, Group, Limits, Memory, Statistic};
use bursar_serve::{Builder, Server};
use tempfile::TempDir;

/// Turns a hang into a failure; nothing else depends on it. The server gives its clients as long, because one on a busy machine is not
/// slow.
const HANG: Duration = Duration::from_secs(60);

pub const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows"),
    Statistic::gauge("open files"),
    Statistic::gauge("pages").per_node(),
];
pub const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
pub const OPEN_FILES: Gauge = Gauge::from_name(STATISTICS, "open files");

/// A memory with a server, in a directory of its own.
pub struct Scene {
    pub memory: Memory,
    pub path: PathBuf,
    pub server: Server,
    pub directory: TempDir,
}

impl Scene {
    /// A child of the root.
    pub fn child(&self, name: &str, limits: Limits) -> Group {
        self.memory.root().child(name, limits).unwrap()
    }
}

/// A directory that only this user may enter.
pub fn private_directory() -> TempDir {
    let private = Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .permissions(private)
        .tempdir()
        .unwrap()
}

pub fn scene() -> Scene {
    scene_with(|builder| builder.timeout(HANG))
}

pub fn scene_with(set: impl FnOnce(Builder) -> Builder) -> Scene {
    let memory = Memory::builder().statistics(STATISTICS).build().unwrap();
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    let server = set(Server::builder().path(&path)).start(&memory).unwrap();
    Scene {
        memory,
        path,
        server,
        directory,
    }
}

/// An answer, taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| &**value)
    }

    /// Reads a whole answer. Fails on anything that is not one well-formed answer.
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").unwrap();
        let headers = lines.map(|line| {
            assert!(!line.contains(['\r', '\n']));
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self {
            status: status[..3].parse().unwrap(),
            headers: headers.collect(),
            body: bytes[end + 4..].to_owned(),
        }
    }
}

pub fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    stream
}

/// All that the server still sends.
pub fn rest(mut stream: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The answer to these bytes, after which the client sends no more.
pub fn ask(path: &Path, request: &[u8]) -> Answer {
    let mut stream = connect(path);
    stream.write_all(request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    Answer::parse(&rest(&stream))
}

/// The answer to a request for a target, from a client that waits for it as most do.
pub fn get(path: &Path, target: &str) -> Answer {
    let mut stream = connect(path);
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    Answer::parse(&rest(&stream))
}
