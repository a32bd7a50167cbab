//! The layer between a service and its caller: which bytes are charged when, and which of the two is asked.

use std::alloc::System;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::Charged;
use bursar_tower::{Admission, TenantBody, TenantLayer, TenantService};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tower::{Layer, Service, ServiceExt};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

const MIB: usize = 1 << 20;

fn memory() -> Memory {
    Memory::host().unwrap()
}

fn tenant(memory: &Memory, name: &str) -> Group {
    memory.root().child(name, Limits::none()).unwrap()
}

fn usage(group: &Group) -> usize {
    let value = group.read(Freshness::Exact).unwrap().usage().value;
    usize::try_from(value).unwrap()
}

/// A body of frames that it makes when it is asked for them.
struct Frames {
    left: usize,
    /// Allocates when it is dropped.
    last_words: Option<Arc<Mutex<Vec<u8>>>>,
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(words) = &self.last_words {
            *words.lock().unwrap() = vec![1; MIB];
        }
    }
}

impl Body for Frames {
    type Data = std::io::Cursor<Vec<u8>>;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        let data = std::io::Cursor::new(vec![1; MIB]);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.left * MIB) as u64)
    }
}

fn frames(left: usize) -> Frames {
    Frames {
        left,
        last_words: None,
    }
}

/// Requests that reached the service under the layer.
#[derive(Clone, Default)]
struct Asked {
    ready: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
    /// Polls of its futures on threads other than that of their first.
    elsewhere: Arc<AtomicUsize>,
}

/// A service that allocates when it is called, and when its future is polled, and is ready the second time that it is asked.
#[derive(Clone)]
struct Allocating(Asked);

impl Service<Request<()>> for Allocating {
    type Response = Response<Frames>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Frames>, &'static str>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        // Relaxed, here and below: tests look when all is done.
        if self.0.ready.fetch_add(1, Ordering::Relaxed) == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let carried = request.extensions().get::<Group>();
        assert!(carried.is_some(), "its group comes with it");
        let called = vec![1_u8; MIB];
        let elsewhere = self.0.elsewhere.clone();
        Box::pin(async move {
            let first = thread::current().id();
            let mut polled = Vec::new();
            for _ in 0..3 {
                polled.push(vec![1_u8; MIB]);
                yield_once().await;
                let is_elsewhere = thread::current().id() != first;
                elsewhere.fetch_add(usize::from(is_elsewhere), Ordering::Relaxed);
            }
            drop((called, polled));
            match request.uri().path() {
                "/fails" => Err("as asked"),
                _ => Ok(Response::new(frames(3))),
            }
        })
    }
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// By the path: `/nobody` is refused, all else is the tenant's.
fn layered(
    group: &Group,
    asked: &Asked,
) -> TenantService<Allocating, impl Fn(&Request<()>) -> Admission<Frames> + Clone + use<>> {
    let group = group.clone();
    let layer = TenantLayer::new(move |request: &Request<()>| {
        if request.uri().path() == "/nobody" {
            let mut refused = Response::new(frames(1));
            *refused.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Admission::Refused(refused);
        }
        Admission::Granted(group.clone())
    });
    layer.layer(Allocating(asked.clone()))
}

fn granting(
    group: &Group,
) -> TenantLayer<impl Fn(&Request<()>) -> Admission<Frames> + Clone + use<>> {
    let group = group.clone();
    TenantLayer::new(move |_: &Request<()>| Admission::Granted(group.clone()))
}

fn request(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap()
}

/// One poll, by this thread.
fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn poll_frame<B: Body>(body: Pin<&mut B>) -> Option<Result<Frame<B::Data>, B::Error>> {
    match body.poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("these bodies are always ready"),
    }
}

