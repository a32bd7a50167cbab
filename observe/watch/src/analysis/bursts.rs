//! Runs of pages that one CPU moves between its lists and a zone.
//!
//! Events tell of each page, not of the lock. Pages of one task on one CPU with short gaps are a burst. A burst is at most one
//! hold of the lock and may be several: recent kernels release the lock after each batch.

use std::collections::BTreeMap;

use crate::event::{Event, Kind};
use crate::seen::{Burst, BurstKind, Context, Hold, LockKind, Machine, Path, Release, Wait, Zone};

/// A longer gap ends a burst.
const GAP_NS: u64 = 20_000;
/// The kernel moves at most `batch << 5` pages under one hold.
const SCALE_MAX: u32 = 5;
/// Batch of a zone whose batch is not known: that of 4 KiB pages.
const BATCH: u64 = 63;
/// Gaps of which the median is taken.
const GAPS: usize = 100_000;

#[derive(Debug)]
struct Open {
    burst: Burst,
    batch: u64,
    /// Most pages of the burst, where the kernel says so: it is then one hold, however long its gaps are.
    pages_max: Option<u64>,
    /// For each page but the first: whether a multiple of the batch was before it, and the gap.
    gaps: Vec<(bool, u64)>,
}

/// Bursts of all CPUs.
#[derive(Debug)]
pub struct Bursts {
    zones: Vec<Zone>,
    open: BTreeMap<u32, Open>,
    /// Since when a CPU holds the lock of a zone, in kernels that tell.
    held_since: BTreeMap<u32, u64>,
    /// Time at which a CPU got the lock for which it had waited, until it has moved pages.
    got_lock: BTreeMap<u32, u64>,
    /// Time at which a CPU got the lock to move pages of its lists, and their largest number, until it moves the first one.
    locked: BTreeMap<u32, (u64, u64)>,
    done: Vec<Burst>,
    left_out: u64,
    /// Gaps of large bursts, by [`Path`].
    gaps: [Gaps; Path::ALL.len()],
}

/// Gaps between pages of bursts that are larger than a batch.
#[derive(Debug, Default)]
struct Gaps {
    bursts: u64,
    at_batch: Vec<u64>,
    elsewhere: Vec<u64>,
}

impl From<Gaps> for Release {
    fn from(gaps: Gaps) -> Self {
        Self {
            bursts: gaps.bursts,
            gap_at_batch_ns: median(gaps.at_batch),
            gap_elsewhere_ns: median(gaps.elsewhere),
        }
    }
}

impl Bursts {
    pub fn new(machine: &Machine) -> Self {
        Self {
            zones: machine.zones.clone(),
            open: BTreeMap::new(),
            held_since: BTreeMap::new(),
            got_lock: BTreeMap::new(),
            locked: BTreeMap::new(),
            done: Vec::new(),
            left_out: 0,
            gaps: Default::default(),
        }
    }

    /// Takes an event of a thread that does this work.
    pub fn take(&mut self, event: &Event, context: Context) {
        let mut page = |kind, pfn, order| self.page(event, context, kind, pfn, order);
        match event.kind {
            Kind::PcpuDrain { pfn, order } => page(BurstKind::Drain, pfn, order),
            Kind::AllocZoneLocked { pfn, order } => page(BurstKind::Refill, pfn, order),
            Kind::ZoneLocked { .. } => {
                self.end(event.cpu);
                self.held_since.insert(event.cpu, event.time_ns);
            }
            Kind::PcpuLocked { pages } => {
                self.end(event.cpu);
                self.locked.insert(event.cpu, (event.time_ns, pages));
            }
            Kind::ZoneUnlock { .. } => {
                let since = self.held_since.remove(&event.cpu);
                if let (Some(since), Some(open)) = (since, self.open.get_mut(&event.cpu)) {
                    open.burst.start_ns = since;
                    open.burst.end_ns = event.time_ns;
                    open.burst.hold = Hold::Traced;
                }
                self.end(event.cpu);
            }
            _ => {}
        }
    }

