//! Input that makes no sense, and users that misbehave.

use std::error::Error;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bursar::{CreateError, Limits, Memory};
use bursar_arbiter::{AdmitError, Ask, DrawError, GrowError, NotWidened, Seen};

use super::common::{MIB, arbiter, ask, granted, refused, tenant, timeless, waits};

#[test]
fn asks_that_make_no_sense_have_an_error_of_their_own() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let empty: RangeInclusive<u32> = RangeInclusive::new(3, 2);
    let stranger = Memory::builder().build().unwrap().root();
    let of = |ask: Ask| arbiter.try_admit(ask).unwrap_err();
    assert_eq!(of(ask(&acme, "q", 1).width(0..=4)), AdmitError::BadWidth);
    assert_eq!(of(ask(&acme, "q", 1).width(empty)), AdmitError::BadWidth);
    assert_eq!(of(ask(&acme, "q", 0)), AdmitError::Nothing);
    assert_eq!(
        of(ask(&acme, "q", 2).wanted(MIB)),
        AdmitError::LeastAboveWanted {
            least: 2 * MIB,
            wanted: MIB
        }
    );
    assert_eq!(of(ask(&stranger, "q", 1)), AdmitError::OtherMemory);
    assert!(matches!(
        of(ask(&acme, "q", u64::MAX / MIB)),
        AdmitError::NeverFits { .. }
    ));
    assert!(matches!(
        of(ask(&acme, "q", 1)
            .least(u64::MAX, u64::MAX)
            .wanted(u64::MAX)),
        AdmitError::NeverFits { .. }
    ));
    assert!(matches!(
        of(ask(&acme, "a/b", 1)),
        AdmitError::Create(CreateError::BadName { .. })
    ));
    let counts = arbiter.admissions().counts;
    assert_eq!((counts.bad, counts.never_fits, counts.admitted), (6, 2, 0));
    // Nothing is left of any.
    arbiter.try_admit(ask(&acme, "q", 40)).unwrap();
}

/// Its shape needs next to nothing, which is no error of the one that asks.
#[test]
fn a_query_like_one_that_took_nothing_is_admitted() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let ask = Ask::new(&acme, "q")
        .width(1..=4)
        .like(Seen { peak: 0, width: 2 });
    let grant = arbiter.try_admit(ask).unwrap();
    assert_eq!((grant.bytes(), grant.width()), (1, 4));
}

#[test]
fn a_name_that_is_taken_gives_the_grant_back() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let _taken = acme.child("query", Limits::none()).unwrap();
    let narrow = Ask::new(&acme, "query").least(0, 20 * MIB).width(2..=3);
    assert!(matches!(
        arbiter.try_admit(narrow.wanted(60 * MIB)),
        Err(AdmitError::Create(CreateError::Exists { .. }))
    ));
    let counts = arbiter.counts();
    assert_eq!((counts.admitted, counts.ended, counts.bad), (0, 0, 1));
    assert_eq!((counts.narrowed, counts.waited, counts.nested), (0, 0, 0));
    arbiter.try_admit(ask(&acme, "other", 40)).unwrap();
}

#[test]
fn a_removed_tenant_loses_its_waiters_and_no_other_does() {
    let arbiter = arbiter(100, timeless());
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, u64::MAX));
    let held = arbiter.try_admit(ask(&umbrella, "held", 100)).unwrap();
    let mut lost = waits(arbiter.admit(ask(&acme, "lost", 1)));
    let mut other = waits(arbiter.admit(ask(&umbrella, "other", 1)));
    acme.close().unwrap();
    arbiter.tick();
    assert_eq!(
        refused(&mut lost).to_string(),
        "the group /acme was removed"
    );
    assert!(matches!(
        arbiter.try_admit(ask(&acme, "late", 1)),
        Err(AdmitError::Removed { .. })
    ));
    assert_eq!((arbiter.counts().removed, arbiter.counts().bad), (2, 0));
    drop(held);
    granted(&mut other);
}

