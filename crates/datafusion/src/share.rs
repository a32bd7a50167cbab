//! A limit shared by the consumers that can spill.
//!
//! DataFusion's FairSpillPool divides its limit evenly among registered spillers. Most of it may lie idle: operators
//! register when a plan starts, and many hold nothing until their input comes, or ever. Here the limit is divided by
//! the number of spillers that hold bytes now, and one more as long as some spiller holds none. To leave room for later
//! spillers, a spiller that holds bytes must also leave one part free, as long as some spiller holds none. So n
//! spillers that take all they may leave at least 1/(n+1), which is no less than FairSpillPool's part.
//!
//! A sort is one spiller, with the consumer that merges its rows: see `sort.rs`. The merge of several sorts' outputs cannot spill,
//! and asks when all of them hold what they may. So one more part is kept back for it.
//!
//! The fast check uses numbers that err on the safe side. Usage includes stock. The shared sum lacks some of each spiller's bytes, so
//! that its cache line is rarely written: up to a thirty-second of an even part of the limit, or 64 KiB if that is more. A request that the
//! fast check would refuse is checked again with closer numbers: an exact usage, and the spillers' bytes before and after that usage
//! was read.
//!
//! Accepted errors: requests that are decided at the same time do not see each other, or count as held before they are
//! charged. So together they may exceed the share by the bytes that they ask for. The limit itself holds. The closer
//! numbers err too: if one spiller takes bytes while another returns as many, both during the read, these bytes may
//! count as used by others. A share may be too small by at most that many bytes, and a request at its very edge may be
//! refused.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bursar::Group;

use crate::chain::{self, Chain};

/// The shared sum lacks twice an even part of the limit divided by this of each spiller's bytes, at most. So the requests of an operator
/// whose batches are smaller than one such part rarely write to the sum. Judgement: the last 3 % below a share are checked exactly.
const PART_UNTOLD: u64 = 64;
/// Or twice this, if it is more, bytes.
const LEAST_UNTOLD: u64 = 32 << 10;

/// A group's limit, shared evenly by the consumers that can spill and hold memory.
///
/// Make one share of a tenant's group for all pools of the tenant's queries ([`crate::PoolBuilder::share`]), or one of
/// a query's group for that query alone. Cloning makes another handle of the same share; a share keeps its group as a
/// handle does. The limit is the smallest `max` of the group and its ancestors at each request. Bytes charged to the
/// group by others, including consumers that cannot spill, are not shared.
///
/// # The size of a share
/// Let `left` be the limit less the bytes that others use, and `active` the number of spillers that hold bytes. Each
/// spiller may hold `left / (active + 1)` bytes, or `left / active` if all registered spillers hold some. As long as
/// some hold nothing, a spiller that holds bytes also leaves that much free. Example: of eight spillers the first may
/// hold half of `left` as long as it is alone. When all eight hold memory each may hold an eighth, as under
/// `FairSpillPool`.
///
/// `ExternalSorter` and the `ExternalSorterMerge` of the same partition are one spiller. A merge of rows in memory is not refused
/// by the share, because it holds what the rows returned. A merge of files is: it reads as many at a time as its share allows.
///
/// A query that merges the outputs of its partitions (`SortPreservingMergeExec`) needs memory at its end, and that merge cannot spill.
/// As long as one is registered, one more part is kept back. If each of `n` spillers may hold a part, all of them hold at most
/// `n / (n + 1)` of the limit. Bytes of other consumers that cannot spill count as taken from what is kept back.
///
/// # Refusals
/// A spiller that asks for more than its share is refused. DataFusion's operators then spill what they hold and ask
/// again. A spiller that holds nothing has nothing to spill: a sort or an aggregation that is refused its first batch
/// gives up. So a request of a spiller that holds nothing is refused only if it exceeds its share by itself, or if the
/// limit refuses it. The limit may refuse it for three reasons: others' first requests came at the same time or were as
/// large as a share; consumers that cannot spill hold the memory; or a lowered limit or a
/// [`grow`](datafusion_execution::memory_pool::MemoryPool::grow) has left too little. A repartition that is refused
/// writes that batch to disk and goes on.
///
/// An aggregate that has spilled leaves as many bytes of its share as it requests, while it reads its files or takes more rows. It
/// needs them for its groups beside the files.
///
/// A spiller whose share became smaller than its bytes, because others came later, keeps the bytes until it asks for
/// more.
#[derive(Clone)]
pub struct FairShare {
    shared: Arc<Shared>,
}

