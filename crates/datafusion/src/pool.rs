//! The pool that DataFusion calls.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use bursar::{Bytes, Charge, ChargeError, Group, Host, Level, LimitReached, Machine, RemoveError};
use bursar_arbiter::{Answer, Widener};
#[cfg(feature = "sql")]
use datafusion::physical_plan::ExecutionPlan;
use datafusion_common::Result;
use datafusion_execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use crate::chain::{self, Chain};
use crate::engine_version::{self, SINK};
use crate::history::{History, Running};
use crate::names;
use crate::operators::{Live, Operator, Operators, Registry};
#[cfg(feature = "real-bytes")]
use crate::real::Real;
use crate::refusal::Refusal;
use crate::report::{Leftover, OperatorReport, QueryReport};
use crate::share::{FairShare, Held, Standing};
use crate::sort::{Part, Sort};
use crate::spill_request::{Progress, SPILLED_MIN, SpillRequest};
use crate::spilling::{self, Watermark, worth_spilling};
use crate::table::{Entry, Table};

/// A group as a memory pool, usually for one query.
///
/// * `try_grow` charges the operator's group, and with it the query's and the tenant's. It fails, with
///   `ResourcesExhausted`, if a limit on the way or the pool's [`FairShare`] does not allow it, if the consumer is
///   asked to spill early ([`crate::PoolBuilder::spill_from`]), or if the group was removed. Operators of
///   [`crate::PoolBuilder::never_refuse`] are not refused.
/// * `grow` always charges. If it exceeds a limit, no `try_grow` below that limit succeeds until the usage is back
///   within, except in a sort's kept bytes.
/// * Limits may change at any time ([`Group::set_max`]). A sort whose bytes then exceed the limit can still end: what it returns
///   while it merges rows, or while a limit is exceeded, stays charged for its own next requests ([`QueryReport::kept`]). The usage
///   does not rise by these requests. Operators that cannot spill may be refused.
/// * `reserved` is exact. `memory_limit` is the smallest `max` of the group and its ancestors.
///
/// Operators come and go. Their figures stay in the pool's report until the pool ends, and then in its [`History`].
///
/// Use one pool for one query; a pool that serves several adds up the operators of one name. The pool keeps an entry of
/// 128 bytes for each consumer that lives at a time. The pool itself holds 32 entries. More are allocated in pieces
/// when needed, each four times as large as the one before: 16 KiB, 64 KiB and so on to 256 MiB. Under
/// [`Operators::Each`] neither entries nor operators' groups are used again, so they grow with each consumer that ever
/// lived. A consumer without a place, or without memory for a piece, is charged to the query's group, takes part in no
/// share, and is never asked to spill.
///
/// Peaks ([`QueryReport::peak`]) include stock.
///
/// # Errors
/// A refused request names the consumer, the limit that refused it, and the groups that use the memory. It lists the
/// query's operators by the bytes that they hold, and the living consumers of each:
///
/// ```text
/// Resources exhausted: cannot reserve 12.0 MiB more for ExternalSorter[3], which has 10.0 MiB, in /tenant-a/query-7: /tenant-a uses 248 MiB of at most 256 MiB; largest in it: query-9 144 MiB, query-7 104 MiB
/// /tenant-a/query-7 uses 104 MiB, peak 104 MiB; its top consumers:
///   HashJoinInput: 64.0 MiB, peak 64.2 MiB, 1 consumer, cannot spill
///   ExternalSorter: 40.0 MiB, peak 40.2 MiB, 4 consumers, can spill, refused 1
///     ExternalSorter[3]#17 10.0 MiB, ExternalSorter[0]#14, ExternalSorter[1]#15, ExternalSorter[2]#16
/// The tree around /tenant-a:
/// /                      248 MiB
///   tenant-a             248 MiB of 256 MiB, refused 1, pressure critical
///     query-7            104 MiB
///       ExternalSorter  40.0 MiB
///       HashJoinInput   64.0 MiB
///     query-9            144 MiB
/// Hint: Raise the limit of /tenant-a, let fewer queries run below it at a time, or have the query ask for less at a time (target_partitions, batch_size)
/// ```
///
/// [`crate::RefusalText`] takes it apart. Refusals around one group share the tree for 100 ms.
///
/// The bytes that a consumer holds are shown for the one that asks; for all that can spill if there is a [`FairShare`],
/// which counts them; and for all under [`Operators::Each`], by their groups.
pub struct GroupPool {
    group: Group,
    /// Whether a request must look for its consumer: operators have groups of their own, or there is a sort.
    is_looked_up: AtomicBool,
    /// Number of things that returns must check, usually 0: consumers that can spill, were refused, and have returned
    /// nothing since; and operators with requests that were charged in part.
    watched: AtomicUsize,
    /// Whether the plan has a join that must not spill.
    #[cfg(feature = "sql")]
    loses_rows: AtomicBool,
    table: Table,
    registry: Registry,
    chain: Chain,
    share: Option<FairShare>,
    watermark: Option<Watermark>,
    /// Not 0: a share, pressure or the arbiter may refuse the requests of spillers before the limits do.
    asks: Arc<AtomicUsize>,
    spill_request: SpillRequest,
    /// Operators whose requests always succeed.
    never_refused: Vec<String>,
    history: Option<History>,
    widener: Option<Widener>,
    /// The same for requests of consumers that cannot spill, or hold nothing that they could: their query would end.
    widener_before_asks: Option<Widener>,
    /// Bytes of its group up to which no share refuses, because there are as many for it.
    enough: u64,
    /// Most bytes that the query would have had, if a request had not been refused; 0 if none was.
    needed: AtomicU64,
    /// See [`QueryReport::tries`].
    tries: u32,
    #[cfg(feature = "real-bytes")]
    real: Option<Real>,
    /// Whether it is in its history.
    has_ended: AtomicBool,
    /// Spillers that are registered.
    spillers: AtomicU64,
    overshot: AtomicU64,
    last_refusal: Mutex<LastRefusal>,
    clock: Option<Host>,
    begun_ns: u64,
}