#[test]
fn a_wait_that_is_dropped_gives_its_place_and_its_grant_back() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let first = waits(arbiter.admit(ask(&acme, "first", 40)));
    let second = waits(arbiter.admit(ask(&acme, "second", 40)));
    let mut third = waits(arbiter.admit(ask(&acme, "third", 40)));
    drop(first);
    drop(held);
    // Granted, and never polled again.
    assert_eq!(arbiter.admissions().grants.len(), 1);
    drop(second);
    granted(&mut third);
    assert_eq!(arbiter.admissions().counts.cancelled, 2);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(Bomb);
    }
}

/// A payload of a panic whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload of a user");
    }
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut bad = arbiter.admit(ask(&acme, "bad", 20));
    let waker = Waker::from(Arc::new(Panics));
    assert!(
        Pin::new(&mut bad)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let mut good = waits(arbiter.admit(ask(&acme, "good", 20)));
    drop(held);
    granted(&mut good);
    granted(&mut bad);
}

#[test]
fn a_hundred_thousand_asks_of_one_tenant_leave_the_turn_of_another() {
    let arbiter = arbiter(100, timeless());
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, u64::MAX));
    let held = arbiter.try_admit(ask(&acme, "held", 100)).unwrap();
    let crowd: Vec<_> = (0..100_000)
        .map(|number| waits(arbiter.admit(ask(&acme, &format!("query-{number}"), 90))))
        .collect();
    let mut one = waits(arbiter.admit(ask(&umbrella, "one", 90)));
    drop(held);
    // Both have nothing now, and acme had its turn.
    let _one = granted(&mut one);
    drop(crowd);
}

#[test]
fn a_deadline_in_the_past_is_one_try() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let now = arbiter.admit(ask(&acme, "now", 40).patience(Duration::ZERO));
    let mut now = now;
    let _grant = granted(&mut now);
    let mut late = arbiter.admit(ask(&acme, "late", 1).patience(Duration::ZERO));
    assert!(matches!(refused(&mut late), AdmitError::TimedOut { .. }));
}

#[test]
fn errors_have_a_text_and_the_error_that_caused_them() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let source = |error: &dyn Error| error.source().map(ToString::to_string);
    let bad_name = arbiter.try_admit(ask(&acme, "a/b", 1)).unwrap_err();
    let AdmitError::Create(cause) = &bad_name else {
        panic!("{bad_name}");
    };
    assert_eq!(source(&bad_name), Some(cause.to_string()));
    assert_eq!(source(&AdmitError::BadWidth), None);
    let grant = arbiter.try_admit(ask(&acme, "query", 1)).unwrap();
    let removed = acme.child("removed", Limits::none()).unwrap();
    removed.close().unwrap();
    let cause = removed.try_charge(1).unwrap_err();
    let of_charge = GrowError::Charge(cause.clone());
    assert_eq!(source(&of_charge), Some(cause.to_string()));
    assert_eq!(source(&GrowError::Ended), None);
    let mut charge = grant.try_charge(MIB).unwrap();
    let cause = charge.move_to(&removed).unwrap_err();
    let of_move = DrawError::Move(cause.clone());
    assert_eq!(source(&of_move), Some(cause.to_string()));
    assert_eq!(source(&DrawError::NotAsked), None);
    let exhausted = DrawError::Exhausted { left: MIB };
    assert_eq!(
        exhausted.to_string(),
        "1.00 MiB are left of the bytes that are kept for queries that give back memory"
    );
    assert_eq!(NotWidened::OthersWait.to_string(), "others wait for memory");
}

#[test]
fn an_ask_like_a_query_before_has_an_eighth_more_and_a_quarter_of_it_for_partitions() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 80);
    let _held = arbiter.try_admit(ask(&acme, "held", 80)).unwrap();
    let seen = Seen {
        peak: 64 * MIB,
        width: 3,
    };
    let like = |narrowest| Ask::new(&acme, "like").width(narrowest..=3).like(seen);
    // 72 MiB: 54 for the query, and 6 for each partition.
    for (width, mib) in [(1, 60), (2, 66), (3, 72)] {
        let _like = waits(arbiter.admit(like(width)));
        assert_eq!(arbiter.admissions().waiting[0].least, mib * MIB);
    }
}
