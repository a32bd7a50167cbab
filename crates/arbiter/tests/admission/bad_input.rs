//! Input that makes no sense, and users that misbehave.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bursar::{CreateError, Limits, Memory};
use bursar_arbiter::{AdmitError, Ask, Seen};

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
    assert!(matches!(
        arbiter.try_admit(ask(&acme, "query", 40)),
        Err(AdmitError::Create(CreateError::Exists { .. }))
    ));
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
