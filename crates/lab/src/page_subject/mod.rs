//! What experiments with page lists compare: something that hands out single pages and takes them back, as Bursar does and as
//! the thread's policies do on the substrate of their time.
//!
//! | part | file |
//! |---|---|
//! | what is asked of it | here |
//! | the policies of the thread | `theirs.rs` |
//! | Bursar | `own.rs` |

mod own;
mod theirs;

use std::hint::black_box;
use std::mem::MaybeUninit;

use bursar_machine::Shard;
use bursar_machine::pages::PAGE_BYTES;
use bursar_machine::timer::{LockWaits, Timers};

use crate::measure::{Distribution, Samples, Unit};

pub use own::{Own, OwnSizes};
pub use theirs::Theirs;

/// Pages of a gibibyte.
pub const GIB_PAGES: u64 = (1 << 30) / PAGE_BYTES as u64;

/// Pages of a mebibyte.
pub const MIB_PAGES: u64 = (1 << 20) / PAGE_BYTES as u64;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Something that hands out pages of 4 KiB and takes them back.
pub trait Lists<M: Timers>: Send + Sync {
    /// A page in somebody's hands.
    type Page: Send;

    /// Takes up to `count` pages, one by one; fewer only if there are no more.
    fn alloc(&self, count: usize, pages: &mut Vec<Self::Page>);

    /// Writes to each cache line of a page; `false` if there is no memory behind it.
    fn write(&self, page: &mut Self::Page, mark: u8) -> bool;

    /// Puts one page back.
    fn free(&self, page: Self::Page);

    /// Puts a long list of pages back.
    fn free_many(&self, pages: Vec<Self::Page>);

    /// Periodic upkeep of a CPU: its lists keep less, and give back what is too much. Whether there is something left to do.
    fn decay(&self, shard: Shard) -> bool;

    /// Fills the lists of each CPU with up to `pages`, as its allocations and frees could have. Not for tasks.
    fn fill(&self, machine: &M, pages: u32);

    /// Gives all that the lists of all CPUs have back to the zone.
    fn drain_all(&self);

    /// Says whether memory is being reclaimed from now on.
    fn set_reclaim(&self, is_active: bool);

    /// All pages of the zone.
    fn managed_pages(&self) -> u64;

    /// How many pages are in the zone itself, about, and at no cost. Those in lists are not among them.
    fn about_free_pages(&self) -> u64;

    /// How many pages are in nobody's hands: in the zone, in lists and between.
    fn free_pages(&self) -> u64;

    /// What a task has waited for in here, of all that it waited for.
    fn waits(&self, waits: LockWaits) -> Waits;

    /// What the holds of its locks were like so far.
    fn holds(&self) -> Holds;
}

/// What a task waited for locks, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For the zone's.
    pub zone_ns: u64,
    /// For those nearer to the CPU: of its lists; in Bursar those of the depot.
    pub list_ns: u64,
}

impl Waits {
    /// For both.
    pub fn all_ns(self) -> u64 {
        self.zone_ns + self.list_ns
    }
}

/// What the holds of the zone's lock were like.
#[derive(Clone, Debug, PartialEq)]
pub struct Holds {
    /// How many holds.
    pub holds: u64,
    /// Pages put in by each hold that put any in.
    pub given_pages: Distribution,
    /// How long each hold lasted.
    pub held_ns: Distribution,
    /// How long was waited for the zone's lock, each time, and in Bursar for those of the depot.
    pub waited_ns: Distribution,
}

impl Holds {
    /// Those since an earlier look. The figures of both are of one subject.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            holds: self.holds - before.holds,
            given_pages: difference(&self.given_pages, &before.given_pages),
            held_ns: difference(&self.held_ns, &before.held_ns),
            waited_ns: difference(&self.waited_ns, &before.waited_ns),
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

/// A distribution of what a histogram of the library has counted: values are the upper ends of its buckets.
fn of_histogram(unit: Unit, histograms: &[&bursar::pages::Histogram]) -> Distribution {
    let mut samples = Samples::new(unit);
    for (value, count) in histograms.iter().flat_map(|it| it.buckets()) {
        samples.record_many(value, count);
    }
    samples.distribution()
}

#[cfg(test)]
mod tests;
