//! Three tenants of a web server, each with a limit, and the clients that load it, over loopback.
//!
//! Each request is served in its tenant's group, so all that its handler and its response allocate is its tenant's, until it is
//! sent. Bronze asks for more at a time than it may have: some of its requests are refused, and the others' are not. At the end
//! nobody holds anything.
//!
//! ```sh
//! cargo run --release -p bursar-tower --example tenants_web
//! ```

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

mod client;
mod server;

use std::alloc::System;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::{Extension, Router, routing::get};
use bursar::{Bytes, Freshness, Group, Limits, Memory};
use bursar_alloc::{Charged, InGroupExt};
use client::{Client, Error};
use server::Tenants;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

/// Names and limits, bytes.
const TENANTS: [(&str, u64); 3] = [
    ("gold", 64 << 20),
    ("silver", 32 << 20),
    ("bronze", 3 << 20),
];
/// Connections of each tenant, each used by one client after the other's answer.
const CONNECTIONS: u64 = 8;
const REQUESTS_PER_CONNECTION: u64 = 150;
/// Bytes of the largest response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// Time that another service takes to answer.
const BACKEND: Duration = Duration::from_millis(2);
/// Longest time of the whole example.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response of that many bytes, which waits for another service, and has another task work for the same tenant meanwhile.
async fn blob(Extension(tenant): Extension<Group>, Path(bytes): Path<usize>) -> Vec<u8> {
    let blob = vec![b'.'; bytes.min(RESPONSE_BYTES_MAX)];
    let mut scratch = blob[..blob.len() / 4].to_vec();
    tokio::time::sleep(BACKEND).await;
    // On whichever worker takes the task; it allocates for the tenant, and frees.
    let work = async move { scratch.extend_from_within(..) };
    let worked = tokio::spawn(work.in_group(&tenant));
    tokio::task::yield_now().await;
    drop(worked.await);
    blob
}

/// Outcome of a tenant's requests.
#[derive(Default)]
struct Answers {
    requests: u64,
    refused: u64,
    bytes: u64,
}

/// One client: a request after the other, of sizes that its seed says.
async fn ask(server: SocketAddr, tenant: &str, seed: u64) -> Result<Answers, Error> {
    let mut client = Client::connect(server).await?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut answers = Answers::default();
    for _ in 0..REQUESTS_PER_CONNECTION {
        let wanted = random.usize(1..=RESPONSE_BYTES_MAX);
        let (status, bytes) = client.get(tenant, &format!("/blob/{wanted}")).await?;
        answers.requests += 1;
        match status {
            StatusCode::OK if bytes == wanted => answers.bytes += bytes as u64,
            StatusCode::SERVICE_UNAVAILABLE => answers.refused += 1,
            _ => return Err(format!("{status}, {bytes} bytes of {wanted}").into()),
        }
    }
    client.close().await?;
    Ok(answers)
}

/// All clients of all tenants at once.
async fn load(server: SocketAddr) -> Result<BTreeMap<&'static str, Answers>, Error> {
    let mut clients = JoinSet::new();
    for (tenant, _) in TENANTS {
        for seed in 0..CONNECTIONS {
            clients.spawn(async move { (tenant, ask(server, tenant, seed).await) });
        }
    }
    let mut sums: BTreeMap<_, Answers> = BTreeMap::new();
    while let Some(ended) = clients.join_next().await {
        let (tenant, answers) = ended?;
        let answers = answers?;
        let sum = sums.entry(tenant).or_default();
        sum.requests += answers.requests;
        sum.refused += answers.refused;
        sum.bytes += answers.bytes;
    }
    Ok(sums)
}

async fn run(tenants: &Tenants) -> Result<BTreeMap<&'static str, Answers>, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/blob/{bytes}", get(blob));
    let app = server::in_tenants(app, tenants);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server::serve(listener, app, async {
        drop(stopped.await);
    }));
    let answers = tokio::time::timeout(PATIENCE, load(address)).await??;
    drop(stop);
    server.await?;
    Ok(answers)
}

/// Bytes that are charged to a group.
fn left(group: &Group) -> i64 {
    group
        .read(Freshness::Exact)
        .expect("the policy flushes")
        .usage()
        .value
}

fn print(tenants: &Tenants, answers: &BTreeMap<&str, Answers>) {
    println!("tenant   requests  refused (503)        sent        peak       limit        left");
    for (name, limit) in TENANTS {
        let (group, answers) = (&tenants[name], &answers[name]);
        println!(
            "{name:8} {:8} {:14} {:>11} {:>11} {:>11} {:>11}",
            answers.requests,
            answers.refused,
            Bytes(answers.bytes).to_string(),
            Bytes(group.peak()).to_string(),
            Bytes(limit).to_string(),
            left(group),
        );
    }
}

fn main() -> Result<ExitCode, Error> {
    // Nothing here makes reservations, so only a ticker takes back the stock that counts against the limits.
    let memory = Memory::builder().ticker(true).build()?;
    let mut tenants = BTreeMap::new();
    for (name, limit) in TENANTS {
        let group = memory.root().child(name, Limits::max(limit))?;
        tenants.insert(name.to_string(), group);
    }
    let tenants = Arc::new(tenants);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    let answers = runtime.block_on(run(&tenants))?;
    drop(runtime);
    print(&tenants, &answers);
    let is_nothing_left = tenants.values().all(|group| left(group) == 0);
    Ok(if is_nothing_left {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
