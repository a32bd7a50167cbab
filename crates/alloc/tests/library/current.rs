//! The group that the calling thread is in, as a program asks for it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use bursar::{Counter, Freshness, Group, Limits, Memory, Statistic};
use bursar_alloc::{Entered, GroupExt, InGroupExt, current, outside, with_current};

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");

fn groups() -> (Memory, Group, Group) {
    let memory = Memory::builder().statistics(STATISTICS).build().unwrap();
    let [one, other] = ["one", "other"].map(|name| memory.root().child(name, Limits::none()));
    (memory, one.unwrap(), other.unwrap())
}

/// Both ways to ask give the same answer.
fn asked() -> Option<Group> {
    let seen = with_current(Group::clone);
    assert_eq!(current(), seen);
    seen
}

#[test]
fn the_innermost_counts() {
    let (_memory, one, other) = groups();
    assert_eq!(asked(), None);
    assert_eq!(outside(asked), None);
    one.scope(|| {
        assert_eq!(asked().as_ref(), Some(&one));
        other.scope(|| assert_eq!(asked().as_ref(), Some(&other)));
        assert_eq!(outside(asked), None);
        outside(|| other.scope(|| assert_eq!(asked().as_ref(), Some(&other))));
        let thread = std::thread::spawn(asked);
        assert_eq!(thread.join().unwrap(), None);
        assert_eq!(asked().as_ref(), Some(&one));
    });
    // Guards end in any order.
    let (first, second) = (one.enter(), other.enter());
    assert_eq!(asked().as_ref(), Some(&other));
    drop(first);
    assert_eq!(asked().as_ref(), Some(&other));
    drop(second);
    assert_eq!(asked(), None);
}

#[test]
fn futures_are_in_their_group() {
    let (_memory, one, other) = groups();
    let mut waits = pin!(
        async {
            let before = asked();
            std::future::poll_fn({
                let mut polled = false;
                move |_| match std::mem::replace(&mut polled, true) {
                    true => std::task::Poll::Ready(()),
                    false => std::task::Poll::Pending,
                }
            })
            .await;
            (before, asked())
        }
        .in_group(&one)
    );
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(asked(), None, "between polls");
    let polled = other.scope(|| waits.as_mut().poll(&mut context));
    let std::task::Poll::Ready(seen) = polled else {
        panic!("polled twice");
    };
    assert_eq!(seen, (Some(one.clone()), Some(one)));

    /// Asks when it is dropped.
    struct Asks(Group);
    impl Drop for Asks {
        fn drop(&mut self) {
            assert_eq!(asked().as_ref(), Some(&self.0));
        }
    }
    let asks = Asks(other.clone());
    drop(async move { drop(asks) }.in_group(&other));
}

#[test]
fn deep_code_charges_its_tenant() {
    let (memory, one, _) = groups();
    let charge = one.scope(|| with_current(|group| group.try_charge(1 << 20).unwrap()));
    assert_eq!(charge.as_ref().unwrap().group_path(), "/one");
    one.scope(|| with_current(|group| group.add(ROWS, 7)));
    with_current(|group| group.add(ROWS, 7));
    let reading = memory.root().read(Freshness::Exact).unwrap();
    assert_eq!(
        (reading.usage().value, reading.get(ROWS).value),
        (1 << 20, 7)
    );
}

/// No reference is lost or left over: a group ends with its last handle, and a handle that was returned keeps it.
#[test]
fn references_are_counted_right() {
    let (memory, one, other) = groups();
    drop(other);
    let kept = one.scope(|| {
        (0..10).for_each(|_| drop(asked()));
        asked()
    });
    drop(one);
    assert!(memory.find("one").is_some());
    drop(kept);
    assert!(memory.find("one").is_none());
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
}

/// A guard that goes while its group is in use, with the last handle.
#[test]
fn a_guard_may_be_dropped_inside() {
    thread_local! {
        static GUARD: RefCell<Option<Entered>> = const { RefCell::new(None) };
    }
    let (memory, one, _other) = groups();
    GUARD.set(Some(one.enter()));
    drop(one);
    with_current(|group| {
        drop(GUARD.take());
        assert_eq!(asked(), None);
        // Still ours, and nobody else's.
        assert_eq!(memory.find("one").as_ref(), Some(group));
        let third = memory.root().child("third", Limits::none()).unwrap();
        assert_ne!(group, &third);
        group.add(ROWS, 1);
        assert_eq!(third.read(Freshness::Exact).unwrap().get(ROWS).value, 0);
    })
    .expect("in the group of the guard");
    assert!(memory.find("one").is_none());
}