/// The last refusals.
#[derive(Clone, Default)]
struct LastRefusal {
    /// See [`QueryReport::refused_by`].
    by: Option<String>,
    /// The last by a limit.
    limit: Option<Box<LimitReached>>,
}

/// Settings of a pool: see [`crate::PoolBuilder`].
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) group: Group,
    pub(crate) operators: Operators,
    pub(crate) share: Option<FairShare>,
    pub(crate) spill_from: Level,
    pub(crate) never_refused: Vec<String>,
    pub(crate) history: Option<History>,
    pub(crate) widener: Option<Widener>,
    pub(crate) enough: u64,
    pub(crate) tries: u32,
    #[cfg(feature = "real-bytes")]
    pub(crate) real: Option<Real>,
}

impl Running for GroupPool {
    fn report(&self) -> Option<QueryReport> {
        // Relaxed: a query that ends meanwhile may be there twice, or running still.
        let has_ended = self.has_ended.load(Ordering::Relaxed);
        (!has_ended).then(|| Self::report(self))
    }
}

impl GroupPool {
    pub(crate) fn build(settings: Settings) -> Arc<Self> {
        let group = settings.group;
        let chain = Chain::of(&group);
        if let Some(share) = &settings.share {
            assert!(
                chain.groups().contains(share.group()),
                "a pool of {group} cannot take part in the share of {}, as it is not below it",
                share.group()
            );
        }
        let asks = Arc::new(AtomicUsize::new(match settings.share {
            Some(_) => spilling::SHARE,
            None => 0,
        }));
        let watermark = Watermark::new(&chain, settings.spill_from, &asks);
        // It has started before: there is a group.
        let clock = Host::start().ok();
        let pool = Arc::new(Self {
            is_looked_up: AtomicBool::new(settings.operators != Operators::Together),
            watched: AtomicUsize::new(0),
            #[cfg(feature = "sql")]
            loses_rows: AtomicBool::new(false),
            table: Table::new(),
            registry: Registry::new(settings.operators, group.clone()),
            chain,
            share: settings.share,
            watermark,
            spill_request: SpillRequest::new(&asks),
            asks,
            never_refused: settings.never_refused,
            history: settings.history,
            widener_before_asks: settings.widener.as_ref().map(Widener::before_asks),
            widener: settings.widener,
            enough: settings.enough,
            needed: AtomicU64::new(0),
            tries: settings.tries,
            #[cfg(feature = "real-bytes")]
            real: settings.real,
            has_ended: AtomicBool::new(false),
            spillers: AtomicU64::new(0),
            overshot: AtomicU64::new(0),
            last_refusal: Mutex::default(),
            begun_ns: clock.as_ref().map_or(0, Host::now_ns),
            clock,
            group,
        });
        if let Some(history) = &pool.history {
            let pool: Weak<Self> = Arc::downgrade(&pool);
            history.begin(pool);
        }
        pool
    }

    /// Returns the group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Reports the present and past use of the query and its operators, as of now.
    pub fn report(&self) -> QueryReport {
        let operators = self.registry.all();
        let own = self.registry.own();
        let now_ns = self.clock.as_ref().map_or(0, Host::now_ns);
        let everybody = || operators.iter().chain(std::iter::once(own));
        // Before the operators' own: the one flush that a report costs, and so a refusal. A repartition is refused each batch.
        let reserved = chain::usage(&self.group);
        let reports: Vec<_> = operators.iter().map(|operator| operator.report()).collect();
        // Relaxed: set by the one task that ends the query.
        let has_ended = self.group.is_removed() || self.has_ended.load(Ordering::Relaxed);
        let leftovers = match has_ended {
            true => self.leftovers(reserved, &reports, now_ns),
            false => Vec::new(),
        };
        let last = self.last_refusal().clone();
        QueryReport {
            path: self.group.path(),
            reserved,
            peak: self.group.peak(),
            refused: everybody().map(|operator| operator.refused()).sum(),
            // Relaxed: a statistic.
            overshot: self.overshot.load(Ordering::Relaxed),
            spills: everybody().map(|operator| operator.spills()).sum(),
            elapsed: Duration::from_nanos(now_ns.saturating_sub(self.begun_ns)),
            kept: self.kept(),
            tries: self.tries,
            operators: reports,
            refused_by: last.by,
            last_refusal: last.limit,
            leftovers,
            #[cfg(feature = "real-bytes")]
            real: self.real.as_ref().map(|real| real.report(self.chain.max())),
        }
    }

    /// Most bytes that the query would have had, if a request had not been refused; `None` if none was refused.
    #[cfg(feature = "sql")]
    pub(crate) fn needed(&self) -> Option<u64> {
        // Relaxed: read after the error of the refusal has come here.
        match self.needed.load(Ordering::Relaxed) {
            0 => None,
            needed => Some(needed.max(self.peak())),
        }
    }

