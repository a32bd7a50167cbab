//! The pool: what DataFusion calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bursar::{Bytes, Group, Host, Machine, RemoveError};
use datafusion_common::Result;
use datafusion_execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use crate::builder::{Operators, PoolBuilder};
use crate::chain::{self, Chain};
use crate::history::History;
use crate::operators::Registry;
use crate::refusal::Refusal;
use crate::report::QueryReport;
use crate::share::FairShare;
use crate::spilling::{Watermark, worth_spilling};
use crate::table::{Entry, Table};

/// What a group can be charged at once, bytes (2^56); more is cut.
const CHARGE_MAX: usize = 1 << 56;

/// A group as a memory pool: usually a query's.
///
/// * `try_grow` charges the operator's group, and with it the query's and the tenant's. It fails, with `ResourcesExhausted`, if a
///   limit on the way does not allow it, the pool's [`FairShare`] does not, or the consumer is asked to spill early
///   ([`PoolBuilder::spill_from`]); or if the group was removed.
/// * `grow` always charges. A limit that it oversteps is over from then on: no `try_grow` below it succeeds until the
///   usage is back within.
/// * Limits may change at any time ([`Group::set_max`]).
/// * `reserved` is exact, `memory_limit` the smallest `max` of the group and those above it.
///
/// Operators come and go; what they used stays in the pool's report until the pool ends, and after that in its [`History`].
///
/// Meant for one query. A pool that serves many grows by an entry of 128 bytes for each consumer that lives at a time, and
/// adds the operators of one name up.
///
/// # Errors
/// A refused request names the consumer, the limit in the way, who uses it, and the query's operators by what they hold:
///
/// ```text
/// Resources exhausted: cannot reserve 12.0 MiB more for ExternalSorter[3], which has 10.0 MiB, in /tenant-a/query-7: /tenant-a uses 248 MiB of at most 256 MiB; largest in it: query-9 144 MiB, query-7 104 MiB
/// /tenant-a/query-7 uses 104 MiB, peak 104 MiB; its top consumers:
///   HashJoinInput: 64.0 MiB, peak 64.2 MiB, 1 consumer, cannot spill
///   ExternalSorter: 40.0 MiB, peak 40.2 MiB, 4 consumers, can spill, refused 1
/// ```
pub struct GroupPool {
    group: Group,
    /// Each operator has a group of its own.
    has_operators: bool,
    /// There is more to ask than the limits when a spiller wants memory.
    asks_spillers: bool,
    /// Consumers that were refused, can spill, and have returned nothing since.
    asked: AtomicUsize,
    table: Table,
    registry: Registry,
    chain: Chain,
    share: Option<FairShare>,
    watermark: Option<Watermark>,
    history: Option<History>,
    /// Spillers that are registered.
    spillers: AtomicU64,
    overshot: AtomicU64,
    /// Bytes of requests so large that they were cut.
    uncharged: AtomicU64,
    clock: Option<Host>,
    begun_ns: u64,
}

impl GroupPool {
    /// The pool that is this group, with a group for each operator below it.
    pub fn new(group: Group) -> Arc<Self> {
        Self::builder(group).build()
    }

    /// Settings for the pool that is this group.
    pub fn builder(group: Group) -> PoolBuilder {
        PoolBuilder::new(group)
    }

