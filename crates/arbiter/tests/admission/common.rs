//! Memories, asks and polls that the tests share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bursar::{Group, Limits, Machine, Memory};
use bursar_arbiter::{Admit, AdmitError, Arbiter, Ask, Grant, Policy};

pub const MIB: u64 = 1 << 20;

/// Policy in which no time passes: nothing becomes due, and no ask may be narrower than half its wish.
pub fn timeless() -> Policy {
    let mut policy = Policy::default();
    policy.passed_max = Duration::MAX;
    policy.narrow_after = Duration::MAX;
    policy.idle_after = Duration::MAX;
    policy
}

/// A memory of so many MiB, and its arbiter.
pub fn arbiter(max: u64, policy: Policy) -> Arbiter {
    let memory = Memory::builder().max(max * MIB).build().expect("a memory");
    Arbiter::new(&memory, policy)
}

pub fn tenant<M: Machine>(arbiter: &Arbiter<M>, name: &str, max: u64) -> Group<M> {
    let limits = match max {
        u64::MAX => Limits::none(),
        max => Limits::max(max * MIB),
    };
    arbiter
        .memory()
        .root()
        .child(name, limits)
        .expect("a new name")
}

/// An ask for exactly so many MiB.
pub fn ask<M: Machine>(group: &Group<M>, name: &str, mib: u64) -> Ask<M> {
    Ask::new(group, name).least(mib * MIB, 0).wanted(mib * MIB)
}

pub fn poll<M: Machine>(admit: &mut Admit<M>) -> Poll<Result<Grant<M>, AdmitError>> {
    Pin::new(admit).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls an ask that must wait.
pub fn waits<M: Machine>(mut admit: Admit<M>) -> Admit<M> {
    assert!(poll(&mut admit).is_pending(), "{admit:?} must wait");
    admit
}

/// Polls an ask that must have been granted.
pub fn granted<M: Machine>(admit: &mut Admit<M>) -> Grant<M> {
    match poll(admit) {
        Poll::Ready(Ok(grant)) => grant,
        other => panic!("{admit:?}: {other:?}"),
    }
}

pub fn refused<M: Machine>(admit: &mut Admit<M>) -> AdmitError {
    match poll(admit) {
        Poll::Ready(Err(error)) => error,
        other => panic!("{admit:?}: {other:?}"),
    }
}

/// Counts how often it was woken.
#[derive(Default)]
pub struct Woken(AtomicUsize);

impl Woken {
    pub fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
