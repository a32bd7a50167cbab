//! Periodic upkeep of a zone: `high` decays, lists of idle CPUs are emptied, the depot shrinks, and unused memory
//! slowly goes back to the system.
//!
//! Upkeep takes blocks only off the lists of idle CPUs. Lists that are handled together share a fence, because a fence
//! costs the CPUs that run. A busy CPU finds its `high` lowered, and takes the surplus off at its next free.
//!
//! [`Zone::tick`] handles the lists of all CPUs together. [`Zone::tick_cpu`] handles those of one CPU. Then each idle
//! CPU that holds anything costs a fence, and no moment costs many. Either way a CPU is handled once a period,
//! whichever caller comes. The depot and the return of memory belong to the zone, and have their own time
//! ([`Zone::tick_rest`]).

use bursar_machine::pages::{Frames, Order, depth};
use bursar_machine::{Machine, Shard};

use super::hold::Work;
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

/// Divisor of a period that gives the time by which a CPU's own upkeep may come early and still count. Timers are
/// inexact.
const EARLY: u64 = 8;

/// State at the last upkeep.
pub(super) struct Upkeep {
    /// CPUs by shard.
    cpus: Vec<OfCpu>,
    /// Number of blocks in the depot, by order.
    depot: [u64; ORDERS],
    /// Number of free pages with memory behind them.
    backed: u64,
    last_ns: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct OfCpu {
    /// Lists by order.
    seen: [Seen; ORDERS],
    last_ns: Option<u64>,
}

impl OfCpu {
    /// Returns whether the last upkeep is at least `after_ns` ago. The clock of another CPU may be a little behind.
    fn is_due(&self, now_ns: u64, after_ns: u64) -> bool {
        self.last_ns
            .is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= after_ns)
    }
}

#[derive(Clone, Copy, Default)]
struct Seen {
    head: u64,
    idle_periods: u32,
}

impl Upkeep {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            cpus: vec![OfCpu::default(); shards],
            depot: [0; ORDERS],
            backed: 0,
            last_ns: None,
        }
    }

    /// Begins a new period if the last one is over; returns the time since that began.
    fn begin(&mut self, now_ns: u64, period_ns: u64) -> Option<u64> {
        // On the first call, the time of the last period is unknown.
        let elapsed_ns = self
            .last_ns
            .map_or(period_ns, |last_ns| now_ns.saturating_sub(last_ns));
        if elapsed_ns < period_ns {
            return None;
        }
        self.last_ns = Some(now_ns);
        Some(elapsed_ns)
    }
}

fn period_ns(options: &PageOptions) -> u64 {
    u64::try_from(options.decay_period.as_nanos()).unwrap_or(u64::MAX)
}

impl<M: Machine> Zone<M> {
    /// Does the due work, except for CPUs that are `left_alone`. Does nothing if another task does it. Call in an
    /// operation.
    pub(super) fn tick(&self, options: &PageOptions, left_alone: &dyn Fn(Shard) -> bool) {
        let Some(mut upkeep) = self.upkeep.try_lock(&self.machine, Work::Drain) else {
            return;
        };
        let now_ns = self.machine.now_ns();
        let period_ns = period_ns(options);
        let Some(elapsed_ns) = upkeep.begin(now_ns, period_ns) else {
            return;
        };
        let each = self.shards().filter(|&shard| {
            upkeep.cpus[shard.index()].is_due(now_ns, period_ns) && !left_alone(shard)
        });
        let due: Vec<Shard> = each.collect();
        self.look_after(&mut upkeep, &due, now_ns, options.idle_periods);
        self.finish(&mut upkeep, options, elapsed_ns);
    }

    /// Does the part of [`Zone::tick`] that is not about the lists of CPUs. Call in an operation.
    pub(super) fn tick_rest(&self, options: &PageOptions) {
        let Some(mut upkeep) = self.upkeep.try_lock(&self.machine, Work::Drain) else {
            return;
        };
        let now_ns = self.machine.now_ns();
        if let Some(elapsed_ns) = upkeep.begin(now_ns, period_ns(options)) {
            self.finish(&mut upkeep, options, elapsed_ns);
        }
    }

    /// Does the due work for the lists of one CPU; returns whether there will be work the next time. Call in an
    /// operation.
    #[doc(alias = "decay_pcp_high")]
    pub(super) fn tick_cpu(&self, shard: Shard, options: &PageOptions) -> bool {
        if !self.has_work(shard) {
            return false;
        }
        let Some(mut upkeep) = self.upkeep.try_lock(&self.machine, Work::Drain) else {
            return true;
        };
        let now_ns = self.machine.now_ns();
        let period_ns = period_ns(options);
        if upkeep.cpus[shard.index()].is_due(now_ns, period_ns - period_ns / EARLY) {
            self.look_after(&mut upkeep, &[shard], now_ns, options.idle_periods);
        }
        drop(upkeep);
        self.has_work(shard)
    }