#[test]
fn the_call_the_future_and_the_body_are_the_tenants() {
    let memory = memory();
    let group = tenant(&memory, "call");
    let mut service = layered(&group, &Asked::default());
    // Between polls this thread is in no group.
    let own = || drop(std::hint::black_box(vec![1_u8; 8 * MIB]));
    let mut future = Box::pin(service.call(request("/")));
    assert_eq!(usage(&group) / MIB, 1);
    for polls in 1..=3 {
        own();
        assert!(poll(future.as_mut()).is_pending());
        assert_eq!(usage(&group) / MIB, 1 + polls);
    }
    let Poll::Ready(Ok(response)) = poll(future.as_mut()) else {
        panic!("it is done");
    };
    drop(future);
    assert!(usage(&group) < MIB, "what is left is small");
    assert!(group.peak() < 8 * MIB as u64);

    let mut body = Box::pin(response.into_body());
    assert_eq!(body.group(), Some(&group));
    assert_eq!(body.size_hint().exact(), Some(3 * MIB as u64));
    assert!(!body.is_end_stream());
    let first = poll_frame(body.as_mut());
    assert_eq!(usage(&group) / MIB, 1);
    let second = poll_frame(body.as_mut());
    own();
    assert_eq!(usage(&group) / MIB, 2);
    // Another thread may free them.
    thread::spawn(|| drop(first)).join().unwrap();
    assert_eq!(usage(&group) / MIB, 1);
    drop((second, poll_frame(body.as_mut())));
    assert!(body.is_end_stream() && poll_frame(body.as_mut()).is_none());
    drop(body);
    assert_eq!(usage(&group), 0);
}

#[test]
fn destructors_are_the_tenants() {
    let memory = memory();
    let group = tenant(&memory, "destructors");
    let words: Arc<Mutex<Vec<u8>>> = Arc::default();
    let last_words = words.clone();
    let service = tower::service_fn(move |_: Request<()>| {
        let last_words = Some(last_words.clone());
        async move {
            Ok::<_, Infallible>(Response::new(Frames {
                left: 1,
                last_words,
            }))
        }
    });
    let mut service = granting(&group).layer(service);
    let mut future = pin!(service.call(request("/")));
    let Poll::Ready(Ok(response)) = poll(future.as_mut()) else {
        panic!("it is done");
    };
    // Cut before its end.
    drop(response);
    assert_eq!(usage(&group) / MIB, 1, "what its destructor allocated");
    *words.lock().unwrap() = Vec::new();
    assert!(usage(&group) < MIB);
}

#[test]
fn who_is_refused_never_reaches_the_service() {
    let memory = memory();
    let group = tenant(&memory, "refused");
    let asked = Asked::default();
    let service = layered(&group, &asked);
    let response = runtime().block_on(service.oneshot(request("/nobody")));
    let response = response.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let mut body: Pin<Box<TenantBody<Frames>>> = Box::pin(response.into_body());
    assert_eq!(body.group(), None);
    assert_eq!(body.size_hint().exact(), Some(MIB as u64));
    let frame = poll_frame(body.as_mut()).unwrap().unwrap();
    assert_eq!(frame.data_ref().unwrap().get_ref().len(), MIB);
    assert!(body.is_end_stream());
    assert_eq!(asked.calls.load(Ordering::Relaxed), 0);
    assert_eq!((usage(&group), group.peak()), (0, 0), "nobody pays");
}

#[test]
fn readiness_is_the_services_own() {
    let memory = memory();
    let group = tenant(&memory, "ready");
    let asked = Asked::default();
    let mut service = layered(&group, &asked);
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_pending());
    assert!(service.poll_ready(&mut context).is_ready());
    // The one that is ready is the one that is called, not a clone.
    drop(service.call(request("/")));
    let counts = (&asked.ready, &asked.calls);
    let counts = (
        counts.0.load(Ordering::Relaxed),
        counts.1.load(Ordering::Relaxed),
    );
    assert_eq!(counts, (2, 1));
    assert_eq!(usage(&group), 0, "a future that is dropped half-way");
}

#[test]
fn errors_are_the_services_own() {
    let memory = memory();
    let group = tenant(&memory, "errors");
    let service = layered(&group, &Asked::default());
    let failed = runtime().block_on(service.oneshot(request("/fails")));
    assert_eq!(failed.err(), Some("as asked"));
    assert_eq!(usage(&group), 0);
}

/// Number of times that requests are let loose until one of them has moved.
const ATTEMPTS: usize = 100;