    /// A CPU got a zone's lock for which it had waited.
    pub fn got_lock(&mut self, event: &Event) {
        self.end(event.cpu);
        self.got_lock.insert(event.cpu, event.time_ns);
    }

    /// A CPU releases a zone's lock for which others wait. If it had waited itself, right before its pages, this was one hold.
    pub fn released(&mut self, event: &Event) {
        let since = self.got_lock.get(&event.cpu).copied();
        if let (Some(since), Some(Open { burst, .. })) = (since, self.open.get_mut(&event.cpu))
            && burst.start_ns.saturating_sub(since) <= GAP_NS
        {
            burst.start_ns = since;
            burst.end_ns = event.time_ns;
            burst.hold = Hold::Traced;
        }
        self.end(event.cpu);
    }

    /// Events of this CPU are missing.
    pub fn lost(&mut self, cpu: u32) {
        self.got_lock.remove(&cpu);
        self.held_since.remove(&cpu);
        self.locked.remove(&cpu);
        self.end(cpu);
    }

    fn page(&mut self, event: &Event, context: Context, kind: BurstKind, pfn: u64, order: u32) {
        let zone = self.zone(pfn);
        let pages = 1 << order.min(20);
        self.refute(event, zone);
        let goes_on = self.open.get(&event.cpu).is_some_and(
            |Open {
                 burst,
                 batch,
                 pages_max,
                 ..
             }| {
                let before = (burst.pid, burst.kind, burst.zone, burst.context);
                let is_same = before == (event.pid, kind, zone, Some(context));
                let gap = event.time_ns.saturating_sub(burst.end_ns);
                let is_held = self.held_since.contains_key(&event.cpu);
                let is_short = gap <= GAP_NS && burst.pages + pages <= batch << SCALE_MAX;
                is_same && pages_max.map_or(is_held || is_short, |most| burst.pages + pages <= most)
            },
        );
        if !goes_on {
            self.end(event.cpu);
            let batch = zone.and_then(|zone| self.zones.get(usize::from(zone)));
            let batch = batch.map_or(BATCH, |zone| u64::from(zone.pcp_batch)).max(1);
            let locked = self.locked.remove(&event.cpu);
            let burst = Burst {
                cpu: event.cpu,
                pid: event.pid,
                zone,
                kind,
                start_ns: locked.map_or(event.time_ns, |(since, _)| since),
                end_ns: event.time_ns,
                pages,
                hold: locked.map_or(Hold::Unknown, |_| Hold::Traced),
                context: Some(context),
            };
            let gaps = Vec::new();
            let open = Open {
                burst,
                batch,
                pages_max: locked.map(|(_, pages)| pages),
                gaps,
            };
            self.open.insert(event.cpu, open);
        } else if let Some(open) = self.open.get_mut(&event.cpu) {
            let gap = event.time_ns.saturating_sub(open.burst.end_ns);
            open.gaps
                .push((open.burst.pages.is_multiple_of(open.batch), gap));
            open.burst.pages += pages;
            open.burst.end_ns = event.time_ns;
        }
    }

    /// Another CPU moved a page of this zone: bursts that go on later were not one hold.
    fn refute(&mut self, event: &Event, zone: Option<u16>) {
        for (cpu, open) in &mut self.open {
            let Burst {
                zone: other,
                end_ns,
                hold,
                ..
            } = &mut open.burst;
            // The mark counts if a further page follows: `end` tells by the number of gaps.
            if *cpu != event.cpu
                && *other == zone
                && zone.is_some()
                && event.time_ns > *end_ns
                && *hold == Hold::Unknown
            {
                *hold = Hold::Refuted;
                open.gaps.push((false, u64::MAX));
            }
        }
    }

