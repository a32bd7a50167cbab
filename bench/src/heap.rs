//! `heap`: what an allocator costs that knows whose memory it is.
//!
//! Blocks of 64 bytes of the system's allocator, bare and in wrappers that count, and of a `GroupAlloc`; this one also with
//! 64 KiB, which are pages of the group. Allocating and freeing are two operations. Two threads are charged to the same group.
//! No wrapper is this program's allocator: each is called as one would be.

use std::alloc::System;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::{ByLayout, Charged, GroupAlloc, GroupExt, RealSize, Usable, UsableByClass};
use bursar_bench_peers::{self as peers, Pages};

use crate::contender::unrolled;
use crate::rounds::{Heat, Racer};
use crate::series::{Run, Series};
use crate::targets::{Verdict, Wanted};
use crate::timing::{Slice, Spent, on_cpus};

/// Bytes of a block.
const BYTES: usize = 64;
/// Bytes of one that a `GroupAlloc` takes from its group's pages.
const LARGE_BYTES: usize = 64 << 10;
/// Operations of a block of `pair`.
const BLOCK: u64 = 4096;
/// Blocks held at once in `ramp`.
const RAMP: usize = 1024;
/// Depth of the group that is charged.
const DEPTH: usize = 3;

/// The yardstick.
pub const SYSTEM: &str = "system, bare";
/// Ours.
const CHARGED: &str = "Charged, in a group";
/// The allocator for collections.
const COLLECTIONS: &str = "GroupAlloc";

/// Pattern of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A block and its end, again and again.
    Pair,
    /// 1,024 blocks, each kept, then all freed.
    Ramp,
    /// As `Pair`, of large blocks, for collections.
    Large,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Pair => "64 B pair",
            Self::Ramp => "64 B ramp 1024",
            Self::Large => "64 KiB pair",
        }
    }
}

/// All heats.
pub fn heats() -> Vec<Heat> {
    vec![heat(Shape::Pair), heat(Shape::Ramp), large()]
}

fn large() -> Heat {
    let memory = Memory::host().expect("the host starts, it was tried");
    let rest = Rest {
        shape: Shape::Large,
    };
    let (blocks, place) = collections::<LARGE_BYTES>(&memory);
    Heat {
        scenario: Shape::Large.name().to_owned(),
        depth: DEPTH,
        threads: &[1, 2],
        racers: vec![
            rest.racer(SYSTEM, peers::bare::<LARGE_BYTES>(), Place::Nowhere),
            rest.racer(COLLECTIONS, blocks, place),
        ],
    }
}

fn heat(shape: Shape) -> Heat {
    let memory = Memory::host().expect("the host starts, it was tried");
    let rest = Rest { shape };
    let (blocks, place) = collections::<BYTES>(&memory);
    Heat {
        scenario: shape.name().to_owned(),
        depth: DEPTH,
        threads: &[1, 2],
        racers: vec![
            rest.racer(SYSTEM, peers::bare::<BYTES>(), Place::Nowhere),
            rest.racer(
                CHARGED,
                ours::<UsableByClass>(),
                Place::group(&memory, "class"),
            ),
            rest.racer(
                "Charged, each asked about, in a group",
                ours::<Usable>(),
                Place::group(&memory, "usable"),
            ),
            rest.racer(
                "Charged by layout, in a group",
                ours::<ByLayout>(),
                Place::group(&memory, "layout"),
            ),
            rest.racer(COLLECTIONS, blocks, place),
            rest.racer(
                "Charged, in no group",
                ours::<UsableByClass>(),
                Place::Nowhere,
            ),
            rest.racer("cap", peers::cap::<BYTES>(), Place::Nowhere),
            rest.racer("stats_alloc", peers::stats_alloc::<BYTES>(), Place::Nowhere),
            rest.racer(
                "tracking-allocator, in a group",
                peers::tracking::<BYTES>(),
                Place::Tracked,
            ),
        ],
    }
}

fn ours<R>() -> peers::Heap<peers::Global<Charged<System, R>>, BYTES>
where
    R: RealSize<System> + Send + Sync + 'static,
{
    peers::global(Charged::over(System))
}

