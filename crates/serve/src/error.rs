//! Reasons why a server does not start.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Reason why a [`crate::Server`] could not be started. Nothing is left behind then, except for a directory that was made.
#[non_exhaustive]
pub enum StartError {
    /// The path does not fit into the address of a socket.
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The longest that fits.
        bytes_max: usize,
    },
    /// The path ends in no name of a file.
    NoFileName {
        /// The path.
        path: PathBuf,
    },
    /// The socket's directory is a symbolic link, or no directory.
    NotADirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The socket's directory belongs to another user.
    DirectoryOwner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Other users may enter the socket's directory.
    DirectoryMode {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another server answers on this path.
    Taken {
        /// The path.
        path: PathBuf,
        /// The process that answers, if the system tells.
        process: Option<u32>,
    },
    /// A file that is no socket has this path.
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A call of the system failed.
    System {
        /// The attempted action.
        action: &'static str,
        /// Its object.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PathTooLong {
                path,
                bytes,
                bytes_max,
            } => write!(
                f,
                "the path of a socket has at most {bytes_max} bytes, this one {bytes}: {path:?}; choose a shorter one with Builder::path"
            ),
            Self::NoFileName { path } => {
                write!(
                    f,
                    "{path:?} ends in no file name; add one, such as bursar.sock"
                )
            }
            Self::NotADirectory { path } => write!(
                f,
                "{path:?} is a symbolic link, or no directory; remove it, or choose another path with Builder::path"
            ),
            Self::DirectoryOwner { path, owner, user } => write!(
                f,
                "{path:?} belongs to user {owner}, and this process runs as user {user}; choose another path with Builder::path"
            ),
            Self::DirectoryMode { path, mode } => write!(
                f,
                "other users may enter {path:?} (mode {mode:03o}); run `chmod 700` on it, or choose a directory of its own for the socket"
            ),
            Self::Taken {
                path,
                process: Some(process),
            } => write!(
                f,
                "process {process} serves on {path:?} already; choose another path with Builder::path"
            ),
            Self::Taken {
                path,
                process: None,
            } => write!(
                f,
                "another process serves on {path:?} already; choose another path with Builder::path"
            ),
            Self::NotASocket { path } => write!(
                f,
                "{path:?} is there and is no socket; remove it, or choose another path with Builder::path"
            ),
            Self::System {
                action,
                path,
                error,
            } => write!(f, "cannot {action} {path:?}: {error}"),
        }
    }
}

bursar::debug_as_message!(
    enum StartError {
        PathTooLong { path, bytes, bytes_max },
        NoFileName { path },
        NotADirectory { path },
        DirectoryOwner { path, owner, user },
        DirectoryMode { path, mode: "{:#o}" },
        Taken { path, process },
        NotASocket { path },
        System { action, path, error },
    }
);

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            _ => None,
        }
    }
}
