//! State of one memory: groups with their counters, registrations of users, and pages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use bursar_machine::{Lock, Machine};

use super::call_site::CallSites;
use super::error::LimitReached;
use super::leftover::Notes;
use super::policies::Policies;
use super::registered::Registered;
use super::trace_rate::TraceRate;
use crate::arena::Arena;
use crate::limit::Counters;
use crate::tree::{ROOT, Tree};
use crate::zones::{PageOptions, Pool};

/// State of one memory.
// In this order: a page's fast path calls functions of the zones, which are first in the pool. An offset of 0 takes no
// instruction.
#[repr(C)]
pub(crate) struct Core<M: Machine> {
    pub(crate) pages: Pool<M>,
    pub(crate) counters: Counters<M>,
    pub(crate) policies: Policies,
    /// State that users registered with a group, by record.
    registered: Arena<OnceLock<Box<Registered<M>>>>,
    /// Listeners by group.
    pub(super) listening: M::Mutex<BTreeMap<u32, u32>>,
    /// Tasks that run reclaimers.
    pub(super) reclaiming: M::Mutex<Vec<u64>>,
    pub(super) trace_rate: TraceRate<M>,
    pub(super) call_sites: CallSites<M>,
    pub(super) leftovers: M::Mutex<Notes>,
    /// The refusals that renewed a report, the oldest first.
    pub(super) refusals: M::Mutex<VecDeque<LimitReached>>,
    /// The next ticket of a charge that waits.
    pub(super) tickets: M::Word,
    /// Times that a waiting charge went from one queue to another.
    pub(super) moves: M::Word,
    /// When upkeep next looks for limits with much stock below.
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
    pub(crate) fn new(counters: Counters<M>, policies: Policies, pages: PageOptions) -> Self {
        let registered = Arena::new();
        assert!(registered.reserve(ROOT), "the first segment is small");
        registered.put(ROOT, OnceLock::new());
        Self {
            pages: Pool::new(&counters.tree, pages),
            policies,
            registered,
            listening: M::Mutex::new(BTreeMap::new()),
            reclaiming: M::Mutex::new(Vec::new()),
            trace_rate: TraceRate::new(),
            call_sites: CallSites::new(policies.sampled_one_in),
            leftovers: M::Mutex::new(Notes::new()),
            refusals: M::Mutex::new(VecDeque::new()),
            tickets: bursar_machine::AtomicWord::new(0),
            moves: bursar_machine::AtomicWord::new(0),
            trim_due_ns: bursar_machine::AtomicWord::new(0),
            listed: M::Mutex::new(VecDeque::new()),
            removed_groups: AtomicU64::new(0),
            forks: AtomicU64::new(counters.tree.machine.forks()),
            deferred: AtomicU64::new(0),
            repair: M::Mutex::new(()),
            counters,
        }
    }

    #[inline(always)]
    pub(crate) fn tree(&self) -> &Tree<M> {
        &self.counters.tree
    }

    /// Makes room for what users register with a new record. `false` if there is no memory for it.
    pub(super) fn put_registered(&self, index: u32) -> bool {
        let has_room = self.registered.reserve(index);
        if has_room {
            self.registered.put(index, OnceLock::new());
        }
        has_room
    }

    /// State that users registered with a group, if there is any.
    pub(super) fn registered(&self, index: u32) -> Option<&Registered<M>> {
        self.registered.get(index).get().map(|boxed| &**boxed)
    }

    /// The same, made if need be, which may wait: only in an operation (see `listen.rs`).
    pub(super) fn registered_or_new(&self, index: u32) -> &Registered<M> {
        let made = || Box::new(Registered::new());
        self.registered.get(index).get_or_init(made)
    }
}
