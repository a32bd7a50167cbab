//! Settings of an arbiter: plain values.

use std::time::Duration;

use crate::real::RealLines;

/// Settings of an [`crate::Arbiter`]. The defaults are Bursar's own, chosen for queries of 10 ms to 10 s.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Number of times that the first waiter of a tenant may be passed before room is kept for it; 32 unless set.
    ///
    /// A waiter is passed when another ask is admitted through the limit that is in its way.
    pub passes_max: u32,
    /// Time since its first pass after which room is kept for the first waiter of a tenant, however often it was passed; 10 s unless set.
    pub passed_max: Duration,
    /// Longest time for which room is kept without a break, for a waiter or for a query that waits for memory; 60 s unless set. A query that never ends would
    /// keep all others waiting, too. The first break lasts as long, the second one three times, the third one seven times, and so on. In a break
    /// others pass the waiter as if no room were kept.
    pub kept_max: Duration,
    /// Waiting time that is worth one point of score; 1 s unless set. So an ask with a score of 10 comes before all that came less
    /// than 10 s earlier with a score of 0.
    pub ageing: Duration,
    /// Smallest part of the wished width that an ask is given at first, percent; 50 unless set.
    pub narrowest_percent: u32,
    /// Waiting time after which an ask may be as narrow as its range allows; 100 ms unless set.
    pub narrow_after: Duration,
    /// Time after which a grant whose client asks for no more ([`crate::Grant::set_idle`]) may lose what it has not charged; 10 s
    /// unless set.
    pub idle_after: Duration,
    /// Part of the lowest limit on its way that an ask without numbers gets, percent; 25 unless set.
    pub default_percent: u32,
    /// Settings for running queries that need memory that is not there.
    pub yielding: Yielding,
    /// Lines for the bytes that the process really takes, of an arbiter that looks at them ([`crate::Arbiter::with_real`]).
    pub real: RealLines,
}

/// Settings for running queries that need memory that is not there; see [`crate::Grant::grow`].
///
/// `ask_after` was chosen by the experiment `arbitration` of the project's lab. The other defaults are judgement, for queries of 10 ms to 10 s.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Yielding {
    /// Age of a shortage from which on queries are asked to give back memory, unless all that could end it wait; 100 ms unless set.
    pub ask_after: Duration,
    /// Time that a query has to answer [`crate::Engine::ask`]; 1 s unless set. Until then its bytes are expected.
    pub ask_max: Duration,
    /// Age of a shortage from which on a query is stopped for it, unless all that could end it wait; 100 ms unless set.
    pub stop_after: Duration,
    /// Time that a query has to return its bytes after [`crate::Engine::stop`]; 1 s unless set. Until then no other is stopped.
    pub stop_max: Duration,
    /// Bytes that the lowest limit on the way of each tenant keeps, for queries that are asked to give back memory and need some for that
    /// ([`crate::Widener::draw`]); 0 unless set, and at most a quarter of the limit. All others have so much less.
    pub spill_credit: u64,
    /// No query with fewer bytes is stopped; 1 MiB unless set.
    pub victim_min: u64,
    /// The query that is stopped first, of those of a tenant with the same score.
    pub victim: VictimOrder,
    /// Longest time that a query waits for room ([`crate::Widener::wait_for_room`]); 10 s unless set. Memory that it waits for may be held by a query
    /// whose client reads no more rows.
    pub room_max: Duration,
    /// Time that a query waits before memory that it waits for goes to nobody who comes later in the order; 100 ms unless set.
    pub passed_max: Duration,
}

/// The query that is stopped first, of those of a tenant with the same score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VictimOrder {
    /// The one that began last: it has done the least.
    #[default]
    Youngest,
    /// The one with the most bytes.
    Largest,
}

impl Default for Yielding {
    fn default() -> Self {
        Self {
            ask_after: Duration::from_millis(100),
            ask_max: Duration::from_secs(1),
            stop_after: Duration::from_millis(100),
            stop_max: Duration::from_secs(1),
            spill_credit: 0,
            victim_min: 1 << 20,
            victim: VictimOrder::Youngest,
            room_max: Duration::from_secs(10),
            passed_max: Duration::from_millis(100),
        }
    }
}

impl Policy {
    /// Whether room is kept now, so long after it was first kept.
    pub(crate) fn keeps_room(&self, since_ns: u64) -> bool {
        // Of the times of this length those at 0, 2, 6, 14, and so on.
        let at = since_ns.checked_div(ns(self.kept_max));
        at.is_some_and(|at| at.saturating_add(2).is_power_of_two())
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            passes_max: 32,
            passed_max: Duration::from_secs(10),
            kept_max: Duration::from_secs(60),
            ageing: Duration::from_secs(1),
            narrowest_percent: 50,
            narrow_after: Duration::from_millis(100),
            idle_after: Duration::from_secs(10),
            default_percent: 25,
            yielding: Yielding::default(),
            real: RealLines::default(),
        }
    }
}

/// The place of a tenant among tenants; see [`crate::Arbiter::set_order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Tenants of higher precedence come first; 0 unless set.
    pub precedence: i32,
    /// Weight of the tenant among those of its precedence, at least 1; 100 unless set. The tenant with the fewest bytes for its weight
    /// comes first; of those with equal bytes, the one that was granted the fewest so far for its weight.
    pub weight: u32,
}

impl Order {
    /// Bytes as they count for a tenant of this weight.
    pub(crate) fn by_weight(self, bytes: u64) -> u64 {
        let weighed = u128::from(bytes) * 100 / u128::from(self.weight.max(1));
        u64::try_from(weighed).unwrap_or(u64::MAX)
    }
}

impl Default for Order {
    fn default() -> Self {
        Self {
            precedence: 0,
            weight: 100,
        }
    }
}

pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
