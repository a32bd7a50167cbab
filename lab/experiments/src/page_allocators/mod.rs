//! Allocators of single pages that the experiments with page lists compare: Bursar's, and the thread's policies on the
//! substrate of their time.
//!
//! | part | file |
//! |---|---|
//! | the interface | here |
//! | the policies of the thread | `theirs.rs` |
//! | Bursar | `own.rs` |

mod own;
mod theirs;

use std::hint::black_box;
use std::mem::MaybeUninit;

use bursar_machine::pages::PAGE_BYTES;
use bursar_machine::{LockWaits, Shard};
use bursar_rig::timer::Timers;

use crate::measure::{Distribution, Samples, Unit};

pub use own::{Own, OwnSizes};
pub use theirs::Theirs;

/// Pages of a gibibyte.
pub const GIB_PAGES: u64 = (1 << 30) / PAGE_BYTES as u64;

/// Pages of a mebibyte.
pub const MIB_PAGES: u64 = (1 << 20) / PAGE_BYTES as u64;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// An allocator of pages of 4 KiB.
pub trait Lists<M: Timers>: Send + Sync {
    /// A page that a task holds.
    type Page: Send;

    /// Takes up to `count` pages, one by one; fewer only if no more are free.
    fn alloc(&self, count: usize, pages: &mut Vec<Self::Page>);

    /// Writes to each cache line of a page; `false` if there is no memory behind the page.
    fn write(&self, page: &mut Self::Page, mark: u8) -> bool;

    /// Returns one page.
    fn free(&self, page: Self::Page);

    /// Returns a long list of pages.
    fn free_many(&self, pages: Vec<Self::Page>);

    /// Does the periodic upkeep of a CPU: its lists keep less, and give back the surplus. Returns whether there is work
    /// left.
    fn decay(&self, shard: Shard) -> bool;

    /// Fills the lists of each CPU with up to `pages`, as its allocations and frees could have done. Tasks do not call
    /// it.
    fn fill(&self, machine: &M, pages: u32);

    /// Returns all pages in the lists of all CPUs to the zone.
    fn drain_all(&self);

    /// Sets whether memory is being reclaimed from now on.
    fn set_reclaim(&self, is_active: bool);

    /// Returns the number of all pages of the zone.
    fn managed_pages(&self) -> u64;

    /// Returns the approximate number of free pages in the zone itself, without the lists, at no cost.
    fn about_free_pages(&self) -> u64;

    /// Returns the number of all free pages: in the zone, in lists and between.
    fn free_pages(&self) -> u64;

    /// Returns the part of a task's waits that fell on this allocator's locks.
    fn waits(&self, waits: LockWaits) -> Waits;

    /// Returns figures of the holds of its locks so far.
    fn holds(&self) -> Holds;
}

/// Times that a task waited for locks, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Time of waits for the zone's lock.
    pub zone_ns: u64,
    /// Time of waits for locks nearer to the CPU: of its lists, in Bursar of the depot.
    pub list_ns: u64,
}

impl Waits {
    /// Returns the sum of both.
    pub fn all_ns(self) -> u64 {
        self.zone_ns + self.list_ns
    }
}

/// Figures of the holds of the zone's lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Holds {
    /// Number of holds.
    pub holds: u64,
    /// Pages returned by each hold that returned any.
    pub given_pages: Distribution,
    /// Length of each hold.
    pub held_ns: Distribution,
    /// Length of each wait for the zone's lock, and in Bursar also for those of the depot.
    pub waited_ns: Distribution,
    /// Holds by cause; none of Bursar, whose holds have other causes.
    pub by_cause: Vec<OfCause>,
}

/// Holds of one cause ([`bursar_kernel::pages::Cause`]).
#[derive(Clone, Debug, PartialEq)]
pub struct OfCause {
    /// Pages moved by each hold.
    pub pages: Distribution,
    /// Length of the wait for each hold; 0 where the lock was free.
    pub waited_ns: Distribution,
}

impl Holds {
    /// Returns the holds since an earlier look at the same subject.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            holds: self.holds - before.holds,
            given_pages: difference(&self.given_pages, &before.given_pages),
            held_ns: difference(&self.held_ns, &before.held_ns),
            waited_ns: difference(&self.waited_ns, &before.waited_ns),
            by_cause: self
                .by_cause
                .iter()
                .zip(&before.by_cause)
                .map(|(all, before)| OfCause {
                    pages: difference(&all.pages, &before.pages),
                    waited_ns: difference(&all.waited_ns, &before.waited_ns),
                })
                .collect(),
        }
    }
}

fn difference(all: &Distribution, before: &Distribution) -> Distribution {
    let mut samples = Samples::new(all.unit());
    let mut earlier = before.values().peekable();
    for (value, count) in all.values() {
        let known = earlier.next_if(|(other, _)| *other == value);
        let more = count - known.map_or(0, |(_, count)| count);
        if more > 0 {
            samples.record_many(value, more);
        }
    }
    samples.distribution()
}

/// Writes to each cache line of a page.
fn write_lines(bytes: &mut [MaybeUninit<u8>], mark: u8) -> bool {
    for byte in bytes.iter_mut().step_by(LINE_BYTES) {
        byte.write(mark);
    }
    !black_box(bytes).is_empty()
}

/// Makes a distribution of the library's histogram: values are the upper ends of its buckets.
fn of_histogram(unit: Unit, histograms: &[&bursar::pages::Histogram]) -> Distribution {
    let mut samples = Samples::new(unit);
    for (value, count) in histograms.iter().flat_map(|it| it.buckets()) {
        samples.record_many(value, count);
    }
    samples.distribution()
}

#[cfg(test)]
mod tests;
