//! Object stores in groups: the store's own answers, charged while somebody has them.

mod common;

use std::error::Error as _;
use std::ops::Range;
use std::pin::pin;
use std::slice::from_ref;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{ChargeError, Group};
use bursar_arrow::{ChargedStore, OnRefusal};
use bursar_rig::random::Random;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetResultPayload, ObjectStore, ObjectStoreExt};

use common::{directory, group, usage};

const MAX: u64 = 8 << 20;
/// Bytes of the object.
const SIZE: u64 = 3_000_000;

fn object() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8).collect()
}

/// A store in memory and one of files, each with the object.
async fn stores(name: &str) -> [Arc<dyn ObjectStore>; 2] {
    let local = LocalFileSystem::new_with_prefix(directory(name)).unwrap();
    let stores: [Arc<dyn ObjectStore>; 2] = [Arc::new(InMemory::new()), Arc::new(local)];
    for store in &stores {
        store.put(&path(), object().into()).await.unwrap();
    }
    stores
}

fn path() -> Path {
    Path::from("object")
}

fn charged(store: &Arc<dyn ObjectStore>, group: &Group) -> ChargedStore {
    ChargedStore::new(store.clone(), group, OnRefusal::Fail)
}

fn refusal(error: &Error) -> Option<&ChargeError> {
    error.source()?.downcast_ref()
}

#[tokio::test]
async fn ranges_are_charged_until_the_last_clone_goes() {
    for store in stores("ranges").await {
        let group = group(MAX);
        let charged = charged(&store, &group);
        let bytes = charged.get_range(&path(), 1000..3000).await.unwrap();
        assert_eq!((usage(&group), &bytes[..]), (2000, &object()[1000..3000]));
        let slice = bytes.clone().slice(5..6);
        drop(bytes);
        assert_eq!(usage(&group), 2000);
        drop(slice);
        assert_eq!(usage(&group), 0);
        let ends = charged.get_range(&path(), SIZE - 10..u64::MAX).await;
        assert_eq!(ends.map(|ends| ends.len()).unwrap(), 10);
        assert_eq!(usage(&group), 0);
        let mut ranges = charged.get_ranges(&path(), &[0..10, 20..50]).await.unwrap();
        assert_eq!(usage(&group), 40);
        assert_eq!(ranges.remove(0), object()[..10]);
        assert_eq!((usage(&group), ranges[0].len()), (30, 30));
        drop(ranges);
        assert_eq!(usage(&group), 0);
    }
}

/// Random requests have the plain store's answers and errors.
#[tokio::test]
async fn answers_are_the_stores() {
    for (seed, store) in stores("answers").await.iter().enumerate() {
        let group = group(MAX);
        let charged = charged(store, &group);
        let mut random = Random::fork(seed as u64, 0);
        for _ in 0..200 {
            let start = random.below(SIZE * 5 / 4);
            let range = start..start + random.below(100_000);
            match random.below(3) {
                0 => same(
                    charged.get_range(&path(), range.clone()).await,
                    store.get_range(&path(), range).await,
                ),
                1 => {
                    let few: Vec<Range<u64>> = vec![range, 0..random.below(10)];
                    let (ours, theirs) = (
                        charged.get_ranges(&path(), &few).await,
                        store.get_ranges(&path(), &few).await,
                    );
                    same(
                        ours.map(|all| all.concat().into()),
                        theirs.map(|all| all.concat().into()),
                    );
                }
                _ => {
                    let options = || {
                        GetOptions::new().with_range(Some(object_store::GetRange::Offset(start)))
                    };
                    let all = async |store: &dyn ObjectStore| {
                        store.get_opts(&path(), options()).await?.bytes().await
                    };
                    same(all(&charged).await, all(store).await);
                }
            }
            assert_eq!(usage(&group), 0, "seed {seed}");
        }
        let missing = charged.get(&Path::from("missing")).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }));
        assert_eq!(charged.head(&path()).await.unwrap().size, SIZE);
        assert_eq!(charged.list(None).count().await, 1);
        charged.rename(&path(), &Path::from("other")).await.unwrap();
        charged.delete(&Path::from("other")).await.unwrap();
        assert_eq!(usage(&group), 0);
    }
}

fn same(ours: object_store::Result<Bytes>, theirs: object_store::Result<Bytes>) {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
        (ours, theirs) => assert_eq!(
            ours.unwrap_err().to_string(),
            theirs.unwrap_err().to_string()
        ),
    }
}

