//! Bodies over loopback, under axum, tonic and plain hyper: tenants at their limit are held back alone, and nothing is left after bad clients.

mod common;

use std::alloc::System;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Extension, Router};
use bursar::{Group, Limits, Memory};
use bursar_alloc::Charged;
use bursar_arbiter::{Arbiter, Policy};
use bursar_tower::{Admission, Asked, BodyLayer, BodyPolicy, ChargedBody, TenantLayer, refusal};
use bytes::{Buf, BufMut, Bytes};
use common::{runtime, usage};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Status, Streaming};
use tower::{Layer, Service};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

const MIB: usize = 1 << 20;
const WINDOW: u64 = 128 << 10;

/// Looks again and again until a condition holds.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

/// Two tenants, the second one without a limit.
struct Scene {
    memory: Memory,
    arbiter: Arbiter,
    acme: Group,
    other: Group,
    is_asked: bool,
    patience: Duration,
}

impl Scene {
    fn new(max: usize) -> Self {
        // Memory that a handler frees wakes nobody: the ticker does.
        let memory = Memory::builder().ticker(true).build().unwrap();
        let acme = Limits::max(max as u64);
        Self {
            acme: memory.root().child("acme", acme).unwrap(),
            other: memory.root().child("other", Limits::none()).unwrap(),
            arbiter: Arbiter::new(&memory, Policy::default()),
            memory,
            is_asked: false,
            patience: Duration::from_secs(600),
        }
    }

    /// The layers above a service. Bodies of `/keep` are reserved whole.
    #[expect(clippy::type_complexity, reason = "two layers of closures")]
    fn layers<Q: http_body::Body, B: Default + 'static>(
        &self,
    ) -> (
        TenantLayer<
            impl Fn(&Request<Q>) -> Admission<B> + Clone + Send + Sync + 'static + use<Q, B>,
        >,
        BodyLayer<impl Fn(&Request<Q>) -> BodyPolicy + Clone + Send + Sync + 'static + use<Q, B>>,
    ) {
        let patience = self.patience;
        let policy = move |request: &Request<Q>| {
            let policy = match request.uri().path() {
                "/keep" => BodyPolicy::buffered(),
                _ => BodyPolicy::streamed(WINDOW),
            };
            policy.patience(patience)
        };
        let (acme, other) = (self.acme.clone(), self.other.clone());
        let asks = self.is_asked.then(|| self.arbiter.clone());
        let tenants = TenantLayer::new(move |request: &Request<Q>| {
            let is_other = request.headers().contains_key("other");
            let tenant = if is_other { &other } else { &acme }.clone();
            let Some(arbiter) = &asks else {
                return Admission::Granted(tenant);
            };
            let ask = policy(request).ask(&tenant, request);
            Admission::Asked(Asked::new(arbiter, ask, move |error| {
                refusal(error, &tenant).map(|_| B::default())
            }))
        });
        (tenants, BodyLayer::new(policy))
    }

    fn axum(&self) -> Router {
        let (tenants, bodies) = self.layers::<Body, Body>();
        Router::new()
            .route("/keep", post(async |body: Bytes| body.len().to_string()))
            .route("/count", post(count))
            .route(
                "/half",
                post(async |mut body: Body| drop(body.frame().await)),
            )
            .route("/echo", post(async |body: Body| body))
            .route("/panic", post(panics))
            .layer(DefaultBodyLimit::disable())
            .layer(bodies)
            .layer(tenants)
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(usage(&self.memory.root()), 0);
        assert_eq!(self.arbiter.admissions().grants, []);
    }
}

/// Reads a body, and keeps none of it.
async fn count(body: Body) -> Response<Body> {
    count_any(body).await.into_response()
}

async fn count_any<B: http_body::Body<Data = Bytes> + Unpin>(mut body: B) -> String {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    bytes.to_string()
}

async fn panics(Extension(tenant): Extension<Group>, mut body: Body) {
    let held = body.frame().await;
    panic!("{} holds {}", tenant.path(), held.is_some());
}

/// A server that listens.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Running {
    async fn start<S, B>(app: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, mut stopped) = oneshot::channel();
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    _ = &mut stopped => break,
                    accepted = listener.accept() => accepted,
                };
                let stream = TokioIo::new(accepted.unwrap().0);
                let service = TowerToHyperService::new(app.clone());
                connections.spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A client that is gone is no error of the server's.
                    drop(server.serve_connection(stream, service).await);
                });
            }
            while connections.join_next().await.is_some() {}
        });
        Self {
            address,
            stop,
            server,
        }
    }

    /// A connection that has sent the head of a request.
    async fn say(&self, path: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// Sends a body of a known length, and returns the answer.
    async fn post(&self, path: &str, headers: &str, bytes: usize) -> String {
        let headers = format!("content-length: {bytes}{headers}");
        let mut stream = self.say(path, &headers).await;
        stream.write_all(&vec![7; bytes]).await.unwrap();
        answer(&mut stream).await
    }

    /// Waits until all connections are gone: so their clients must be.
    async fn end(self) {
        drop(self.stop);
        self.server.await.unwrap();
    }
}

