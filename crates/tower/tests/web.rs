//! A server with tenants over loopback: everybody pays for what they are sent, limits refuse, and nothing is left.

#[path = "../examples/tenants_web/client.rs"]
mod client;
mod common;
#[path = "../examples/tenants_web/server.rs"]
mod server;

use std::alloc::System;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Path;
use axum::http::StatusCode;
use axum::{
    Router,
    routing::{get, post},
};
use bursar::{Limits, Memory};
use bursar_alloc::Charged;
use bursar_rig::random::Random;
use client::Client;
use common::{runtime, usage};
use http_body_util::BodyExt;
use hyper::body::Frame;
use server::{TENANT, Tenants};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

const MIB: usize = 1 << 20;

fn tenants(memory: &Memory, limits: [(&str, Limits); 3]) -> Tenants {
    let groups = limits.map(|(name, limits)| {
        let group = memory.root().child(name, limits).unwrap();
        (name.to_string(), group)
    });
    Arc::new(BTreeMap::from(groups))
}

fn unlimited(memory: &Memory) -> Tenants {
    let names = ["gold", "silver", "bronze"];
    tenants(memory, names.map(|name| (name, Limits::none())))
}

fn assert_nothing_is_left(memory: &Memory, tenants: &Tenants) {
    for (name, group) in tenants.iter() {
        assert_eq!(usage(group), 0, "{name}");
    }
    assert_eq!(usage(&memory.root()), 0);
}

/// A server that listens.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Running {
    async fn start(routes: Router, tenants: &Tenants) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let app = server::in_tenants(routes, tenants);
        let server = tokio::spawn(server::serve(listener, app, async {
            drop(stopped.await);
        }));
        Self {
            address,
            stop,
            server,
        }
    }

    async fn client(&self) -> Client {
        Client::connect(self.address).await.unwrap()
    }

    /// A connection that knows nothing of HTTP, and what it says first.
    async fn say(&self, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("{words} HTTP/1.1\r\nhost: localhost\r\n{TENANT}: gold\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// Waits until all connections are gone: so their clients must be.
    async fn end(self) {
        drop(self.stop);
        self.server.await.unwrap();
    }
}

#[test]
fn each_tenant_pays_for_what_it_is_sent() {
    const CLIENTS: usize = 4;
    let memory = Memory::host().unwrap();
    let tenants = unlimited(&memory);
    let sizes = [("gold", 4 * MIB), ("silver", MIB), ("bronze", 100_000)];
    // All responses are there at once.
    let gathered = Arc::new(Barrier::new(CLIENTS * sizes.len()));
    let routes = Router::new().route(
        "/{bytes}",
        get(move |Path(bytes): Path<usize>| async move {
            let blob = vec![1_u8; bytes];
            gathered.wait().await;
            blob
        }),
    );
    let runtime = runtime();
    runtime.block_on(async {
        let running = Running::start(routes, &tenants).await;
        let mut clients = JoinSet::new();
        for (tenant, bytes) in sizes {
            for _ in 0..CLIENTS {
                let mut client = running.client().await;
                clients.spawn(async move {
                    let answer = client.get(tenant, &format!("/{bytes}")).await.unwrap();
                    assert_eq!(answer, (StatusCode::OK, bytes));
                    client.close().await.unwrap();
                });
            }
        }
        clients.join_all().await;
        running.end().await;
    });
    // With the runtime still there.
    assert_nothing_is_left(&memory, &tenants);
    for (tenant, bytes) in sizes {
        let peak = tenants[tenant].peak();
        assert!(peak >= (CLIENTS * bytes) as u64, "{tenant}: {peak}");
    }
    // And for nothing else.
    assert!(tenants["silver"].peak() < (2 * CLIENTS * MIB) as u64);
    assert!(tenants["bronze"].peak() < (CLIENTS * MIB) as u64);
}

#[test]
fn a_tenant_over_its_limit_is_refused_and_others_are_served() {
    let memory = Memory::host().unwrap();
    let limits = [
        ("gold", Limits::max(MIB as u64)),
        ("silver", Limits::max(MIB as u64)),
        ("bronze", Limits::max(MIB as u64)),
    ];
    let tenants = tenants(&memory, limits);
    let (built, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (is_built, is_released) = (built.clone(), released.clone());
    let routes = Router::new()
        .route("/little", get(async || vec![1_u8; 50_000]))
        .route(
            "/much",
            get(async move || {
                let blob = vec![1_u8; 4 * MIB];
                is_built.add_permits(1);
                is_released.acquire().await.unwrap().forget();
                blob
            }),
        );
    let runtime = runtime();
    runtime.block_on(async {
        let running = Running::start(routes, &tenants).await;
        let mut greedy = running.client().await;
        let much = tokio::spawn(async move {
            let answer = greedy.get("bronze", "/much").await.unwrap();
            (greedy, answer)
        });
        built.acquire().await.unwrap().forget();
        assert!(tenants["bronze"].is_over_max());

        let mut client = running.client().await;
        for _ in 0..3 {
            for (tenant, expected) in [
                ("bronze", StatusCode::SERVICE_UNAVAILABLE),
                ("gold", StatusCode::OK),
                ("silver", StatusCode::OK),
                ("nobody", StatusCode::FORBIDDEN),
            ] {
                let (status, bytes) = client.get(tenant, "/little").await.unwrap();
                assert_eq!(status, expected, "{tenant}");
                assert_eq!(bytes == 50_000, status == StatusCode::OK);
            }
        }
        // Requests that are served already go on; and once they are sent, there is room again.
        released.add_permits(1);
        let (mut greedy, answer) = much.await.unwrap();
        assert_eq!(answer, (StatusCode::OK, 4 * MIB));
        let answer = greedy.get("bronze", "/little").await.unwrap();
        assert_eq!(answer, (StatusCode::OK, 50_000));
        greedy.close().await.unwrap();
        client.close().await.unwrap();
        running.end().await;
    });
    assert_nothing_is_left(&memory, &tenants);
}

/// Frames without end.
struct Endless;

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![1; 64 << 10])))))
    }
}

