//! The handle of a server, and its settings.

use std::mem;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bursar::Memory;
use bursar_arbiter::Arbiter;

use crate::error::StartError;
use crate::poll::{Bounds, Poll};
use crate::route::Routes;
use crate::socket::{self, SocketFile};
use crate::tree::Program;

/// A thread that answers on a Unix socket, until this value is dropped. The crate's page lists the answers.
#[derive(Debug)]
#[must_use = "the server stops when it is dropped"]
pub struct Server {
    path: PathBuf,
    /// `None` once it is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread; a forked child has not.
    process: u32,
    // The last: removed when the thread has ended.
    _file: SocketFile,
}

impl Server {
    /// Starts a server on [`crate::default_path`] of this process.
    ///
    /// # Errors
    /// [`StartError`] names the file in the way, and says what to do.
    pub fn start(memory: &Memory) -> Result<Self, StartError> {
        Self::builder().start(memory)
    }

    /// Settings of a server.
    pub fn builder() -> Builder {
        Builder {
            path: None,
            patience: Duration::from_secs(5),
            arbiter: None,
        }
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if process::id() != self.process {
            // The thread is the parent's.
            mem::forget(thread);
            return;
        }
        if let Some(stop) = self.stop.take() {
            // Whatever other process has a copy. Closing it tells the thread if a sandbox forbids this.
            let _ = stop.shutdown(Shutdown::Both);
        }
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            // The panic was printed. The server's end must not end the program.
        }
    }
}

/// Settings of a [`Server`].
#[derive(Clone, Debug)]
#[must_use = "nothing is served before `start`"]
pub struct Builder {
    path: Option<PathBuf>,
    patience: Duration,
    arbiter: Option<Arbiter>,
}

impl Builder {
    /// Sets the socket's path, instead of [`crate::default_path`]. Its directory is made if it is not there. It must belong to this
    /// process's user, and have mode 0700.
    pub fn path(self, path: impl Into<PathBuf>) -> Self {
        Self {
            path: Some(path.into()),
            ..self
        }
    }

    /// Sets the time that a client has for its request, and again for each piece of the answer (the default: 5 s). After 12 such
    /// times an answer ends, even if the client still reads.
    pub fn timeout(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Shows the admissions of this arbiter. Without one, there is no `/v1/admissions` and no `/v1/decisions`.
    pub fn arbiter(self, arbiter: &Arbiter) -> Self {
        Self {
            arbiter: Some(arbiter.clone()),
            ..self
        }
    }

    /// Starts a server.
    ///
    /// The server keeps the memory alive, but no ticker of it ([`bursar::Builder::ticker`]).
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start(self, memory: &Memory) -> Result<Server, StartError> {
        let process = process::id();
        let path = self.path.unwrap_or_else(|| socket::default_path(process));
        let system = |action| {
            let path = path.clone();
            move |error| StartError::System {
                action,
                path,
                error,
            }
        };
        let (listener, file) = socket::listen(&path)?;
        let (stop, stopped) = UnixStream::pair().map_err(system("make a pair of sockets for"))?;
        let program = Program::this();
        let poll = Poll {
            listener,
            stop: stopped,
            routes: Routes::new(memory.root().memory(), self.arbiter, program),
            user: rustix::process::geteuid().as_raw(),
            patience: self.patience,
            bounds: Bounds::default(),
        };
        let thread = thread::Builder::new()
            .name("bursar-serve".to_owned())
            .spawn(move || poll.run())
            .map_err(system("start a thread for"))?;
        Ok(Server {
            path,
            stop: Some(stop),
            thread: Some(thread),
            process,
            _file: file,
        })
    }
}
