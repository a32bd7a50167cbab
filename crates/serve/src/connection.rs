//! One connection: reads a request, sends the answer, waits until the client has closed. No step waits.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::request::{self, HEAD_BYTES_MAX, Refusal, Status};
use crate::response::{Body, Response};

/// Longest time for an answer, in times that a client has for a piece of it.
const PIECES_TIME_MAX: u64 = 12;

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    state: State,
    /// The part of the answer that is being sent, and how much of it was.
    piece: Vec<u8>,
    sent: usize,
    /// Time that the client has for its request, and for each piece of the answer.
    patience_ns: u64,
    /// Time of the client's last sign of life.
    active_ns: u64,
    /// End of the present state.
    deadline_ns: u64,
    /// Time by which the answer must have been sent.
    latest_ns: u64,
}

#[derive(Debug)]
enum State {
    /// The head of the request so far.
    Reading(Vec<u8>),
    /// The rest of the answer.
    Writing(Body),
    /// All was sent. A connection that is closed before the client's bytes were read would be an error to the client.
    Draining,
    Done,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, now_ns: u64, patience_ns: u64) -> Self {
        Self {
            stream,
            state: State::Reading(Vec::new()),
            piece: Vec::new(),
            sent: 0,
            patience_ns,
            active_ns: now_ns,
            deadline_ns: now_ns.saturating_add(patience_ns),
            latest_ns: u64::MAX,
        }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(crate) fn active_ns(&self) -> u64 {
        self.active_ns
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Events of the socket that [`Connection::step`] waits for.
    pub(crate) fn interest(&self) -> PollFlags {
        match self.state {
            State::Writing(_) => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    /// Bytes of memory that the answer holds, about.
    pub(crate) fn bytes_held(&self) -> usize {
        match &self.state {
            State::Writing(body) => self.piece.capacity() + body.bytes_held(),
            _ => 0,
        }
    }

    /// Goes on after an event of the socket. `answer` is called with a request that is complete.
    pub(crate) fn step(&mut self, now_ns: u64, answer: impl FnOnce(&request::Request) -> Response) {
        match &mut self.state {
            State::Reading(head) => {
                let outcome = read_head(&self.stream, head);
                match outcome {
                    Ok(None) => {}
                    Ok(Some(request)) => {
                        self.active_ns = now_ns;
                        let (head, body) = answer(&request).into_parts();
                        let body = if request.head_only {
                            Body::none()
                        } else {
                            body
                        };
                        self.send(now_ns, head, body);
                    }
                    Err(Ended::Gone) => self.state = State::Done,
                    Err(Ended::Refused(refusal)) => self.refuse(now_ns, refusal),
                }
            }
            State::Writing(_) => self.write(now_ns),
            State::Draining => self.drain(),
            State::Done => {}
        }
    }

    /// Ends a state that has lasted too long.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        if let State::Reading(_) = self.state {
            let reason = "the request did not arrive in time";
            self.refuse(now_ns, Refusal::new(Status::RequestTimeout, reason));
        } else {
            self.state = State::Done;
        }
    }

    /// Answers with a refusal instead of all else.
    pub(crate) fn refuse(&mut self, now_ns: u64, refusal: Refusal) {
        let (head, body) = Response::from(refusal).into_parts();
        self.send(now_ns, head, body);
    }

    /// Ends the connection for the sake of another.
    pub(crate) fn give_way(mut self, now_ns: u64) {
        if let State::Reading(_) = self.state {
            let reason = "other clients need this place: send the request at once";
            self.refuse(now_ns, Refusal::new(Status::Unavailable, reason));
        }
    }

    fn send(&mut self, now_ns: u64, head: Vec<u8>, body: Body) {
        self.piece = head;
        self.sent = 0;
        self.state = State::Writing(body);
        self.deadline_ns = now_ns.saturating_add(self.patience_ns);
        self.latest_ns = now_ns.saturating_add(self.patience_ns.saturating_mul(PIECES_TIME_MAX));
        // Most answers fit into the socket's buffer.
        self.write(now_ns);
    }

    /// Sends the present piece, or the next one.
    fn write(&mut self, now_ns: u64) {
        let State::Writing(body) = &mut self.state else {
            return;
        };
        if self.sent == self.piece.len() {
            self.piece.clear();
            self.sent = 0;
            body.next_piece(&mut self.piece);
        }
        if self.piece.is_empty() {
            // Whatever other process has a copy of the socket: this ends the answer for the client.
            let _ = self.stream.shutdown(Shutdown::Write);
            self.state = State::Draining;
            self.deadline_ns = now_ns.saturating_add(self.patience_ns);
            return;
        }
        match rustix::net::send(&self.stream, &self.piece[self.sent..], SEND) {
            Ok(bytes) => {
                self.sent += bytes;
                self.active_ns = now_ns;
                self.deadline_ns = now_ns.saturating_add(self.patience_ns).min(self.latest_ns);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.state = State::Done,
        }
    }

    /// Reads what the client still sends, to no use.
    fn drain(&mut self) {
        let mut ignored = [0; HEAD_BYTES_MAX];
        match (&self.stream).read(&mut ignored) {
            Ok(0) => self.state = State::Done,
            Ok(_) => {}
            Err(error) if is_later(&error) => {}
            Err(_) => self.state = State::Done,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked process may have a copy of the socket: closing ours would not end the connection.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Without `SIGPIPE`, whose default ends the process.
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::NOSIGNAL;
/// The socket has an option against `SIGPIPE`.
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::empty();

/// Reasons why no request came.
enum Ended {
    /// The client closed, or failed.
    Gone,
    Refused(Refusal),
}

/// Reads what has arrived of a head. `None` if it is not complete.
fn read_head(
    mut stream: &UnixStream,
    head: &mut Vec<u8>,
) -> Result<Option<request::Request>, Ended> {
    let arrived = head.len();
    head.resize(HEAD_BYTES_MAX, 0);
    let read = stream.read(&mut head[arrived..]);
    head.truncate(arrived + read.as_ref().copied().unwrap_or(0));
    match read {
        Ok(0) if head.is_empty() => Err(Ended::Gone),
        Ok(0) => Err(Ended::Refused(Refusal::new(
            Status::BadRequest,
            "the request ended before its head did",
        ))),
        Ok(_) => request::parse(head).map_err(Ended::Refused),
        Err(error) if is_later(&error) => Ok(None),
        Err(_) => Err(Ended::Gone),
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
