//! The thread that serves: waits for all sockets at once, and does a bounded step for each that is ready.
//!
//! When all places are taken, the client that was silent for the longest gives way to the next, but not in its first moments: so many
//! clients at once all get their turn, and clients that do nothing keep no other out for long.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::clock::monotonic_ns;
use crate::connection::Connection;
use crate::peer;
use crate::request::{Refusal, Status};
use crate::response::Response;
use crate::route::Routes;

/// Connections at most.
const CONNECTIONS_MAX: usize = 64;
/// Time that a silent client keeps its place although others wait, and pause after an error of `accept`.
const GRACE_NS: u64 = 100_000_000;
/// Bytes in answers in progress, above which no further request is served.
const BYTES_HELD_MAX: usize = 64 << 20;

/// The state of the thread.
pub(crate) struct Poll {
    pub(crate) listener: UnixListener,
    /// Ready when the thread must end.
    pub(crate) stop: UnixStream,
    pub(crate) routes: Routes,
    /// The user that is served, beside root.
    pub(crate) user: u32,
    /// Time that a client has for its request, and for each piece of the answer.
    pub(crate) patience: Duration,
}

impl Poll {
    /// Serves until it is told to stop.
    pub(crate) fn run(self) {
        let mut connections: Vec<Connection> = Vec::new();
        let mut accept_from_ns = 0;
        loop {
            let now_ns = monotonic_ns();
            for connection in &mut connections {
                if connection.deadline_ns() <= now_ns {
                    connection.expire(now_ns);
                }
            }
            connections.retain(|connection| !connection.is_done());
            let place_from_ns = match connections.len() {
                CONNECTIONS_MAX => silent(&connections).1.saturating_add(GRACE_NS),
                _ => 0,
            };
            let accept_from_ns_now = place_from_ns.max(accept_from_ns);
            let accepts = accept_from_ns_now <= now_ns;
            let deadlines = connections.iter().map(Connection::deadline_ns);
            let accept_ns = (!accepts).then_some(accept_from_ns_now);
            let wake_ns = deadlines.chain(accept_ns).min();
            let Some(ready) = self.wait(&connections, accepts, wake_ns, now_ns) else {
                return;
            };
            let now_ns = monotonic_ns();
            self.step(&mut connections, &ready[1..], now_ns);
            if accepts && !ready[0].is_empty() && self.accept(&mut connections, now_ns).is_err() {
                accept_from_ns = now_ns + GRACE_NS;
            }
        }
    }

    /// Waits for an event. Returns those of the listener and of each connection; `None` if the thread must end.
    fn wait(
        &self,
        connections: &[Connection],
        accepts: bool,
        wake_ns: Option<u64>,
        now_ns: u64,
    ) -> Option<Vec<PollFlags>> {
        let listens = if accepts {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut sockets = vec![
            PollFd::new(&self.stop, PollFlags::IN),
            PollFd::new(&self.listener, listens),
        ];
        sockets.extend(
            connections
                .iter()
                .map(|connection| PollFd::new(connection.stream(), connection.interest())),
        );
        let timeout = wake_ns.map(|wake_ns| {
            let wait = Duration::from_nanos(wake_ns.saturating_sub(now_ns));
            Timespec::try_from(wait).expect("deadlines are in this century")
        });
        match rustix::event::poll(&mut sockets, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => {
                return Some(vec![PollFlags::empty(); connections.len() + 1]);
            }
            // No argument can be wrong.
            Err(error) => panic!("cannot wait for sockets: {error}"),
        }
        if !sockets[0].revents().is_empty() {
            return None;
        }
        Some(sockets[1..].iter().map(PollFd::revents).collect())
    }

    /// Does a step for each connection that is ready.
    fn step(&self, connections: &mut [Connection], ready: &[PollFlags], now_ns: u64) {
        for (position, ready) in ready.iter().enumerate() {
            if ready.is_empty() {
                continue;
            }
            let bytes_held: usize = connections.iter().map(Connection::bytes_held).sum();
            connections[position].step(now_ns, |request| {
                if bytes_held > BYTES_HELD_MAX {
                    let reason = "other clients still read big answers: ask again later";
                    return Response::from(Refusal::new(Status::Unavailable, reason));
                }
                self.routes.answer(request)
            });
        }
    }

    /// Takes connections that wait, as long as there are places.
    fn accept(&self, connections: &mut Vec<Connection>, now_ns: u64) -> Result<(), ()> {
        connections.retain(|connection| !connection.is_done());
        loop {
            if connections.len() == CONNECTIONS_MAX {
                let (position, active_ns) = silent(connections);
                if active_ns.saturating_add(GRACE_NS) > now_ns {
                    return Ok(());
                }
                drop(connections.swap_remove(position));
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    return match error.kind() {
                        ErrorKind::WouldBlock => Ok(()),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                        // No file descriptor is left, for example.
                        _ => Err(()),
                    };
                }
            };
            connections.extend(self.admit(stream, now_ns));
        }
    }

    /// A connection, which is refused already if it is of a wrong user.
    fn admit(&self, stream: UnixStream, now_ns: u64) -> Option<Connection> {
        stream.set_nonblocking(true).ok()?;
        #[cfg(target_vendor = "apple")]
        rustix::net::sockopt::set_socket_nosigpipe(&stream, true).ok()?;
        let user = peer::user(&stream)?;
        let patience_ns = u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX);
        let mut connection = Connection::new(stream, now_ns, patience_ns);
        if user != self.user && user != 0 {
            let reason = format!(
                "user {user} is not served, only user {} and root",
                self.user
            );
            connection.refuse(now_ns, Refusal::new(Status::Forbidden, reason));
        }
        Some(connection)
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        // A forked process may have a copy of the listener, on which it would leave clients without an answer.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let _ = self.stop.shutdown(Shutdown::Both);
    }
}

/// The position of the connection that was silent for the longest, and the time of its last sign.
fn silent(connections: &[Connection]) -> (usize, u64) {
    let times = connections.iter().map(Connection::active_ns).enumerate();
    times
        .min_by_key(|&(_, active_ns)| active_ns)
        .unwrap_or((0, u64::MAX))
}
