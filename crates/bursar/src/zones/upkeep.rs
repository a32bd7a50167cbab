//! Periodic upkeep of a zone: `high` decays, lists of idle CPUs are emptied, the depot shrinks, and unused memory
//! slowly goes back to the system.
//!
//! Upkeep takes blocks only off the lists of idle CPUs. Lists that are handled together share a fence, because a fence
//! costs the CPUs that run. A busy CPU finds its `high` lowered, and takes the surplus off at its next free.
//!
//! [`tick`] handles the lists of all CPUs together. [`tick_cpu`] handles those of one CPU. Then each idle
//! CPU that holds anything costs a fence, and no moment costs many. Either way a CPU is handled once a period,
//! whichever caller comes. The depot and the return of memory belong to the zone, and have their own time
//! ([`tick_rest`]).

use bursar_machine::pages::{Frames, Order, depth};
use bursar_machine::{Machine, Shard};

use super::hold::Work;
use super::last_upkeep::{EARLY, LastUpkeep, Seen};
use super::lists::ORDERS;
use super::options::PageOptions;
use super::quiesce::Target;
use super::zone::{Counts, Zone};

/// Smallest order that is normally given back to the system (the kernel's `PAGE_ALLOC_COSTLY_ORDER`), because each
/// block costs a system call.
const RETURNED: Order = Order::new(3);
// The next three values are judgements: half a millisecond of system calls, a tenth of a second, a half-life of a
// period.

/// Maximum number of smaller blocks that are given back in a period, when there are no others.
const SMALL_MOST: u32 = 256;
/// Time that a late tick may always catch up for, nanoseconds.
const ELAPSED_MOST_NS: u64 = 100_000_000;
/// Divisor of the depot's unused blocks that gives the part that goes to the buddy in a period.
const DEPOT_SHARE: u64 = 2;

fn period_ns(options: &PageOptions) -> u64 {
    u64::try_from(options.decay_period.as_nanos()).unwrap_or(u64::MAX)
}

/// Does the due work, except for CPUs that are `left_alone`. Does nothing if another task does it. Call in an
/// operation.
pub(super) fn tick<M: Machine>(
    zone: &Zone<M>,
    options: &PageOptions,
    left_alone: &dyn Fn(Shard) -> bool,
) {
    let Some(mut upkeep) = zone.upkeep.try_lock(&zone.machine, Work::Drain) else {
        return;
    };
    let now_ns = zone.machine.now_ns();
    let period_ns = period_ns(options);
    let Some(elapsed_ns) = upkeep.begin(now_ns, period_ns) else {
        return;
    };
    let each = zone.shards().filter(|&shard| {
        upkeep.cpus[shard.index()].is_due(now_ns, period_ns) && !left_alone(shard)
    });
    let due: Vec<Shard> = each.collect();
    look_after(zone, &mut upkeep, &due, now_ns, options.idle_periods);
    finish(zone, &mut upkeep, options, elapsed_ns);
}

/// Does the part of [`tick`] that is not about the lists of CPUs. Call in an operation.
pub(super) fn tick_rest<M: Machine>(zone: &Zone<M>, options: &PageOptions) {
    let Some(mut upkeep) = zone.upkeep.try_lock(&zone.machine, Work::Drain) else {
        return;
    };
    let now_ns = zone.machine.now_ns();
    if let Some(elapsed_ns) = upkeep.begin(now_ns, period_ns(options)) {
        finish(zone, &mut upkeep, options, elapsed_ns);
    }
}

/// Does the due work for the lists of one CPU; returns whether there will be work the next time. Call in an
/// operation.
#[doc(alias = "decay_pcp_high")]
pub(super) fn tick_cpu<M: Machine>(zone: &Zone<M>, shard: Shard, options: &PageOptions) -> bool {
    if !has_work(zone, shard) {
        return false;
    }
    let Some(mut upkeep) = zone.upkeep.try_lock(&zone.machine, Work::Drain) else {
        return true;
    };
    let now_ns = zone.machine.now_ns();
    let period_ns = period_ns(options);
    if upkeep.cpus[shard.index()].is_due(now_ns, period_ns - period_ns / EARLY) {
        look_after(zone, &mut upkeep, &[shard], now_ns, options.idle_periods);
    }
    drop(upkeep);
    has_work(zone, shard)
}

/// Returns whether a CPU's lists hold anything, or may hold more than they need to. Changes nothing.
pub(super) fn has_work<M: Machine>(zone: &Zone<M>, shard: Shard) -> bool {
    zone.lists.existing().any(|(list, sizes)| {
        zone.lists.depth(shard, list) > 0 || zone.lists.tuned(shard, list).high > sizes.high_min
    })
}