struct Shared {
    chain: Chain,
    counts: Counts,
    /// Spillers' bytes. An entry of a pool has the other reference. There is no reference to a pool: a reader that
    /// dropped the last one would end that pool and its query, inside a request of its own.
    members: Mutex<Vec<Arc<Held>>>,
}

/// Bytes that a spiller holds. It has its own cache lines, because other threads write the other spillers' bytes.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Held {
    bytes: AtomicU64,
    /// Bytes of these that are in the shared sum: never more than there are, but for a moment.
    told: AtomicU64,
    /// Bytes above which the sum is told more. A hint.
    tell_above: AtomicU64,
}

impl Held {
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: a request at the same time, of another task of this consumer or of another, may or may not be in.
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Sums over spillers. Signed, because additions that belong together may be seen in another order.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    /// Registered spillers.
    registered: AtomicI64,
    /// Spillers that hold bytes.
    active: AtomicI64,
    /// Bytes held, as far as the sum was told.
    told: AtomicI64,
    /// Registered merges of sorted inputs.
    merges: AtomicI64,
}

/// Numbers that a share is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Limit, bytes; `u64::MAX` for none.
    pub(crate) limit: u64,
    /// Bytes charged to the group.
    pub(crate) used: u64,
    /// Bytes of these that spillers hold.
    pub(crate) spillable: u64,
    /// Spillers that hold bytes.
    pub(crate) active: u64,
    /// Spillers that hold none.
    pub(crate) idle: u64,
    /// Merges of sorted inputs, which cannot spill.
    pub(crate) merges: u64,
}

impl Standing {
    /// Adjusts the numbers for a spiller that holds `held`: a spiller that holds nothing is counted as if it did.
    pub(crate) fn of(self, held: u64) -> Self {
        if held > 0 {
            return self;
        }
        Self {
            active: self.active + 1,
            idle: self.idle.saturating_sub(1),
            ..self
        }
    }

    /// Returns the bytes that spillers share, and the number of shares.
    #[inline]
    fn shared(&self) -> (u64, u64) {
        let others = self.used.saturating_sub(self.spillable);
        let parts = (self.active + self.idle.min(1)).max(1);
        // The others' bytes may be those of merges.
        let kept_back = match self.merges {
            0 => 0,
            _ => self.limit / (parts + 1),
        };
        (self.limit.saturating_sub(others.max(kept_back)), parts)
    }

    /// Returns the bytes that each spiller may hold.
    pub(crate) fn share(&self) -> u64 {
        let (left, parts) = self.shared();
        left / parts
    }

    /// Returns how many bytes more than it has now the group must be able to have, so that a spiller that holds `held` may have
    /// `requested` more.
    pub(crate) fn missing(&self, held: u64, requested: u64) -> u64 {
        let standing = self.of(held);
        let wanted = held.saturating_add(requested);
        let missing = wanted.saturating_sub(standing.share()).max(requested);
        // As large for all that share, and for the part that is kept back.
        let parts = standing.active + standing.idle.min(1) + standing.merges.min(1) + 1;
        let free = self.limit.saturating_sub(self.used);
        free.saturating_add(missing.saturating_mul(parts))
    }

    /// Returns whether a spiller that holds `held` may have `requested` more: no more than its share, and while others hold nothing, another
    /// share stays free. Each request comes here, so products are compared instead of shares: a division takes as long as all else.
    #[inline]
    pub(crate) fn allows(&self, held: u64, requested: u64) -> bool {
        if self.limit == u64::MAX {
            return true;
        }
        let standing = self.of(held);
        let (left, parts) = standing.shared();
        if held.saturating_add(requested).saturating_mul(parts) > left {
            return false;
        }
        let free = self.limit.checked_sub(self.used.saturating_add(requested));
        let stays_free = |free: u64| left < (free + 1).saturating_mul(parts);
        held == 0 || standing.idle == 0 || free.is_some_and(stays_free)
    }
}

