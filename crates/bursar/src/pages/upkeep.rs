//! Periodic upkeep of a zone: `high` decays, lists of idle CPUs are emptied, the depot shrinks, and memory that nobody uses
//! goes back to the system, slowly.
//!
//! Only the lists of idle CPUs are touched from outside, and those that are looked after together share a fence, because a fence
//! costs those who run. A CPU that is busy finds its `high` lowered and takes off what is too much when it next frees.
//!
//! A CPU's lists are looked after with all others ([`Zone::tick`]), or on their own ([`Zone::tick_cpu`]): then each CPU that is
//! idle and holds anything costs a fence, and no moment costs many. Either way once a period, whoever comes; the depot and what
//! goes back to the system are the zone's, and have their own time ([`Zone::tick_rest`]).

use bursar_machine::pages::{Frames, Order, depth};
use bursar_machine::{Machine, Shard};

use super::hold::Work;
use super::lists::ORDERS;
use super::options::PageOptions;
use super::quiesce::Target;
use super::zone::{Counts, Zone};

/// The smallest block that is given back to the system as a rule (the kernel's `PAGE_ALLOC_COSTLY_ORDER`): each is a system call.
const RETURNED: Order = Order::new(3);
// The three that follow are judgements: half a millisecond of system calls, a tenth of a second, and a half-life of a period.

/// Smaller blocks that are given back in a period, when there are no others.
const SMALL_MOST: u32 = 256;
/// Time that a late tick makes up for at least, nanoseconds.
const ELAPSED_MOST_NS: u64 = 100_000_000;
/// The part of the depot that goes to the buddy in a period in which nobody used it.
const DEPOT_SHARE: u64 = 2;

/// The part of a period by which a CPU's own upkeep may come early and still count, as a divisor: timers are not exact.
const EARLY: u64 = 8;

/// What upkeep saw the last time.
pub(super) struct Upkeep {
    /// By shard.
    cpus: Vec<OfCpu>,
    /// Blocks in the depot, by order.
    depot: [u64; ORDERS],
    /// Free pages with memory behind them.
    backed: u64,
    last_ns: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct OfCpu {
    /// By order.
    seen: [Seen; ORDERS],
    last_ns: Option<u64>,
}

impl OfCpu {
    /// Whether the last time is at least so long ago; the clock of another CPU may be a little behind.
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

    /// Takes note of the time if a period is over; returns how long it was.
    fn begin(&mut self, now_ns: u64, period_ns: u64) -> Option<u64> {
        // The first time nothing is known of the time before.
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
    /// Does what is due, unless somebody else is at it, but for CPUs that are `left_alone`. Call in an operation.
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

    /// What [`Zone::tick`] does beside the lists of CPUs. Call in an operation.
    pub(super) fn tick_rest(&self, options: &PageOptions) {
        let Some(mut upkeep) = self.upkeep.try_lock(&self.machine, Work::Drain) else {
            return;
        };
        let now_ns = self.machine.now_ns();
        if let Some(elapsed_ns) = upkeep.begin(now_ns, period_ns(options)) {
            self.finish(&mut upkeep, options, elapsed_ns);
        }
    }

    /// Does what is due for the lists of one CPU; whether there will be work the next time. Call in an operation.
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

    /// Whether a CPU's lists hold anything, or may hold more than they need to. Looks only.
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
            // What was taken off is no use that their CPUs made of them.
            let seen = &mut upkeep.cpus[target.shard.index()].seen[target.list];
            seen.head = self.lists.head(target.shard, target.list);
        }
    }

    /// What is the zone's, after the lists of its CPUs.
    fn finish(&self, upkeep: &mut Upkeep, options: &PageOptions, elapsed_ns: u64) {
        self.shrink_depot(upkeep);
        // Whoever has not ticked for long does not make up for it at once: a fork waits for this, and whoever finds no page.
        let most_ns = period_ns(options).saturating_mul(2).max(ELAPSED_MOST_NS);
        self.give_back(upkeep, options, elapsed_ns.min(most_ns));
    }

    /// Lowers `high` on a CPU; adds what to take off its lists if it has not used them.
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

    /// Gives half of what lay in the depot unused to the buddy.
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

    /// Gives free memory beyond what is to be kept back to the system, as much as fits the rate.
    fn give_back(&self, upkeep: &mut Upkeep, options: &PageOptions, elapsed_ns: u64) {
        let page = Order::ZERO.bytes() as u64;
        let cpus = self.cpus as u64;
        let keeps = options.retained_bytes_per_cpu.saturating_mul(cpus) / page;
        // What was not free the last time may well be wanted again.
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
                    // In a zone that is in pieces there may be nothing else.
                    small += 1;
                    buddy.take_backed(Order::ZERO)
                });
                self.note_free(&buddy);
                block
            };
            let Some(mut block) = block else { break };
            // Outside of the lock: the call takes as long as the system likes.
            let pages = u64::from(block.order().pages());
            let is_gone = self.frames.discard(&mut block);
            self.give(&mut vec![block], Work::Return);
            if !is_gone {
                // Locked in memory, perhaps. It would be found again at once.
                break;
            }
            returned += pages;
        }
        upkeep.backed = self.buddy(Work::Return).backed_pages();
        Counts::add(&self.counts.returned, returned);
    }
}
