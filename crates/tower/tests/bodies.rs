//! Bodies of requests in memory, with a clock that the tests move: which bytes are charged when, and who is refused or ended.

use std::alloc::System;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::Charged;
use bursar_arbiter::{Arbiter, Ask, Policy};
use bursar_tower::{
    Admission, Asked, BodyError, BodyLayer, BodyPolicy, ChargedBody, TenantLayer, ask_for, refusal,
};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A body that its client sends piece by piece.
struct Sent {
    frames: UnboundedReceiver<Frame<Bytes>>,
    /// Bytes that its client said it would send, and has not sent.
    left: Option<u64>,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = self.frames.poll_recv(context);
        if let (Poll::Ready(Some(frame)), Some(left)) = (&polled, self.left) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.left = Some(left.saturating_sub(bytes as u64));
        }
        polled.map(|frame| frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or(SizeHint::new(), SizeHint::with_exact)
    }
}

type Client = UnboundedSender<Frame<Bytes>>;

fn send(client: &Client, bytes: usize) {
    // A body that is gone takes no more.
    let _ = client.send(Frame::data(Bytes::from(vec![7; bytes])));
}

fn request(length: impl Into<Option<usize>>) -> (Client, Request<Sent>) {
    let (client, frames) = unbounded_channel();
    let left = length.into().map(|length| length as u64);
    (client, Request::new(Sent { frames, left }))
}

fn usage(group: &Group) -> usize {
    let value = group.read(Freshness::Exact).unwrap().usage().value;
    usize::try_from(value).unwrap()
}

fn tenant(max: usize) -> Group {
    let memory = Memory::builder().max(100 * MIB as u64).build().unwrap();
    memory
        .root()
        .child("acme", Limits::max(max as u64))
        .unwrap()
}

type Answer = Response<String>;

/// Sends a request of the group through the layer alone, to a service that gives its body to the test.
fn open(
    group: &Group,
    policy: BodyPolicy,
    mut request: Request<Sent>,
) -> impl Future<Output = Result<ChargedBody<Sent>, Answer>> + Send + use<> {
    request.extensions_mut().insert(group.clone());
    let body = Arc::new(Mutex::new(None));
    let slot = body.clone();
    let service = tower::service_fn(move |request: Request<ChargedBody<Sent>>| {
        *slot.lock().unwrap() = Some(request.into_body());
        async { Ok::<_, Infallible>(Answer::default()) }
    });
    let service = BodyLayer::new(move |_: &Request<Sent>| policy).layer(service);
    async move {
        let answer = service.oneshot(request).await.unwrap();
        body.lock().unwrap().take().ok_or(answer)
    }
}

async fn chunk(body: &mut ChargedBody<Sent>) -> Bytes {
    let frame = body
        .frame()
        .await
        .expect("more is sent")
        .expect("there is room");
    frame.into_data().expect("data")
}

fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
    future
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

