//! The counters of all groups, and walking the way to the root.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bursar_machine::pages::Owner;
use bursar_machine::{AtomicWord, Lock, Machine};

use super::counter::PageCounter;
use super::drain::SHARDS_PER_SLICE;
use super::high::HighPolicy;
use super::level::PressurePolicy;
use super::limits::Limits;
use super::protection::Recursive;
use super::remove::REAPED_BY_BIRTH;
use super::stock::STOCK_MAX;
use crate::arena::Arena;
use crate::gate::Gate;
use crate::stats::{CreateError, LEVELS, ROOT, Tree};

/// The owner of pages that no group pays for.
pub(crate) const PROCESS: Owner = Owner::new(1);
const FIRST_OWNER: u64 = PROCESS.get() as u64 + 1;

/// Groups and their counters.
pub(crate) struct Ledger<M: Machine> {
    pub(crate) tree: Tree<M>,
    counters: Arena<PageCounter<M>>,
    /// Records of groups that have ended, to be looked at; see `remove.rs`.
    pub(super) listed: M::Mutex<VecDeque<u32>>,
    pub(crate) policies: Policies,
    /// Tasks that run reclaimers.
    pub(super) reclaiming: M::Mutex<Vec<u64>>,
    /// The next ticket of a charge that waits.
    pub(super) tickets: M::Word,
    /// Times that a waiting charge went from one queue to another.
    pub(super) moves: M::Word,
    /// Tasks that wait for memory, and watchers of pressure, of all groups.
    pub(super) listeners: M::Word,
    /// The same by group.
    pub(super) listening: M::Mutex<BTreeMap<u32, u32>>,
    /// Not 0: something changed, and listeners were not told yet.
    pub(super) unnoticed: M::Word,
    /// 0, a group whose bug is not printed yet, or the mark that it was: see `over_return.rs`.
    pub(super) over_returned: M::Word,
    /// Not 0: some limit may have much stock below.
    pub(super) much_stock: M::Word,
    /// When upkeep next looks at that.
    pub(super) trim_due_ns: M::Word,
    // As in `Node`: no protocol between CPUs, see `fork.rs`.
    /// [`Machine::forks`] where these books are right.
    pub(super) forks: AtomicU64,
    /// Charges and uncharges whose counters are left to the operation that puts the books right.
    pub(super) deferred: AtomicU64,
    /// Groups made so far.
    lives: AtomicU64,
    /// Groups that have ended and whose records have not.
    pub(super) removed_groups: AtomicU64,
    /// Held to put the books right, once.
    pub(super) repair: M::Mutex<()>,
}

/// A memory's policies about limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policies {
    pub(crate) high: HighPolicy,
    pub(crate) recursive: Recursive,
    pub(crate) pressure: PressurePolicy,
    /// The most stock of one (group, CPU), bytes.
    pub(crate) stock_max: u64,
    pub(crate) shards_per_slice: usize,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            high: HighPolicy::default(),
            recursive: Recursive::default(),
            pressure: PressurePolicy::default(),
            stock_max: STOCK_MAX,
            shards_per_slice: SHARDS_PER_SLICE,
        }
    }
}

/// A reference to a group's record, until dropped.
pub(crate) struct Referred<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    pub(crate) index: u32,
}

impl<M: Machine> Drop for Referred<'_, M> {
    fn drop(&mut self) {
        self.ledger.forget(self.index);
    }
}

/// One of the two gates of each group; see `gate.rs`.
#[derive(Clone, Copy)]
pub(super) enum Gates {
    Operations,
    Drains,
}

/// Inside the gates of a group and of all above it, until dropped.
pub(super) struct InFlight<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    gates: Gates,
    lowest: Option<u32>,
}

impl<M: Machine> Drop for InFlight<'_, M> {
    fn drop(&mut self) {
        if let Some(lowest) = self.lowest {
            let chain = self.ledger.tree.chain(lowest);
            chain.for_each(|at| self.ledger.gate(at, self.gates).exit());
        }
    }
}

/// A group on the way is closed.
#[derive(Debug)]
pub(super) struct Closed(pub(super) u32);

