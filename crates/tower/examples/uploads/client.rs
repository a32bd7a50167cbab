//! The clients, in processes of their own.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{Result, UPLOAD_BYTES};

static PART: [u8; 64 << 10] = [7; 64 << 10];
/// Connections of the tenant that does not upload, and the pause between two requests of one.
const CONNECTIONS: usize = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// Uploads all bodies at once, each in at least so many seconds; prints how many were served and refused.
pub(crate) async fn upload(server: SocketAddr, path: &str, count: u64, seconds: u64) -> Result<()> {
    let mut uploads = JoinSet::new();
    for number in 0..count {
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {UPLOAD_BYTES}\r\n\r\n");
        uploads.spawn(async move {
            // Connections are made one after the other, as far as the queue of the listener reaches.
            tokio::time::sleep(Duration::from_millis(number)).await;
            let socket = TcpSocket::new_v4()?;
            // Otherwise the sockets of a thousand clients take all memory that the kernel has for TCP.
            socket.set_send_buffer_size(64 << 10)?;
            let mut stream = socket.connect(server).await?;
            stream.write_all(head.as_bytes()).await?;
            let parts = UPLOAD_BYTES / PART.len() as u64;
            let pause = Duration::from_secs(seconds) / u32::try_from(parts)?;
            for _ in 0..parts {
                stream.write_all(&PART).await?;
                tokio::time::sleep(pause).await;
            }
            answer(&mut stream, UPLOAD_BYTES).await
        });
    }
    let answers = uploads.join_all().await;
    let served = answers.iter().filter(|answer| answer.is_ok()).count();
    println!("{served} | {}", answers.len() - served);
    Ok(())
}

/// Reads one answer, which must have the number of bytes that were sent.
async fn answer(stream: &mut TcpStream, sent: u64) -> Result<()> {
    let end = format!("\r\n\r\n{sent}");
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("no answer".into());
        }
    }
    Ok(())
}

/// Asks until the input ends; prints the number of requests, and percentiles of their times.
pub(crate) async fn ask(server: SocketAddr) -> Result<()> {
    let (stop, stopped) = tokio::sync::watch::channel(());
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let stopped = stopped.clone();
        connections.spawn(async move {
            let mut stream = TcpStream::connect(server).await?;
            stream.set_nodelay(true)?;
            let mut taken = Vec::new();
            let bytes = PART.len();
            let head = format!(
                "POST /count HTTP/1.1\r\nhost: x\r\nother: 1\r\ncontent-length: {bytes}\r\n\r\n"
            );
            let request = [head.as_bytes(), &PART].concat();
            while stopped.has_changed().is_ok() {
                let began = Instant::now();
                stream.write_all(&request).await?;
                answer(&mut stream, bytes as u64).await?;
                taken.push(began.elapsed());
                tokio::time::sleep(PAUSE).await;
            }
            Result::Ok(taken)
        });
    }
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    drop(stop);
    let mut taken = Vec::new();
    for connection in connections.join_all().await {
        taken.extend(connection?);
    }
    taken.sort();
    let percentile = |percent: usize| taken[rank(taken.len(), percent)].as_secs_f64() * 1e3;
    let (middle, high) = (percentile(50), percentile(99));
    println!("{} | {middle:.2} | {high:.2}", taken.len());
    Ok(())
}

/// Index of a percentile in sorted numbers: that of the smallest one that is no less than this share of all.
fn rank(count: usize, percent: usize) -> usize {
    (count * percent).div_ceil(100).max(1) - 1
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn ranks_of_few_values_are_rounded_up() {
        for (count, percent, expected) in [
            (1, 50, 0),
            (1, 99, 0),
            (20, 50, 9),
            (21, 50, 10),
            (21, 99, 20),
            (100, 99, 98),
            (101, 99, 99),
        ] {
            assert_eq!(rank(count, percent), expected, "{count} {percent}");
        }
    }
}
