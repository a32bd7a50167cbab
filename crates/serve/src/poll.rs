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
use rustix::net::RecvFlags;

use crate::clock::monotonic_ns;
use crate::connection::Connection;
use crate::peer;
use crate::request::{Refusal, Status};
use crate::response::Response;
use crate::route::Routes;

/// Time that a silent client keeps its place although others wait, and pause after an error of `accept` or `poll`.
const GRACE_NS: u64 = 100_000_000;

/// Some systems refuse to wait for longer than some days.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

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
    pub(crate) bounds: Bounds,
}

/// Result of a wait.
enum Waited {
    Ready(Vec<PollFlags>),
    Stop,
    /// The system cannot wait for so many sockets, or for none.
    Failed,
}

/// Bounds of what clients may take together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections.
    pub(crate) connections: usize,
    /// Bytes in answers in progress, above which no further request is served.
    pub(crate) bytes_held: usize,
}

/// A connection costs a head, and an answer in progress.
impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 64,
            bytes_held: 64 << 20,
        }
    }
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
            let place_from_ns = match self.is_full(&connections) {
                true => silent(&connections).1.saturating_add(GRACE_NS),
                false => 0,
            };
            let accept_from_ns_now = place_from_ns.max(accept_from_ns);
            let accepts = accept_from_ns_now <= now_ns;
            let deadlines = connections.iter().map(Connection::deadline_ns);
            let accept_ns = (!accepts).then_some(accept_from_ns_now);
            let wake_ns = deadlines.chain(accept_ns).min();
            let ready = match self.wait(&connections, accepts, wake_ns, now_ns) {
                Waited::Ready(ready) => ready,
                Waited::Stop => return,
                Waited::Failed => {
                    // With fewer sockets it may work again.
                    connections.clear();
                    if self.waits_for_stop() {
                        return;
                    }
                    continue;
                }
            };
            let now_ns = monotonic_ns();
            self.step(&mut connections, &ready[1..], now_ns);
            if accepts && !ready[0].is_empty() && self.accept(&mut connections, now_ns).is_err() {
                accept_from_ns = now_ns + GRACE_NS;
            }
        }
    }

    fn is_full(&self, connections: &[Connection]) -> bool {
        connections.len() >= self.bounds.connections
    }

    /// Waits for an event. Returns those of the listener and of each connection.
    fn wait(
        &self,
        connections: &[Connection],
        accepts: bool,
        wake_ns: Option<u64>,
        now_ns: u64,
    ) -> Waited {
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
            Timespec::try_from(wait.min(WAIT_MAX)).expect("an hour fits")
        });
        match rustix::event::poll(&mut sockets, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR | Errno::AGAIN) => {
                return Waited::Ready(vec![PollFlags::empty(); connections.len() + 1]);
            }
            // No memory, a limit on files that was lowered below the number of sockets, or a sandbox.
            Err(_) => return Waited::Failed,
        }
        if !sockets[0].revents().is_empty() {
            return Waited::Stop;
        }
        Waited::Ready(sockets[1..].iter().map(PollFd::revents).collect())
    }

    /// Waits a moment, by another system call. Returns whether the thread must end.
    fn waits_for_stop(&self) -> bool {
        let moment = Duration::from_nanos(GRACE_NS);
        // If the system refuses even that, the thread only waits for its end.
        let _ = self.stop.set_read_timeout(Some(moment));
        let received = rustix::net::recv(&self.stop, &mut [0; 1], RecvFlags::empty());
        !matches!(received, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Does a step for each connection that is ready.
    fn step(&self, connections: &mut [Connection], ready: &[PollFlags], now_ns: u64) {
        for (position, ready) in ready.iter().enumerate() {
            if ready.is_empty() {
                continue;
            }
            let bytes_held: usize = connections.iter().map(Connection::bytes_held).sum();
            connections[position].step(now_ns, |request| {
                if bytes_held > self.bounds.bytes_held {
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
            let is_full = self.is_full(connections);
            let (position, active_ns) = silent(connections);
            if is_full && active_ns.saturating_add(GRACE_NS) > now_ns {
                return Ok(());
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
            if is_full {
                connections.swap_remove(position).give_way(now_ns);
            }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use bursar::{Limits, Memory};
    use tempfile::TempDir;

    use super::*;
    use crate::tree::Program;

    /// A thread's state with these bounds, and nobody at its socket. The rest keeps its files.
    fn poll(memory: &Memory, bounds: Bounds) -> (Poll, (UnixStream, TempDir)) {
        let (stop, stopped) = UnixStream::pair().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let program = Program {
            process: 1,
            name: "test".to_owned(),
            began_ns: 0,
        };
        let poll = Poll {
            listener: UnixListener::bind(directory.path().join("socket")).unwrap(),
            stop: stopped,
            routes: Routes::new(memory.clone(), None, program),
            user: rustix::process::geteuid().as_raw(),
            patience: Duration::from_secs(60),
            bounds,
        };
        (poll, (stop, directory))
    }

    /// A client whose request has been served as far as it can be while the client does not read.
    fn asked(poll: &Poll, connections: &mut Vec<Connection>, request: &[u8]) -> UnixStream {
        let (mut client, stream) = UnixStream::pair().unwrap();
        connections.extend(poll.admit(stream, monotonic_ns()));
        client.write_all(request).unwrap();
        let ready = vec![PollFlags::IN; connections.len()];
        poll.step(connections, &ready, monotonic_ns());
        client
    }

    /// Enough groups that their tree does not fit into a socket's buffer.
    fn many_groups(memory: &Memory) -> Vec<bursar::Group> {
        let child = |number: u32| memory.root().child(format!("{number}"), Limits::none());
        (0..2_000).map(child).collect::<Result<_, _>>().unwrap()
    }

    fn answered(mut client: &UnixStream) -> String {
        let mut bytes = [0; 256];
        let read = client.read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    #[test]
    fn big_answers_in_progress_are_bounded() {
        let memory = Memory::host().unwrap();
        let groups = many_groups(&memory);
        let bounds = Bounds {
            bytes_held: 1 << 20,
            ..Bounds::default()
        };
        let (poll, _stop) = poll(&memory, bounds);
        let mut connections = Vec::new();
        let tree = b"GET /v1/tree HTTP/1.1\r\n\r\n";
        let first = asked(&poll, &mut connections, tree);
        assert!(answered(&first).starts_with("HTTP/1.1 200"));
        let held = connections[0].bytes_held();
        assert!(held > groups.len() * size_of::<bursar::GroupSnapshot>());
        let second = asked(&poll, &mut connections, tree);
        let refused = answered(&second);
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.contains("\r\nRetry-After: 1\r\n"), "{refused}");
        // The first has gone, and its answer with it.
        connections.remove(0);
        let third = asked(&poll, &mut connections, tree);
        assert!(answered(&third).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_client_that_stops_reading_is_left() {
        let memory = Memory::host().unwrap();
        let _groups = many_groups(&memory);
        let (poll, _stop) = poll(&memory, Bounds::default());
        let mut connections = Vec::new();
        let mut client = asked(&poll, &mut connections, b"GET /v1/tree HTTP/1.1\r\n\r\n");
        // Until the socket takes no more.
        let mut sent_ns = 0;
        while sent_ns < connections[0].active_ns() {
            sent_ns = connections[0].active_ns();
            poll.step(&mut connections, &[PollFlags::OUT], sent_ns + 1);
        }
        let mut connection = connections.remove(0);
        let deadline_ns = connection.deadline_ns();
        assert_eq!(deadline_ns, sent_ns + 60_000_000_000);
        connection.expire(deadline_ns);
        assert!(connection.is_done());
        drop(connection);
        let mut answered = Vec::new();
        client.read_to_end(&mut answered).unwrap();
        assert!(answered.starts_with(b"HTTP/1.1 200"));
        assert!(!answered.ends_with(b"]}\n"));
    }

    #[test]
    fn the_silent_give_way_but_not_at_once() {
        let memory = Memory::host().unwrap();
        let bounds = Bounds {
            connections: 2,
            ..Bounds::default()
        };
        let (poll, _stop) = poll(&memory, bounds);
        poll.listener.set_nonblocking(true).unwrap();
        let mut connections = Vec::new();
        let mut clients = Vec::new();
        for active_ns in [2, 1] {
            let (client, stream) = UnixStream::pair().unwrap();
            connections.extend(poll.admit(stream, active_ns));
            clients.push(client);
        }
        let times = |connections: &[Connection]| -> Vec<u64> {
            connections.iter().map(Connection::active_ns).collect()
        };
        poll.accept(&mut connections, u64::MAX).unwrap();
        assert_eq!(times(&connections), [2, 1], "none waits");
        let address = poll.listener.local_addr().unwrap();
        let _waits = UnixStream::connect_addr(&address).unwrap();
        poll.accept(&mut connections, GRACE_NS).unwrap();
        assert_eq!(times(&connections), [2, 1]);
        poll.accept(&mut connections, GRACE_NS + 1).unwrap();
        assert_eq!(times(&connections), [2, GRACE_NS + 1]);
        assert!(answered(&clients[1]).starts_with("HTTP/1.1 503"));
    }
}