impl FairShare {
    /// Shares the limit of `group` and its ancestors.
    pub fn new(group: &Group) -> Self {
        Self {
            shared: Arc::new(Shared {
                chain: Chain::of(group),
                counts: Counts::default(),
                members: Mutex::default(),
            }),
        }
    }

    /// Returns the group.
    pub fn group(&self) -> &Group {
        &self.shared.chain.groups()[0]
    }

    /// Checks whether a spiller that holds `held` may have `requested` more; if not, returns the numbers that decided.
    #[inline]
    pub(crate) fn check(&self, held: u64, requested: u64) -> Result<(), Standing> {
        if self.allows_roughly(held, requested) {
            return Ok(());
        }
        let exact = self.exactly();
        if exact.allows(held, requested) {
            return Ok(());
        }
        Err(exact)
    }

    /// Checks a request by counts that others change meanwhile, and by a usage that includes stock: so it may say no too early.
    #[inline(always)]
    pub(crate) fn allows_roughly(&self, held: u64, requested: u64) -> bool {
        let limit = self.shared.chain.max();
        limit == u64::MAX || self.roughly(limit).allows(held, requested)
    }

    #[inline(always)]
    fn roughly(&self, limit: u64) -> Standing {
        let counts = &self.shared.counts;
        let [registered, active, spillable] =
            [&counts.registered, &counts.active, &counts.told].map(number);
        Standing {
            limit,
            used: self.group().reserved(),
            spillable,
            active,
            idle: registered.saturating_sub(active),
            merges: number(&counts.merges),
        }
    }

    #[cold]
    pub(crate) fn exactly(&self) -> Standing {
        self.exactly_with(|| chain::usage(self.group()))
    }

    /// Reads the numbers with an exact usage between two sums. Bytes that spillers take during the read are in the
    /// second sum, and bytes that they return are in the first; the larger sum counts. If some take and others return
    /// meanwhile, it lacks no more than the smaller of the two.
    fn exactly_with(&self, usage: impl FnOnce() -> u64) -> Standing {
        // A lowered limit or more spillers make what the sum may lack smaller. Otherwise the fast check would never say yes again.
        self.members(|members| members.iter().for_each(|held| self.tell(held)));
        // A registration at the same time may or may not be in.
        let registered = number(&self.shared.counts.registered);
        let before = self.held();
        let used = usage();
        let (spillable, active) = before.max(self.held());
        Standing {
            limit: self.shared.chain.max(),
            used,
            spillable,
            active,
            idle: registered.saturating_sub(active),
            merges: number(&self.shared.counts.merges),
        }
    }

    /// Returns the bytes that spillers hold, and how many spillers hold bytes.
    pub(crate) fn held(&self) -> (u64, u64) {
        self.members(|members| {
            let all = members.iter().map(|held| held.bytes());
            all.fold((0, 0), |(sum, active), held| {
                (u64::saturating_add(sum, held), active + u64::from(held > 0))
            })
        })
    }

    /// Records that a spiller holds `bytes` more, before they are charged. If they are refused, [`FairShare::shrunk`]
    /// follows.
    ///
    /// So the bytes recorded for spillers are never fewer than the bytes charged to them, and none of these count as
    /// used by others, which would make each share too small. Meanwhile an undecided request makes the others' shares
    /// too large, by its size at most. It has passed [`FairShare::check`], so it is smaller than the limit, and the
    /// limit holds.
    #[inline]
    pub(crate) fn grown(&self, held: &Held, bytes: u64) {
        // SeqCst, here and in `tell`: of a task that changes the bytes and one that tells them, at least one sees what the other did. Where
        // a processor makes the charge visible before this, a reader just then may take the request for others' use; once it is over
        // none does.
        let before = held.bytes.fetch_add(bytes, Ordering::SeqCst);
        let after = before.wrapping_add(bytes);
        // Relaxed: a hint.
        if after > held.tell_above.load(Ordering::Relaxed) {
            self.tell(held);
        }
        if before == 0 {
            self.count_active(1);
        }
    }

