//! A server of several tenants on tokio, and one client that shows what it does.
//!
//! `cargo run --release -p bursar-example-server` takes about a second. `tenants.rs` is the part to read first: each tenant
//! is a group with a limit, its cache gives memory back when a query needs it, and a query waits a while before it fails.

#![forbid(unsafe_code)]

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

mod cache;
mod server;
mod tenants;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use bursar::Memory;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::tenants::Tenants;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Refusals and reclaim, as events of the library's feature `tracing`.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let memory = Memory::builder().max(96 << 20).ticker(true).build()?;
    let address = server::serve(Arc::new(Tenants::new(memory))).await?;
    let mut client = Client::connect(address).await?;
    let mut slow = Client::connect(address).await?;

    println!("Two tenants, each with a limit:");
    client.ask("ADMIT gold 64").await?;
    client.ask("ADMIT free 8").await?;

    println!("\nA cache that has grown to its tenant's limit gives back what a query needs:");
    for key in 0..8 {
        client
            .ask_quietly(&format!("PUT free page-{key} 1000"))
            .await?;
    }
    client.ask("TREE").await?;
    client.ask("QUERY free 3000 1").await?;
    client.ask("GET free page-0").await?;
    client.ask("GET free page-7").await?;

    println!("\nA query that can never fit fails at once, and the refusal names the limit:");
    client.ask("QUERY free 9000 1").await?;
    client.ask("LIMIT free 12").await?;
    client.ask("QUERY free 9000 1").await?;

    println!("\nA query waits for memory that another one holds, for 200 ms at most:");
    println!(
        "  (another client) QUERY free 12000 100: {}",
        slow.ask_quietly("QUERY free 12000 100").await?
    );
    client.ask("QUERY free 11000 1").await?;
    println!("  (another client): {}", slow.answer().await?);

    println!(
        "\nA tenant that leaves is empty when REMOVE returns, though a query was still running:"
    );
    println!(
        "  (another client) QUERY free 4000 100: {}",
        slow.ask_quietly("QUERY free 4000 100").await?
    );
    client.ask("REMOVE free").await?;
    println!("  (another client): {}", slow.answer().await?);
    client.ask("TREE").await?;
    Ok(())
}

/// A connection to the server.
struct Client {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writes: OwnedWriteHalf,
}

impl Client {
    async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let (reads, writes) = TcpStream::connect(address).await?.into_split();
        Ok(Self {
            lines: BufReader::new(reads).lines(),
            writes,
        })
    }

    async fn answer(&mut self) -> std::io::Result<String> {
        let line = self.lines.next_line().await?;
        line.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    async fn ask_quietly(&mut self, request: &str) -> std::io::Result<String> {
        self.writes
            .write_all(format!("{request}\n").as_bytes())
            .await?;
        self.answer().await
    }

    /// Sends a request and prints it with its answer; a tree ends with an empty line.
    async fn ask(&mut self, request: &str) -> std::io::Result<()> {
        let mut line = self.ask_quietly(request).await?;
        println!("  {request}");
        println!("    {line}");
        // More lines follow a tree's first and a query's `running`.
        let is_tree = request == "TREE";
        while is_tree || line == "running" {
            line = self.answer().await?;
            if is_tree && line.is_empty() {
                break;
            }
            println!("    {line}");
        }
        Ok(())
    }
}