impl<M: Machine> Ledger<M> {
    pub(crate) fn new(tree: Tree<M>, policies: Policies, limits: Limits) -> Self {
        let ledger = Self {
            counters: Arena::new(),
            listed: M::Mutex::new(VecDeque::new()),
            policies,
            reclaiming: M::Mutex::new(Vec::new()),
            tickets: M::Word::new(0),
            moves: M::Word::new(0),
            listeners: M::Word::new(0),
            listening: M::Mutex::new(BTreeMap::new()),
            unnoticed: M::Word::new(0),
            over_returned: M::Word::new(0),
            much_stock: M::Word::new(0),
            trim_due_ns: M::Word::new(0),
            forks: AtomicU64::new(tree.machine.forks()),
            deferred: AtomicU64::new(0),
            lives: AtomicU64::new(0),
            removed_groups: AtomicU64::new(0),
            repair: M::Mutex::new(()),
            tree,
        };
        let has_room = ledger.put_counter(ROOT);
        assert!(has_room, "the first segment is small");
        ledger.counter(ROOT).begin_life(limits, ledger.next_owner());
        ledger
    }

    /// Returns an owner of pages that no earlier group was. After 2^29 groups none is left. Then a group's pages are zeroed
    /// also before the group itself gets them again.
    fn next_owner(&self) -> Owner {
        // Relaxed: the numbers only have to differ.
        let life = self.lives.fetch_add(1, Relaxed);
        match u32::try_from(FIRST_OWNER + life) {
            Ok(number) if number <= Owner::MAX => Owner::new(number),
            _ => Owner::NOBODY,
        }
    }

    fn put_counter(&self, index: u32) -> bool {
        let has_room = self.counters.reserve(index);
        if has_room {
            let shards = self.tree.machine.cpus() as u32;
            self.counters.put(index, PageCounter::new(shards));
        }
        has_room
    }

    #[inline]
    pub(crate) fn counter(&self, index: u32) -> &PageCounter<M> {
        self.counters.get(index)
    }

