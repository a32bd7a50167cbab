//! The protocol: each request is a line, each answer too. A query answers twice: `running`, and `ok` when it has ended.
//! A tree is several lines and an empty one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};

use crate::tenants::{Failure, Tenants};

/// The answer to an unknown request.
const REQUESTS: &str = "\
ADMIT tenant MiB | LIMIT tenant MiB | REMOVE tenant | PUT tenant key KiB | GET tenant key | QUERY tenant KiB ms | TREE";

/// Starts to serve on a free port of the loopback interface and returns its address.
pub async fn serve(tenants: Arc<Tenants>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_one(Arc::clone(&tenants), stream));
        }
    });
    Ok(address)
}

async fn serve_one(tenants: Arc<Tenants>, stream: TcpStream) -> std::io::Result<()> {
    let (reads, mut writes) = stream.into_split();
    let mut lines = BufReader::new(reads).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = answer(&tenants, &line, &mut writes).await?;
        writes.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

async fn answer(
    tenants: &Tenants,
    line: &str,
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
                    tokio::time::sleep(Duration::from_millis(ms)).await; // The query's work.
                    drop(charge);
                    Ok(())
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