/// The answer, as far as it came.
async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn is_counted(answer: &str, bytes: usize) -> bool {
    status(answer) == "200" && answer.ends_with(&format!("\r\n\r\n{bytes}"))
}

#[test]
fn a_tenant_at_its_limit_holds_back_its_own_uploads_alone() {
    for path in ["/count", "/keep"] {
        let scene = Scene::new(8 * MIB);
        let held = scene.acme.try_charge(8 * MIB as u64).unwrap();
        let runtime = runtime();
        runtime.block_on(async {
            let running = Arc::new(Running::start(scene.axum()).await);
            let mut uploads = JoinSet::new();
            for _ in 0..3 {
                let running = running.clone();
                uploads.spawn(async move { running.post(path, "", 7 * MIB).await });
            }
            until(|| scene.acme.engine().has_waiters()).await;
            for _ in 0..4 {
                let answer = running.post(path, "\r\nother: 1", 4 * MIB).await;
                assert!(is_counted(&answer, 4 * MIB), "{answer}");
            }
            assert!(uploads.try_join_next().is_none(), "there is no room");
            drop(held);
            for answer in uploads.join_all().await {
                assert!(is_counted(&answer, 7 * MIB), "{answer}");
            }
            Arc::into_inner(running).unwrap().end().await;
        });
        scene.assert_nothing_is_left();
    }
}

#[test]
fn a_body_that_can_never_fit_is_refused_before_the_client_sends_it() {
    for is_asked in [false, true] {
        let scene = Scene {
            is_asked,
            ..Scene::new(MIB)
        };
        runtime().block_on(async {
            let running = Running::start(scene.axum()).await;
            let headers = format!("expect: 100-continue\r\ncontent-length: {}", 2 * MIB);
            let mut stream = running.say("/keep", &headers).await;
            assert_eq!(status(&answer(&mut stream).await), "413");
            drop(stream);
            running.end().await;
        });
        scene.assert_nothing_is_left();
    }
}

/// A bad client, under a limit of 4 MiB. Looks at the status that it sees.
async fn misbehave(running: &Running, scene: &Scene, case: &str) {
    static PART: [u8; 64 << 10] = [7; 64 << 10];
    let (seen, expected): (String, &[&str]) = match case {
        "longer than its length" => {
            let mut stream = running.say("/keep", "content-length: 1000").await;
            let _ = stream.write_all(&PART[..5000]).await;
            (answer(&mut stream).await, &["200", ""])
        }
        "shorter than its length" => {
            let mut stream = running.say("/keep", "content-length: 100000").await;
            stream.write_all(&PART[..5000]).await.unwrap();
            stream.shutdown().await.unwrap();
            (answer(&mut stream).await, &["400", ""])
        }
        "without end" => {
            let mut stream = running.say("/keep", "transfer-encoding: chunked").await;
            let (mut reads, mut writes) = stream.split();
            let mut part = b"10000\r\n".to_vec();
            part.extend(PART);
            part.extend(b"\r\n");
            let send = async {
                while writes.write_all(&part).await.is_ok() {}
                std::future::pending().await
            };
            let mut first = [0; 12];
            tokio::select! {
                () = send => unreachable!("it sends for ever"),
                // A grant knows that it can never fit: 413. The server may close the connection before the answer is read.
                _ = reads.read_exact(&mut first) => {}
            }
            (
                String::from_utf8_lossy(&first).into_owned(),
                &["429", "413", "\0"],
            )
        }
        "byte by byte" => {
            let mut stream = running.say("/keep", "content-length: 3000").await;
            stream.set_nodelay(true).unwrap();
            for byte in &PART[..3000] {
                stream.write_all(std::slice::from_ref(byte)).await.unwrap();
            }
            (answer(&mut stream).await, &["200"])
        }
        "cut by the client" => {
            let mut stream = running.say("/keep", "content-length: 3000000").await;
            stream.write_all(&PART).await.unwrap();
            until(|| usage(&scene.acme) >= 3_000_000).await;
            (String::new(), &[""])
        }
        "dropped by the handler" => {
            let mut stream = running.say("/half", "content-length: 3000000").await;
            stream.write_all(&PART).await.unwrap();
            (answer(&mut stream).await, &["200", ""])
        }
        "of a handler that panics" => {
            let mut stream = running.say("/panic", "content-length: 3000000").await;
            stream.write_all(&PART).await.unwrap();
            (answer(&mut stream).await, &[""])
        }
        "with an answer half sent" => {
            let mut stream = running.say("/echo", "content-length: 50000000").await;
            let (mut reads, mut writes) = stream.split();
            let send = async {
                while writes.write_all(&PART).await.is_ok() {}
                std::future::pending().await
            };
            let mut some = vec![0; MIB];
            tokio::select! {
                () = send => unreachable!("it sends for ever"),
                read = reads.read_exact(&mut some) => drop(read.unwrap()),
            }
            (String::from_utf8_lossy(&some[..100]).into_owned(), &["200"])
        }
        _ => unreachable!("{case}"),
    };
    let seen = match seen.as_str() {
        "\0\0\0\0\0\0\0\0\0\0\0\0" => "\0",
        answer => status(answer),
    };
    assert!(expected.contains(&seen), "{case}: {seen:?}");
}