    /// Takes one more reference to a group whose record the caller keeps.
    pub(crate) fn referred(&self, index: u32) -> Referred<'_, M> {
        self.refer(index);
        Referred {
            ledger: self,
            index,
        }
    }

    /// Makes a child with limits.
    pub(crate) fn create(
        &self,
        parent: u32,
        name: &str,
        limits: Limits,
    ) -> Result<u32, CreateError> {
        let _operation = self.operation();
        self.reap(REAPED_BY_BIRTH);
        self.tree.create(
            parent,
            name,
            |index| self.put_counter(index),
            |index, ordinal| {
                self.counter(parent).holding_children.ensure(ordinal);
                self.counter(index).begin_life(limits, self.next_owner());
            },
        )
    }

    fn gate(&self, index: u32, gates: Gates) -> &Gate<M> {
        let counter = self.counter(index);
        match gates {
            Gates::Operations => &counter.operations,
            Gates::Drains => &counter.drains,
        }
    }

    /// Enters the gates of `lowest` and of all above it, unless one of them is closed.
    pub(super) fn enter(
        &self,
        gates: Gates,
        lowest: Option<u32>,
    ) -> Result<InFlight<'_, M>, Closed> {
        let flight = InFlight {
            ledger: self,
            gates,
            lowest,
        };
        let Some(lowest) = lowest else {
            return Ok(flight);
        };
        let chain = || self.tree.chain(lowest);
        chain().for_each(|at| self.gate(at, gates).enter());
        match chain().find(|&at| self.gate(at, gates).is_closed()) {
            // Dropping `flight` leaves them again.
            Some(closed) => Err(Closed(closed)),
            None => Ok(flight),
        }
    }

    /// [`Ledger::enter`] that waits for closed gates to open. Do not call it inside of these gates, nor after closing one of
    /// them.
    pub(super) fn enter_patiently(&self, gates: Gates, lowest: Option<u32>) -> InFlight<'_, M> {
        let mut _arriving = None;
        loop {
            match self.enter(gates, lowest) {
                Ok(flight) => return flight,
                Err(Closed(at)) => {
                    let gate = self.gate(at, gates);
                    // Drains give way to tasks that wait.
                    _arriving = matches!(gates, Gates::Drains).then(|| gate.arrive());
                    gate.wait_until_open();
                }
            }
        }
    }

    /// The groups from `index` up to, and without, `end` (all if that is `None`).
    pub(super) fn way(&self, index: u32, end: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        self.tree
            .chain(index)
            .take_while(move |&at| Some(at) != end)
    }

    /// Reserves `bytes` on the way from `index` up to `end`, everywhere or nowhere.
    ///
    /// # Errors
    /// The first group where it does not fit.
    pub(super) fn reserve(&self, index: u32, end: Option<u32>, bytes: u64) -> Result<(), u32> {
        // Looks first, so that a charge that is refused higher up usually shows nowhere below.
        let refuses = |&at: &u32| !self.counter(at).may_fit(bytes);
        if let Some(at) = self.way(index, end).find(refuses) {
            return Err(at);
        }
        let mut usage = [0; LEVELS];
        for (at, usage) in self.way(index, end).zip(&mut usage) {
            let Some(now) = self.counter(at).try_charge(bytes) else {
                self.release(index, Some(at), bytes);
                // Our reservation may have hidden bytes that others returned meanwhile.
                self.notice_later_below(index, Some(at));
                return Err(at);
            };
            *usage = now;
        }
        for (at, usage) in self.way(index, end).zip(usage) {
            self.counter(at).note_peak(usage);
        }
        Ok(())
    }

    /// Returns the bytes reserved on the way from `index` up to `end`. If the group had fewer, only these are returned there
    /// and above, so that no other group loses bytes by it; see `over_return.rs`.
    pub(super) fn release(&self, index: u32, end: Option<u32>, bytes: u64) {
        if bytes == 0 || end == Some(index) {
            return;
        }
        let returned = self.counter(index).uncharge_own(bytes);
        for at in self.way(index, end).skip(1) {
            self.counter(at).uncharge(returned);
        }
        if returned < bytes {
            self.note_over_return(index, bytes - returned, end);
        }
    }

    /// Bytes that fit at `index` and everywhere above.
    pub(super) fn head_room(&self, index: u32) -> u64 {
        let rooms = self
            .tree
            .chain(index)
            .map(|at| self.counter(at).head_room());
        rooms.min().expect("a chain has a group")
    }

    /// The nearest group that is above or equal to both.
    pub(super) fn common_ancestor(&self, one: u32, other: u32) -> u32 {
        self.tree
            .chain(one)
            .find(|&at| self.tree.is_ancestor(at, other))
            .expect("the root is above all")
    }

    /// The path of names from the root.
    pub(crate) fn path(&self, index: u32) -> String {
        let _operation = self.operation();
        self.tree.path(index)
    }

    /// Groups that have ended and whose records wait for their last handle or byte.
    pub(crate) fn removed_groups(&self) -> usize {
        self.removed_groups.load(Relaxed) as usize
    }

    /// Bounds on the usage without stock: from the bytes reserved less all possible stock, to the bytes reserved.
    pub(crate) fn usage_range(&self, index: u32) -> (i64, i64) {
        let (lo, hi) = self.counter(index).usage_range();
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        (signed(lo), signed(hi))
    }

    /// Marks that a shard of `index` may hold stock, up to the root. Slow operations only: the last step of a drain waits for
    /// them.
    pub(super) fn mark_holder(&self, index: u32, shard: u32) {
        self.counter(index).holders.mark(shard);
        let mut at = index;
        while let Some(parent) = self.tree.node(at).parent() {
            self.counter(parent)
                .holding_children
                .mark(self.tree.node(at).ordinal());
            at = parent;
        }
    }

    /// Whether stock may be held at or below `index`.
    pub(super) fn has_holders(&self, index: u32) -> bool {
        let counter = self.counter(index);
        !counter.holders.is_empty() || !counter.holding_children.is_empty()
    }
}
