//! A connection that bounds the length of its client's messages, and notices when the client closes it.
//!
//! pgwire by itself accepts messages of up to 1 GiB and keeps them in memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Most bytes of a message before the client has logged in: startup messages and passwords.
pub const LOGIN_BYTES_MAX: usize = 10_000;
/// Most bytes of a later one.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Codes of requests to encrypt, after which another message without a type comes.
const ENCRYPT: [u32; 2] = [80_877_103, 80_877_104];

/// Accepts a connection. While none can be accepted, it waits a moment between tries: nothing tells when files can be opened again.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    accept_from(|| listener.accept()).await.0
}

async fn accept_from<T, F: Future<Output = io::Result<T>>>(next: impl Fn() -> F) -> T {
    loop {
        match next().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                // Such as too many open files.
                eprintln!("sql-server: cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

pub struct Wire {
    stream: Arc<TcpStream>,
    /// Most bytes of a message.
    pub max: usize,
    /// Whether messages begin with a type.
    is_typed: bool,
    /// The first bytes of a message.
    head: Vec<u8>,
    /// Bytes of the message that are to come.
    rest: usize,
}

impl Wire {
    pub fn new(stream: Arc<TcpStream>) -> Self {
        Self {
            stream,
            max: LOGIN_BYTES_MAX,
            is_typed: false,
            head: Vec::new(),
            rest: 0,
        }
    }

    /// Follows the client's messages.
    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let taken = self.rest.min(bytes.len());
                self.rest -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            // Length and code, or type and length.
            let (from, head) = if self.is_typed { (1, 5) } else { (0, 8) };
            if self.head.len() < from + 4 {
                continue;
            }
            let word = |at: usize| {
                self.head
                    .get(at..at + 4)?
                    .try_into()
                    .ok()
                    .map(u32::from_be_bytes)
            };
            let length = word(from).unwrap_or(0) as usize;
            if length > self.max || from + length < head {
                let max = self.max;
                let text = format!("a message of {length} bytes: at most {max} are accepted here");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if self.head.len() == head {
                self.rest = from + length - head;
                self.is_typed |= !ENCRYPT.contains(&word(4).unwrap_or(0));
                self.head.clear();
            }
        }
        Ok(())
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buf.initialize_unfilled()) {
                Ok(count) => {
                    let before = buf.filled().len();
                    buf.advance(count);
                    return Poll::Ready(self.follow(&buf.filled()[before..]));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The stream is closed when it is dropped.
        Poll::Ready(Ok(()))
    }
}

/// Ends when the client has closed the connection, also while the server does not read from it.
pub async fn closed(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => return,
        }
        // Unread bytes keep the connection readable, so a close wakes no task. Look again from time to time.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{poll_fn, ready};
    use std::pin::pin;

    use super::*;

    async fn wire() -> Wire {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        Wire::new(Arc::new(stream))
    }

    #[tokio::test]
    async fn a_listener_that_fails_is_tried_again_after_a_moment() {
        let tries = Cell::new(0);
        let next = || {
            tries.set(tries.get() + 1);
            ready(match tries.get() {
                1 | 2 => Err(io::Error::other("too many open files")),
                _ => Ok("a connection"),
            })
        };
        let mut accepted = pin!(accept_from(next));
        let polled = poll_fn(|context| Poll::Ready(accepted.as_mut().poll(context).is_pending()));
        assert!(polled.await);
        assert_eq!(tries.get(), 1, "it waits, and does not spin");
        assert_eq!((accepted.await, tries.get()), ("a connection", 3));
    }

    fn untyped(code: u32, rest: &[u8]) -> Vec<u8> {
        let length = 8 + rest.len() as u32;
        [&length.to_be_bytes()[..], &code.to_be_bytes(), rest].concat()
    }

    #[tokio::test]
    async fn messages_are_followed_in_pieces_of_any_size() {
        let mut sent = untyped(ENCRYPT[0], &[]);
        sent.extend(untyped(196_608, b"user\0acme\0\0"));
        sent.extend(b"p\0\0\0\x09acme\0Q\0\0\0\x0dSELECT 1\0X\0\0\0\x04");
        for piece in [1, 2, 3, 7, 100] {
            let mut wire = wire().await;
            for piece in sent.chunks(piece) {
                wire.follow(piece).unwrap();
            }
            assert!(
                wire.is_typed && wire.rest == 0 && wire.head.is_empty(),
                "{piece}"
            );
            let error = wire.follow(b"Q\x40\0\0\0").unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("a message of 1073741824 bytes: at most 10000")
            );
        }
    }

    #[tokio::test]
    async fn lengths_that_cannot_be_are_refused() {
        for sent in [
            &b"\x40\0\0\0"[..],
            b"\0\0\0\x07",
            b"GET / HTTP",
            b"\x16\x03\x01\x02\x00",
        ] {
            assert!(wire().await.follow(sent).is_err(), "{sent:?}");
        }
        let mut wire = wire().await;
        wire.follow(&untyped(196_608, b"\0")).unwrap();
        assert!(wire.follow(b"Q\0\0\0\x03").is_err());
    }
}