#[tokio::test]
async fn ranges_beyond_the_object() {
    for store in stores("beyond").await {
        let group = group(MAX);
        let charged = charged(&store, &group);
        for range in [SIZE..SIZE + 1, SIZE + 5..SIZE + 10, 10..10] {
            let error = charged.get_range(&path(), range.clone()).await.unwrap_err();
            assert!(refusal(&error).is_none(), "{error}");
            let few = charged.get_ranges(&path(), &[0..10, range]).await;
            assert!(few.is_ok_and(|few| few[1].is_empty()) || usage(&group) == 0);
            assert_eq!(usage(&group), 0);
        }
        // Refused before a store allocates what a reader asked for.
        let error = charged
            .get_ranges(&path(), from_ref(&(0..u64::MAX)))
            .await
            .unwrap_err();
        assert!(matches!(
            refusal(&error),
            Some(ChargeError::TooLarge { .. })
        ));
        assert_eq!(usage(&group), 0);
    }
}

#[tokio::test]
async fn refusals_carry_the_charge_error() {
    for store in stores("refusals").await {
        let group = group(1000);
        let charged = charged(&store, &group);
        let range = charged.get_range(&path(), 0..1001).await.unwrap_err();
        let ranges = charged
            .get_ranges(&path(), &[0..500, 0..501])
            .await
            .unwrap_err();
        let whole = charged
            .get(&path())
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap_err();
        let put = charged
            .put(&Path::from("new"), vec![0; 1001].into())
            .await
            .unwrap_err();
        for error in [range, ranges, whole, put] {
            assert!(
                matches!(refusal(&error), Some(ChargeError::LimitReached(_))),
                "{error}"
            );
        }
        assert!(store.head(&Path::from("new")).await.is_err());
        charged
            .put(&Path::from("new"), vec![0; 1000].into())
            .await
            .unwrap();
        assert_eq!(usage(&group), 0);
    }
}

#[tokio::test]
async fn streams_are_charged_by_the_piece() {
    for store in stores("streams").await {
        let group = group(MAX);
        let charged = charged(&store, &group);
        let answer = charged.get(&path()).await.unwrap();
        assert_eq!((answer.range.clone(), usage(&group)), (0..SIZE, 0));
        let mut stream = answer.into_stream();
        let mut pieces: Vec<Bytes> = Vec::new();
        while let Some(piece) = stream.next().await {
            pieces.push(piece.unwrap());
            let held: usize = pieces.iter().map(Bytes::len).sum();
            assert_eq!(usage(&group), held as u64);
        }
        assert_eq!(pieces.concat(), object());
        pieces.truncate(1);
        assert_eq!(usage(&group), pieces[0].len() as u64);
        drop((pieces, stream));
        let mut half = charged.get(&path()).await.unwrap().into_stream();
        drop(half.next().await);
        drop(half);
        assert_eq!(usage(&group), 0);
        let path = path();
        let bounded = charged.get_opts(&path, GetOptions::new().with_range(Some(0..SIZE)));
        assert!(matches!(
            bounded.await.unwrap().payload,
            GetResultPayload::Stream(_)
        ));
        assert_eq!(usage(&group), 0);
    }
}

/// A range that a worker streams must not be in memory at once.
#[tokio::test]
async fn large_ranges_come_in_pieces() {
    let size = 20_000_000;
    for store in stores("large").await {
        store.put(&path(), vec![7; size].into()).await.unwrap();
        let group = group(2 * size as u64);
        let charged = charged(&store, &group);
        let range = GetOptions::new().with_range(Some(1..size as u64));
        let plain = store.get_opts(&path(), range.clone()).await.unwrap();
        let is_file = matches!(plain.payload, GetResultPayload::File(..));
        let mut stream = charged
            .get_opts(&path(), range)
            .await
            .unwrap()
            .into_stream();
        let mut length = 0;
        while let Some(piece) = stream.next().await {
            length += piece.unwrap().len();
        }
        assert_eq!((length, usage(&group)), (size - 1, 0));
        assert_eq!(group.peak() < size as u64 / 2, is_file);
        // `get_ranges` is charged as a whole.
        let whole = charged
            .get_ranges(&path(), from_ref(&(1..size as u64)))
            .await
            .unwrap();
        assert_eq!(usage(&group), whole[0].len() as u64);
        drop(whole);
        assert_eq!(usage(&group), 0);
    }
}

