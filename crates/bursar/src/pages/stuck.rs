//! Watchdog for locks that are held, and lists that are frozen, for too long.
//!
//! Like the kernel's soft lockup detector it only reports. Locks here are held for microseconds. So a report means that
//! a holder was preempted for long, is stopped in a debugger, or has a bug.

use std::fmt;

use bursar_machine::Machine;
use bursar_machine::pages::BlockStacks;

use super::hold::Holder;
use super::zone::Zone;
use super::zones::Zones;

/// A lock or other resource that is held for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The resource.
    pub place: Place,
    /// Node of the zone.
    pub node: usize,
    /// Its holder, and the holder's work.
    pub holder: Holder,
    /// Duration of the hold, nanoseconds.
    pub held_ns: u64,
    /// Number of waiters.
    pub waiting: u64,
    /// Number of lists that are frozen meanwhile. Their CPUs go to the depot for each page.
    pub frozen_lists: usize,
}

/// Resource that can be held too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The zone lock.
    Zone,
    /// A shelf of the depot.
    Shelf(usize),
    /// Upkeep; one task at a time decays and drains.
    Upkeep,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zone => f.write_str("zone lock"),
            Self::Shelf(shelf) => write!(f, "lock of depot shelf {shelf}"),
            Self::Upkeep => f.write_str("upkeep"),
        }
    }
}

/// Shows a line like the kernel's `BUG: soft lockup`.
impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stuck: {} of node {} held for {:.3} s by task {:#x}, which took it on CPU {} for {}; {} waiting, {} lists frozen",
            self.place,
            self.node,
            self.held_ns as f64 / 1e9,
            self.holder.task,
            self.holder.cpu,
            self.holder.work.name(),
            self.waiting,
            self.frozen_lists,
        )
    }
}

impl<M: Machine> Zones<M> {
    /// Resources that have been held for at least `threshold_ns`. Takes no lock.
    pub(crate) fn stuck(&self, threshold_ns: u64) -> Vec<Stuck> {
        self.iter()
            .flat_map(|zone| zone.stuck(threshold_ns))
            .collect()
    }
}

impl<M: Machine> Zone<M> {
    fn stuck(&self, threshold_ns: u64) -> Vec<Stuck> {
        let now_ns = self.machine.now_ns();
        let zone = self.buddy_lock().holder();
        let upkeep = self.upkeep.holder();
        let shelves = self.depot.holders();
        let held = zone.map(|(holder, waiting)| (Place::Zone, holder, waiting));
        let held = held
            .into_iter()
            .chain(upkeep.map(|(holder, waiting)| (Place::Upkeep, holder, waiting)))
            .chain(shelves.map(|(shelf, holder, waiting)| (Place::Shelf(shelf), holder, waiting)));
        let stuck = |(place, holder, waiting): (Place, Holder, u64)| {
            let held_ns = now_ns.saturating_sub(holder.since_ns);
            (held_ns >= threshold_ns).then(|| Stuck {
                place,
                node: self.node,
                holder,
                held_ns,
                waiting,
                frozen_lists: self.frozen_lists(),
            })
        };
        held.filter_map(stuck).collect()
    }

    fn frozen_lists(&self) -> usize {
        let stacks = &self.lists.stacks;
        let is_frozen = |&(shard, list): &(_, usize)| stacks.bounds(shard, list).is_frozen();
        let lists = || self.lists.existing().map(|(list, _)| list);
        let all = self
            .shards()
            .flat_map(|shard| lists().map(move |list| (shard, list)));
        all.filter(is_frozen).count()
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::{PageOptions, Work};
    use super::*;

    fn zones() -> Zones<Host> {
        let options = PageOptions {
            bytes_per_node: Some(4 << 20),
            ..PageOptions::default()
        };
        Zones::new(&Host::start().unwrap(), options).unwrap()
    }

    #[test]
    fn whoever_holds_a_lock_is_named() {
        let zones = zones();
        assert_eq!(zones.stuck(0), []);
        let zone = zones.zone(0);
        let held = zone.buddy(Work::Drain);
        let found = zones.stuck(0);
        let [stuck] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((stuck.place, stuck.holder.work), (Place::Zone, Work::Drain));
        assert_eq!(stuck.holder.task, zone.machine.task());
        let text = stuck.to_string();
        assert!(
            text.starts_with("stuck: zone lock of node 0 held for"),
            "{text}"
        );
        assert_eq!(zones.stuck(u64::MAX), [], "not for that long");
        drop(held);
        assert_eq!(zones.stuck(0), []);
    }
}