    /// Returns whether the limits leave room for so many bytes more, or spillers hold as many, which they would rather spill than wait. Only a
    /// share counts those.
    #[cfg(feature = "sql")]
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let can_spill = |share: &FairShare| share.held().0 >= bytes;
        self.chain.has_room(bytes) || self.share.as_ref().is_some_and(can_spill)
    }

    /// Most bytes that the query had reserved, or really took, at one time.
    #[cfg(feature = "sql")]
    pub(crate) fn peak(&self) -> u64 {
        let peak = self.group.peak();
        #[cfg(feature = "real-bytes")]
        let peak = peak.max(self.real.as_ref().map_or(0, |real| real.group.peak()));
        peak
    }

    /// Bytes that the query could give back if it were asked now ([`GroupPool::ask`]): those of sorts that read their input, and those of other
    /// consumers that can spill and have not spilled yet, each of 64 KiB or more. Only a pool with a [`FairShare`] knows the second.
    pub fn reclaimable(&self) -> u64 {
        self.spillable().fold(0, u64::saturating_add)
    }

    /// Asks the query to give back `bytes` or more, as [`bursar_arbiter::Engine::ask`]. Of the consumers that could ([`GroupPool::reclaimable`]), those with
    /// an even part of `bytes` or more are refused their next request, so that they spill. The answer follows when the bytes are back. There is none
    /// if no consumer makes a request in time. Do not call it for a session that may not write files: such a sort would fail.
    pub fn ask(&self, bytes: u64, answer: Answer) {
        let spillers = self.spillable().count() as u64;
        if spillers == 0 {
            return answer.cannot();
        }
        let reserved = self.group.reserved();
        if self.spill_request.begin(bytes, spillers, reserved, answer) {
            // Relaxed: as all that count there. Returns show how far the query is.
            self.watched.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Bytes of each consumer that would spill if it were refused.
    fn spillable(&self) -> std::vec::IntoIter<u64> {
        let registering = self.registry.lock();
        let of = |live: &Live| {
            let entry = self.table.find(live.id).filter(|_| live.can_spill)?;
            if entry.is_never_refused() {
                return None;
            }
            let sort = entry.sort();
            // Relaxed: as in `is_to_spill`.
            let has_spilled = entry.has_spilled.load(Ordering::Relaxed);
            let bytes = match &sort {
                _ if !engine_version::may_be_asked(&live.name, has_spilled, sort.is_some()) => 0,
                Some((sort, _)) => sort.spillable(),
                None => entry.held()?.bytes(),
            };
            (bytes >= SPILLED_MIN).then_some(bytes)
        };
        let bytes: Vec<u64> = registering.live().filter_map(of).collect();
        bytes.into_iter()
    }

    /// Whether a sort writes rows to disk. Bytes that it returns meanwhile may stay with it until it goes on.
    fn is_spilling(&self) -> bool {
        let registering = self.registry.lock();
        let entries = registering.live().map(|live| self.table.find(live.id));
        let mut sorts = entries.filter_map(|entry| entry?.sort());
        sorts.any(|(sort, _)| sort.is_spilling())
    }

    /// The decision of the arbiter for which a consumer is refused now, so that it spills.
    fn asks_to_spill(&self, reservation: &MemoryReservation) -> Option<u64> {
        if !self.spill_request.is_pending() || !engine_version::spills(reservation.consumer()) {
            return None;
        }
        let entry = self.table.find(reservation.consumer().id())?;
        let held = match entry.sort() {
            Some((sort, _)) => sort.spillable(),
            // It may have several reservations, and be able to spill one of them.
            None => entry.held()?.bytes(),
        };
        let name = reservation.consumer().name();
        let is_whole = reservation.size() as u64 >= held || name == SINK;
        // Relaxed, both: as in `is_to_spill`.
        let has_spilled = entry.has_spilled.load(Ordering::Relaxed);
        let is_busy = entry.is_asked.load(Ordering::Relaxed)
            || !engine_version::may_be_asked(name, has_spilled, entry.sort().is_some());
        match is_busy || !is_whole {
            true => None,
            false => self
                .spill_request
                .refuses(reservation.consumer().id(), held),
        }
    }

    /// Takes bytes that the arbiter keeps for queries that are asked to give back memory.
    fn draw(&self, error: &ChargeError, group: &Group, bytes: u64) -> Option<Charge> {
        let widener = self.widener.as_ref();
        let widener = widener.filter(|_| self.spill_request.is_pending())?;
        // They are no help against an operator's own limit.
        let is_above = |limited: &str| self.group.path().starts_with(limited);
        if !matches!(error, ChargeError::LimitReached(reached) if is_above(&reached.limited)) {
            return None;
        }
        let mut drawn = widener.draw(bytes).ok()?;
        drawn.move_to(group).ok()?;
        Some(drawn)
    }

    /// Answers the arbiter, if the query has given back what it was asked for, or can give back no more.
    fn note_given_back(&self) {
        if !self.spill_request.is_pending() {
            return;
        }
        let can_more = |from| self.is_spilling() || self.spillable().any(|bytes| bytes >= from);
        let progress = self.spill_request.look(self.group.reserved(), can_more);
        if !matches!(progress, Progress::Goes) {
            // Relaxed: as in `ask`.
            self.watched.fetch_sub(1, Ordering::Relaxed);
        }
        if let Progress::Done(freed, answer) = progress {
            answer.freed(freed);
        }
    }

    /// Returns the bytes that are kept for sorts.
    fn kept(&self) -> u64 {
        let registering = self.registry.lock();
        let entries = registering.live().map(|live| self.table.find(live.id));
        let sorts = entries.filter_map(|entry| entry?.sort());
        let merges = sorts.filter(|(_, part)| *part == Part::Merge);
        merges.map(|(sort, _)| sort.kept()).sum()
    }

    #[cfg(feature = "real-bytes")]
    pub(crate) fn real(&self) -> Option<&Real> {
        self.real.as_ref()
    }

    /// Returns what the operators hold, and what is charged to the query's own group.
    fn leftovers(&self, reserved: u64, operators: &[OperatorReport], now_ns: u64) -> Vec<Leftover> {
        let below: u64 = operators.iter().map(|operator| operator.reserved).sum();
        let own = (String::new(), reserved.saturating_sub(below));
        let held = operators
            .iter()
            .map(|operator| (operator.name.clone(), operator.reserved));
        let held: Vec<_> = held.chain([own]).filter(|(_, bytes)| *bytes > 0).collect();
        let registering = self.registry.lock();
        let leftover = |(operator, bytes): (String, u64)| {
            let live = || {
                registering
                    .live()
                    .filter(|consumer| consumer.operator.name() == operator)
            };
            let since_ns = live()
                .map(|consumer| consumer.since_ns)
                .min()
                .unwrap_or(now_ns);
            Leftover {
                consumers: live().map(Live::label).collect(),
                age: Duration::from_nanos(now_ns.saturating_sub(since_ns)),
                operator,
                bytes,
            }
        };
        held.into_iter().map(leftover).collect()
    }

    /// Removes the operators' groups that this pool created, and the query's own. The name is free, and from now on
    /// `try_grow` fails. Reserved bytes stay charged until they are returned, and `grow` and `shrink` work as before.
    /// Removing twice is fine.
    ///
    /// This does not cancel a query: its operators see a limit without room. Operators that cannot spill fail. A sort
    /// or an aggregation fails after it has spilled all it holds. A repartition that is refused writes each batch to
    /// disk and goes on, or in DataFusion 55.2 never ends ([`crate::PoolBuilder::never_refuse`], which has no effect after the
    /// removal). Drop the query's streams to end the query.
    ///
    /// Call this after the streams are dropped: DataFusion 55.2 may keep the runtime, and so the pool, of a sort whose
    /// stream was dropped half-way. The query enters the [`History`] with this call, with its figures as of now.
    ///
    /// # Errors
    /// [`RemoveError`] if the group is the root, or if there are groups below that this pool did not create. The
    /// creator of an operator's group, made to limit it, must remove that group first. The operators' groups that the
    /// pool created are removed even then, and `try_grow` of these operators fails.
    pub fn remove(&self) -> std::result::Result<(), RemoveError> {
        let operators = self.registry.close();
        for operator in operators.iter().filter(|operator| operator.is_made_here()) {
            operator.group().remove()?;
        }
        self.group.remove()?;
        self.note_end();
        Ok(())
    }

    fn last_refusal(&self) -> MutexGuard<'_, LastRefusal> {
        let locked = self.last_refusal.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the query into its history, once.
    fn note_end(&self) {
        // Relaxed: the one call that changes it does so.
        if let Some(history) = &self.history
            && !self.has_ended.swap(true, Ordering::Relaxed)
        {
            history.push(self.report());
        }
    }

    /// Returns the consumers that are registered now, with the bytes that they hold if these are known.
    fn live(&self, asking: &MemoryReservation) -> Vec<Live> {
        let registering = self.registry.lock();
        let with_held = |consumer: &Live| {
            // Of an entry that no spiller has now, it would be another's.
            let is_spiller = |entry: &&Entry| consumer.can_spill && !entry.is_never_refused();
            let entry = self.table.find(consumer.id).filter(is_spiller);
            let shared = match entry.and_then(Entry::sort) {
                Some((sort, part)) => Some(sort.held(part)),
                None => entry.and_then(Entry::held).map(Held::bytes),
            };
            let asks = consumer.id == asking.consumer().id();
            let held = shared.or(asks.then(|| asking.size() as u64));
            Live {
                held,
                ..consumer.clone()
            }
        };
        registering.live().map(with_held).collect()
    }

    // The following functions are the way of most requests. A request leaves that way by a last call of a cold
    // function, so that the way needs no stack. Its checks are branches, because the section would wait for a
    // selection. That is 5 % of the floor (`bursar-bench reservation`).

    /// Returns whether a share may keep account of a consumer.
    #[inline(always)]
    fn concerns_share(&self, reservation: &MemoryReservation) -> bool {
        self.share.is_some() && reservation.consumer().can_spill()
    }

    /// Returns whether a share or pressure may refuse before the limits do.
    #[inline(always)]
    fn is_asked_first(&self, reservation: &MemoryReservation) -> bool {
        #[cfg(feature = "real-bytes")]
        if self.real_over().is_some() {
            return true;
        }
        // Relaxed: as in `Watermark::is_reached`.
        self.asks.load(Ordering::Relaxed) != 0 && reservation.consumer().can_spill()
    }

    /// Returns a group for which the heap holds more than its limit, if that refuses requests.
    #[cfg(feature = "real-bytes")]
    #[inline(always)]
    fn real_over(&self) -> Option<(&Group, u64, u64)> {
        self.real.as_ref()?.over()
    }

    /// Returns [`GroupPool::group_of`] if the first look finds it.
    #[inline(always)]
    fn group_at_once(&self, reservation: &MemoryReservation) -> Option<&Group> {
        // Relaxed: a sort's consumers make no request before it is set.
        if !self.is_looked_up.load(Ordering::Relaxed) {
            return Some(&self.group);
        }
        self.table.group_at_once(reservation.consumer().id())
    }

    /// Returns the group that a reservation is charged to: the same for all calls of one consumer.
    fn group_of(&self, reservation: &MemoryReservation) -> &Group {
        let entry = self.table.find(reservation.consumer().id());
        entry.and_then(Entry::group).unwrap_or(&self.group)
    }

    /// Returns the operator of that group.
    fn operator_of(&self, reservation: &MemoryReservation) -> &Operator {
        let entry = self.table.find(reservation.consumer().id());
        let operator = entry.and_then(Entry::operator);
        operator.unwrap_or(self.registry.own())
    }

    /// Returns the share, and the place in it of a consumer that takes part.
    fn shared<'a>(
        &'a self,
        reservation: &MemoryReservation,
        sort: &'a Option<(Arc<Sort>, Part)>,
    ) -> Option<(&'a FairShare, &'a Held)> {
        let share = self.share.as_ref()?;
        if let Some((sort, _)) = sort {
            return sort.in_share();
        }
        if !engine_version::spills(reservation.consumer()) {
            return None;
        }
        let entry = self.table.find(reservation.consumer().id())?;
        if entry.is_never_refused() {
            return None;
        }
        Some((share, entry.held()?))
    }

    /// Returns the sort that a consumer belongs to, and its part of it.
    fn sort_of(&self, reservation: &MemoryReservation) -> Option<(Arc<Sort>, Part)> {
        self.table.find(reservation.consumer().id())?.sort()
    }

    /// Returns the share of a spiller that belongs to no sort, its place in it, its group, and whether it has spilled, if one look finds them.
    #[inline(always)]
    fn shared_at_once(
        &self,
        reservation: &MemoryReservation,
    ) -> Option<(&FairShare, &Held, &Group, bool)> {
        let share = self.share.as_ref()?;
        let consumer = reservation.consumer();
        let entry = self.table.find_at_once(consumer.id())?;
        if !engine_version::spills(consumer) || entry.is_never_refused() {
            return None;
        }
        // Relaxed: as in `is_to_spill`.
        let has_spilled = entry.has_spilled.load(Ordering::Relaxed);
        Some((share, entry.held()?, entry.group()?, has_spilled))
    }

    // The next three are the ways of a spiller that is far from its share and belongs to no sort. They leave as the ways of others do.

    #[cold]
    #[inline(never)]
    fn try_grow_in_share(&self, reservation: &MemoryReservation, bytes: u64) -> Result<()> {
        if let Some((share, held, group, false)) = self.shared_at_once(reservation)
            && bytes > 0
            && !self.is_pressed()
            && share.allows_roughly(held.bytes(), bytes)
            && Self::grow_from_stock(share, held, group, bytes)
        {
            return Ok(());
        }
        self.try_grow_slowly(reservation, bytes)
    }

    #[cold]
    #[inline(never)]
    fn grow_in_share(&self, reservation: &MemoryReservation, bytes: u64) {
        if let Some((share, held, group, _)) = self.shared_at_once(reservation)
            && bytes > 0
            && Self::grow_from_stock(share, held, group, bytes)
        {
            return;
        }
        self.grow_slowly(reservation, bytes);
    }

    #[cold]
    #[inline(never)]
    fn shrink_in_share(&self, reservation: &MemoryReservation, bytes: u64) {
        // Relaxed: as in `shrink_slowly`.
        if self.watched.load(Ordering::Relaxed) == 0
            && let Some((share, held, group, _)) = self.shared_at_once(reservation)
            && bytes > 0
        {
            group.engine().uncharge(bytes);
            return share.shrunk(held, bytes);
        }
        self.shrink_slowly(reservation, bytes);
    }

    #[inline(always)]
    fn grow_from_stock(share: &FairShare, held: &Held, group: &Group, bytes: u64) -> bool {
        // Before it is charged: see `FairShare::grown`.
        share.grown(held, bytes);
        let is_charged = group.engine().charge_from_stock(bytes);
        if !is_charged {
            share.shrunk(held, bytes);
        }
        is_charged
    }

    /// Returns whether the heap or pressure may refuse what a share allows.
    #[inline(always)]
    fn is_pressed(&self) -> bool {
        #[cfg(feature = "real-bytes")]
        if self.real_over().is_some() {
            return true;
        }
        // Relaxed: as in `Watermark::is_reached`.
        self.asks.load(Ordering::Relaxed) & !spilling::SHARE != 0
    }

    #[cold]
    #[inline(never)]
    fn try_grow_slowly(&self, reservation: &MemoryReservation, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let sort = self.sort_of(reservation);
        let group = self.group_of(reservation);
        if let Some((sort, part)) = &sort
            && sort.take(*part, bytes, group, &self.chain)
        {
            // A sort that goes on may have returned what was kept for it.
            self.note_given_back();
            return Ok(());
        }
        if self.is_never_refused(reservation) {
            self.grow_slowly(reservation, bytes);
            return Ok(());
        }
        #[cfg(feature = "real-bytes")]
        if let Err((group, held, max)) = self.check_real() {
            let group = group.clone();
            return Err(self.refuse(reservation, bytes, Refusal::Real { group, held, max }));
        }
        if let Some(decision) = self.asks_to_spill(reservation) {
            return Err(self.refuse(reservation, bytes, Refusal::Asked { decision }));
        }
        if let Some(watermark) = &self.watermark
            && watermark.is_reached()
            && engine_version::spills(reservation.consumer())
            && self.is_to_spill(reservation)
        {
            let (group, level) = watermark.pressed_group(&self.chain);
            let group = group.clone();
            return Err(self.refuse(reservation, bytes, Refusal::Pressure { group, level }));
        }
        let shared = self.shared(reservation, &sort);
        if let Some((share, held)) = shared {
            // A merge of rows in memory has what these return, and cannot do without.
            let is_part =
                |(sort, part): &(Arc<Sort>, Part)| *part == Part::Rows || sort.reads_files();
            let (counted, asked) = self.counted_in_share(reservation, held, bytes);
            if sort.as_ref().is_none_or(is_part)
                && let Err(standing) = self.check_share(share, counted, asked)
            {
                let group = share.group().clone();
                return Err(self.refuse(reservation, bytes, Refusal::Share { group, standing }));
            }
            // Before it is charged: see `FairShare::grown`.
            share.grown(held, bytes);
        }
        // A spiller that holds nothing has nothing to spill.
        let ends_query = !engine_version::spills(reservation.consumer()) || reservation.size() == 0;
        let widener = match ends_query {
            false => &self.widener,
            true => &self.widener_before_asks,
        };
        // If the grant is too small, it becomes larger first, if that is possible.
        let charged = match widener {
            Some(widener) => widener.try_charge(group, bytes),
            None => group.try_charge(bytes),
        };
        let charged = charged.or_else(|error| self.draw(&error, group, bytes).ok_or(error));
        match charged {
            Ok(charge) => {
                charge.forget();
                if let Some((sort, part)) = &sort {
                    sort.grown(*part, bytes);
                    self.note_given_back();
                }
                Ok(())
            }
            Err(error) => {
                if let Some((share, held)) = shared {
                    share.shrunk(held, bytes);
                }
                Err(self.refuse(reservation, bytes, Refusal::Charge(error)))
            }
        }
    }

    /// Returns the bytes that a share compares for a request: those held, and those requested.
    fn counted_in_share(
        &self,
        reservation: &MemoryReservation,
        held: &Held,
        bytes: u64,
    ) -> (u64, u64) {
        let (consumer, held) = (reservation.consumer(), held.bytes());
        // Relaxed: as in `is_to_spill`.
        let spilled = |entry: &Entry| entry.has_spilled.load(Ordering::Relaxed);
        if !self.table.find(consumer.id()).is_some_and(spilled)
            || !engine_version::is_aggregate(consumer.name())
        {
            return (held, bytes);
        }
        engine_version::aggregate_in_share(held, reservation.size() as u64, bytes)
    }

    /// Checks a request against a share, unless there is enough for all. If the share is too small, the grant becomes larger first, if that
    /// is possible.
    fn check_share(
        &self,
        share: &FairShare,
        held: u64,
        bytes: u64,
    ) -> std::result::Result<(), Standing> {
        // Of a look at the counts of all spillers, which takes longer, it needs none.
        if self.enough > 0 && self.group.reserved().saturating_add(bytes) <= self.enough {
            return Ok(());
        }
        let check = || share.check(held, bytes);
        match &self.widener {
            Some(widener) => widener.retry(check, |standing| Some(standing.missing(held, bytes))),
            None => check(),
        }
    }

    /// Looks for a group for which the heap holds more than its limit. The grant becomes larger first, if that is possible.
    #[cfg(feature = "real-bytes")]
    fn check_real(&self) -> std::result::Result<(), (&Group, u64, u64)> {
        let check = || self.real_over().map_or(Ok(()), Err);
        match &self.widener {
            // A grant is made larger by what it lacks beyond the bytes that are charged.
            Some(widener) => widener.retry(check, |(group, held, _)| {
                (**group == self.group).then(|| held.saturating_sub(self.group.reserved()))
            }),
            None => check(),
        }
    }

    /// Looks whether the query has really held more than its limit, if that ends it ([`crate::TenantEngineBuilder::end_by_real_bytes`]). The
    /// grant becomes larger first, if that is possible.
    ///
    /// # Errors
    /// The refusal of the query's next batch.
    #[cfg(all(feature = "real-bytes", feature = "sql"))]
    pub(crate) fn check_real_peak(&self) -> Result<()> {
        let Some(real) = self.real.as_ref().filter(|real| real.ends_query) else {
            return Ok(());
        };
        let check = || match real.group.peak() {
            held if held > self.chain.max() => Err(held),
            _ => Ok(()),
        };
        let checked = match &self.widener_before_asks {
            Some(widener) => widener.retry(check, |held| {
                Some(held.saturating_sub(self.group.reserved()))
            }),
            None => check(),
        };
        checked.map_err(|held| {
            // Relaxed: see `needed`.
            self.needed.fetch_max(held, Ordering::Relaxed);
            self.registry.own().count_refusal();
            let (group, max) = (self.group.clone(), self.chain.max());
            let refusal = Refusal::Real { group, held, max };
            self.last_refusal().by = refusal.refused_by();
            refusal.of_next_batch(&self.group.path())
        })
    }

    /// Bytes that the query really held above its limit at one time, as [`crate::RealReport::above_limit`]; 0 without
    /// [`crate::PoolBuilder::real_bytes`]. Costs as little as a few reads, for a look before each batch.
    #[cfg(feature = "real-bytes")]
    pub fn real_above_limit(&self) -> u64 {
        let peak = self.real.as_ref().map_or(0, |real| real.group.peak());
        peak.saturating_sub(self.chain.max())
    }

    /// Returns whether pressure asks a consumer to spill: it holds enough, and has returned bytes since it was last
    /// asked.
    #[cold]
    fn is_to_spill(&self, reservation: &MemoryReservation) -> bool {
        // Relaxed, both: a spiller that is asked once more, or a little early, spills once more.
        let spillers = self.spillers.load(Ordering::Relaxed);
        let Some(entry) = self.table.find(reservation.consumer().id()) else {
            return false;
        };
        let worth = worth_spilling(self.chain.lowest(), spillers);
        reservation.size() as u64 >= worth && !entry.is_asked.load(Ordering::Relaxed)
    }

    /// Returns whether requests of a consumer always succeed, as long as its group exists.
    fn is_never_refused(&self, reservation: &MemoryReservation) -> bool {
        let entry = self.table.find(reservation.consumer().id());
        entry.is_some_and(Entry::is_never_refused) && !self.group_of(reservation).is_removed()
    }

    #[cold]
    #[inline(never)]
    fn grow_slowly(&self, reservation: &MemoryReservation, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let sort = self.sort_of(reservation);
        if let Some((share, held)) = self.shared(reservation, &sort) {
            // Before it is charged: see `FairShare::grown`.
            share.grown(held, bytes);
        }
        let charged = self.group_of(reservation).charge(bytes).forget();
        if let Some((sort, part)) = &sort {
            sort.grown(*part, bytes);
        }
        if charged < bytes {
            self.note_cut(reservation, bytes - charged);
        }
        if self.chain.is_over() {
            // Relaxed: a statistic.
            self.overshot.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink_slowly(&self, reservation: &MemoryReservation, bytes: u64) {
        if bytes == 0 {
            return;
        }
        // Relaxed: a refusal of the same consumer in another task may be seen a return later; for cut requests see
        // there.
        let charged = if self.watched.load(Ordering::Relaxed) != 0 {
            self.watch_return(reservation, bytes)
        } else {
            bytes
        };
        let group = self.group_of(reservation);
        let sort = self.sort_of(reservation);
        match &sort {
            Some((sort, part)) => sort.shrunk(*part, (bytes, charged), group, &self.chain),
            None => group.engine().uncharge(charged),
        }
        if let Some((share, held)) = self.shared(reservation, &sort)
            && sort.is_none()
        {
            share.shrunk(held, bytes);
        }
        self.note_given_back();
    }

    #[cold]
    #[inline(never)]
    fn refuse(
        &self,
        reservation: &MemoryReservation,
        bytes: u64,
        refusal: Refusal,
    ) -> datafusion_common::DataFusionError {
        let consumer = reservation.consumer();
        let reserved = self.group.reserved();
        let more = match &refusal {
            Refusal::Share { standing, .. } => standing.missing(reservation.size() as u64, bytes),
            _ => bytes,
        };
        let needed = match &refusal {
            #[cfg(feature = "real-bytes")]
            Refusal::Real { held, .. } => held.saturating_add(more),
            _ => reserved.saturating_add(more),
        };
        // Relaxed: see `needed`.
        self.needed.fetch_max(needed, Ordering::Relaxed);
        self.operator_of(reservation).count_refusal();
        if let Some(entry) = self.table.find(consumer.id())
            && consumer.can_spill()
            && reservation.size() > 0
            // Relaxed: the one call that changes it counts.
            && !entry.is_asked.swap(true, Ordering::Relaxed)
        {
            self.watched.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((sort, Part::Rows)) = self.sort_of(reservation)
            && reservation.size() > 0
        {
            sort.refused(bytes);
        }
        let refused_by = refusal.refused_by();
        let mut last = self.last_refusal();
        last.by = refused_by.or(last.by.take());
        if let Refusal::Charge(ChargeError::LimitReached(reached)) = &refusal {
            last.limit = Some(reached.clone());
        }
        drop(last);
        let error = refusal.into_error(self.report(), self.live(reservation), reservation, bytes);
        #[cfg(feature = "sql")]
        // Relaxed: set before the plan runs.
        if self.loses_rows.load(Ordering::Relaxed) {
            return engine_version::without_spill(consumer.name(), error);
        }
        error
    }

    /// Has a nested loop join that is refused fail rather than spill, for a plan whose rows would be lost.
    #[cfg(feature = "sql")]
    pub(crate) fn keep_rows(&self, plan: &Arc<dyn ExecutionPlan>) {
        if engine_version::loses_rows(plan) {
            // Relaxed: as in `refuse`.
            self.loses_rows.store(true, Ordering::Relaxed);
        }
    }

    /// Clears the mark of a consumer that was asked to spill; returns whether it was set.
    fn forget_asking(&self, entry: &Entry) -> bool {
        // Relaxed: as in `refuse`.
        let was_asked = entry.is_asked.swap(false, Ordering::Relaxed);
        if was_asked {
            entry.has_spilled.store(true, Ordering::Relaxed);
            self.watched.fetch_sub(1, Ordering::Relaxed);
        }
        was_asked
    }

    /// Records that a request was cut: the uncharged bytes must not be returned to the group.
    #[cold]
    #[inline(never)]
    fn note_cut(&self, reservation: &MemoryReservation, bytes: u64) {
        if self.operator_of(reservation).cut(bytes) {
            // Relaxed, as all that count there: a task that returns bytes that were cut here got them from here, in
            // some way that passes memory on.
            self.watched.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many of a consumer's returned bytes go back to the group, while there is something to check. Records
    /// that the consumer returned bytes.
    #[cold]
    #[inline(never)]
    fn watch_return(&self, reservation: &MemoryReservation, bytes: u64) -> u64 {
        let operator = self.operator_of(reservation);
        let consumer = reservation.consumer();
        if consumer.can_spill()
            && let Some(entry) = self.table.find(consumer.id())
            && self.forget_asking(entry)
        {
            operator.count_spill();
        }
        let (charged, are_last) = operator.charged_of(bytes);
        if are_last {
            self.watched.fetch_sub(1, Ordering::Relaxed);
        }
        charged
    }
}

impl MemoryPool for GroupPool {
    fn name(&self) -> &str {
        "bursar"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let mut registering = self.registry.lock();
        let (id, can_spill) = (consumer.id(), engine_version::spills(consumer));
        let now_ns = self.clock.as_ref().map_or(0, Host::now_ns);
        let operator = registering.operator_of(consumer.name(), id, can_spill, now_ns);
        let is_never_refused = !self.never_refused.is_empty()
            && self
                .never_refused
                .contains(&names::of_operator(consumer.name()));
        let entry = self.table.insert(id, &operator, is_never_refused);
        if let Some(entry) = entry
            && can_spill
            && !is_never_refused
        {
            // Relaxed, here and where it goes: changed under the lock of registration, and a request that reads it goes by an even
            // share that may be one spiller's off.
            self.spillers.fetch_add(1, Ordering::Relaxed);
            if let Some(share) = &self.share {
                entry.join(share);
                share.spiller_comes();
            }
        }
        if let Some(share) = &self.share
            && engine_version::is_merge(consumer.name())
        {
            share.merge_comes();
        }
        if let Some(entry) = entry
            && !can_spill
            && let Some(rows) = engine_version::of_sorted_rows(consumer.name())
        {
            // One thread registers both, one after the other. Another thread may do so between the two.
            let here = thread::current().id();
            let mut live = registering.live().rev();
            let rows = live.find(|one| one.by == here && one.can_spill && *one.name == *rows);
            let rows = rows.and_then(|rows| self.table.find(rows.id));
            let is_alone = |rows: &&Entry| !rows.is_never_refused() && rows.sort().is_none();
            if let Some(rows) = rows.filter(is_alone) {
                let sort = Arc::new(Sort::new(self.share.as_ref()));
                rows.join_sort(&sort, Part::Rows);
                entry.join_sort(&sort, Part::Merge);
                // Relaxed: see `group_at_once`.
                self.is_looked_up.store(true, Ordering::Relaxed);
            }
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        // Dropped after the lock: a return may call functions that look at this pool.
        let mut _kept = None;
        let mut registering = self.registry.lock();
        registering.forget(consumer.id());
        if let Some(share) = &self.share
            && engine_version::is_merge(consumer.name())
        {
            share.merge_goes();
        }
        let Some(entry) = self.table.find(consumer.id()) else {
            return;
        };
        self.forget_asking(entry);
        let is_spiller = engine_version::spills(consumer) && !entry.is_never_refused();
        if is_spiller {
            self.spillers.fetch_sub(1, Ordering::Relaxed);
        }
        // A sort leaves its share with its second consumer.
        let leaves_share = match entry.sort() {
            Some((sort, part)) => {
                let (kept, has_ended) = sort.end(part);
                _kept = kept;
                has_ended
            }
            None => {
                if let Some((share, held)) = self.share.as_ref().zip(entry.held()) {
                    // Usually none, as reservations return what they have before; but a request stays noted if somebody who is
                    // called while it is charged panics.
                    share.shrunk(held, held.bytes());
                }
                is_spiller
            }
        };
        if leaves_share && let Some(share) = &self.share {
            share.spiller_goes();
        }
        self.table.free(entry);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let additional = additional as u64;
        match self.group_at_once(reservation) {
            // Bytes from stock overstep nothing.
            Some(group)
                if !self.concerns_share(reservation)
                    && group.engine().charge_from_stock(additional) => {}
            _ => self.grow_in_share(reservation, additional),
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let shrink = shrink as u64;
        // Relaxed: as in `shrink_slowly`.
        match self.group_at_once(reservation) {
            Some(group)
                if !self.concerns_share(reservation)
                    && self.watched.load(Ordering::Relaxed) == 0 =>
            {
                group.engine().uncharge(shrink);
            }
            _ => self.shrink_in_share(reservation, shrink),
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let additional = additional as u64;
        match self.group_at_once(reservation) {
            Some(group)
                if !self.is_asked_first(reservation)
                    && group.engine().charge_from_stock(additional) =>
            {
                Ok(())
            }
            _ => self.try_grow_in_share(reservation, additional),
        }
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
        self.note_end();
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

/// Shows the path, the usage, and the limit if there is one.
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
