//! The protocol: each request is a line, each answer too. A query answers twice: `running`, and `ok` when it has ended.
//! A tree is several lines and an empty one. A client that closes its side of the connection ends the query that it waits for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::tenants::{Failure, Tenants};

/// Most bytes of a request's line, without its end.
pub const LINE_BYTES_MAX: usize = 4 << 10;

/// The time between two looks at a state that wakes no task when it changes.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to an unknown request.
const REQUESTS: &str = "\
ADMIT tenant MiB | LIMIT tenant MiB | REMOVE tenant | PUT tenant key KiB | GET tenant key | QUERY tenant KiB ms | TREE";

/// Starts to serve on a free port of the loopback interface and returns its address.
pub async fn serve(tenants: Arc<Tenants>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve_all(tenants, async move || {
        listener.accept().await.map(|(stream, _)| stream)
    }));
    Ok(address)
}

/// Serves each connection that is accepted. While none can be accepted, it tries again after a pause.
pub async fn serve_all(
    tenants: Arc<Tenants>,
    mut accept: impl AsyncFnMut() -> std::io::Result<TcpStream>,
) {
    loop {
        match accept().await {
            Ok(stream) => {
                tokio::spawn(serve_one(Arc::clone(&tenants), stream));
            }
            Err(error) => {
                // Such as too many open files.
                eprintln!("server: cannot accept: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_one(tenants: Arc<Tenants>, stream: TcpStream) -> std::io::Result<()> {
    let (reads, mut writes) = stream.into_split();
    let mut reads = BufReader::new(reads);
    loop {
        match next_line(&mut reads).await? {
            Line::Whole(line) => {
                let answer = answer(&tenants, &line, reads.get_ref(), &mut writes).await?;
                writes.write_all(format!("{answer}\n").as_bytes()).await?;
            }
            Line::TooLong => {
                let refusal =
                    format!("a request must be a line of at most {LINE_BYTES_MAX} bytes\n");
                writes.write_all(refusal.as_bytes()).await?;
                skip_line(&mut reads).await?;
            }
            Line::End => return Ok(()),
        }
    }
}

enum Line {
    Whole(String),
    /// The line has more than [`LINE_BYTES_MAX`] bytes, and some of them are still to be read.
    TooLong,
    /// The client has closed its side.
    End,
}

/// Reads a line. Keeps no more of it than a request may have.
async fn next_line(reads: &mut BufReader<OwnedReadHalf>) -> std::io::Result<Line> {
    let mut line = Vec::new();
    let mut bounded = reads.take(LINE_BYTES_MAX as u64 + 1);
    bounded.read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(Line::End);
    }
    if line.len() > LINE_BYTES_MAX && !line.ends_with(b"\n") {
        return Ok(Line::TooLong);
    }
    let line = String::from_utf8(line).map_err(|_| std::io::ErrorKind::InvalidData)?;
    Ok(Line::Whole(line))
}

/// Reads to the end of a line, and keeps nothing.
async fn skip_line(reads: &mut BufReader<OwnedReadHalf>) -> std::io::Result<()> {
    loop {
        let bytes = reads.fill_buf().await?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let is_end = end.is_some() || bytes.is_empty();
        let skipped = end.map_or(bytes.len(), |at| at + 1);
        reads.consume(skipped);
        if is_end {
            return Ok(());
        }
    }
}

/// Ends when the client has closed its side of the connection. Reads nothing, so requests that have come already stay.
async fn closed(reads: &OwnedReadHalf) {
    loop {
        match reads.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => return,
        }
        // Unread bytes keep the connection readable, so a close wakes no task. Look again from time to time.
        tokio::time::sleep(PAUSE).await;
    }
}

async fn answer(
    tenants: &Tenants,
    line: &str,
    reads: &OwnedReadHalf,
    writes: &mut OwnedWriteHalf,
) -> std::io::Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let done = match words[..] {
        ["ADMIT", tenant, mib] => number(mib).and_then(|mib| tenants.admit(tenant, mib << 20)),
        ["LIMIT", tenant, mib] => number(mib).and_then(|mib| tenants.limit(tenant, mib << 20)),
        ["PUT", tenant, key, kib] => {
            number(kib).and_then(|kib| tenants.put(tenant, key, (kib as usize) << 10))
        }
        ["REMOVE", tenant] => tenants.remove(tenant).await,
        ["QUERY", tenant, kib, ms] => match (number(kib), number(ms)) {
            (Ok(kib), Ok(ms)) => match tenants.start_query(tenant, kib << 10).await {
                Ok(charge) => {
                    writes.write_all(b"running\n").await?;
                    let done = tokio::select! {
                        // The query's work.
                        () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(()),
                        () = closed(reads) => Err(Failure::Gone),
                    };
                    drop(charge);
                    done
                }
                Err(failure) => Err(failure),
            },
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        },
        ["GET", tenant, key] => match tenants.get(tenant, key) {
            Ok(Some(bytes)) => return Ok(format!("{} KiB", bytes >> 10)),
            Ok(None) => return Ok("not there".to_owned()),
            Err(failure) => Err(failure),
        },
        ["TREE"] => return Ok(format!("{}\n", tenants.tree().trim_end())),
        _ => return Ok(format!("expected one of: {REQUESTS}")),
    };
    Ok(match done {
        Ok(()) => "ok".to_owned(),
        Err(failure) => failure.to_string(),
    })
}

/// Sizes and times up to a million, so that no shift overflows.
fn number(word: &str) -> Result<u64, Failure> {
    match word.parse() {
        Ok(number) if number <= 1_000_000 => Ok(number),
        _ => Err(Failure::NotANumber(word.to_owned())),
    }
}
