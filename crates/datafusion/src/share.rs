//! A limit shared by those who can spill.
//!
//! DataFusion's FairSpillPool gives each registered spiller an even part, of which most may lie idle: operators register when a
//! plan starts, and many hold nothing until their input comes, or ever. Here the part is one of those who hold bytes now, and one
//! more as long as somebody holds none. So that who comes later finds room, whoever holds bytes must also leave as much
//! free as one part, as long as somebody holds none: n who take all they may leave at least 1/(n+1), which is no
//! less than FairSpillPool's part.
//!
//! The fast check goes by numbers that are off on the safe side: usage includes stock, and of the bytes of spillers the shared
//! sum lacks up to 64 KiB each, so that the line it stands on is rarely written. What it would refuse is worked out again from
//! exact numbers. Accepted: requests that are checked at the same time do not see each other, so together they may exceed
//! the share by what they ask for. The limit itself holds.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bursar::Group;

use crate::chain::{self, Chain};
use crate::pool::GroupPool;
use crate::table::Entry;

/// Spillers' bytes reach the shared sum in pieces of this size (64 KiB), as a power of two.
const GRAIN_BITS: u32 = 16;

/// A group's limit, shared evenly by those consumers that can spill and hold memory.
///
/// Make one of a tenant's group and give it to all pools of the tenant's queries ([`crate::PoolBuilder::share`]), or one of a
/// query's group for that query alone. The limit is the smallest `max` of the group and those above it, as it is at each request.
/// What is charged to the group by others, consumers that cannot spill among them, is left out of what is shared.
///
/// # Who may hold how much
/// With `left` for the limit less what others use, each may hold `left / (active + 1)` bytes, where `active` counts the spillers
/// that hold some; or `left / active` if all that are registered do. As long as some hold nothing, a spiller that holds
/// bytes leaves that much free, too. Of eight spillers the first has half of what is left, as long as it is alone; when all eight
/// hold memory each may have an eighth, as under `FairSpillPool`.
///
/// # Who is refused
/// Who exceeds that when it asks for more. DataFusion's operators then spill what they hold and ask again. Those that hold nothing
/// have nothing to spill: a sort or an aggregation that is refused its first batch gives up. So a request of one that holds
/// nothing is refused only if it exceeds its share by itself, or if the limit refuses it: because others' first requests
/// came at the same time or were as large as a share, because of consumers that cannot spill, or because a lowered limit or a
/// [`grow`](datafusion_execution::memory_pool::MemoryPool::grow) has left too little. A repartition that is refused writes that
/// batch to disk and goes on.
///
/// A spiller that holds more than its share, since others came later, keeps it until it asks for more.
#[derive(Clone)]
pub struct FairShare {
    shared: Arc<Shared>,
}

struct Shared {
    chain: Chain,
    counts: Counts,
    members: Mutex<Vec<Weak<GroupPool>>>,
}

/// Signed: additions that belong together may be seen in another order.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    /// Spillers.
    registered: AtomicI64,
    /// Those that hold bytes.
    active: AtomicI64,
    /// What they hold, each one's rounded down to whole grains.
    grains: AtomicI64,
}

/// What a share is worked out from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Bytes; `u64::MAX` for none.
    pub(crate) limit: u64,
    /// Bytes charged to the group.
    pub(crate) used: u64,
    /// Those of them that spillers hold.
    pub(crate) spillable: u64,
    /// Spillers that hold bytes.
    pub(crate) active: u64,
    /// Spillers that hold none.
    pub(crate) idle: u64,
}

impl Standing {
    /// As it is for a spiller that holds `held`: one that holds nothing is counted as if it did.
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

    /// What each may hold, bytes.
    pub(crate) fn share(&self) -> u64 {
        let others = self.used.saturating_sub(self.spillable);
        let left = self.limit.saturating_sub(others);
        left / (self.active + self.idle.min(1)).max(1)
    }

    /// Whether a spiller that holds `held` may have `requested` more.
    pub(crate) fn allows(&self, held: u64, requested: u64) -> bool {
        if self.limit == u64::MAX {
            return true;
        }
        let standing = self.of(held);
        let share = standing.share();
        if held.saturating_add(requested) > share {
            return false;
        }
        let wanted = self.used.saturating_add(requested).saturating_add(share);
        held == 0 || standing.idle == 0 || wanted <= self.limit
    }
}