/// Lowers `high` of some CPUs, and empties lists that are not used.
fn look_after<M: Machine>(
    zone: &Zone<M>,
    upkeep: &mut LastUpkeep,
    cpus: &[Shard],
    now_ns: u64,
    idle_periods: u32,
) {
    let mut idle = Vec::new();
    for &shard in cpus {
        let of_cpu = &mut upkeep.cpus[shard.index()];
        of_cpu.last_ns = Some(now_ns);
        decay(zone, shard, &mut of_cpu.seen, idle_periods, &mut idle);
    }
    zone.quiesce(&idle);
    for target in &idle {
        // The blocks that we took off do not count as use by the CPU.
        let seen = &mut upkeep.cpus[target.shard.index()].seen[target.list];
        seen.head = zone.lists.head(target.shard, target.list);
    }
}

/// Does the zone's own work, after the lists of its CPUs.
fn finish<M: Machine>(
    zone: &Zone<M>,
    upkeep: &mut LastUpkeep,
    options: &PageOptions,
    elapsed_ns: u64,
) {
    shrink_depot(zone, upkeep);
    // Bounds the catch-up after a long gap, because a fork and any allocation that found no page wait for this.
    let most_ns = period_ns(options).saturating_mul(2).max(ELAPSED_MOST_NS);
    give_back(zone, upkeep, options, elapsed_ns.min(most_ns));
}

/// Lowers `high` on a CPU. If the CPU has not used a list, adds the blocks to take off it to `targets`.
fn decay<M: Machine>(
    zone: &Zone<M>,
    shard: Shard,
    seen: &mut [Seen; ORDERS],
    idle_periods: u32,
    targets: &mut Vec<Target>,
) {
    for (list, sizes) in zone.lists.existing() {
        let seen = &mut seen[list];
        let head = zone.lists.head(shard, list);
        let is_idle = head == seen.head;
        seen.head = head;
        seen.idle_periods = if is_idle { seen.idle_periods + 1 } else { 0 };
        let held = depth(head);
        let before = zone.lists.tuned(shard, list);
        let tuned = before.decay(sizes, held as u32);
        if tuned != before {
            zone.lists.set_tuned(shard, list, tuned);
        }
        let keeps = match seen.idle_periods {
            0 => held,
            periods if periods < idle_periods => tuned.high as usize,
            _ => 0,
        };
        if held > keeps {
            let blocks = held - keeps;
            targets.push(Target {
                shard,
                list,
                blocks,
            });
        }
    }
}

/// Gives half of the depot's unused blocks to the buddy.
fn shrink_depot<M: Machine>(zone: &Zone<M>, upkeep: &mut LastUpkeep) {
    for (list, sizes) in zone.lists.existing() {
        let batch = u64::from(sizes.batch);
        let blocks = zone.depot.blocks(list);
        let unused = blocks.min(upkeep.depot[list]);
        let batches = unused.div_ceil(DEPOT_SHARE).div_ceil(batch);
        zone.empty_depot(list, batches);
        upkeep.depot[list] = zone.depot.blocks(list);
    }
}

