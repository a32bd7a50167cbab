//! Standard output, whose reader may go away.

use std::fmt;
use std::io::{self, IsTerminal, Write};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a run ended early.
#[derive(Debug)]
pub enum Stopped {
    /// Nobody reads standard output any more.
    NoReader,
    /// The user has seen enough.
    Interrupted,
    /// Something that should not happen.
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The document.
#[derive(Debug, Default)]
pub struct Output;

impl Output {
    /// Writes a part of the document.
    pub fn write(&mut self, text: &str) -> Result<(), Stopped> {
        let mut stdout = io::stdout().lock();
        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Stopped::NoReader,
            _ => Stopped::Failed(error.into()),
        })
    }

    /// Whether pictures of the tree belong to the document: not if they are seen on the terminal that the document goes to.
    pub fn takes_pictures(&self) -> bool {
        !(io::stdout().is_terminal() && io::stderr().is_terminal())
    }
}

/// A line of the document, cut where a terminal would break it.
pub struct Indented<'a>(pub &'a str);

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.0.lines() {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}
