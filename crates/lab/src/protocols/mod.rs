//! Bursar's protocols as small scenarios, to be run under many schedules by a machine that can be watched.
//!
//! | file | what runs at once | what is checked |
//! |---|---|---|
//! | `publish_flush.rs` | updates, first ones and later, with exact reads of any scope; the same of one shard | freshness, conservation |
//! | `combining.rs` | many exact readers of overlapping and of disjoint scopes | freshness; nobody waits for ever |
//! | `quiesce.rs` | freeze, fence, settle, take, thaw with charges on the CPU's words | nothing commits while frozen |
//! | `charge_refuse.rs` | charges near limits, returns, drains | limits; no false refusal; usage |
//! | `set_limit.rs` | the same while limits change | the limits in force |
//! | `removal.rs` | the end of groups with updates, charges, reads and rebirths | conservation; clean records |
//! | `rebirth.rs` | a record's end and next life elsewhere with drains of both parents | no false refusal |
//! | `nowait_and_overshoot.rs` | charges that may not wait, and such that may not fail | the latch |
//! | `count_anywhere.rs` | charges that neither wait nor fail, with drains, limits and reads | conservation; few steps |
//! | `move_charge.rs` | charges that move between groups | limits; ancestors keep their usage |
//! | `waiting.rs` | charges that wait, are dropped half-way; returns, limits, the end of groups | in turn; nobody waits for ever |
//! | `reclaim.rs` | charges beyond limits, and reclaimers of all manners | refusals, protection, no recursion |
//! | `pressure.rs` | those who watch levels, with charges and limits that change | the last level is told; one call at a time |
//! | `ranges.rs` | cached reads with updates and flushes | the truth lies in the range |
//! | `fork.rs` | a fork with charges, returns, reads, limits and the end of groups | the child's books; nobody waits for who is gone |
//! | `pages/` | pages: allocations, frees, drains, upkeep, raw memory, forks | each page is in one place; nobody sees what others wrote |
//! | `small_counters.rs` | additions, and folds of any CPU by anyone | conservation; what is held back is bounded |
//! | `upkeep.rs` | shepherds, upkeep by timers and ahead of them, additions | no work is forgotten; never two at once |
//!
//! A scenario takes variety (who does what, how often, with how many bytes) from a number that belongs to the schedule.
//! What it checks: after each step, what can be read without a lock; at the end, everything, by what was noted on the way
//! (`truth.rs`, `judge.rs`). It panics where something is wrong.
//!
//! [`planted`] holds broken mechanisms with correct twins: what an explorer that is worth anything must find. [`mod@published`] holds
//! the flush policies of the kernel thread, of which some keep a promise to their readers and some do not, and
//! [`published_pages`] those of page lists.

mod books;
mod charge_refuse;
mod charging;
mod combining;
mod count_anywhere;
mod executor;
mod fork;
mod judge;
mod move_charge;
mod nowait_and_overshoot;
mod own_steps;
mod pages;
pub mod planted;
mod pressure;
mod publish_flush;
pub mod published;
pub mod published_pages;
mod quiesce;
mod ranges;
mod rebirth;
mod reclaim;
mod removal;
mod set_limit;
mod small_counters;
mod truth;
mod upkeep;
mod waiting;

use bursar_machine::Forks;

/// One protocol, and how to put it to the test.
#[derive(Debug)]
pub struct Protocol<M> {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What runs at once, and what must hold.
    pub summary: &'static str,
    /// CPUs of the machine to run it on.
    pub cpus: usize,
    /// Runs it once, with variety from a number. Panics where something is wrong.
    pub scenario: fn(&M, u64),
}

/// All protocols.
pub fn all<M: Forks>() -> Vec<Protocol<M>> {
    let mut all = vec![
        publish_flush::protocol(),
        publish_flush::one_shard(),
        combining::protocol(),
        quiesce::protocol(),
        charge_refuse::protocol(),
        set_limit::protocol(),
        removal::protocol(),
        rebirth::protocol(),
        nowait_and_overshoot::protocol(),
        count_anywhere::protocol(),
        move_charge::protocol(),
        ranges::protocol(),
        waiting::protocol(),
        reclaim::protocol(),
        pressure::protocol(),
        fork::protocol(),
    ];
    all.extend(pages::protocols());
    all.extend([small_counters::protocol(), upkeep::protocol()]);
    all
}