/// Gives free memory beyond the amount to keep back to the system, within the rate.
fn give_back<M: Machine>(
    zone: &Zone<M>,
    upkeep: &mut LastUpkeep,
    options: &PageOptions,
    elapsed_ns: u64,
) {
    let page = Order::ZERO.bytes() as u64;
    let cpus = zone.cpus as u64;
    let keeps = options.retained_bytes_per_cpu.saturating_mul(cpus) / page;
    // Memory that was not free the last time may well be needed again.
    let backed = zone.buddy(Work::Return).backed_pages();
    let surplus = backed.min(upkeep.backed).saturating_sub(keeps);
    let per_second = u128::from(options.return_bytes_per_second / page);
    let budget = per_second * u128::from(elapsed_ns) / 1_000_000_000;
    let budget = u64::try_from(budget).unwrap_or(u64::MAX).max(1);
    let budget = budget.min(surplus);
    let mut returned = 0;
    let mut small = 0;
    let mut most = Order::MAX;
    while returned < budget && small < SMALL_MOST {
        let block = {
            let mut buddy = zone.buddy(Work::Return);
            if buddy.backed_pages() <= keeps {
                break;
            }
            let block = buddy.take_backed(RETURNED, most).or_else(|| {
                // A fragmented zone may have nothing larger.
                small += 1;
                buddy.take_backed(Order::ZERO, most)
            });
            zone.note_free(&buddy);
            block
        };
        let Some(mut block) = block else { break };
        // Outside the lock, because the call takes as long as the system likes.
        let order = block.order();
        let is_gone = zone.frames.discard(&mut block);
        zone.give_one(block, Work::Return);
        if is_gone {
            returned += u64::from(order.pages());
            continue;
        }
        // The memory may be locked. The next look at this order could find the same block again.
        match order.get().checked_sub(1) {
            Some(smaller) => most = Order::new(smaller),
            None => break,
        }
    }
    upkeep.backed = zone.buddy(Work::Return).backed_pages();
    Counts::add(&zone.counts.returned, returned);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use bursar_machine::Host;

    use super::super::fixture::{self, fill_list, listed, stays_on_a_cpu, zones};
    use super::super::refusing::Refusing;
    use super::super::zone::Mark;
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_list_is_emptied_after_so_many_periods_without_use() {
        if !stays_on_a_cpu() {
            return;
        }
        for idle_periods in [1, 3] {
            let options = PageOptions {
                decay_period: Duration::ZERO,
                idle_periods,
                ..fixture::options()
            };
            let zones = zones(&Host::start().unwrap(), options.clone());
            let zone = zones.zone(0);
            fill_list(zone, 10, 64);
            // The first one sees the use.
            for _ in 0..idle_periods {
                tick(zone, &options, &|_| false);
                assert_eq!(listed(zone), 10);
            }
            tick(zone, &options, &|_| false);
            assert_eq!(listed(zone), 0);
        }
    }

    #[test]
    fn an_idle_list_gives_what_it_may_not_hold() {
        if !stays_on_a_cpu() {
            return;
        }
        let options = PageOptions {
            decay_period: Duration::ZERO,
            ..fixture::options()
        };
        let zones = zones(&Host::start().unwrap(), options.clone());
        let zone = zones.zone(0);
        fill_list(zone, 100, 64);
        tick(zone, &options, &|_| false);
        assert_eq!(listed(zone), 100, "it was used");
        tick(zone, &options, &|_| false);
        assert_eq!(listed(zone), 64);
    }

    #[test]
    fn memory_goes_back_at_its_rate() {
        const PER_SECOND: u64 = 2_048;
        let (machine, choices) = Refusing::new(1);
        let options = PageOptions {
            bytes_per_node: Some(32 << 20),
            retained_bytes_per_cpu: 0,
            return_bytes_per_second: PER_SECOND << 12,
            ..fixture::options()
        };
        let zones = zones(&machine, options.clone());
        let zone = zones.zone(0);
        let mut blocks = Vec::new();
        while zone.take(Order::MAX, 1, Mark::Min, &mut blocks) > 0 {}
        for block in &mut blocks {
            let _ = zone.frames.uninit(block);
        }
        zone.give(&mut blocks, Work::Free);
        let mut now_ns = SECOND_NS;
        // The first one only notes the memory that is free. The third comes too early, and the last one very late.
        for (elapsed_ns, seconds) in [
            (0, 0),
            (SECOND_NS, 1),
            (SECOND_NS / 2, 0),
            (SECOND_NS / 2, 1),
            (SECOND_NS * 10, 2),
        ] {
            now_ns += elapsed_ns;
            choices.now_ns.store(now_ns, Ordering::Relaxed);
            let before = zone.buddy(Work::Report).backed_pages();
            tick(zone, &options, &|_| false);
            let after = zone.buddy(Work::Report).backed_pages();
            assert_eq!(before - after, seconds * PER_SECOND);
        }
        assert_eq!(zone.counts.returned.load(Ordering::Relaxed), 4 * PER_SECOND);
    }

    /// Every other page is free and has memory, so none can be joined.
    #[test]
    fn few_small_blocks_go_back_in_a_period() {
        let (machine, choices) = Refusing::new(1);
        let options = PageOptions {
            retained_bytes_per_cpu: 0,
            return_bytes_per_second: u64::MAX,
            ..fixture::options()
        };
        let zones = zones(&machine, options.clone());
        let zone = zones.zone(0);
        let blocks = fixture::pages(zone, 1_200).into_iter();
        let (mut even, _odd): (Vec<_>, Vec<_>) = blocks.partition(|block| block.pfn().0 % 2 == 0);
        for block in &mut even {
            let _ = zone.frames.uninit(block);
        }
        zone.give(&mut even, Work::Free);
        for (second, backed) in [(1, 600), (2, 344), (3, 88), (4, 0)] {
            choices.now_ns.store(second * SECOND_NS, Ordering::Relaxed);
            tick(zone, &options, &|_| false);
            assert_eq!(zone.buddy(Work::Report).backed_pages(), backed);
        }
    }
}
