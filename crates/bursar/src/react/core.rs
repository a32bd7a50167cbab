//! State of one memory: its policies, groups with their counters, registrations of users, and pages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

#[cfg(feature = "tracing")]
use bursar_machine::EventRate;
use bursar_machine::{AtomicWord, Lock, Machine, caught};

use super::call_site::CallSites;
use super::error::LimitReached;
use super::hooks::Hooks;
use super::pressure_policy::PressurePolicy;
use super::queue::PassingRule;
use crate::arena::Arena;
use crate::limit::{Counters, Event};
use crate::tree::{ROOT, Tree};
use crate::zones::{PageOptions, Pool};

/// A memory's policies about limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policies {
    pub(crate) high: HighPolicy,
    pub(crate) recursive: Recursive,
    pub(crate) pressure: PressurePolicy,
    pub(crate) passing: PassingRule,
    /// Whether the end of a group with bytes charged panics.
    pub(crate) panics_on_leftovers: bool,
    /// One in so many charges is followed to its call site; 0 for none.
    pub(crate) sampled_one_in: u32,
}

/// Policy by which a charge pays for usage above a `high`. By default it leaves a debt, so a `high` throttles only callers that take that
/// debt ([`crate::Group::take_debt`]) and wait.
///
/// First stock is taken back and reclaimers are asked. Then a charge pays for the bytes that stay above the `high` of its
/// group, or of a group above. [`crate::Group::charge_async`] owes under either policy. So does
/// [`Engine::try_charge_nowait`](crate::engine::Engine::try_charge_nowait), which asks no reclaimers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HighPolicy {
    /// No charge sleeps. The bytes charged become a debt of the group that was charged. A caller that can wait takes it with
    /// [`crate::Group::take_debt`]. If no caller does, nothing is slowed down. This is the default.
    #[default]
    Owe,
    /// The charge sleeps before it returns, for the time that the kernel's formula gives: 64 s times the square of `(usage -
    /// high) / high` for each 256 KiB charged, at most 2 s. It looks every 100 ms whether the usage is still above `high`, so
    /// it wakes when `high` is raised.
    ///
    /// The sleep blocks the thread, also in [`crate::Group::try_charge`]. Do not use this policy where threads serve other
    /// tasks meanwhile, as on an async runtime.
    Throttle,
}

/// Policy for the protection of a group that its children do not claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "memory_recursiveprot")]
pub enum Recursive {
    /// It is shared among the children, in proportion to the memory that they use beyond their claims: the mount option
    /// `memory_recursiveprot` of cgroup2, which systemd sets.
    #[default]
    Yes,
    /// It protects nothing below the group: cgroup2 without that option.
    No,
}

/// A group that has ended with bytes charged, to itself or to groups below that have ended as well.
pub(super) struct Ended {
    pub(super) path: String,
    pub(super) ended_ns: u64,
}

/// Kinds of events for `tracing`; see `trace.rs`.
#[cfg(feature = "tracing")]
pub(super) const EVENT_KINDS: usize = 6;

/// Interval between two events of a kind.
#[cfg(feature = "tracing")]
const EVENT_INTERVAL_NS: u64 = 100_000_000;

