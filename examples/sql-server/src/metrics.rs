//! `/metrics` for Prometheus: the groups, admissions, and a few numbers of the server itself.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bursar_prometheus::{Collector, openmetrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{Server, lock};
use crate::wire::accept;

/// Scrapers at a time.
const SCRAPERS_MAX: usize = 4;

/// Answers until the process ends.
pub async fn serve(listener: TcpListener, server: Arc<Server>, limit: u64) {
    let collector = Arc::new(Collector::new(&server.memory).arbiter(&server.arbiter));
    let places = Arc::new(tokio::sync::Semaphore::new(SCRAPERS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = accept(&listener).await;
        let (server, collector) = (server.clone(), collector.clone());
        tokio::spawn(async move {
            let answered = answer(stream, &server, &collector, limit);
            let _ = tokio::time::timeout(Duration::from_secs(5), answered).await;
            drop(place);
        });
    }
}

async fn answer(
    mut stream: TcpStream,
    server: &Server,
    collector: &Arc<Collector>,
    limit: u64,
) -> std::io::Result<()> {
    let mut request = vec![0; 8192];
    let mut length = 0;
    while !request[..length].windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut request[length..]).await? {
            0 => return Ok(()),
            count => length += count,
        }
    }
    let (status, kind, body) = match request.starts_with(b"GET /metrics") {
        true => (
            "200 OK",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            text(server, collector, limit),
        ),
        false => ("404 Not Found", "text/plain", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

fn text(server: &Server, collector: &Arc<Collector>, limit: u64) -> String {
    let mut text = openmetrics(collector);
    text.truncate(text.trim_end().trim_end_matches("# EOF").len());
    let connections = server.connections.load(Relaxed) as u64;
    let gauges = [
        (
            "sql_server_connections",
            "Connections of clients.",
            connections,
        ),
        (
            "sql_server_memory_limit_bytes",
            "Limit of the process (--memory).",
            limit,
        ),
        (
            "sql_server_resident_bytes",
            "Resident memory of the process.",
            resident(),
        ),
        (
            "sql_server_taken_bytes",
            "Bytes that queries really take.",
            server.real.memory().root().reserved(),
        ),
    ];
    for (name, help, value) in gauges {
        // Writing to a string does not fail, here and below.
        let _ = write!(
            text,
            "# TYPE {name} gauge\n# HELP {name} {help}\n{name} {value}\n"
        );
    }
    let _ = text.write_str(
        "# TYPE sql_server_errors counter\n# HELP sql_server_errors Errors sent to clients.\n",
    );
    for ((user, code), count) in &*lock(&server.errors) {
        let _ = writeln!(
            text,
            "sql_server_errors_total{{user=\"{user}\",sqlstate=\"{code}\"}} {count}"
        );
    }
    text + "# EOF\n"
}

/// Resident memory of this process, bytes; 0 where /proc does not tell.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| {
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or(0) << 10
}
