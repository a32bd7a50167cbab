//! Tests over real sockets. No test measures a time; the guard only ends one that hangs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bursar::Memory;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::Client;
use crate::cache::ENTRY_BYTES;
use crate::server::{LINE_BYTES_MAX, serve, serve_all};
use crate::tenants::Tenants;

const GUARD: Duration = Duration::from_secs(60);

fn tenants(leave_patience: Duration) -> Tenants {
    let memory = Memory::builder().max(96 << 20).ticker(true).build();
    let mut tenants = Tenants::new(memory.unwrap());
    tenants.leave_patience = leave_patience;
    tenants
}

/// A server with one tenant, `free`, that may have 8 MiB; with a client.
async fn start(leave_patience: Duration) -> (Arc<Tenants>, SocketAddr, Client) {
    let tenants = Arc::new(tenants(leave_patience));
    let address = serve(Arc::clone(&tenants)).await.unwrap();
    let mut client = Client::connect(address).await.unwrap();
    client.gets("ADMIT free 8", "ok").await;
    (tenants, address, client)
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.writes.write_all(text.as_bytes()).await.unwrap();
    }

    /// Checks how the next answer begins.
    async fn reads(&mut self, expected: &str) {
        let answer = timeout(GUARD, self.answer()).await.expect("an answer");
        let answer = answer.unwrap();
        assert!(answer.starts_with(expected), "{answer}, not {expected}");
    }

    /// Sends a request and checks how its answer begins.
    async fn gets(&mut self, request: &str, expected: &str) {
        self.send(&format!("{request}\n")).await;
        self.reads(expected).await;
    }
}

#[tokio::test]
async fn a_value_that_is_made_before_a_removal_and_kept_after_it_is_dropped() {
    let (tenants, _, mut client) = start(Duration::from_millis(1)).await;
    let tenant = tenants.find("free").unwrap();
    // The two halves of a PUT, with a REMOVE between them.
    let value = tenant.cache.make("key", 1 << 20).unwrap();
    let left = "the tenant is removed, but 1.00 MiB are still charged to it";
    client.gets("REMOVE free", left).await;
    let kept = tenant.cache.keep("key", value);
    assert!(kept.is_err_and(|error| error.to_string().contains("removed")));
    assert_eq!(tenant.group.reserved(), 0);
    client.gets("ADMIT free 8", "ok").await;
    client.gets("PUT free key 1", "ok").await;
}

#[tokio::test]
async fn a_value_is_charged_with_its_key_and_its_entry() {
    let (tenants, _, mut client) = start(GUARD).await;
    let group = tenants.find("free").unwrap().group.clone();
    let used = || {
        let reading = group.read(bursar::Freshness::Exact).unwrap();
        reading.usage_bytes() as usize
    };
    let key = "k".repeat(1000);
    client.gets(&format!("PUT free {key} 0"), "ok").await;
    assert_eq!(used(), key.len() + ENTRY_BYTES);
    client.gets(&format!("PUT free {key} 1"), "ok").await;
    assert_eq!(used(), key.len() + ENTRY_BYTES + 1024);
    client.gets("ADMIT nothing 0", "ok").await;
    client.gets("PUT nothing k 0", "cannot charge").await;
}

#[tokio::test]
async fn the_query_of_a_client_that_is_gone_ends() {
    for pipelined in ["", "TREE\nGET free key\n"] {
        let (_, address, mut client) = start(Duration::from_secs(20)).await;
        let mut gone = Client::connect(address).await.unwrap();
        gone.gets("QUERY free 4000 1000000", "running").await;
        gone.send(pipelined).await;
        // When this is answered, the server has seen the requests behind the query, too.
        client.gets("GET free key", "not there").await;
        drop(gone);
        client.gets("REMOVE free", "ok").await;
    }
}

#[tokio::test]
async fn requests_that_come_while_a_query_runs_are_answered_after_it() {
    let (_, _, mut client) = start(GUARD).await;
    client.gets("QUERY free 4000 300", "running").await;
    client.send("PUT free key 1\nGET fr").await;
    client.send("ee key\n").await;
    for expected in ["ok", "ok", "1 KiB"] {
        client.reads(expected).await;
    }
    client.send("QUERY free 4000 1\nGET free key\n").await;
    for expected in ["running", "ok", "1 KiB"] {
        client.reads(expected).await;
    }
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_before_its_end() {
    let (_, _, mut client) = start(GUARD).await;
    let longest = "x".repeat(LINE_BYTES_MAX);
    client.gets(&longest, "expected one of").await;
    client.send(&format!("{longest}x")).await;
    client.reads("a request must be a line of at most").await;
    // The rest of the line is no request, and the next line is one.
    client.send(&longest.repeat(10)).await;
    client.gets(" TREE\nGET free key", "not there").await;
}

#[tokio::test]
async fn the_server_outlives_errors_of_accept() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut failures = 2;
    let accept = async move || {
        if failures > 0 {
            failures -= 1;
            return Err(io::Error::other("too many open files"));
        }
        listener.accept().await.map(|(stream, _)| stream)
    };
    tokio::spawn(serve_all(Arc::new(tenants(GUARD)), accept));
    let mut client = Client::connect(address).await.unwrap();
    client.gets("ADMIT free 8", "ok").await;
}