    fn end(&mut self, cpu: u32) {
        let Some(Open {
            mut burst,
            batch,
            mut gaps,
            ..
        }) = self.open.remove(&cpu)
        else {
            return;
        };
        self.got_lock.remove(&cpu);
        // Pages of other CPUs after the last page say nothing.
        if gaps.last().is_some_and(|(_, gap)| *gap == u64::MAX) {
            burst.hold = Hold::Unknown;
        }
        gaps.retain(|(_, gap)| *gap != u64::MAX);
        if burst.pages > batch && burst.kind == BurstKind::Drain {
            let is_decay = burst.context == Some(Context::Upkeep);
            let large = &mut self.gaps[usize::from(!is_decay)];
            large.bursts += 1;
            for (is_at_batch, gap) in gaps {
                let list = match is_at_batch {
                    true => &mut large.at_batch,
                    false => &mut large.elsewhere,
                };
                if list.len() < GAPS {
                    list.push(gap);
                }
            }
        }
        if !super::list::add(&mut self.done, burst) {
            self.left_out += 1;
        }
    }

    fn zone(&self, pfn: u64) -> Option<u16> {
        let holds = |zone: &Zone| {
            (zone.start_pfn..zone.start_pfn.saturating_add(zone.spanned_pages)).contains(&pfn)
        };
        let place = self.zones.iter().position(holds)?;
        u16::try_from(place).ok()
    }

    /// All bursts. `waits` show which of them were one hold.
    pub fn finish(mut self, waits: &[Wait]) -> (Vec<Burst>, [Release; 2], u64) {
        let cpus: Vec<_> = self.open.keys().copied().collect();
        for cpu in cpus {
            self.end(cpu);
        }
        self.done.sort_by_key(|burst| (burst.start_ns, burst.cpu));
        prove(&mut self.done, waits);
        (self.done, self.gaps.map(Release::from), self.left_out)
    }
}

/// Marks bursts during which another CPU waited for the same zone's lock from before their middle until after their end.
///
/// The waiter's own pages, right after its wait, name the zone.
fn prove(bursts: &mut [Burst], waits: &[Wait]) {
    for wait in waits.iter().filter(|wait| wait.lock == LockKind::Zone) {
        let after = bursts.partition_point(|burst| burst.start_ns < wait.end_ns);
        let mut next = bursts[after..]
            .iter()
            .take_while(|it| it.start_ns <= wait.end_ns + GAP_NS);
        let Some(zone) = next
            .find(|it| (it.cpu, it.pid) == (wait.cpu, wait.pid))
            .and_then(|it| it.zone)
        else {
            continue;
        };
        // The holder's burst began before the wait ended and is among the last ones that did.
        for burst in bursts[..after].iter_mut().rev().take(64) {
            let middle = burst.start_ns / 2 + burst.end_ns / 2;
            let is_other =
                burst.cpu != wait.cpu && burst.zone == Some(zone) && burst.hold == Hold::Unknown;
            if is_other
                && wait.start_ns <= middle
                && burst.end_ns <= wait.end_ns
                && burst.end_ns >= wait.start_ns
            {
                burst.hold = Hold::Proven;
            }
        }
    }
}

