//! Requests that both examples make of a server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use bursar::Statistic;
use bursar_serve::Server;

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

pub const STATISTICS: &[Statistic] = &[
    Statistic::counter("a"),
    Statistic::counter("b"),
    Statistic::counter("c"),
    Statistic::counter("d"),
    Statistic::counter("e"),
    Statistic::gauge("f"),
    Statistic::gauge("g"),
    Statistic::gauge("h"),
    Statistic::gauge("i"),
    Statistic::gauge("j"),
];

/// Asks for a target, and returns the bytes of the answer.
pub fn get(server: &Server, target: &str) -> std::io::Result<usize> {
    let mut stream = UnixStream::connect(server.path())?;
    write!(stream, "GET {target} HTTP/1.1\r\n\r\n")?;
    stream.read_to_end(&mut Vec::new())
}