    /// Records that a spiller holds `bytes` fewer, after they were returned, for the same reason.
    #[inline]
    pub(crate) fn shrunk(&self, held: &Held, bytes: u64) {
        // SeqCst, both: as above.
        let before = held.bytes.fetch_sub(bytes, Ordering::SeqCst);
        let after = before.wrapping_sub(bytes);
        if after < held.told.load(Ordering::SeqCst) {
            self.tell(held);
        }
        if before > 0 && after == 0 {
            self.count_active(-1);
        }
    }

    /// Counts a spiller whose bytes a task took from 0, or to 0. The task knows it by the value that it found, so each change is counted
    /// once, and what is counted adds up when these steps are over.
    fn count_active(&self, change: i64) {
        // Relaxed: see the module's comment for what may be missed.
        let active = &self.shared.counts.active;
        active.fetch_add(change, Ordering::Relaxed);
    }

    /// Brings the shared sum up to date with a spiller's bytes, if it lacks too many or has too many.
    #[cold]
    #[inline(never)]
    fn tell(&self, held: &Held) {
        let spillers = number(&self.shared.counts.registered).max(1);
        let untold = (self.shared.chain.max() / PART_UNTOLD / spillers).max(LEAST_UNTOLD);
        loop {
            // SeqCst, all: see `grown`. The bytes are looked at again after each step, so of two tasks the later one corrects the other.
            let told = held.told.load(Ordering::SeqCst);
            let bytes = held.bytes.load(Ordering::SeqCst);
            let tell_above = told.saturating_add(2 * untold);
            if told <= bytes && bytes <= tell_above {
                if held.tell_above.load(Ordering::Relaxed) != tell_above {
                    // Relaxed: a hint. One that is too high, of a task that was late, makes the fast check say no earlier.
                    held.tell_above.store(tell_above, Ordering::Relaxed);
                }
                return;
            }
            let now = bytes.saturating_sub(untold);
            // SeqCst, both: as above, pairs with the load in `shrunk`.
            let exchanged =
                held.told
                    .compare_exchange(told, now, Ordering::SeqCst, Ordering::SeqCst);
            if exchanged.is_ok() {
                // Relaxed: a sum, to which each change is added once.
                let change = now.wrapping_sub(told) as i64;
                let sum = &self.shared.counts.told;
                sum.fetch_add(change, Ordering::Relaxed);
            }
        }
    }

    /// Counts the spillers that are registered.
    pub(crate) fn spiller_comes(&self) {
        self.shared
            .counts
            .registered
            .fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn spiller_goes(&self) {
        self.shared
            .counts
            .registered
            .fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts the merges that are registered.
    pub(crate) fn merge_comes(&self) {
        self.shared.counts.merges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn merge_goes(&self) {
        self.shared.counts.merges.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a place for a spiller's bytes, which lasts as long as there is another reference to it.
    pub(crate) fn member(&self) -> Arc<Held> {
        let held = Arc::<Held>::default();
        self.members(|members| {
            if members.len() == members.capacity() {
                // Those whose pools ended. There is room for as many again as are left, so the search costs each a constant.
                members.retain(|held| Arc::strong_count(held) > 1);
                members.reserve(members.len().max(8));
            }
            members.push(Arc::clone(&held));
        });
        held
    }

    fn members<R>(&self, with: impl FnOnce(&mut Vec<Arc<Held>>) -> R) -> R {
        let members = self.shared.members.lock();
        with(&mut members.unwrap_or_else(PoisonError::into_inner))
    }
}

fn number(count: &AtomicI64) -> u64 {
    // Relaxed: see the module's comment for what may be missed.
    count.load(Ordering::Relaxed).max(0) as u64
}

impl fmt::Debug for FairShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FairShare").field(self.group()).finish()
    }
}

#[cfg(test)]
mod tests;