fn median(mut gaps: Vec<u64>) -> Option<u64> {
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let zone = |start_pfn| Zone {
            start_pfn,
            spanned_pages: 1000,
            pcp_batch: 4,
            ..Zone::default()
        };
        Machine {
            zones: vec![zone(0), zone(1000)],
            ..Machine::default()
        }
    }

    fn drain(time_ns: u64, cpu: u32, pfn: u64) -> Event {
        Event {
            time_ns,
            cpu,
            pid: 1,
            kind: Kind::PcpuDrain { pfn, order: 0 },
        }
    }

    fn bursts(events: &[Event], waits: &[Wait]) -> (Vec<Burst>, Release) {
        let mut bursts = Bursts::new(&machine());
        for event in events {
            bursts.take(event, Context::Task);
        }
        let (bursts, [_, release], _) = bursts.finish(waits);
        (bursts, release)
    }

    fn sizes(events: &[Event]) -> Vec<u64> {
        bursts(events, &[])
            .0
            .iter()
            .map(|burst| burst.pages)
            .collect()
    }

    #[test]
    fn gaps_zones_and_sizes_end_a_burst() {
        let steady = |count: u64| {
            (0..count)
                .map(|nth| drain(nth * 10, 0, nth))
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(&steady(128)), [128]);
        assert_eq!(sizes(&steady(129)), [128, 1]);
        assert_eq!(
            sizes(&[
                drain(0, 0, 1),
                drain(GAP_NS, 0, 2),
                drain(2 * GAP_NS + 1, 0, 3)
            ]),
            [2, 1]
        );
        assert_eq!(
            sizes(&[drain(0, 0, 1), drain(1, 0, 1001), drain(2, 0, 2)]),
            [1, 1, 1]
        );
    }

    #[test]
    fn pages_of_another_cpu_refute_one_hold() {
        let holds = |events: &[Event]| {
            bursts(events, &[])
                .0
                .iter()
                .map(|it| it.hold)
                .collect::<Vec<_>>()
        };
        use Hold::{Refuted, Unknown};
        // Between: not one hold. The other CPU's own burst is not in doubt.
        assert_eq!(
            holds(&[drain(0, 0, 1), drain(5, 1, 2), drain(9, 0, 3)]),
            [Refuted, Unknown]
        );
        // Afterwards, or in another zone: nothing is known.
        assert_eq!(
            holds(&[drain(0, 0, 1), drain(5, 0, 2), drain(9, 1, 3)]),
            [Unknown, Unknown]
        );
        assert_eq!(
            holds(&[drain(0, 0, 1), drain(5, 1, 1002), drain(9, 0, 3)]),
            [Unknown, Unknown]
        );
    }

    #[test]
    fn a_wait_until_after_the_end_proves_one_hold() {
        let events = [
            drain(10, 0, 1),
            drain(20, 0, 2),
            drain(30, 0, 3),
            drain(35, 1, 4),
        ];
        let wait = |start_ns| Wait {
            cpu: 1,
            pid: 1,
            lock: LockKind::Zone,
            address: 7,
            start_ns,
            end_ns: 32,
        };
        let hold = |start_ns| bursts(&events, &[wait(start_ns)]).0[0].hold;
        assert_eq!(hold(15), Hold::Proven);
        assert_eq!(hold(25), Hold::Unknown);
        // Without zones, the lock may be that of another zone.
        let mut zoneless = Bursts::new(&Machine::default());
        (events.iter()).for_each(|event| zoneless.take(event, Context::Task));
        let (zoneless, ..) = zoneless.finish(&[wait(15)]);
        assert_eq!(zoneless[0].hold, Hold::Unknown);
    }

    #[test]
    fn gaps_at_batches_are_told_from_others() {
        let mut time = 0;
        let events = (0..12).map(|nth| {
            time += if nth % 4 == 0 { 900 } else { 100 };
            drain(time, 0, nth)
        });
        let (_, release) = bursts(&events.collect::<Vec<_>>(), &[]);
        assert_eq!(release.bursts, 1);
        assert_eq!(release.gap_at_batch_ns, Some(900));
        assert_eq!(release.gap_elsewhere_ns, Some(100));
    }

    /// Upkeep may release the lock where frees do not. Takes keep it in all versions.
    #[test]
    fn gaps_of_upkeep_and_of_frees_are_apart() {
        let mut bursts = Bursts::new(&machine());
        let mut time = 0;
        for (context, gap, kind) in [
            (Context::Upkeep, 900, BurstKind::Drain),
            (Context::Task, 100, BurstKind::Drain),
            (Context::Task, 5_000, BurstKind::Refill),
        ] {
            for pfn in 0..12 {
                time += if pfn % 4 == 0 { gap } else { 100 };
                let kind = match kind {
                    BurstKind::Drain => Kind::PcpuDrain { pfn, order: 0 },
                    BurstKind::Refill => Kind::AllocZoneLocked { pfn, order: 0 },
                };
                let event = Event {
                    kind,
                    ..drain(time, 0, pfn)
                };
                bursts.take(&event, context);
            }
        }
        let (bursts, releases, _) = bursts.finish(&[]);
        assert_eq!(bursts.len(), 3);
        let of = |it: Release| (it.bursts, it.gap_at_batch_ns, it.gap_elsewhere_ns);
        let expected = [(1, Some(900), Some(100)), (1, Some(100), Some(100))];
        assert_eq!(releases.map(of), expected);
    }

    #[test]
    fn a_lock_for_pages_of_lists_begins_a_hold() {
        let locked = |time_ns, pages| Event {
            kind: Kind::PcpuLocked { pages },
            ..drain(time_ns, 0, 0)
        };
        let events = [
            locked(100, 2),
            drain(200, 0, 1),
            drain(50_000, 0, 2),
            // The hold has its pages.
            drain(50_010, 0, 3),
            locked(50_020, 9),
            drain(50_030, 0, 4),
        ];
        let (seen, _) = bursts(&events, &[]);
        let seen: Vec<_> = seen
            .iter()
            .map(|it| (it.start_ns, it.end_ns, it.pages, it.hold))
            .collect();
        assert_eq!(
            seen,
            [
                (100, 50_000, 2, Hold::Traced),
                (50_010, 50_010, 1, Hold::Unknown),
                (50_020, 50_030, 1, Hold::Traced)
            ]
        );
    }

    #[test]
    fn a_contended_hold_lasts_from_the_wait_to_the_release() {
        let at = |time_ns| drain(time_ns, 0, 1);
        let mut bursts = Bursts::new(&machine());
        bursts.got_lock(&at(100));
        bursts.take(&drain(200, 0, 1), Context::Task);
        bursts.take(&drain(300, 0, 2), Context::Task);
        bursts.released(&at(400));
        // It got this lock without a wait, so the beginning is not known.
        bursts.take(&drain(500, 0, 3), Context::Task);
        bursts.released(&at(600));
        // Pages long after the wait are of another hold.
        bursts.got_lock(&at(1_000));
        bursts.take(&drain(1_001 + GAP_NS, 0, 4), Context::Task);
        bursts.released(&at(1_002 + GAP_NS));
        let (seen, ..) = bursts.finish(&[]);
        let seen: Vec<_> = seen
            .iter()
            .map(|it| (it.start_ns, it.end_ns, it.pages, it.hold))
            .collect();
        let late = 1_001 + GAP_NS;
        assert_eq!(
            seen,
            [
                (100, 400, 2, Hold::Traced),
                (500, 500, 1, Hold::Unknown),
                (late, late, 1, Hold::Unknown)
            ]
        );
    }

    #[test]
    fn holds_that_the_kernel_tells_are_taken() {
        let at = |time_ns, kind| Event {
            kind,
            ..drain(time_ns, 0, 0)
        };
        let locked = Kind::ZoneLocked {
            node: 0,
            wait_ns: None,
        };
        let events = [
            at(100, locked),
            drain(50_000, 0, 1),
            drain(90_000, 0, 2),
            at(95_000, Kind::ZoneUnlock { node: 0 }),
            at(96_000, locked),
            drain(97_000, 0, 3),
        ];
        let (seen, _) = bursts(&events, &[]);
        let seen: Vec<_> = seen
            .iter()
            .map(|it| (it.start_ns, it.end_ns, it.pages, it.hold))
            .collect();
        assert_eq!(
            seen,
            [
                (100, 95_000, 2, Hold::Traced),
                (97_000, 97_000, 1, Hold::Unknown)
            ]
        );
    }
}
