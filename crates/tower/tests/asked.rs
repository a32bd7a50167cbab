//! Requests that wait for memory before they are served.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Group, Limits, Memory};
use bursar_arbiter::{Arbiter, Ask, Policy, Widener};
use bursar_tower::{Admission, Asked, TenantLayer, ask_for, refusal};
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

const MIB: u64 = 1 << 20;

/// A memory of 100 MiB, with a tenant of 40.
fn scene() -> (Arbiter, Group) {
    let memory = Memory::builder().max(100 * MIB).build().unwrap();
    let tenant = memory.root().child("acme", Limits::max(40 * MIB)).unwrap();
    (Arbiter::new(&memory, Policy::default()), tenant)
}

fn request(path: &str, bytes: &str) -> Request<()> {
    let request = Request::get(path).header(CONTENT_LENGTH, bytes);
    request.body(()).unwrap()
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Asks for each request, but lets those for `/health` through.
fn layer(
    arbiter: &Arbiter,
    tenant: &Group,
    patience: Option<Duration>,
) -> TenantLayer<impl Fn(&Request<()>) -> Admission<String> + Clone + use<>> {
    let (arbiter, tenant) = (arbiter.clone(), tenant.clone());
    TenantLayer::new(move |request: &Request<()>| {
        if request.uri().path() == "/health" {
            return Admission::Granted(tenant.clone());
        }
        let ask = ask_for(&tenant, request, MIB);
        let ask = match patience {
            Some(patience) => ask.patience(patience),
            None => ask,
        };
        let tenant = tenant.clone();
        Admission::Asked(Asked::new(&arbiter, ask, move |error| {
            refusal(error, &tenant)
        }))
    })
}

/// Answers with the path of the request's group, and counts its calls.
fn service(
    calls: &Arc<AtomicUsize>,
) -> impl Service<
    Request<()>,
    Response = Response<String>,
    Error = Infallible,
    Future: Future<Output = Result<Response<String>, Infallible>> + Send,
> + Clone
+ use<> {
    let calls = calls.clone();
    tower::service_fn(move |request: Request<()>| {
        // Relaxed: the test looks on the same thread.
        calls.fetch_add(1, Ordering::Relaxed);
        let group = request.extensions().get::<Group>().map(Group::path);
        async move { Ok(Response::new(group.unwrap_or_default())) }
    })
}

#[test]
fn a_request_waits_and_its_grant_ends_with_its_body() {
    let (arbiter, tenant) = scene();
    let calls = Arc::default();
    let service = layer(&arbiter, &tenant, None).layer(service(&calls));
    let served = |path, bytes: &str| Box::pin(service.clone().oneshot(request(path, bytes)));
    let mut first = served("/", "31457280");
    let Poll::Ready(Ok(first)) = poll(&mut first) else {
        panic!("there is room");
    };
    let group = first.body().group().unwrap();
    assert_eq!(group.parent(), Some(tenant.clone()));
    assert_eq!(group.limits().max, 30 * MIB);
    let mut second = served("/", "31457280");
    assert!(poll(&mut second).is_pending());
    let Poll::Ready(Ok(health)) = poll(&mut served("/health", "0")) else {
        panic!("it asks for nothing");
    };
    assert_eq!(health.body().group(), Some(&tenant));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    drop(first);
    let Poll::Ready(Ok(second)) = poll(&mut second) else {
        panic!("the first one has ended");
    };
    drop(second);
    assert_eq!(arbiter.admissions().grants, []);
}

#[test]
fn a_client_that_goes_away_leaves_the_queue() {
    let (arbiter, tenant) = scene();
    let calls = Arc::default();
    let service = layer(&arbiter, &tenant, None).layer(service(&calls));
    let all = Ask::new(&tenant, "all").least(40 * MIB, 0);
    let _all = arbiter.try_admit(all).unwrap();
    let mut future = Box::pin(service.oneshot(request("/", "5")));
    assert!(poll(&mut future).is_pending());
    assert_eq!(arbiter.admissions().waiting.len(), 1);
    drop(future);
    assert!(arbiter.admissions().waiting.is_empty());
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[test]
fn a_refusal_says_whose_limit_it_was_and_when_to_ask_again() {
    let (arbiter, tenant) = scene();
    let calls = Arc::default();
    let service = layer(&arbiter, &tenant, Some(Duration::ZERO)).layer(service(&calls));
    let answer = |bytes: &str| {
        let mut future = Box::pin(service.clone().oneshot(request("/", bytes)));
        let Poll::Ready(Ok(response)) = poll(&mut future) else {
            panic!("it has no patience");
        };
        let is_served = response.status() == StatusCode::OK;
        assert_eq!(response.body().group().is_some(), is_served);
        let after = response.headers().get(RETRY_AFTER);
        (
            response.status(),
            after.map(|after| after.to_str().unwrap().to_owned()),
        )
    };
    let grant = |group: &Group, mib| {
        let ask = Ask::new(group, "held").least(mib * MIB, 0);
        arbiter.try_admit(ask).unwrap()
    };
    let own = grant(&tenant, 30);
    let (status, after) = answer("20971520");
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(after.unwrap().parse::<u64>().unwrap() >= 1);
    drop(own);
    let others = grant(&arbiter.memory().root(), 90);
    let (status, after) = answer("20971520");
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(after.is_some());
    drop(others);
    let never = answer("18446744073709551615");
    assert_eq!(never, (StatusCode::PAYLOAD_TOO_LARGE, None));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    // No number: the default counts. So does nothing.
    for odd in ["", "-1", "1e9", "99999999999999999999", "0"] {
        assert_eq!(answer(odd).0, StatusCode::OK, "{odd}");
    }
    tenant.close().unwrap();
    assert_eq!(answer("1"), (StatusCode::SERVICE_UNAVAILABLE, None));
}

#[test]
fn a_request_that_waits_holds_no_permit_of_the_service() {
    let (arbiter, tenant) = scene();
    let calls = Arc::default();
    let one = ConcurrencyLimit::new(service(&calls), 1);
    let service = layer(&arbiter, &tenant, None).layer(one);
    let all = Ask::new(&tenant, "all").least(40 * MIB, 0);
    let all = arbiter.try_admit(all).unwrap();
    let mut waiting = Box::pin(service.clone().oneshot(request("/", "5")));
    assert!(poll(&mut waiting).is_pending());
    let mut health = Box::pin(service.oneshot(request("/health", "0")));
    assert!(poll(&mut health).is_ready(), "the permit is free");
    drop((health, all));
    assert!(poll(&mut waiting).is_ready());
}

#[test]
fn a_request_that_waits_for_a_permit_gives_its_memory_to_the_one_that_has_it() {
    let memory = Memory::builder().max(100 * MIB).build().unwrap();
    let tenant = memory.root().child("acme", Limits::max(40 * MIB)).unwrap();
    let mut policy = Policy::default();
    policy.idle_after = Duration::ZERO;
    let arbiter = Arbiter::new(&memory, policy);
    let handler = tower::service_fn(async |request: Request<()>| {
        let widener = request.extensions().get::<Widener>().unwrap().clone();
        let _own = widener.grow(20 * MIB).await.unwrap();
        let mut goes_on = false;
        poll_fn(|_| match replace(&mut goes_on, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        let _more = widener.grow(10 * MIB).await.unwrap();
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = layer(&arbiter, &tenant, None).layer(ConcurrencyLimit::new(handler, 1));
    let full = tenant.try_charge(40 * MIB).unwrap();
    let size = (20 * MIB).to_string();
    let [mut one, mut two] =
        [(); 2].map(|()| Box::pin(service.clone().oneshot(request("/", &size))));
    assert!(poll(&mut one).is_pending() && poll(&mut two).is_pending());
    drop(full);
    arbiter.tick();
    assert!(poll(&mut one).is_pending());
    assert!(poll(&mut two).is_pending(), "the first has the permit");
    // It needs what is promised to the other.
    assert!(poll(&mut one).is_ready());
    assert!(poll(&mut two).is_pending() && poll(&mut two).is_ready());
}

/// A connection keeps its service, and calls it no more until the answer is there.
#[test]
fn a_caller_that_keeps_its_service_keeps_no_permit_from_its_request() {
    let (arbiter, tenant) = scene();
    let calls = Arc::default();
    let one = ConcurrencyLimit::new(service(&calls), 1);
    let mut service = layer(&arbiter, &tenant, None).layer(one);
    assert!(poll(&mut service.ready()).is_ready());
    let mut answer = Box::pin(service.call(request("/", "5")));
    assert!(poll(&mut answer).is_ready());
}