#[tokio::test]
async fn requests_wait_for_memory() {
    for store in stores("waits").await {
        let group = group(1000);
        let hour = OnRefusal::Wait(Duration::from_secs(3600));
        let charged = ChargedStore::new(store.clone(), &group, hour);
        let others = group.try_charge(600).unwrap();
        let range = 0..500;
        let at = path();
        let mut waiting = pin!(charged.get_ranges(&at, from_ref(&range)));
        let polled = waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        drop(others);
        let bytes = waiting.await.unwrap();
        assert_eq!(usage(&group), 500);
        // Larger than the limit: waiting cannot help.
        let error = charged.get_range(&path(), 0..1001).await.unwrap_err();
        assert!(refusal(&error).is_some());
        // A deadline that has passed.
        let impatient = ChargedStore::new(store, &group, OnRefusal::Wait(Duration::ZERO));
        let error = impatient.get_range(&path(), 0..600).await.unwrap_err();
        assert!(matches!(
            refusal(&error),
            Some(ChargeError::LimitReached(_))
        ));
        assert_eq!(group.events().gave_up, 1);
        drop(bytes);
        assert_eq!(usage(&group), 0);
    }
}

/// As a query does whose client reads no more.
#[tokio::test]
async fn a_stream_that_nobody_polls_keeps_others_waiting_no_longer_than_its_patience() {
    let group = group(1000);
    let patience = Duration::from_millis(20);
    let [store, _] = stores("paused").await;
    let charged = ChargedStore::new(store, &group, OnRefusal::Wait(patience));
    let others = group.try_charge(600).unwrap();
    let at = path();
    let mut stream = pin!(charged.get_range(&at, 0..500));
    let mut context = Context::from_waker(Waker::noop());
    assert!(stream.as_mut().poll(&mut context).is_pending());
    drop(others);
    // It would be served if it were polled.
    let mut next = pin!(group.charge_async(600));
    assert!(next.as_mut().poll(&mut context).is_pending());
    drop(next.await.unwrap());
    let error = stream.await.unwrap_err();
    assert!(matches!(
        refusal(&error),
        Some(ChargeError::LimitReached(_))
    ));
}

/// A store that waits is one whose own group is full.
#[tokio::test]
async fn bytes_are_charged_while_they_are_sent() {
    let (group, full) = (group(MAX), group(1000));
    let others = full.try_charge(1000).unwrap();
    let hour = OnRefusal::Wait(Duration::from_secs(3600));
    let waits = ChargedStore::new(Arc::new(InMemory::new()), &full, hour);
    let charged = ChargedStore::new(Arc::new(waits), &group, OnRefusal::Fail);
    let at = path();
    {
        let mut dropped = pin!(charged.put(&at, vec![1; 700].into()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(dropped.as_mut().poll(&mut context).is_pending());
        assert_eq!((usage(&group), usage(&full)), (700, 1000));
    }
    assert_eq!(usage(&group), 0);
    drop(others);
    charged.put(&at, vec![1; 700].into()).await.unwrap();
    assert_eq!((usage(&group), usage(&full)), (0, 0));
}

#[tokio::test]
async fn uploads_are_charged_until_they_are_sent() {
    for store in stores("uploads").await {
        let group = group(1000);
        let charged = charged(&store, &group);
        let new = Path::from("new");
        let mut upload = charged.put_multipart(&new).await.unwrap();
        let first = upload.put_part(vec![1; 600].into());
        assert_eq!(usage(&group), 600);
        first.await.unwrap();
        assert_eq!(usage(&group), 0);
        upload.put_part(vec![2; 700].into()).await.unwrap();
        upload.complete().await.unwrap();
        let written = store.get(&new).await.unwrap().bytes().await.unwrap();
        assert_eq!((written.len(), written[599], written[600]), (1300, 1, 2));

        // A refused part: the object is not made without it.
        let lacking = Path::from("lacking");
        let mut upload = charged.put_multipart(&lacking).await.unwrap();
        let (one, two) = (
            upload.put_part(vec![1; 600].into()),
            upload.put_part(vec![2; 600].into()),
        );
        one.await.unwrap();
        assert!(refusal(&two.await.unwrap_err()).is_some());
        upload.complete().await.unwrap_err();
        upload.abort().await.unwrap();
        assert!(store.head(&lacking).await.is_err());

        // A part that is dropped.
        let mut upload = charged.put_multipart(&lacking).await.unwrap();
        drop(upload.put_part(vec![1; 600].into()));
        upload.abort().await.unwrap();
        assert_eq!(usage(&group), 0);
    }
}