#[test]
fn a_connection_cut_half_way_leaves_nothing() {
    let memory = Memory::host().unwrap();
    let tenants = unlimited(&memory);
    let begun = Arc::new(Semaphore::new(0));
    let (is_begun, is_reading) = (begun.clone(), begun.clone());
    let routes = Router::new()
        .route("/endless", get(async || Body::new(Endless)))
        .route(
            "/never",
            get(async move || {
                let blob = vec![1_u8; MIB];
                is_begun.add_permits(1);
                std::future::pending::<()>().await;
                drop(blob);
            }),
        )
        .route(
            "/upload",
            post(async move |mut body: Body| {
                let mut parts = Vec::new();
                while let Some(Ok(frame)) = body.frame().await {
                    let data = frame.into_data().unwrap();
                    parts.push(data.to_vec());
                    is_reading.add_permits(data.len());
                }
            }),
        );
    let gold = &tenants["gold"];
    let runtime = runtime();
    runtime.block_on(async {
        // While the response is sent.
        let running = Running::start(routes.clone(), &tenants).await;
        let mut stream = running.say("GET /endless").await;
        stream.write_all(b"\r\n").await.unwrap();
        let mut some = vec![0; MIB];
        stream.read_exact(&mut some).await.unwrap();
        assert!(gold.peak() >= 64 << 10);
        drop(stream);
        running.end().await;
        assert_nothing_is_left(&memory, &tenants);

        // While the handler waits.
        let running = Running::start(routes.clone(), &tenants).await;
        let mut stream = running.say("GET /never").await;
        stream.write_all(b"\r\n").await.unwrap();
        begun.acquire().await.unwrap().forget();
        assert!(usage(gold) >= MIB as i64);
        drop(stream);
        running.end().await;
        assert_nothing_is_left(&memory, &tenants);

        // While the request is received.
        let running = Running::start(routes.clone(), &tenants).await;
        let mut stream = running.say("POST /upload").await;
        let rest = format!("content-length: {MIB}\r\n\r\n");
        stream.write_all(rest.as_bytes()).await.unwrap();
        stream.write_all(&some[..MIB / 2]).await.unwrap();
        let half = u32::try_from(MIB / 2).unwrap();
        begun.acquire_many(half).await.unwrap().forget();
        assert!(usage(gold) >= MIB as i64 / 2);
        drop(stream);
        running.end().await;
        assert_nothing_is_left(&memory, &tenants);
    });
}

/// The example, with a handler that gives memory to other workers.
#[test]
fn under_load_nothing_is_left() {
    const CLIENTS: u64 = 4;
    const REQUESTS: u64 = 40;
    let memory = Memory::host().unwrap();
    let limits = [
        ("gold", Limits::none()),
        ("silver", Limits::max(64 * MIB as u64)),
        ("bronze", Limits::max(MIB as u64 / 4)),
    ];
    let tenants = tenants(&memory, limits);
    let routes = Router::new().route(
        "/{bytes}",
        get(async |Path(bytes): Path<usize>| {
            let blob = vec![1_u8; bytes];
            let scratch = blob.clone();
            let freed = tokio::spawn(async move { drop(scratch) });
            tokio::task::yield_now().await;
            freed.await.unwrap();
            blob
        }),
    );
    let runtime = runtime();
    let refused = runtime.block_on(async {
        let running = Running::start(routes, &tenants).await;
        let mut clients = JoinSet::new();
        for tenant in ["gold", "silver", "bronze"] {
            for seed in 0..CLIENTS {
                let mut client = running.client().await;
                clients.spawn(async move {
                    let mut random = Random::new(seed);
                    let mut refused = 0;
                    for _ in 0..REQUESTS {
                        let bytes = 1000 + random.below(1 << 18) as usize;
                        match client.get(tenant, &format!("/{bytes}")).await.unwrap() {
                            (StatusCode::OK, sent) => assert_eq!(sent, bytes),
                            (status, _) => {
                                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
                                refused += 1;
                            }
                        }
                    }
                    client.close().await.unwrap();
                    (tenant, refused)
                });
            }
        }
        let refused = clients.join_all().await;
        running.end().await;
        refused
    });
    // Workers keep queues of wakers that yielded, which they allocated while they polled for a tenant.
    drop(runtime);
    assert_nothing_is_left(&memory, &tenants);
    for (tenant, refused) in refused {
        assert!(tenant == "bronze" || refused == 0, "{tenant}: {refused}");
    }
}
