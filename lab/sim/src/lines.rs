//! Cache lines that are busy until served.
//!
//! A line is owned by the CPU that wrote it last, or shared by those that have read it since. A CPU that needs it from
//! elsewhere waits until earlier requests are served, and then for the transfer. So a line that all CPUs write is a
//! queue, and its cost grows with their number. A model without the queue shows no contention at all.

use std::cell::{Cell, RefCell};

use crate::cost::CostModel;
use crate::topology::{Distance, Place};

/// Number of a line.
pub(crate) type LineId = u32;

/// No CPU.
const NOBODY: u16 = u16::MAX;
/// No set.
const NO_SET: u32 = u32::MAX;

/// Kind of an access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

#[derive(Clone, Copy)]
struct Line {
    busy_until_ns: u64,
    /// Last writer, or first reader.
    owner: u16,
    /// Index of the set of CPUs that share it; `NO_SET` if it never was shared.
    sharers: u32,
    /// Maximum distance of a sharer from the owner; no sharer has the distance `Own`.
    reach: Distance,
}

impl Line {
    #[inline]
    fn is_shared(&self) -> bool {
        self.reach != Distance::Own
    }
}

const UNTOUCHED: Line = Line {
    busy_until_ns: 0,
    owner: NOBODY,
    sharers: NO_SET,
    reach: Distance::Own,
};

/// Lines of a machine. Lines have numbers, given when words are built, because addresses would differ from run to run.
pub(crate) struct Lines {
    lines: RefCell<Vec<Line>>,
    free: RefCell<Vec<LineId>>,
    /// Sets of CPUs, `words_per_set` words each.
    sets: RefCell<Vec<u64>>,
    words_per_set: usize,
    places: Vec<Place>,
    read_ns: [u64; 5],
    memory_ns: u64,
    /// Time for which a line cannot serve others while it answers a read.
    read_busy_ns: u64,
    transfers: Cell<u64>,
    /// Lines that each CPU fetches ahead, with the times at which they come.
    ahead: RefCell<Vec<Vec<(LineId, u64)>>>,
    /// Number of all these, so that an access seldom has to look.
    ahead_count: Cell<usize>,
    /// Maximum number for a CPU; with 0 no line is fetched ahead.
    ahead_max: usize,
}

impl Lines {
    pub(crate) fn new(places: Vec<Place>, costs: &CostModel) -> Self {
        Self {
            lines: RefCell::default(),
            free: RefCell::default(),
            sets: RefCell::default(),
            words_per_set: places.len().div_ceil(64),
            places,
            read_ns: [
                costs.line_own_ns,
                costs.line_core_ns,
                costs.line_cluster_ns,
                costs.line_socket_ns,
                costs.line_remote_ns,
            ],
            memory_ns: costs.line_memory_ns,
            read_busy_ns: costs.line_cluster_ns,
            transfers: Cell::new(0),
            ahead: RefCell::default(),
            ahead_count: Cell::new(0),
            ahead_max: usize::try_from(costs.lines_ahead).unwrap_or(usize::MAX),
        }
    }

    /// Makes a line that no CPU has touched.
    pub(crate) fn allocate(&self) -> LineId {
        let mut lines = self.lines.borrow_mut();
        if let Some(id) = self.free.borrow_mut().pop() {
            let line = &mut lines[id as usize];
            let sharers = line.sharers;
            if line.is_shared() {
                self.drop_copies(line);
            }
            *line = Line {
                sharers,
                ..UNTOUCHED
            };
            return id;
        }
        lines.push(UNTOUCHED);
        LineId::try_from(lines.len() - 1).expect("fewer than 2^32 lines")
    }

    /// Gives a line back.
    pub(crate) fn release(&self, line: LineId) {
        self.free.borrow_mut().push(line);
    }

    #[inline]
    pub(crate) fn distance(&self, one: u32, other: u32) -> Distance {
        if one == other {
            return Distance::Own;
        }
        self.places[one as usize].distance(self.places[other as usize])
    }

    #[inline]
    pub(crate) fn way_ns(&self, distance: Distance) -> u64 {
        self.read_ns[distance as usize]
    }

    /// Time at which an access by `cpu` that begins at `now_ns` is served.
    #[inline]
    pub(crate) fn access(&self, id: LineId, cpu: u32, access: Access, now_ns: u64) -> u64 {
        let now_ns = match self.ahead_count.get() {
            0 => now_ns,
            _ => self.arrival_ns(id, cpu, now_ns),
        };
        let mut lines = self.lines.borrow_mut();
        let line = &mut lines[id as usize];
        if u32::from(line.owner) == cpu && (!line.is_shared() || access == Access::Read) {
            return now_ns + self.read_ns[0];
        }
        self.fetch(line, cpu, access, now_ns)
    }