#[tokio::test(start_paused = true)]
async fn a_window_stays_charged_and_more_is_charged_for_chunks_that_are_held() {
    let group = tenant(MIB);
    let (client, sent) = request(None);
    let mut body = open(&group, BodyPolicy::streamed(64 << 10), sent)
        .await
        .unwrap();
    assert_eq!(usage(&group), 64 * KIB, "before the first byte");
    send(&client, 40 * KIB);
    send(&client, 40 * KIB);
    let first = chunk(&mut body).await;
    assert_eq!((first.len(), usage(&group)), (40 * KIB, 64 * KIB));
    let second = chunk(&mut body).await;
    assert_eq!(
        (second.len(), usage(&group)),
        (24 * KIB, 64 * KIB),
        "what the window has"
    );
    assert_eq!(body.size_hint().lower(), 16 * KIB as u64);
    let third = chunk(&mut body).await;
    assert_eq!((third.len(), usage(&group)), (16 * KIB, 80 * KIB));
    let copy = first.clone();
    drop((first, second, third));
    assert_eq!(usage(&group), 64 * KIB);
    drop(body);
    assert_eq!(usage(&group), 64 * KIB, "the copy of a chunk");
    drop(copy);
    assert_eq!(usage(&group), 0);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_dropped_makes_room_for_a_body_that_waits() {
    let group = tenant(64 * KIB);
    let (client, sent) = request(None);
    let mut body = open(&group, BodyPolicy::streamed(64 << 10), sent)
        .await
        .unwrap();
    send(&client, 64 * KIB);
    send(&client, 64 * KIB);
    let first = chunk(&mut body).await;
    let reader = tokio::spawn(async move { (chunk(&mut body).await.len(), body) });
    // The reader waits now; the chunk is dropped by another task.
    tokio::task::yield_now().await;
    let began = Instant::now();
    drop(first);
    let (length, body) = reader.await.unwrap();
    assert_eq!((length, began.elapsed()), (64 * KIB, Duration::ZERO));
    drop(body);
    assert_eq!(usage(&group), 0);
}

#[tokio::test(start_paused = true)]
async fn a_whole_body_is_reserved_and_handed_on_as_one_chunk() {
    for is_short in [false, true] {
        let group = tenant(2 * MIB);
        let (client, sent) = request(MIB);
        let mut body = open(&group, BodyPolicy::buffered(), sent).await.unwrap();
        // The tenant has no room for another one, but this one needs none.
        let held = group.try_charge(MIB as u64).unwrap();
        let parts = if is_short { 2 } else { 4 };
        for _ in 0..parts {
            assert!(is_pending(pin!(body.frame())));
            assert_eq!(body.size_hint().exact(), Some(MIB as u64));
            send(&client, MIB / 4);
        }
        if is_short {
            assert!(is_pending(pin!(body.frame())));
            assert!(!body.is_end_stream());
        }
        drop(client);
        let whole = chunk(&mut body).await;
        assert_eq!(whole.len(), parts * MIB / 4);
        assert_eq!(usage(&group), 2 * MIB);
        assert!(body.frame().await.is_none());
        // The rest of the reserve is given back.
        assert_eq!(usage(&group), MIB + whole.len());
        drop((body, whole, held));
        assert_eq!(usage(&group), 0);
    }
}

/// A block of megabytes would stay with the allocator when it is freed.
#[tokio::test(start_paused = true)]
async fn a_long_body_is_reserved_whole_and_handed_on_as_it_comes() {
    let length = MIB + 4;
    let group = tenant(length);
    let (client, sent) = request(length);
    let mut body = open(&group, BodyPolicy::buffered(), sent).await.unwrap();
    for _ in 0..4 {
        send(&client, length / 4);
        let next = tokio::time::timeout(Duration::from_secs(1), chunk(&mut body));
        assert_eq!(next.await.expect("it does not wait").len(), length / 4);
    }
    drop(client);
    assert!(body.frame().await.is_none());
    assert_eq!(usage(&group), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_longer_than_it_said_pays_for_the_rest() {
    let group = tenant(MIB);
    let (client, sent) = request(10 * KIB);
    let mut body = open(&group, BodyPolicy::buffered(), sent).await.unwrap();
    send(&client, 30 * KIB);
    let parts = [chunk(&mut body).await, chunk(&mut body).await];
    assert_eq!(parts.each_ref().map(Bytes::len), [10 * KIB, 20 * KIB]);
    assert_eq!(usage(&group), 30 * KIB);
    drop((parts, body));
    assert_eq!(usage(&group), 0);
}

#[tokio::test(start_paused = true)]
async fn small_chunks_keep_no_buffer_and_pay_for_their_blocks() {
    /// A buffer that says when it is freed.
    struct Buffer(#[expect(dead_code, reason = "counts the buffers")] Arc<()>);
    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &[1; 128 * KIB]
        }
    }
    let streamed = BodyPolicy::streamed(1 << 10);
    let buffered = BodyPolicy::buffered();
    // The policy, bytes of a chunk, its charge, and how many of 100 chunks keep their buffers.
    for (policy, length, charged, kept) in [
        // After the first 16.
        (streamed, 1, 210, 0),
        (streamed, 8 * KIB, 8 * KIB, 0),
        // The first one comes in parts, which are copied.
        (streamed, 9 * KIB, 9 * KIB, 99),
        (buffered, 64 * KIB, 64 * KIB, 0),
    ] {
        let group = tenant(16 * MIB);
        let (client, sent) = request(None);
        let mut body = open(&group, policy, sent).await.unwrap();
        let lives = Arc::new(());
        let mut chunks = Vec::new();
        for _ in 0..100 {
            let mut buffer = Bytes::from_owner(Buffer(lives.clone()));
            client.send(Frame::data(buffer.split_to(length))).unwrap();
            drop(buffer);
            let mut got = 0;
            while got < length {
                chunks.push(chunk(&mut body).await);
                got += chunks.last().map_or(0, Bytes::len);
            }
        }
        let used = usage(&group);
        assert!(
            (charged..=charged.max(256)).contains(&(used / 100)),
            "{used}"
        );
        assert_eq!(Arc::strong_count(&lives) - 1, kept, "{length}");
        drop((chunks, body));
        assert_eq!(usage(&group), 0);
    }
}

/// Pieces as TCP cuts them. A charge for each short one would lack bytes in the end, and all bodies of a full tenant would wait for them.
#[tokio::test(start_paused = true)]
async fn a_whole_body_never_waits_however_it_is_cut() {
    // Of up to 1 MiB it is one chunk.
    for (pieces, chunks) in [(128, 1), (256, 256)] {
        let length = pieces / 2 * 16 * KIB;
        let group = tenant(length);
        let (client, sent) = request(length);
        let body = open(&group, BodyPolicy::buffered(), sent).await.unwrap();
        for _ in 0..pieces / 2 {
            send(&client, 16 * KIB - 53);
            send(&client, 53);
        }
        drop(client);
        // It would be refused after a wait: nobody returns memory.
        let kept = keep(body).await.unwrap();
        assert_eq!((kept.len(), usage(&group)), (chunks, length));
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_and_empty_frames_pass() {
    let group = tenant(MIB);
    let (client, sent) = request(None);
    let mut body = open(&group, BodyPolicy::streamed(1 << 10), sent)
        .await
        .unwrap();
    send(&client, 0);
    assert!(chunk(&mut body).await.is_empty());
    client.send(Frame::trailers(HeaderMap::new())).unwrap();
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    drop(client);
    assert!(body.frame().await.is_none());
    assert_eq!(usage(&group), 0, "at its end, not when it is dropped");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_exempt_or_empty_are_not_charged() {
    let group = tenant(MIB);
    let _full = group.try_charge(MIB as u64).unwrap();
    let (client, sent) = request(2 * MIB);
    let mut body = open(&group, BodyPolicy::uncharged(), sent).await.unwrap();
    send(&client, 2 * MIB);
    let all = chunk(&mut body).await;
    assert_eq!((all.len(), usage(&group)), (2 * MIB, MIB));
    let (_client, empty) = request(0);
    open(&group, BodyPolicy::buffered(), empty).await.unwrap();
    // A request that no layer above gave a group.
    let service = tower::service_fn(|_: Request<ChargedBody<Sent>>| async {
        Ok::<_, Infallible>(Answer::default())
    });
    let layer = BodyLayer::new(|_: &Request<Sent>| BodyPolicy::buffered());
    let (_client, sent) = request(2 * MIB);
    let answer = layer.layer(service).oneshot(sent).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

async fn refused(group: &Group, length: usize) -> (StatusCode, Option<String>) {
    let (_client, sent) = request(length);
    let policy = BodyPolicy::buffered().patience(Duration::from_millis(4500));
    let answer = open(group, policy, sent).await.unwrap_err();
    let after = answer.headers().get(RETRY_AFTER);
    let after = after.map(|after| after.to_str().unwrap().to_owned());
    (answer.status(), after)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_fit_is_refused_before_it_is_read() {
    let group = tenant(40 * MIB);
    let began = Instant::now();
    let never = refused(&group, 41 * MIB).await;
    assert_eq!(never, (StatusCode::PAYLOAD_TOO_LARGE, None));
    let never = refused(&group, 1 << 57).await;
    assert_eq!(never, (StatusCode::PAYLOAD_TOO_LARGE, None));
    assert_eq!(began.elapsed(), Duration::ZERO);
    let held = group.try_charge(30 * MIB as u64).unwrap();
    let own = refused(&group, 20 * MIB).await;
    assert_eq!(own, (StatusCode::TOO_MANY_REQUESTS, Some("5".to_owned())));
    assert!(began.elapsed() >= Duration::from_millis(4500), "it waited");
    drop(held);
    let others = group.memory().root().try_charge(90 * MIB as u64).unwrap();
    let above = refused(&group, 20 * MIB).await;
    assert_eq!(
        above,
        (StatusCode::SERVICE_UNAVAILABLE, Some("5".to_owned()))
    );
    drop(others);
    group.close().unwrap();
    let removed = refused(&group, MIB).await;
    assert_eq!(removed, (StatusCode::SERVICE_UNAVAILABLE, None));
    assert_eq!(usage(&group.memory().root()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_waits_until_others_return_memory() {
    let group = tenant(MIB);
    let held = group.try_charge(MIB as u64).unwrap();
    let (_client, sent) = request(MIB);
    let mut opened = pin!(open(&group, BodyPolicy::buffered(), sent));
    assert!(is_pending(opened.as_mut()));
    assert!(group.engine().has_waiters());
    drop(held);
    let body = opened.await.unwrap();
    assert!(!group.engine().has_waiters());
    drop(body);
    assert_eq!(usage(&group), 0);
}

/// A connection keeps its service, and calls it no more until the answer is there.
#[tokio::test(start_paused = true)]
async fn a_caller_that_keeps_its_service_keeps_no_permit_from_its_request() {
    let group = tenant(MIB);
    let held = group.try_charge(MIB as u64).unwrap();
    let handler = tower::service_fn(async |_: Request<ChargedBody<Sent>>| {
        Ok::<_, Infallible>(Answer::default())
    });
    let layer = BodyLayer::new(|_: &Request<Sent>| BodyPolicy::buffered());
    let mut service = layer.layer(ConcurrencyLimit::new(handler, 1));
    let (_client, mut sent) = request(MIB);
    sent.extensions_mut().insert(group.clone());
    let mut answer = pin!(service.ready().await.unwrap().call(sent));
    assert!(is_pending(answer.as_mut()));
    drop(held);
    assert!(!is_pending(answer.as_mut()));
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_reserves_no_layers_bound() {
    let group = tenant(MIB);
    let handler = tower::service_fn(|request: Request<ChargedBody<Limited<Sent>>>| async {
        let body = request.into_body().collect().await.unwrap();
        Ok::<_, Infallible>(Response::new(body.to_bytes()))
    });
    let layer = BodyLayer::new(|_: &Request<Limited<Sent>>| BodyPolicy::buffered());
    for (bound, reserved) in [(100 * MIB, 64 * KIB), (10, 10)] {
        let (client, sent) = request(None);
        let mut sent = sent.map(|body| Limited::new(body, bound));
        assert_eq!(sent.body().size_hint().upper(), Some(bound as u64));
        sent.extensions_mut().insert(group.clone());
        let mut answer = pin!(layer.clone().layer(handler).oneshot(sent));
        assert!(is_pending(answer.as_mut()));
        assert_eq!(usage(&group), reserved);
        send(&client, 3);
        drop(client);
        assert_eq!(answer.await.unwrap().body().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_something_else_keeps_others_waiting_no_longer_than_its_patience() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let group = tenant(MIB);
    let held = group.try_charge(MIB as u64 - 64 * KIB as u64).unwrap();
    let handler = tower::service_fn(|request: Request<ChargedBody<Sent>>| async {
        let mut body = pin!(request.into_body());
        let mut kept = Vec::new();
        let second = Duration::from_secs(1);
        while let Ok(frame) = tokio::time::timeout(second, body.frame()).await {
            kept.push(frame.unwrap().unwrap());
        }
        sleep(100 * second).await;
        // The error comes late, but the body does not look complete.
        let error = body.frame().await.unwrap().unwrap_err();
        Ok::<_, Infallible>(Answer::new(error.to_string()))
    });
    let layer = BodyLayer::new(|_: &Request<Sent>| BodyPolicy::buffered().patience(PATIENCE));
    let (client, mut sent) = request(None);
    sent.extensions_mut().insert(group.clone());
    (0..3).for_each(|_| send(&client, 64 * KIB));
    let began = Instant::now();
    let answer = tokio::spawn(layer.layer(handler).oneshot(sent));
    // It waits, behind all that there is, and gives one read up. The time is virtual: when the sleep ends, all has been done that is due before.
    sleep(Duration::from_millis(1500)).await;
    drop(held);
    let all = group.limits().max - 64 * KIB as u64;
    let waited = group.charge_async(all).await.map(|_| began.elapsed());
    assert_eq!(waited.unwrap(), PATIENCE);
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
}

/// Reads a body as a handler does that keeps each chunk.
async fn keep(
    body: ChargedBody<Sent>,
) -> Result<Vec<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let mut body = pin!(body);
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        kept.extend(frame?.into_data());
    }
    Ok(kept)
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_length_grows_by_steps_until_its_patience_ends() {
    let group = tenant(256 * KIB);
    let errors = Arc::new(Mutex::new(None));
    let seen = errors.clone();
    let service = tower::service_fn(move |request: Request<ChargedBody<Sent>>| {
        let seen = seen.clone();
        async move {
            let error = keep(request.into_body()).await.unwrap_err();
            *seen.lock().unwrap() = error.downcast::<BodyError>().ok();
            Ok::<_, Infallible>(Answer::new("the handler's own".to_owned()))
        }
    });
    let layer = BodyLayer::new(|_: &Request<Sent>| BodyPolicy::buffered());
    let (client, mut sent) = request(None);
    sent.extensions_mut().insert(group.clone());
    let mut answer = pin!(layer.layer(service).oneshot(sent));
    assert!(is_pending(answer.as_mut()));
    for steps in [1, 2, 3, 4, 4] {
        send(&client, 64 * KIB);
        assert!(is_pending(answer.as_mut()));
        assert_eq!(usage(&group), steps * 64 * KIB);
    }
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers()[RETRY_AFTER], "30");
    assert_eq!(answer.body(), "");
    let error = errors.lock().unwrap().take().expect("the handler's");
    assert_eq!(
        error.to_string(),
        "no room for 64.0 KiB of the body in 30.0s: the limit of /acme is in the way"
    );
    assert_eq!(usage(&group), 0);
}

/// A body of the group, whose client sends `bytes` every second of `seconds`; returns the error that ended it.
async fn trickle(
    group: &Group,
    bytes: usize,
    seconds: u64,
    read_every: Duration,
) -> Option<BodyError> {
    let before = usage(group);
    let (client, sent) = request(None);
    let policy = BodyPolicy::streamed(64 << 10).min_rate(1000);
    let mut body = open(group, policy, sent).await.unwrap();
    let client = tokio::spawn(async move {
        for _ in 0..seconds {
            send(&client, bytes);
            sleep(Duration::from_secs(1)).await;
        }
    });
    let ended = loop {
        sleep(read_every).await;
        match body.frame().await {
            None => break None,
            Some(Ok(_)) => {}
            Some(Err(error)) => break Some(*error.downcast().unwrap()),
        }
    };
    assert_eq!(usage(group), before, "at its end");
    client.await.unwrap();
    ended
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_ended_only_while_others_wait() {
    let group = tenant(MIB);
    assert_eq!(
        trickle(&group, 10, 60, Duration::ZERO).await,
        None,
        "nobody waits"
    );
    let (_client, sent) = request(MIB);
    let policy = BodyPolicy::buffered().patience(Duration::from_secs(1000));
    let mut waiting = pin!(open(&group, policy, sent));
    let held = group.try_charge(1).unwrap();
    assert!(is_pending(waiting.as_mut()));
    assert_eq!(
        trickle(&group, 2000, 60, Duration::ZERO).await,
        None,
        "it is fast enough"
    );
    let slow_handler = trickle(&group, 10, 60, Duration::from_secs(2)).await;
    assert_eq!(slow_handler, None, "the client is not in the way");
    let began = Instant::now();
    let ended = trickle(&group, 10, 60, Duration::ZERO)
        .await
        .expect("it is too slow");
    assert_eq!(
        ended,
        BodyError::TooSlow {
            rate: 10,
            min_rate: 1000
        }
    );
    assert_eq!(ended.status(), StatusCode::REQUEST_TIMEOUT);
    // The client of the test goes on.
    assert_eq!(began.elapsed().as_secs(), 60);
    drop(held);
    assert!(waiting.await.is_ok());
    // A charge that waits for another tenant's limit does not count.
    let other = group
        .memory()
        .root()
        .child("other", Limits::max(1))
        .unwrap();
    let _held = other.try_charge(1).unwrap();
    let mut waits = other.charge_async(1);
    assert!(is_pending(Pin::new(&mut waits)));
    assert_eq!(trickle(&group, 10, 60, Duration::ZERO).await, None);
}

/// Tenant, admission and bodies, above a handler that copies each chunk and notes the tenant's usage.
#[tokio::test(start_paused = true)]
async fn nothing_is_reserved_twice() {
    // The runtime keeps a queue of tasks that yielded. No tenant pays for it.
    tokio::task::yield_now().await;
    for is_asked in [false, true] {
        let group = tenant(8 * MIB);
        let arbiter = Arbiter::new(&group.memory(), Policy::default());
        let policy = BodyPolicy::buffered();
        let (asks, tenant) = (arbiter.clone(), group.clone());
        let tenants = TenantLayer::new(move |request: &Request<Sent>| {
            if !is_asked {
                return Admission::Granted(tenant.clone());
            }
            let ask = policy.ask(&tenant, request);
            let tenant = tenant.clone();
            Admission::Asked(Asked::new(&asks, ask, move |error| refusal(error, &tenant)))
        });
        let usages = Arc::new(Mutex::new(Vec::with_capacity(100)));
        let (noted, tenant) = (usages.clone(), group.clone());
        let handler = tower::service_fn(move |request: Request<ChargedBody<Sent>>| {
            let (noted, tenant) = (noted.clone(), tenant.clone());
            async move {
                let mut body = pin!(request.into_body());
                let mut copies = Vec::with_capacity(100);
                while let Some(frame) = body.frame().await {
                    let chunk = frame.unwrap().into_data().unwrap();
                    noted.lock().unwrap().push(usage(&tenant));
                    copies.push(chunk.to_vec());
                }
                noted.lock().unwrap().push(usage(&tenant));
                Ok::<_, Infallible>(Answer::default())
            }
        });
        let bodies = BodyLayer::new(move |_: &Request<Sent>| policy);
        let service = tenants.layer(bodies.layer(handler));
        let (first, sent) = request(4 * MIB);
        let mut answer = pin!(service.clone().oneshot(sent));
        assert!(is_pending(answer.as_mut()));
        let small = 16 * KIB;
        assert!((4 * MIB..4 * MIB + small).contains(&usage(&group)));
        // There is room for half as much again. With the grant and the chunks, or the chunks and their copies, there would be none.
        let (_second, sent) = request(3 * MIB + MIB / 2);
        let mut other = Box::pin(service.clone().oneshot(sent));
        assert!(is_pending(other.as_mut()));
        assert!((7 * MIB + MIB / 2..8 * MIB).contains(&usage(&group)));
        let grants = arbiter.admissions().grants;
        let bytes: Vec<_> = grants.iter().map(|grant| grant.bytes as usize).collect();
        let asked = [4 * MIB + 64 * KIB, 3 * MIB + MIB / 2 + 64 * KIB];
        assert_eq!(bytes, if is_asked { asked.to_vec() } else { Vec::new() });
        drop(other);
        for _ in 0..64 {
            send(&first, 64 * KIB);
        }
        drop(first);
        drop(answer.await.unwrap());
        let usages = usages.lock().unwrap();
        // A chunk is the body's or a copy.
        assert_eq!(usages.len(), 65);
        for &usage in &*usages {
            let known = 4 * MIB;
            assert!((known..known + 2 * small).contains(&usage), "{usage}");
        }
        assert_eq!(usage(&group), 0);
        assert_eq!(arbiter.admissions().grants, []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_its_grant_makes_it_larger_or_is_refused() {
    let group = tenant(8 * MIB);
    let arbiter = Arbiter::new(&group.memory(), Policy::default());
    let (asks, tenant) = (arbiter.clone(), group.clone());
    // The header has no length, so each asks for 1 MiB.
    let tenants = TenantLayer::new(move |request: &Request<Sent>| {
        let ask = ask_for(&tenant, request, MIB as u64);
        let tenant = tenant.clone();
        Admission::Asked(Asked::new(&asks, ask, move |error| refusal(error, &tenant)))
    });
    let handler = tower::service_fn(|request: Request<ChargedBody<Sent>>| async {
        drop(keep(request.into_body()).await);
        Ok::<_, Infallible>(Answer::default())
    });
    let bodies = BodyLayer::new(|_: &Request<Sent>| BodyPolicy::buffered());
    let service = tenants.layer(bodies.layer(handler));
    let (client, sent) = request(4 * MIB);
    let mut answer = pin!(service.clone().oneshot(sent));
    assert!(is_pending(answer.as_mut()));
    let grants = arbiter.admissions().grants;
    assert!(grants[0].bytes >= 4 * MIB as u64);
    drop(client);
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    let (_client, sent) = request(9 * MIB);
    let answer = service.clone().oneshot(sent).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    drop(answer);
    // Others have all but 2 MiB.
    let held = arbiter
        .try_admit(Ask::new(&group, "held").least(6 * MIB as u64, 0))
        .unwrap();
    let _used = held.try_charge(6 * MIB as u64).unwrap();
    let (_client, sent) = request(4 * MIB);
    let answer = service.oneshot(sent).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.headers().contains_key(RETRY_AFTER));
    drop(answer);
    assert_eq!(usage(&group), 6 * MIB);
}

/// The grant of the outer layer is of another group.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_moved_to_another_group_pays_there() {
    let group = tenant(8 * MIB);
    let uploads = group.child("uploads", Limits::max(MIB as u64)).unwrap();
    let arbiter = Arbiter::new(&group.memory(), Policy::default());
    let (tenant, inside) = (group.clone(), uploads.clone());
    let outer = TenantLayer::new(move |request: &Request<Sent>| {
        let ask = ask_for(&tenant, request, MIB as u64);
        Admission::Asked(Asked::new(&arbiter, ask, |error| panic!("{error}")))
    });
    let inner = TenantLayer::new(move |_: &Request<Sent>| Admission::Granted(inside.clone()));
    let handler = tower::service_fn(|request: Request<ChargedBody<Sent>>| async {
        drop(keep(request.into_body()).await);
        Ok::<_, Infallible>(Answer::default())
    });
    let bodies = BodyLayer::new(|_: &Request<Sent>| BodyPolicy::buffered());
    let service = outer.layer(inner.layer(bodies.layer(handler)));
    let (client, sent) = request(2 * MIB);
    // A body that is not refused ends at once.
    drop(client);
    let answer = service.oneshot(sent).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(usage(&uploads), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_in_a_group_below_its_grant_makes_that_larger() {
    for (max, status) in [
        (u64::MAX, StatusCode::OK),
        (MIB as u64, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let group = tenant(8 * MIB);
        let arbiter = Arbiter::new(&group.memory(), Policy::default());
        let tenant = group.clone();
        let outer = TenantLayer::new(move |request: &Request<Sent>| {
            let ask = ask_for(&tenant, request, MIB as u64);
            Admission::Asked(Asked::new(&arbiter, ask, |error| panic!("{error}")))
        });
        let inner = TenantLayer::new(move |request: &Request<Sent>| {
            let grant = request.extensions().get::<Group>().unwrap();
            Admission::Granted(grant.child("upload", Limits::max(max)).unwrap())
        });
        let handler = tower::service_fn(|request: Request<ChargedBody<Sent>>| async {
            drop(keep(request.into_body()).await);
            Ok::<_, Infallible>(Answer::default())
        });
        let bodies = BodyLayer::new(|_: &Request<Sent>| BodyPolicy::buffered());
        let service = outer.layer(inner.layer(bodies.layer(handler)));
        let (client, sent) = request(2 * MIB);
        drop(client);
        let answer = service.oneshot(sent).await.unwrap();
        assert_eq!(answer.status(), status);
        drop(answer);
        assert_eq!(usage(&group), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_with_a_grant_is_ended_while_asks_wait() {
    let group = tenant(MIB);
    let arbiter = Arbiter::new(&group.memory(), Policy::default());
    let policy = BodyPolicy::streamed(512 << 10).min_rate(1000);
    let policy = policy.patience(Duration::from_secs(1000));
    let (asks, tenant) = (arbiter.clone(), group.clone());
    let tenants = TenantLayer::new(move |request: &Request<Sent>| {
        let (ask, tenant) = (policy.ask(&tenant, request), tenant.clone());
        Admission::Asked(Asked::new(&asks, ask, move |error| refusal(error, &tenant)))
    });
    let handler = tower::service_fn(|request: Request<ChargedBody<Sent>>| async {
        drop(keep(request.into_body()).await);
        Ok::<_, Infallible>(Answer::default())
    });
    let bodies = BodyLayer::new(move |_: &Request<Sent>| policy);
    let service = tenants.layer(bodies.layer(handler));
    let (first, sent) = request(None);
    let mut slow = Box::pin(service.clone().oneshot(sent));
    assert!(is_pending(slow.as_mut()));
    // Virtual: no client is judged sooner.
    assert!(
        tokio::time::timeout(Duration::from_secs(60), &mut slow)
            .await
            .is_err()
    );
    let (second, sent) = request(None);
    let mut waiting = Box::pin(service.oneshot(sent));
    assert!(is_pending(waiting.as_mut()));
    assert_eq!(arbiter.admissions().waiting.len(), 1);
    let ended = tokio::time::timeout(Duration::from_secs(60), slow).await;
    let ended = ended.expect("it is ended").unwrap();
    assert_eq!(ended.status(), StatusCode::REQUEST_TIMEOUT);
    drop((ended, first, second));
    assert_eq!(waiting.await.unwrap().status(), StatusCode::OK);
    assert_eq!(usage(&group), 0);
    assert_eq!(arbiter.admissions().grants, []);
}