/// The allocator of a group's collections, and that group, to see that all comes back.
fn collections<const BYTES: usize>(
    memory: &Memory,
) -> (peers::Heap<peers::OfCollections<GroupAlloc>, BYTES>, Place) {
    let group = group(memory, "collections");
    let blocks = peers::of_collections(GroupAlloc::new(&group));
    (blocks, Place::In(group))
}

/// A group as deep as `DEPTH`.
fn group(memory: &Memory, name: &str) -> Group {
    let mut at = memory.root();
    for level in 1..=DEPTH {
        let child = at.child(format!("{name}-{level}"), Limits::max(1 << 40));
        at = child.expect("a name that is free");
    }
    at
}

/// Group of the threads of a contender while they allocate.
enum Place {
    Nowhere,
    /// A group of ours.
    In(Group),
    /// A group of `tracking-allocator`, which lets only one thread at a time be in it. So each thread has its own, and they count
    /// in one word.
    Tracked,
}

impl Place {
    fn group(memory: &Memory, name: &str) -> Self {
        Self::In(group(memory, name))
    }

    fn run<R>(&self, run: impl FnOnce() -> R) -> R {
        match self {
            Self::Nowhere => run(),
            Self::In(group) => group.scope(run),
            Self::Tracked => peers::in_tracked_group(run),
        }
    }
}

/// Makes racers of one shape.
struct Rest {
    shape: Shape,
}

impl Rest {
    fn racer<P: Pages + 'static>(
        &self,
        name: &'static str,
        pages: P,
        place: Place,
    ) -> Box<dyn Racer> {
        let shape = self.shape;
        Box::new(Allocating {
            name,
            pages,
            place,
            shape,
        })
    }
}

struct Allocating<P> {
    name: &'static str,
    pages: P,
    place: Place,
    shape: Shape,
}

impl<P: Pages> Racer for Allocating<P> {
    fn name(&self) -> &str {
        self.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        on_cpus(cpus, |_, meeting| {
            let mut held = Vec::with_capacity(RAMP);
            let meet = || meeting.join();
            self.place.run(|| match self.shape {
                Shape::Pair | Shape::Large => slice.run(meet, || pair(&self.pages)),
                Shape::Ramp => slice.run(meet, || ramp(&self.pages, &mut held)),
            })
        })
    }

    fn check(&self) -> Result<(), String> {
        let Place::In(group) = &self.place else {
            return Ok(());
        };
        let reading = group
            .read(Freshness::Exact)
            .map_err(|error| error.to_string())?;
        match reading.usage().value {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes are still charged")),
        }
    }
}

#[inline(never)]
fn pair<P: Pages>(pages: &P) -> u64 {
    for _ in 0..BLOCK / 2 / 4 {
        unrolled!([0 1 2 3] |_number| {
            let mut block = pages.alloc().expect("memory for a block");
            P::touch(&mut block);
            pages.free(block);
        });
    }
    BLOCK
}

#[inline(never)]
fn ramp<P: Pages>(pages: &P, held: &mut Vec<P::Block>) -> u64 {
    for _ in 0..RAMP {
        let mut block = pages.alloc().expect("memory for a block");
        P::touch(&mut block);
        held.push(block);
    }
    for block in held.drain(..) {
        pages.free(block);
    }
    2 * RAMP as u64
}

/// The targets.
pub fn targets(run: &Run) -> Vec<Verdict> {
    let ratio = |threads| {
        let find = |name| run.find(Shape::Pair.name(), DEPTH, name, threads);
        let (ours, system): (Option<&Series>, _) = (find(CHARGED), find(SYSTEM));
        Run::ratio(ours?, system?)
    };
    [1, 2]
        .map(|threads| Verdict {
            target: format!("64-byte blocks in a group, {threads} threads, x the bare allocator"),
            measured: ratio(threads),
            wanted: Wanted::AtMost(1.3),
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds;
    use crate::timing::Effort;
    use bursar_machine::host;

    #[test]
    fn every_wrapper_frees_everything() {
        let series = rounds::run(&heats(), &host::allowed_cpus(), Effort::smoke()).unwrap();
        assert!(series.iter().all(|series| series.samples.len() == 1));
    }
}