    /// Time at which a line that was fetched ahead is there; now if it was not.
    #[inline]
    fn arrival_ns(&self, id: LineId, cpu: u32, now_ns: u64) -> u64 {
        let mut ahead = self.ahead.borrow_mut();
        let Some(ahead) = ahead.get_mut(cpu as usize) else {
            return now_ns;
        };
        match ahead.iter().position(|&(line, _)| line == id) {
            Some(at) => {
                self.ahead_count.set(self.ahead_count.get() - 1);
                now_ns.max(ahead.swap_remove(at).1)
            }
            None => now_ns,
        }
    }

    /// Begins to fetch a line. Returns the time at which the CPU goes on: later than now if it fetches as many lines as it can, and has
    /// to wait for the first to come.
    pub(crate) fn prefetch(&self, id: LineId, cpu: u32, access: Access, now_ns: u64) -> u64 {
        if self.ahead_max == 0 {
            return now_ns;
        }
        let mut now_ns = now_ns + self.read_ns[0];
        let mut all = self.ahead.borrow_mut();
        if all.len() <= cpu as usize {
            all.resize_with(self.places.len(), Vec::new);
        }
        let ahead = &mut all[cpu as usize];
        if ahead.iter().any(|&(line, _)| line == id) {
            return now_ns;
        }
        if ahead.len() >= self.ahead_max {
            let before = ahead.len();
            let first_ns = ahead.iter().map(|&(_, come_ns)| come_ns).min();
            now_ns = now_ns.max(first_ns.unwrap_or(0));
            ahead.retain(|&(_, come_ns)| come_ns > now_ns);
            self.ahead_count
                .set(self.ahead_count.get() - (before - ahead.len()));
        }
        let mut lines = self.lines.borrow_mut();
        let line = &mut lines[id as usize];
        let is_there =
            u32::from(line.owner) == cpu && (!line.is_shared() || access == Access::Read);
        if !is_there {
            let come_ns = self.fetch(line, cpu, access, now_ns);
            if come_ns > now_ns + self.read_ns[0] {
                ahead.push((id, come_ns));
                self.ahead_count.set(self.ahead_count.get() + 1);
            }
        }
        now_ns
    }

    #[inline]
    fn fetch(&self, line: &mut Line, cpu: u32, access: Access, now_ns: u64) -> u64 {
        if line.owner == NOBODY {
            line.owner = cpu as u16;
            line.busy_until_ns = now_ns + self.memory_ns;
            return line.busy_until_ns;
        }
        let away = self.distance(u32::from(line.owner), cpu);
        if access == Access::Read {
            return self.share(line, cpu, away, now_ns);
        }
        self.transfers.set(self.transfers.get() + 1);
        // A writer waits until the farthest copy is dropped.
        let farthest = away.max(line.reach);
        if line.is_shared() {
            self.drop_copies(line);
        }
        line.owner = cpu as u16;
        line.busy_until_ns =
            now_ns.max(line.busy_until_ns) + self.way_ns(farthest.max(Distance::Core));
        line.busy_until_ns
    }

    /// Time at which a reader that is not the owner has a copy.
    #[inline(never)]
    fn share(&self, line: &mut Line, cpu: u32, away: Distance, now_ns: u64) -> u64 {
        if !self.join(line, cpu) {
            return now_ns + self.read_ns[0];
        }
        self.transfers.set(self.transfers.get() + 1);
        line.reach = line.reach.max(away);
        let begin_ns = now_ns.max(line.busy_until_ns);
        line.busy_until_ns = begin_ns + self.read_busy_ns;
        begin_ns + self.way_ns(away)
    }

    /// Leaves no CPU but the owner with a copy.
    #[inline(never)]
    fn drop_copies(&self, line: &mut Line) {
        let start = line.sharers as usize;
        self.sets.borrow_mut()[start..start + self.words_per_set].fill(0);
        line.reach = Distance::Own;
    }

    /// Adds a reader; returns `false` if it had a copy.
    #[inline]
    fn join(&self, line: &mut Line, cpu: u32) -> bool {
        let mut sets = self.sets.borrow_mut();
        if line.sharers == NO_SET {
            line.sharers = u32::try_from(sets.len()).expect("fewer than 2^32 words");
            let words = sets.len() + self.words_per_set;
            sets.resize(words, 0);
        }
        let word = &mut sets[line.sharers as usize + cpu as usize / 64];
        let bit = 1 << (cpu % 64);
        let joins = *word & bit == 0;
        *word |= bit;
        joins
    }

    /// Counts transfers that [`Lines::access`] does not see.
    pub(crate) fn count_transfers(&self, transfers: u64) {
        self.transfers.set(self.transfers.get() + transfers);
    }

    /// Number of times that a line moved from one CPU to another.
    pub(crate) fn transfers(&self) -> u64 {
        self.transfers.get()
    }
}