#[test]
fn nothing_is_left_after_bad_bodies() {
    let cases = [
        "longer than its length",
        "shorter than its length",
        "without end",
        "byte by byte",
        "cut by the client",
        "dropped by the handler",
        "of a handler that panics",
        "with an answer half sent",
    ];
    for is_asked in [false, true] {
        for case in cases {
            let scene = Scene {
                is_asked,
                patience: Duration::from_millis(100),
                ..Scene::new(4 * MIB)
            };
            // It outlives the test of what is left, as a server's does.
            let runtime = runtime();
            runtime.block_on(async {
                let running = Running::start(scene.axum()).await;
                misbehave(&running, &scene, case).await;
                running.end().await;
            });
            scene.assert_nothing_is_left();
        }
    }
}

#[test]
fn a_client_that_goes_away_while_its_body_waits_leaves_nothing() {
    let scene = Scene::new(4 * MIB);
    let held = scene.acme.try_charge(4 * MIB as u64).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        let running = Running::start(scene.axum()).await;
        let stream = running.say("/keep", "content-length: 3000000").await;
        until(|| scene.acme.engine().has_waiters()).await;
        drop(stream);
        drop(held);
        running.end().await;
    });
    scene.assert_nothing_is_left();
}

#[test]
fn plain_hyper_over_both_protocols() {
    let scene = Scene::new(8 * MIB);
    let (tenants, bodies) = scene.layers::<Incoming, Full<Bytes>>();
    let handler = tower::service_fn(|request: Request<ChargedBody<Incoming>>| async {
        let counted = count_any(request.into_body()).await;
        Ok::<_, Infallible>(Response::new(Full::from(counted)))
    });
    let app = tenants.layer(bodies.layer(handler));
    let runtime = runtime();
    runtime.block_on(async {
        let running = Running::start(app).await;
        let answer = running.post("/", "", 5 * MIB).await;
        assert!(is_counted(&answer, 5 * MIB), "{answer}");
        let (status, counted) = post_http2(&running, "/", vec![7; 5 * MIB]).await;
        assert_eq!(
            (status, counted),
            (StatusCode::OK, Bytes::from((5 * MIB).to_string()))
        );
        let (status, _) = post_http2(&running, "/keep", vec![7; 9 * MIB]).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        running.end().await;
    });
    scene.assert_nothing_is_left();
    let most = scene.acme.peak();
    assert!((WINDOW..MIB as u64).contains(&most), "{most}");
}

/// Sends a body over HTTP/2, and returns the answer.
async fn post_http2(running: &Running, path: &str, body: Vec<u8>) -> (StatusCode, Bytes) {
    let stream = TcpStream::connect(running.address).await.unwrap();
    let io = TokioIo::new(stream);
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .body(Full::<Bytes>::from(body))
        .unwrap();
    let response = requests.send_request(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    drop(requests);
    let _ = connection.await.unwrap();
    (status, bytes)
}

/// Messages that are bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

/// A method of a gRPC service: the bytes of all messages of a stream.
async fn sum(mut messages: Streaming<Vec<u8>>) -> Result<tonic::Response<Vec<u8>>, Status> {
    let mut bytes = 0;
    while let Some(message) = messages.message().await? {
        bytes += message.len();
    }
    Ok(tonic::Response::new(bytes.to_string().into_bytes()))
}

#[test]
fn messages_of_tonic_are_charged() {
    const MESSAGE: usize = 100_000;
    let scene = Scene::new(8 * MIB);
    let (tenants, bodies) = scene.layers::<Incoming, tonic::body::Body>();
    let method = tower::service_fn(|request: Request<ChargedBody<Incoming>>| async {
        let method = tower::service_fn(|request: tonic::Request<_>| sum(request.into_inner()));
        let mut server = tonic::server::Grpc::new(Raw);
        Ok::<_, Infallible>(server.client_streaming(method, request).await)
    });
    let app = tenants.layer(bodies.layer(method));
    let runtime = runtime();
    runtime.block_on(async {
        let running = Running::start(app).await;
        let mut messages = Vec::new();
        for _ in 0..50 {
            messages.push(0);
            messages.extend(u32::try_from(MESSAGE).unwrap().to_be_bytes());
            messages.extend(vec![7; MESSAGE]);
        }
        let (status, counted) = post_http2(&running, "/sum", messages.clone()).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(&counted[5..], (50 * MESSAGE).to_string().as_bytes());
        messages.extend(vec![0; 8 * MIB]);
        let (status, _) = post_http2(&running, "/keep", messages).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        running.end().await;
    });
    scene.assert_nothing_is_left();
    let most = scene.acme.peak();
    assert!(
        (WINDOW + MESSAGE as u64..MIB as u64).contains(&most),
        "{most}"
    );
}
