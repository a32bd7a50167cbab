//! The process at the other end of a connection.

use std::os::fd::AsFd;

/// The user of the process at the other end, when it connected.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn user(stream: impl AsFd) -> Option<u32> {
    let credentials = rustix::net::sockopt::socket_peercred(stream).ok()?;
    Some(credentials.uid.as_raw())
}

/// The user of the process at the other end, when it connected.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn user(stream: impl AsFd) -> Option<u32> {
    let (user, _) = nix::unistd::getpeereid(stream).ok()?;
    Some(user.as_raw())
}

/// The process at the other end; if we connected, the one that listens.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn process(stream: impl AsFd) -> Option<rustix::process::Pid> {
    Some(rustix::net::sockopt::socket_peercred(stream).ok()?.pid)
}

/// The process at the other end: unknown on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn process(_: impl AsFd) -> Option<rustix::process::Pid> {
    None
}
