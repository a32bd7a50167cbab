//! A thousand slow uploads of one tenant, and requests of another, over loopback: whether all finish, what they take, and what the layer costs.
//!
//! The clients are child processes, so their memory is not the server's. Those that upload run at the lowest priority, because real
//! ones have CPUs of their own.
//!
//! ```sh
//! cargo run --release -p bursar-tower --example uploads             # a few uploads
//! cargo run --release -p bursar-tower --example uploads -- full     # all; some minutes
//! cargo run --release -p bursar-tower --example uploads -- beside   # the other tenant's p99, with uploads and without, in pairs; some minutes
//! cargo run --release -p bursar-tower --example uploads -- cost     # the time of a body of 1 MiB, with the layer and without
//! cargo run --release -p bursar-tower --example uploads -- cost 16  # of 16 MiB
//! ```

mod beside;
mod client;
mod cost;

use std::alloc::System;
use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::Request;
use axum::{Router, routing::post};
use bursar::{Bytes, Freshness, Group, Limits, Memory};
use bursar_alloc::Charged;
use bursar_tower::{Admission, BodyLayer, BodyPolicy, TenantLayer};
use http_body_util::BodyExt;
use tokio::net::TcpListener;

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const UPLOAD_BYTES: u64 = 16 << 20;
const LIMIT_BYTES: u64 = 256 << 20;
const WINDOW_BYTES: u64 = 128 << 10;
/// The longest wait of a body: no upload may be refused.
const PATIENCE: Duration = Duration::from_secs(3600);
const SAMPLE: Duration = Duration::from_millis(50);

/// Reads a body, and keeps none of it.
pub(crate) async fn count(mut body: Body) -> String {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, axum::body::Bytes::len);
    }
    bytes.to_string()
}

/// Reads a body, and keeps its chunks until its end.
async fn keep(mut body: Body) -> String {
    let mut chunks = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        chunks.extend(frame.into_data());
    }
    let bytes: usize = chunks.iter().map(axum::body::Bytes::len).sum();
    bytes.to_string()
}

/// Has axum collect a body, as most handlers do.
async fn collect(body: axum::body::Bytes) -> String {
    body.len().to_string()
}

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/count", post(count))
        .route("/keep", post(keep))
        .route("/collect", post(collect))
        .layer(DefaultBodyLimit::disable())
}

/// The policy of each path.
pub(crate) fn policy(request: &Request<Body>) -> BodyPolicy {
    let policy = match request.uri().path() {
        "/keep" | "/collect" => BodyPolicy::buffered(),
        _ => BodyPolicy::streamed(WINDOW_BYTES),
    };
    policy.patience(PATIENCE)
}

/// All requests are of `acme`, except those with the header `other`.
pub(crate) fn tenants(
    acme: &Group,
    other: &Group,
) -> TenantLayer<impl Fn(&Request<Body>) -> Admission<Body> + Clone + use<>> {
    let (acme, other) = (acme.clone(), other.clone());
    TenantLayer::new(move |request: &Request<Body>| {
        let is_other = request.headers().contains_key("other");
        Admission::Granted(if is_other { &other } else { &acme }.clone())
    })
}

pub(crate) async fn listen(app: Router) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Size of a run.
struct Scale {
    uploads: u64,
    /// Least seconds of an upload under each policy: all go on at once, or 16.
    streamed: u64,
    buffered: u64,
    /// Time of the other tenant's requests alone.
    alone: Duration,
}

const QUICK: Scale = Scale {
    uploads: 20,
    streamed: 1,
    buffered: 1,
    alone: Duration::from_secs(1),
};
const FULL: Scale = Scale {
    uploads: 1000,
    streamed: 120,
    buffered: 1,
    alone: Duration::from_secs(30),
};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => show(QUICK).await,
        ["full"] => show(FULL).await,
        ["beside"] => beside::show().await,
        ["cost"] => cost::show(NonZero::<usize>::MIN).await,
        ["cost", mib] => cost::show(mib.parse()?).await,
        ["upload", address, path, count, seconds] => {
            client::upload(address.parse()?, path, count.parse()?, seconds.parse()?).await
        }
        ["ask", address] => client::ask(address.parse()?).await,
        _ => Err("usage: uploads [full | beside | cost [MIB]]".into()),
    }
}

/// Bytes that the process has in memory.
fn resident() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("statm")?.parse()?;
    Ok(pages * 4096)
}

fn child(nice: &str, arguments: &[&str]) -> Result<Child> {
    let mut command = Command::new("nice");
    let program = std::env::current_exe()?;
    command.args(["-n", nice]).arg(program).args(arguments);
    Ok(command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?)
}

/// Ends the input of a child, and returns its output.
async fn said(child: Child) -> Result<String> {
    let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await??;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A server with the two tenants, of which `acme` has the limit.
async fn serve() -> Result<(Memory, Group, String)> {
    let memory = Memory::builder().ticker(true).build()?;
    let acme = memory.root().child("acme", Limits::max(LIMIT_BYTES))?;
    let other = memory.root().child("other", Limits::none())?;
    let app = routes()
        .layer(BodyLayer::new(policy))
        .layer(tenants(&acme, &other));
    let address = listen(app).await?.to_string();
    Ok((memory, acme, address))
}

/// Times of the other tenant's requests for so long without uploads.
async fn ask_alone(address: &str, time: Duration) -> Result<String> {
    let others = child("0", &["ask", address])?;
    tokio::time::sleep(time).await;
    said(others).await
}

async fn show(scale: Scale) -> Result<()> {
    let (memory, acme, address) = serve().await?;
    let bytes = Bytes(UPLOAD_BYTES);
    let count = scale.uploads.to_string();
    println!("{count} uploads of {bytes}, limit {}", Bytes(LIMIT_BYTES));
    println!(
        "| uploads | done | refused | s | charged, most | resident, most | others' requests | p50, ms | p99, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let alone = async || -> Result<()> {
        let seconds = scale.alone.as_secs();
        let asked = ask_alone(&address, scale.alone).await?;
        println!("| none | | | {seconds} | | | {asked} |");
        Ok(())
    };
    alone().await?;
    for (path, seconds) in [("/count", scale.streamed), ("/keep", scale.buffered)] {
        let before = resident()?;
        let began = tokio::time::Instant::now();
        let others = child("0", &["ask", &address])?;
        let uploads = child(
            "19",
            &["upload", &address, path, &count, &seconds.to_string()],
        )?;
        let (mut charged, mut most) = (0, 0);
        let mut done = std::pin::pin!(said(uploads));
        let done = loop {
            tokio::select! {
                done = &mut done => break done?,
                () = tokio::time::sleep(SAMPLE) => {
                    most = most.max(resident()?.saturating_sub(before));
                    charged = charged.max(acme.read(Freshness::Exact)?.usage_bytes());
                }
            }
        };
        let took = began.elapsed().as_secs();
        let asked = said(others).await?;
        let (charged, most) = (Bytes(charged), Bytes(most));
        println!("| {path} | {done} | {took} | {charged} | {most} | {asked} |");
        alone().await?;
    }
    println!(
        "left: {}",
        Bytes(memory.root().read(Freshness::Exact)?.usage_bytes())
    );
    Ok(())
}