/// Many requests of two tenants on few threads, until some were taken by another thread half-way.
#[test]
fn tenants_stay_apart_when_work_is_stolen() {
    let memory = memory();
    let groups = [tenant(&memory, "one"), tenant(&memory, "two")];
    let asked = Asked::default();
    let services = groups.each_ref().map(|group| layered(group, &asked));
    for _ in 0..ATTEMPTS {
        serve_many(&groups, &services);
        if asked.elsewhere.load(Ordering::Relaxed) > 0 {
            return;
        }
    }
    panic!("no future was polled on two threads");
}

/// Requests of two tenants in turn, all at once.
fn serve_many<P>(groups: &[Group; 2], services: &[TenantService<Allocating, P>; 2])
where
    P: Fn(&Request<()>) -> Admission<Frames> + Clone + Send + 'static,
{
    const REQUESTS: usize = 64;
    let runtime = runtime();
    let bodies: Vec<_> = runtime.block_on(async {
        let tasks: Vec<_> = (0..REQUESTS)
            .map(|number| {
                let service = services[number % 2].clone();
                tokio::spawn(async move {
                    let response = service.oneshot(request("/")).await.unwrap();
                    let mut body = Box::pin(response.into_body());
                    let frame = poll_frame(body.as_mut());
                    tokio::task::yield_now().await;
                    (body, frame)
                })
            })
            .collect();
        let mut bodies = Vec::new();
        for task in tasks {
            bodies.push(task.await.unwrap());
        }
        bodies
    });
    for (number, (body, _)) in bodies.iter().enumerate() {
        assert_eq!(body.group(), Some(&groups[number % 2]));
    }
    for group in groups {
        assert_eq!(usage(group) / MIB, REQUESTS / 2);
    }
    drop(bodies);
    drop(runtime);
    for group in groups {
        assert_eq!(usage(group), 0);
    }
}

/// A group for each request is there as long as its response, and no longer.
#[test]
fn a_group_made_for_one_request() {
    let memory = memory();
    let tenant = tenant(&memory, "requests");
    let (picked, number) = (tenant.clone(), Arc::new(AtomicUsize::new(0)));
    let layer = TenantLayer::new(move |_: &Request<()>| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let made = picked.child(format!("request-{number}"), Limits::none());
        made.map_or_else(
            |_| Admission::Refused(Response::new(frames(0))),
            Admission::Granted,
        )
    });
    let mut service = layer.layer(Allocating(Asked::default()));
    for number in 0..3 {
        let mut future = Box::pin(service.call(request("/")));
        let response = loop {
            if let Poll::Ready(response) = poll(future.as_mut()) {
                break response.unwrap();
            }
        };
        drop(future);
        let mut body = Box::pin(response.into_body());
        let frame = poll_frame(body.as_mut());
        let child = tenant.find(&format!("request-{number}")).unwrap();
        assert_eq!(usage(&child) / MIB, 1);
        drop(child);
        drop(body);
        assert!(tenant.children().is_empty());
        assert_eq!(usage(&tenant) / MIB, 1, "it is still the tenant's");
        drop(frame);
    }
    assert_eq!(usage(&tenant), 0);
}

/// Panics when it is called, or when its future is polled.
fn panicking(
    request: &Request<()>,
) -> impl Future<Output = Result<Response<Frames>, Infallible>> + use<> {
    let number = std::hint::black_box(7);
    assert!(request.uri() != "/call", "a bug in handler {number}");
    async move { panic!("a bug in future {number}") }
}

/// In a process of its own, whose panics print backtraces.
#[test]
fn a_handler_that_panics_leaves_nothing_with_its_tenant() {
    const CHILD: &str = "BURSAR_TEST_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let name = "a_handler_that_panics_leaves_nothing_with_its_tenant";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .envs([(CHILD, "1"), ("RUST_BACKTRACE", "1")])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let has_passed = output.status.success() && text.contains("1 passed");
        return assert!(has_passed, "{text}{error}");
    }
    let memory = memory();
    let tenant = tenant(&memory, "tenant");
    let panics = tower::service_fn(|request: Request<()>| panicking(&request));
    let mut service = granting(&tenant).layer(panics);
    for path in ["/call", "/poll"] {
        for _ in 0..100 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                assert!(poll(pin!(service.call(request(path)))).is_ready());
            }));
            assert!(caught.is_err());
            drop(caught);
            assert_eq!(usage(&tenant), 0, "{path}");
        }
    }
}
