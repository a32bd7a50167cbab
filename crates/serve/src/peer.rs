//! The process at the other end of a connection.

use std::os::fd::AsFd;

#[cfg(any(target_os = "linux", target_os = "android"))]
use nix::sys::socket::sockopt::PeerCredentials;

/// The user of the process at the other end, when it connected.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn user(stream: impl AsFd) -> Option<u32> {
    let credentials = nix::sys::socket::getsockopt(&stream, PeerCredentials).ok()?;
    Some(credentials.uid())
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
    let credentials = nix::sys::socket::getsockopt(&stream, PeerCredentials).ok()?;
    // 0 if it is in a PID namespace that this one cannot see.
    rustix::process::Pid::from_raw(credentials.pid())
}

/// The process at the other end: unknown on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn process(_: impl AsFd) -> Option<rustix::process::Pid> {
    None
}
