//! The socket's file: its directory, its permissions, its end.
//!
//! Servers that start or end in one directory take turns by a lock on the directory. So a stale socket is replaced by one server only,
//! and no server removes another's socket.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::geteuid;

use crate::error::StartError;
use crate::peer;

/// Longest path in the address of a socket, without the NUL at its end.
const PATH_BYTES_MAX: usize = if cfg!(any(target_os = "linux", target_os = "android")) {
    107
} else {
    103
};

/// The path on which [`crate::Server::start`] serves in a process: `$XDG_RUNTIME_DIR/bursar/<process>.sock`. If that variable is
/// not set, or its directory belongs to another user, it is `/tmp/bursar-<user>/<process>.sock`.
pub fn default_path(process: u32) -> PathBuf {
    let user = geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_ours = |path: &PathBuf| {
        path.is_absolute()
            && path
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == user)
    };
    let directory = match runtime.filter(is_ours) {
        Some(runtime) => runtime.join("bursar"),
        None => PathBuf::from(format!("/tmp/bursar-{user}")),
    };
    directory.join(format!("{process}.sock"))
}

/// The file of a socket that listens.
#[derive(Debug)]
pub(crate) struct SocketFile {
    directory: OwnedFd,
    name: OsString,
    /// Device and number of the file: another server may have another file of this name by now.
    identity: (u64, u64),
    /// The process that made it; a forked child leaves it alone.
    process: u32,
}

/// Removes the file, unless another took its place.
impl Drop for SocketFile {
    fn drop(&mut self) {
        if process::id() != self.process {
            return;
        }
        let Ok(_turn) = Turn::take(&self.directory) else {
            return;
        };
        let found = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| identity(&found) == self.identity) {
            // If it fails, the next server finds a socket on which nothing listens.
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// A socket that was made, or may have been, in a directory that we have locked. Its drop removes it.
struct Unfinished<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let found = rustix::fs::statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket) {
            let _ = rustix::fs::unlinkat(self.directory, self.name, AtFlags::empty());
        }
    }
}

/// A lock on a directory.
pub(crate) struct Turn<'a>(&'a OwnedFd);

impl<'a> Turn<'a> {
    fn take(directory: &'a OwnedFd) -> Result<Self, Errno> {
        rustix::fs::flock(directory, FlockOperation::LockExclusive)?;
        Ok(Self(directory))
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn try_take(directory: &'a OwnedFd) -> Result<Self, Errno> {
        rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(directory))
    }
}

/// Not left to the end of the descriptor, of which a forked child has a copy.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

#[allow(
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "the types differ between systems"
)]
fn identity(found: &Stat) -> (u64, u64) {
    (found.st_dev as u64, found.st_ino as u64)
}

/// Makes a socket that listens, with its directory if need be. Replaces a socket on which nothing listens.
pub(crate) fn listen(path: &Path) -> Result<(UnixListener, SocketFile), StartError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_BYTES_MAX {
        return Err(StartError::PathTooLong {
            path: path.to_owned(),
            bytes,
            bytes_max: PATH_BYTES_MAX,
        });
    }
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(StartError::NoFileName {
            path: path.to_owned(),
        });
    };
    let above = match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    };
    let directory = private_directory(above)?;
    let system = |action| {
        move |error: io::Error| StartError::System {
            action,
            path: path.to_owned(),
            error,
        }
    };
    let turn =
        Turn::take(&directory).map_err(|error| system("lock the directory of")(error.into()))?;
    remove_stale(path)?;
    let unfinished = Unfinished {
        directory: &directory,
        name,
    };
    let listener = match UnixListener::bind(path) {
        Ok(listener) => listener,
        Err(error) => {
            if error.kind() == io::ErrorKind::AddrInUse {
                // Another program's, made a moment ago.
                mem::forget(unfinished);
            }
            return Err(system("bind a socket to")(error));
        }
    };
    listener
        .set_nonblocking(true)
        .map_err(system("listen on"))?;
    // Nobody else can have entered the directory meanwhile.
    rustix::fs::chmodat(
        &directory,
        name,
        Mode::from_raw_mode(0o600),
        AtFlags::empty(),
    )
    .map_err(|error| system("set the permissions of")(error.into()))?;
    let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| system("look at")(error.into()))?;
    mem::forget(unfinished);
    drop(turn);
    let file = SocketFile {
        directory,
        name: name.to_owned(),
        identity: identity(&found),
        process: process::id(),
    };
    Ok((listener, file))
}

/// Opens a directory that only this process's user can enter; makes it if it is not there.
fn private_directory(path: &Path) -> Result<OwnedFd, StartError> {
    let system = |action, error| StartError::System {
        action,
        path: path.to_owned(),
        error,
    };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(system("make the directory", error)),
    }
    // Without following a link: another user may have put one into a directory that all can write.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(StartError::NotADirectory {
                path: path.to_owned(),
            });
        }
        Err(Errno::ACCESS) => {
            // Of another user, most likely, whom the message names.
            return Err(match path.symlink_metadata() {
                Ok(found) if found.uid() != geteuid().as_raw() => owner(path, found.uid()),
                _ => system("open", Errno::ACCESS.into()),
            });
        }
        Err(error) => return Err(system("open", error.into())),
    };
    let directory = File::from(directory);
    let found = directory
        .metadata()
        .map_err(|error| system("look at", error))?;
    if found.uid() != geteuid().as_raw() {
        return Err(owner(path, found.uid()));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(StartError::DirectoryMode {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(directory.into())
}

fn owner(path: &Path, owner: u32) -> StartError {
    StartError::DirectoryOwner {
        path: path.to_owned(),
        owner,
        user: geteuid().as_raw(),
    }
}

/// Removes a socket on which nothing listens. Called under the directory's lock.
fn remove_stale(path: &Path) -> Result<(), StartError> {
    let system = |action, error: Errno| StartError::System {
        action,
        path: path.to_owned(),
        error: error.into(),
    };
    let found = match rustix::fs::lstat(path) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(system("look at", error)),
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(StartError::NotASocket {
            path: path.to_owned(),
        });
    }
    match listening(path).map_err(|error| system("ask whether a server answers on", error))? {
        Listening::Nobody | Listening::Orphan => {
            rustix::fs::unlink(path).map_err(|error| system("remove the stale", error))
        }
        Listening::Somebody(process) => Err(StartError::Taken {
            path: path.to_owned(),
            process,
        }),
    }
}

pub(crate) enum Listening {
    Nobody,
    /// A forked child of a process that has ended. It does not answer.
    Orphan,
    /// A process, if the system tells which.
    Somebody(Option<u32>),
}

/// Looks for the process that listens on a socket.
pub(crate) fn listening(path: &Path) -> Result<Listening, Errno> {
    let probe = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&probe, FdFlags::CLOEXEC)?;
    // The queue of a server that hangs may be full.
    rustix::io::ioctl_fionbio(&probe, true)?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => Ok(Listening::Nobody),
        Err(Errno::AGAIN) => Ok(Listening::Somebody(None)),
        Err(error) => Err(error),
        Ok(()) => {
            let process = peer::process(&probe);
            let has_ended =
                |process| rustix::process::test_kill_process(process) == Err(Errno::SRCH);
            match process {
                Some(process) if has_ended(process) => Ok(Listening::Orphan),
                _ => {
                    Ok(Listening::Somebody(process.map(|process| {
                        process.as_raw_nonzero().get().unsigned_abs()
                    })))
                }
            }
        }
    }
}