    pub(crate) fn build(builder: PoolBuilder) -> Arc<Self> {
        let group = builder.group;
        let chain = Chain::of(&group);
        let watermark = Watermark::new(&chain, builder.spill_from);
        // It has started before: there is a group.
        let clock = Host::start().ok();
        let pool = Arc::new(Self {
            has_operators: builder.operators != Operators::Together,
            asks_spillers: builder.share.is_some() || watermark.is_some(),
            asked: AtomicUsize::new(0),
            table: Table::new(),
            registry: Registry::new(builder.operators, group.clone()),
            chain,
            share: builder.share,
            watermark,
            history: builder.history,
            spillers: AtomicU64::new(0),
            overshot: AtomicU64::new(0),
            uncharged: AtomicU64::new(0),
            begun_ns: clock.as_ref().map_or(0, Host::now_ns),
            clock,
            group,
        });
        if let Some(share) = &pool.share {
            share.pool_comes(&pool);
        }
        pool
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// What the query and its operators use and used, as of now.
    pub fn report(&self) -> QueryReport {
        let operators = self.registry.all();
        let own = self.registry.own();
        let now_ns = self.clock.as_ref().map_or(0, Host::now_ns);
        let everybody = || operators.iter().chain(std::iter::once(own));
        QueryReport {
            path: self.group.path(),
            reserved: chain::usage(&self.group),
            peak: self.group.peak(),
            refused: everybody().map(|operator| operator.refused()).sum(),
            // Relaxed: a statistic.
            overshot: self.overshot.load(Ordering::Relaxed),
            spills: everybody().map(|operator| operator.spills()).sum(),
            elapsed: Duration::from_nanos(now_ns.saturating_sub(self.begun_ns)),
            operators: operators.iter().map(|operator| operator.report()).collect(),
        }
    }

    /// Removes the operators' groups and the query's own: its name is free, and from now on `try_grow` fails. What is reserved
    /// stays charged until it is returned, and `grow` and `shrink` work as before. Removing twice is fine.
    ///
    /// This ends a query that does not look at whether it is cancelled: its next request fails.
    ///
    /// # Errors
    /// [`RemoveError`] if there are groups below that this pool did not make, or if its group is the root; some operators' groups
    /// may be removed then.
    pub fn remove(&self) -> std::result::Result<(), RemoveError> {
        for operator in self.registry.close() {
            operator.group().remove()?;
        }
        self.group.remove()
    }

    /// What each consumer that takes part in the share holds, bytes.
    pub(crate) fn for_each_held(&self, mut each: impl FnMut(u64)) {
        // Relaxed: a request at the same time may or may not be in.
        self.table
            .live()
            .for_each(|entry| each(entry.held.load(Ordering::Relaxed)));
    }

    /// What a reservation is charged to: the same for all calls of one consumer.
    #[inline(always)]
    fn group_of(&self, reservation: &MemoryReservation) -> &Group {
        if !self.has_operators {
            return &self.group;
        }
        let entry = self.table.find(reservation.consumer().id());
        entry.and_then(Entry::group).unwrap_or(&self.group)
    }

    /// The share and the place in it of a consumer that takes part in one.
    #[inline(always)]
    fn shared(&self, reservation: &MemoryReservation) -> Option<(&FairShare, &Entry)> {
        let share = self.share.as_ref()?;
        if !reservation.consumer().can_spill() {
            return None;
        }
        Some((share, self.table.find(reservation.consumer().id())?))
    }

    fn try_grow_spiller(&self, reservation: &MemoryReservation, bytes: usize) -> Result<()> {
        if let Some(watermark) = &self.watermark
            && watermark.is_reached()
            && self.is_to_spill(reservation)
        {
            let (group, level) = watermark.pressed_group(&self.chain);
            let group = group.path();
            return Err(self.refuse(reservation, bytes, Refusal::Pressure { group, level }));
        }
        let shared = self.shared(reservation);
        if let Some((share, entry)) = shared {
            // Relaxed: what other tasks of this consumer request at the same time may be missed.
            let held = entry.held.load(Ordering::Relaxed);
            if let Err(standing) = share.check(held, bytes as u64) {
                let group = share.group().path();
                return Err(self.refuse(reservation, bytes, Refusal::Share { group, standing }));
            }
        }
        self.charge(reservation, bytes)?;
        if let Some((share, entry)) = shared {
            share.grown(entry, bytes as u64);
        }
        Ok(())
    }

    /// Whether a consumer is asked to spill when there is pressure: it holds enough, and has returned something since it was last
    /// asked.
    #[cold]
    fn is_to_spill(&self, reservation: &MemoryReservation) -> bool {
        // Relaxed, both: who is asked once more, or a little early, spills once more.
        let spillers = self.spillers.load(Ordering::Relaxed);
        let Some(entry) = self.table.find(reservation.consumer().id()) else {
            return false;
        };
        let worth = worth_spilling(self.chain.lowest(), spillers);
        reservation.size() as u64 >= worth && !entry.is_asked.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn charge(&self, reservation: &MemoryReservation, bytes: usize) -> Result<()> {
        match self.group_of(reservation).try_charge(bytes) {
            Ok(charge) => {
                charge.forget();
                Ok(())
            }
            Err(error) => Err(self.refuse(reservation, bytes, Refusal::Charge(error))),
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(
        &self,
        reservation: &MemoryReservation,
        bytes: usize,
        refusal: Refusal,
    ) -> datafusion_common::DataFusionError {
        let consumer = reservation.consumer();
        let entry = self.table.find(consumer.id());
        let operator = entry.and_then(Entry::operator);
        operator.unwrap_or(self.registry.own()).count_refusal();
        if let Some(entry) = entry
            && consumer.can_spill()
            && reservation.size() > 0
            // Relaxed: the one who changes it counts.
            && !entry.is_asked.swap(true, Ordering::Relaxed)
        {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        refusal.into_error(self, reservation, bytes)
    }

    /// Notes that a consumer returned something, when some consumers have been asked to.
    #[cold]
    #[inline(never)]
    fn note_return(&self, consumer: &MemoryConsumer) {
        let Some(entry) = self.table.find(consumer.id()) else {
            return;
        };
        if self.forget_asking(entry)
            && let Some(operator) = entry.operator()
        {
            operator.count_spill();
        }
    }

    /// Whether it had been asked.
    fn forget_asking(&self, entry: &Entry) -> bool {
        // Relaxed: as in `refuse`.
        let was_asked = entry.is_asked.swap(false, Ordering::Relaxed);
        if was_asked {
            self.asked.fetch_sub(1, Ordering::Relaxed);
        }
        was_asked
    }

    /// A request was cut: what was not charged is not to be returned.
    #[cold]
    fn note_uncharged(&self, bytes: usize) {
        // Relaxed: read by those who return what was cut here.
        self.uncharged.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How much is to be returned of a return so large that its request was cut.
    #[cold]
    fn charged_of(&self, bytes: usize) -> usize {
        let wanted = bytes as u64;
        // Relaxed: as above. The closure always has a new value.
        let before = self
            .uncharged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rest| {
                Some(rest.saturating_sub(wanted))
            });
        let never_charged = before.unwrap_or(0).min(wanted);
        (wanted - never_charged) as usize
    }
}

impl MemoryPool for GroupPool {
    fn name(&self) -> &str {
        "bursar"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let mut registering = self.registry.lock();
        let (id, can_spill) = (consumer.id(), consumer.can_spill());
        let operator = registering.operator_of(consumer.name(), id, can_spill);
        let entry = self.table.insert(id, &operator);
        if entry.is_some() && can_spill {
            self.spillers.fetch_add(1, Ordering::Relaxed);
            if let Some(share) = &self.share {
                share.spiller_comes();
            }
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let _registering = self.registry.lock();
        let Some(entry) = self.table.find(consumer.id()) else {
            return;
        };
        self.forget_asking(entry);
        if consumer.can_spill() {
            self.spillers.fetch_sub(1, Ordering::Relaxed);
            if let Some(share) = &self.share {
                // Usually none: reservations return what they have before.
                share.shrunk(entry, entry.held.load(Ordering::Relaxed));
                share.spiller_goes();
            }
        }
        self.table.free(entry);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if additional == 0 {
            return;
        }
        let charged = self.group_of(reservation).charge(additional).forget();
        if charged < additional {
            self.note_uncharged(additional - charged);
        }
        if let Some((share, entry)) = self.shared(reservation) {
            share.grown(entry, additional as u64);
        }
        if self.chain.is_over() {
            self.overshot.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        if shrink == 0 {
            return;
        }
        let charged = if shrink > CHARGE_MAX {
            self.charged_of(shrink)
        } else {
            shrink
        };
        self.group_of(reservation).uncharge(charged);
        if let Some((share, entry)) = self.shared(reservation) {
            share.shrunk(entry, shrink as u64);
        }
        // Relaxed: who was just refused, by another task of its own, may be seen a return later.
        if self.asked.load(Ordering::Relaxed) != 0 && reservation.consumer().can_spill() {
            self.note_return(reservation.consumer());
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if additional == 0 {
            return Ok(());
        }
        if self.asks_spillers && reservation.consumer().can_spill() {
            return self.try_grow_spiller(reservation, additional);
        }
        self.charge(reservation, additional)
    }

    fn reserved(&self) -> usize {
        usize::try_from(chain::usage(&self.group)).unwrap_or(usize::MAX)
    }

    fn memory_limit(&self) -> MemoryLimit {
        match self.chain.max() {
            u64::MAX => MemoryLimit::Infinite,
            max => MemoryLimit::Finite(usize::try_from(max).unwrap_or(usize::MAX)),
        }
    }
}

impl Drop for GroupPool {
    fn drop(&mut self) {
        if let Some(history) = &self.history {
            history.push(self.report());
        }
        if let Some(share) = &self.share {
            share.pool_goes();
        }
    }
}

impl fmt::Debug for GroupPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupPool")
            .field("group", &self.group)
            .field("registry", &self.registry)
            .field("share", &self.share)
            .field("watermark", &self.watermark)
            .finish_non_exhaustive()
    }
}

/// The path, the usage, and the limit if there is one.
impl fmt::Display for GroupPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = Bytes(chain::usage(&self.group));
        write!(f, "bursar({}, used: {used}", self.group)?;
        match self.chain.max() {
            u64::MAX => f.write_str(")"),
            max => write!(f, ", limit: {})", Bytes(max)),
        }
    }
}