    /// Returns whether a CPU's lists hold anything, or may hold more than they need to. Changes nothing.
    pub(super) fn has_work(&self, shard: Shard) -> bool {
        self.lists.existing().any(|(list, sizes)| {
            self.lists.depth(shard, list) > 0 || self.lists.tuned(shard, list).high > sizes.high_min
        })
    }

    /// Lowers `high` of some CPUs, and empties lists that are not used.
    fn look_after(&self, upkeep: &mut Upkeep, cpus: &[Shard], now_ns: u64, idle_periods: u32) {
        let mut idle = Vec::new();
        for &shard in cpus {
            let of_cpu = &mut upkeep.cpus[shard.index()];
            of_cpu.last_ns = Some(now_ns);
            self.decay(shard, &mut of_cpu.seen, idle_periods, &mut idle);
        }
        self.quiesce(&idle);
        for target in &idle {
            // The blocks that we took off do not count as use by the CPU.
            let seen = &mut upkeep.cpus[target.shard.index()].seen[target.list];
            seen.head = self.lists.head(target.shard, target.list);
        }
    }

    /// Does the zone's own work, after the lists of its CPUs.
    fn finish(&self, upkeep: &mut Upkeep, options: &PageOptions, elapsed_ns: u64) {
        self.shrink_depot(upkeep);
        // Bounds the catch-up after a long gap, because a fork and any allocation that found no page wait for this.
        let most_ns = period_ns(options).saturating_mul(2).max(ELAPSED_MOST_NS);
        self.give_back(upkeep, options, elapsed_ns.min(most_ns));
    }

    /// Lowers `high` on a CPU. If the CPU has not used a list, adds the blocks to take off it to `targets`.
    fn decay(
        &self,
        shard: Shard,
        seen: &mut [Seen; ORDERS],
        idle_periods: u32,
        targets: &mut Vec<Target>,
    ) {
        for (list, sizes) in self.lists.existing() {
            let seen = &mut seen[list];
            let head = self.lists.head(shard, list);
            let is_idle = head == seen.head;
            seen.head = head;
            seen.idle_periods = if is_idle { seen.idle_periods + 1 } else { 0 };
            let held = depth(head);
            let before = self.lists.tuned(shard, list);
            let tuned = before.decay(sizes, held as u32);
            if tuned != before {
                self.lists.set_tuned(shard, list, tuned);
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
    fn shrink_depot(&self, upkeep: &mut Upkeep) {
        for (list, sizes) in self.lists.existing() {
            let batch = u64::from(sizes.batch);
            let blocks = self.depot.blocks(list);
            let unused = blocks.min(upkeep.depot[list]);
            let batches = unused.div_ceil(DEPOT_SHARE).div_ceil(batch);
            self.empty_depot(list, batches);
            upkeep.depot[list] = self.depot.blocks(list);
        }
    }

    /// Gives free memory beyond the amount to keep back to the system, within the rate.
    fn give_back(&self, upkeep: &mut Upkeep, options: &PageOptions, elapsed_ns: u64) {
        let page = Order::ZERO.bytes() as u64;
        let cpus = self.cpus as u64;
        let keeps = options.retained_bytes_per_cpu.saturating_mul(cpus) / page;
        // Memory that was not free the last time may well be needed again.
        let backed = self.buddy(Work::Return).backed_pages();
        let surplus = backed.min(upkeep.backed).saturating_sub(keeps);
        let per_second = u128::from(options.return_bytes_per_second / page);
        let budget = per_second * u128::from(elapsed_ns) / 1_000_000_000;
        let budget = u64::try_from(budget).unwrap_or(u64::MAX).max(1);
        let budget = budget.min(surplus);
        let mut returned = 0;
        let mut small = 0;
        while returned < budget && small < SMALL_MOST {
            let block = {
                let mut buddy = self.buddy(Work::Return);
                if buddy.backed_pages() <= keeps {
                    break;
                }
                let block = buddy.take_backed(RETURNED).or_else(|| {
                    // A fragmented zone may have nothing larger.
                    small += 1;
                    buddy.take_backed(Order::ZERO)
                });
                self.note_free(&buddy);
                block
            };
            let Some(mut block) = block else { break };
            // Outside the lock, because the call takes as long as the system likes.
            let pages = u64::from(block.order().pages());
            let is_gone = self.frames.discard(&mut block);
            self.give(&mut vec![block], Work::Return);
            if !is_gone {
                // The memory may be locked. The next look would find the same block again.
                break;
            }
            returned += pages;
        }
        upkeep.backed = self.buddy(Work::Return).backed_pages();
        Counts::add(&self.counts.returned, returned);
    }
}
