//! `flush`: what an `Exact` read of a parent costs when ten of its groups changed, among ever more that did not.
//!
//! Before each read, ten groups (the same ones, spread evenly among all) count 1; only the read is timed. The cost of
//! looking at the clock, tens of nanoseconds, is included. The slots of the other groups are retired before, but for the last row:
//! there all slots are still in use, as right after a change of all groups, and a read looks at each.

use std::time::Duration;

use bursar::{Freshness, Group, Limits, Memory};

use crate::contender::Done;
use crate::rounds::{Heat, Racer};
use crate::timing::{Slice, Spent, Stopwatch, on_cpus};
use crate::tree::{self, ROWS};

/// Numbers of groups, the first of them the yardstick of the others.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
/// Groups that changed.
const DIRTY: usize = 10;

/// The name of this scenario.
pub const SCENARIO: &str = "exact read, 10 dirty";

/// The contender that the others are compared with.
pub fn yardstick() -> String {
    name(SIZES[0])
}

/// The contender that has to keep up with it.
pub fn largest() -> String {
    name(SIZES[SIZES.len() - 1])
}

fn name(groups: usize) -> String {
    format!("{groups} groups")
}

/// The heat of this benchmark.
pub fn heats() -> Vec<Heat> {
    vec![heat(&SIZES)]
}

fn heat(sizes: &[usize]) -> Heat {
    let retired = sizes.iter().map(|&size| Flushing::retired(size));
    let in_use = sizes.last().map(|&size| Flushing::in_use(size));
    let racers = retired
        .chain(in_use)
        .map(|flushing| Box::new(flushing) as Box<dyn Racer>);
    Heat {
        scenario: SCENARIO.to_owned(),
        depth: 2,
        threads: &[1],
        racers: racers.collect(),
    }
}

struct Flushing {
    name: String,
    parent: Group,
    /// All of them, so that the clean ones stay alive: a flush has to pass them over.
    groups: Vec<Group>,
    counted: Done,
}

impl Flushing {
    /// With all slots retired but those that are changed before each read.
    fn retired(size: usize) -> Self {
        let memory = tree::memory();
        let flushing = Self::new(&memory, name(size), size);
        let mut ticks = 0_u64;
        while memory.flush_counts().retired < size as u64 {
            memory.tick();
            ticks += 1;
            assert!(
                ticks < 1_000_000,
                "slots stay in use: {:?}",
                memory.flush_counts()
            );
        }
        flushing
    }

    /// With no slot ever retired.
    fn in_use(size: usize) -> Self {
        let builder = Memory::builder().statistics(tree::STATISTICS);
        let memory = builder.retire_period(Duration::MAX).build();
        let name = format!("{}, all in use", name(size));
        Self::new(&memory.expect("the host starts"), name, size)
    }

    fn new(memory: &Memory, name: String, size: usize) -> Self {
        let parent = memory
            .root()
            .child("parent", Limits::none())
            .expect("a new group");
        let child = |index| parent.child(format!("group-{index}"), Limits::none());
        let groups: Vec<Group> = (0..size)
            .map(|index| child(index).expect("room for a group"))
            .collect();
        // Every group was changed once.
        for group in &groups {
            group.add(ROWS, 1);
        }
        let counted = Done::default();
        counted.add(size as u64);
        let flushing = Self {
            name,
            parent,
            groups,
            counted,
        };
        flushing.read();
        flushing
    }

    fn read(&self) -> i64 {
        let reading = self
            .parent
            .read(Freshness::Exact)
            .expect("the group exists");
        reading.get(ROWS).value
    }
}

impl Racer for Flushing {
    fn name(&self) -> &str {
        &self.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        on_cpus(cpus, |_, _| {
            let mut spent = Spent::default();
            while spent.operations == 0 || spent.ns < slice.ns {
                for group in self.groups.iter().step_by(self.groups.len() / DIRTY) {
                    group.add(ROWS, 1);
                    self.counted.add(1);
                }
                let watch = Stopwatch::start();
                self.read();
                spent.ns += watch.ns();
                spent.operations += 1;
            }
            spent
        })
    }

    fn check(&self) -> Result<(), String> {
        let (read, counted) = (self.read(), self.counted.get());
        if read as u64 != counted {
            return Err(format!("{counted} times 1 were read as {read}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds;
    use crate::timing::Effort;
    use bursar_machine::host;

    #[test]
    fn an_exact_read_finds_what_the_dirty_groups_counted() {
        let cpus = host::allowed_cpus();
        let series = rounds::run(&[heat(&[10, 30])], &cpus, Effort::smoke()).unwrap();
        assert_eq!(series.len(), 3);
    }
}