impl FairShare {
    /// Shares the limit of `group` and those above it.
    pub fn of(group: &Group) -> Self {
        Self {
            shared: Arc::new(Shared {
                chain: Chain::of(group),
                counts: Counts::default(),
                members: Mutex::default(),
            }),
        }
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.shared.chain.groups()[0]
    }

    /// Whether a spiller that holds `held` may have `requested` more; if not, what that was decided by.
    #[inline]
    pub(crate) fn check(&self, held: u64, requested: u64) -> Result<(), Standing> {
        let limit = self.shared.chain.max();
        if limit == u64::MAX || self.roughly(limit).allows(held, requested) {
            return Ok(());
        }
        let exact = self.exactly();
        if exact.allows(held, requested) {
            return Ok(());
        }
        Err(exact)
    }

    fn roughly(&self, limit: u64) -> Standing {
        let counts = &self.shared.counts;
        // Relaxed: see the module's comment for what may be missed.
        let [registered, active, grains] = [&counts.registered, &counts.active, &counts.grains]
            .map(|count| count.load(Ordering::Relaxed).max(0) as u64);
        Standing {
            limit,
            used: self.group().reserved(),
            spillable: grains << GRAIN_BITS,
            active,
            idle: registered.saturating_sub(active),
        }
    }

    #[cold]
    pub(crate) fn exactly(&self) -> Standing {
        // Relaxed: a registration at the same time may or may not be in.
        let registered = self.shared.counts.registered.load(Ordering::Relaxed).max(0) as u64;
        let (mut spillable, mut active) = (0_u64, 0_u64);
        for pool in self.pools() {
            pool.for_each_held(|held| {
                spillable = spillable.saturating_add(held);
                active += u64::from(held > 0);
            });
        }
        Standing {
            limit: self.shared.chain.max(),
            used: chain::usage(self.group()),
            spillable,
            active,
            idle: registered.saturating_sub(active),
        }
    }

    /// Notes that a spiller holds `bytes` more.
    #[inline]
    pub(crate) fn grown(&self, entry: &Entry, bytes: u64) {
        // Relaxed: whoever takes the count from zero, or over a whole grain, knows it by the value it found. All these steps have one
        // order, so each is counted once, and what is counted adds up when they are over.
        let before = entry.held.fetch_add(bytes, Ordering::Relaxed);
        self.moved(before, before.wrapping_add(bytes));
    }

    /// Notes that a spiller holds `bytes` fewer.
    #[inline]
    pub(crate) fn shrunk(&self, entry: &Entry, bytes: u64) {
        // Relaxed: as above.
        let before = entry.held.fetch_sub(bytes, Ordering::Relaxed);
        self.moved(before, before.wrapping_sub(bytes));
    }

    #[inline]
    fn moved(&self, before: u64, after: u64) {
        if (before == 0) != (after == 0) {
            let change = if before == 0 { 1 } else { -1 };
            self.shared
                .counts
                .active
                .fetch_add(change, Ordering::Relaxed);
        }
        let grains = (after >> GRAIN_BITS).wrapping_sub(before >> GRAIN_BITS);
        if grains != 0 {
            let counts = &self.shared.counts;
            counts.grains.fetch_add(grains as i64, Ordering::Relaxed);
        }
    }

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

    pub(crate) fn pool_comes(&self, pool: &Arc<GroupPool>) {
        self.members(|members| members.push(Arc::downgrade(pool)));
    }

    /// A pool is about to end, and nobody holds it any more.
    pub(crate) fn pool_goes(&self) {
        self.members(|members| members.retain(|pool| pool.strong_count() > 0));
    }

    fn pools(&self) -> Vec<Arc<GroupPool>> {
        // Not under the lock: the last of these may be ours to drop.
        self.members(|members| members.iter().filter_map(Weak::upgrade).collect())
    }

    fn members<R>(&self, with: impl FnOnce(&mut Vec<Weak<GroupPool>>) -> R) -> R {
        let members = self.shared.members.lock();
        with(&mut members.unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for FairShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FairShare").field(self.group()).finish()
    }
}

#[cfg(test)]
mod tests;