/// State of one memory.
// In this order: a page's fast path calls functions of the zones, which are first in the pool. An offset of 0 takes no
// instruction.
#[repr(C)]
pub(crate) struct Core<M: Machine> {
    pub(crate) pages: Pool<M>,
    pub(crate) counters: Counters<M>,
    pub(crate) policies: Policies,
    /// State that users registered with a group, by record.
    hooks: Arena<OnceLock<Box<Hooks<M>>>>,
    /// Listeners by group.
    pub(super) listening: M::Mutex<BTreeMap<u32, u32>>,
    /// Tasks that run reclaimers.
    pub(super) reclaiming: M::Mutex<Vec<u64>>,
    /// Tasks that tell all listeners, and whether a listener left more to tell.
    pub(super) telling: M::Mutex<Vec<(u64, bool)>>,
    #[cfg(feature = "tracing")]
    pub(super) event_rates: [EventRate<M::Word>; EVENT_KINDS],
    pub(super) call_sites: CallSites<M>,
    /// By record.
    pub(super) leftovers: M::Mutex<BTreeMap<u32, Ended>>,
    /// The refusals that renewed a report, the oldest first.
    pub(super) refusals: M::Mutex<VecDeque<LimitReached>>,
    /// The next ticket of a charge that waits.
    pub(super) tickets: M::Word,
    /// Times that a waiting charge went from one queue to another.
    pub(super) moves: M::Word,
    /// Time at which upkeep next looks for limits with much stock below.
    pub(super) trim_due_ns: M::Word,
    /// Records of groups that have ended, to be looked at; see `lifetime.rs`.
    pub(super) listed: M::Mutex<VecDeque<u32>>,
    // As in `Node`: no protocol between CPUs, see `fork.rs`.
    /// Groups that have ended and whose records have not.
    pub(super) removed_groups: AtomicU64,
    /// [`Machine::forks`] where this state is right.
    pub(super) forks: AtomicU64,
    /// Charges and uncharges whose counters are left to the operation that repairs them.
    pub(super) deferred: AtomicU64,
    /// Held to repair this state, once.
    pub(super) repair: M::Mutex<()>,
}

impl<M: Machine> Core<M> {
    /// `None` if there is no memory for it.
    pub(crate) fn new(
        counters: Counters<M>,
        policies: Policies,
        pages: PageOptions,
    ) -> Option<Self> {
        let hooks = Arena::new();
        hooks
            .reserve(ROOT)
            .then(|| hooks.put(ROOT, OnceLock::new()))?;
        Some(Self {
            pages: Pool::new(&counters.tree, pages)?,
            policies,
            hooks,
            listening: M::Mutex::new(BTreeMap::new()),
            reclaiming: M::Mutex::new(Vec::new()),
            telling: M::Mutex::new(Vec::new()),
            #[cfg(feature = "tracing")]
            event_rates: std::array::from_fn(|_| EventRate::new(EVENT_INTERVAL_NS)),
            call_sites: CallSites::new(policies.sampled_one_in),
            leftovers: M::Mutex::new(BTreeMap::new()),
            refusals: M::Mutex::new(VecDeque::new()),
            tickets: AtomicWord::new(0),
            moves: AtomicWord::new(0),
            trim_due_ns: AtomicWord::new(0),
            listed: M::Mutex::new(VecDeque::new()),
            removed_groups: AtomicU64::new(0),
            forks: AtomicU64::new(counters.tree.machine.forks()),
            deferred: AtomicU64::new(0),
            repair: M::Mutex::new(()),
            counters,
        })
    }

    #[inline(always)]
    pub(crate) fn tree(&self) -> &Tree<M> {
        &self.counters.tree
    }

    /// Makes room for what users register with a new record, and for its end, unless an attempt that failed later has made it. `false` if
    /// there is no memory for it.
    pub(super) fn put_hooks(&self, index: u32) -> bool {
        let has_room = self.hooks.has(index) || self.hooks.reserve(index);
        if has_room && !self.hooks.has(index) {
            self.hooks.put(index, OnceLock::new());
        }
        let mut listed = self.listed.lock();
        let more = index as usize + 1 - listed.len().min(index as usize);
        has_room && listed.try_reserve(more).is_ok()
    }

    /// State that users registered with a group, if there is any.
    pub(super) fn hooks(&self, index: u32) -> Option<&Hooks<M>> {
        self.hooks.get(index).get().map(|boxed| &**boxed)
    }

    /// The same, made if need be, which may wait: only in an operation (see `lifetime.rs`).
    pub(super) fn hooks_or_new(&self, index: u32) -> &Hooks<M> {
        let made = || Box::new(Hooks::new());
        self.hooks.get(index).get_or_init(made)
    }

    /// Calls a user's callback or waker for a group. A panic is counted and ends here. This may run in the drop of a charge,
    /// which must not unwind, and other listeners must still be called. The panic hook has shown the message.
    pub(super) fn call_user(&self, index: u32, call: impl FnOnce()) {
        if caught(call).is_none() {
            self.counters.count(index, Event::Panicked, 1);
        }
    }
}
