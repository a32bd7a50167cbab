//! The readers: tasks that read the statistics of a group now and then.
//!
//! # Updates that a read makes
//! A reader that opens the file for each read changes the statistics of kernel memory of its own group, which it then reads.
//! (The charge itself is left out.) Measured on 6.18 with the trace events of group `memcg` of one thread that reads `memory.stat` 1,000 times
//! (`read_updates.c`): opening, reading and closing changes `MEMCG_KMEM` by +2 and by -2 pages in each read (2,008
//! events), and 613 times, in another run 66, a statistic of the lruvec. 66 of these belong to the end of the process
//! (anonymous pages, page tables). We take the rest, at most 0.55 a read, for bytes of slab, which the kernel hands on
//! when they exceed a page. With the file kept open only the events of the process's end are left: such a read
//! changes nothing.

use bursar_kernel::stats::GroupIndex;
use bursar_rig::Tasks;

use super::parameters::{PAGE_SIZE, Parameters, ReadFile, Scope};
use super::statistics::Stat;
use super::subject::Subject;
use super::tree::Tree;
use crate::random::Random;

/// One read, as its reader saw it. Times in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) group: GroupIndex,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) value: i64,
}

/// Chooses the next group of the `reader`-th reader.
fn choose(scope: Scope, tree: Tree, reader: u64, random: &mut Random) -> GroupIndex {
    let query = |random: &mut Random| tree.query(random.below(tree.all_queries() as u64) as usize);
    match scope {
        Scope::Mixed => match random.below(10) {
            0 => Tree::ROOT,
            1 => query(random),
            _ => tree.tenant(random.below(tree.tenants as u64) as usize),
        },
        Scope::OwnTenant => tree.tenant((reader % tree.tenants as u64) as usize),
        Scope::Root => Tree::ROOT,
        Scope::Leaf => query(random),
    }
}

/// Pages of kernel memory while a file is open (see above).
const OPEN_FILE_PAGES: i64 = 2;
/// Reads in a thousand that hand on bytes of slab (see above): 0 to 547 were measured.
const SLAB_READS_PER_MILLE: u64 = 547;

/// The updates of a read by a task of `group` before the numbers are there.
fn open<M: Tasks, S: Subject<M>>(subject: &S, group: GroupIndex) {
    subject.add(group, Stat::Kernel, OPEN_FILE_PAGES);
}

/// The updates after it. Slab goes up by a page, the next time down, and so on: `slab_bytes` is the next change.
fn close<M: Tasks, S: Subject<M>>(
    subject: &S,
    group: GroupIndex,
    slab_bytes: &mut i64,
    random: &mut Random,
) {
    subject.add(group, Stat::Kernel, -OPEN_FILE_PAGES);
    if random.below(1_000) < SLAB_READS_PER_MILLE {
        subject.add(group, Stat::Slab, *slab_bytes);
        *slab_bytes = -*slab_bytes;
    }
}

/// Reads until `end_ns`; `index` is the reader's number after those of the workers. Readers begin one after the other,
/// `reader_start_ns` apart, or at random moments of the interval. A late reader does not catch up.
pub(super) fn read<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
    index: u64,
    (start_ns, end_ns): (u64, u64),
) -> Result<Vec<Read>, String> {
    let mut random = Random::fork(parameters.seed, index);
    let interval_ns = parameters.read_interval_ms * 1_000_000;
    let reader = index - parameters.workers;
    let mut next_ns = start_ns
        + match parameters.reader_start_ns {
            0 => random.below(interval_ns),
            apart_ns => reader * apart_ns,
        };
    let tree = parameters.tree();
    let own = tree.query((reader % tree.all_queries() as u64) as usize);
    let opens = parameters.read_file == ReadFile::Opened;
    let mut slab_bytes = PAGE_SIZE as i64;
    let mut reads =
        Vec::with_capacity((parameters.duration_ms / parameters.read_interval_ms + 1) as usize);
    while next_ns < end_ns {
        machine.sleep_until(next_ns);
        let group = choose(parameters.read_scope, tree, reader, &mut random);
        let began_ns = machine.now_ns();
        if opens {
            open(subject, own);
        }
        let numbers = subject.read(group, parameters.need(), &[Stat::Pgfault])?;
        if parameters.format_ns > 0 {
            machine.compute(parameters.format_ns);
        }
        if opens {
            close(subject, own, &mut slab_bytes, &mut random);
        }
        let ended_ns = machine.now_ns();
        reads.push(Read {
            group,
            began_ns: began_ns.saturating_sub(start_ns),
            ended_ns: ended_ns.saturating_sub(start_ns),
            value: numbers.get(Stat::Pgfault),
        });
        next_ns = (next_ns + interval_ns).max(ended_ns);
    }
    Ok(reads)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree {
        tenants: 3,
        queries: 2,
        ancestors: 3,
    };

    fn chosen(scope: Scope, reader: u64) -> Vec<GroupIndex> {
        let mut random = Random::new(reader);
        let mut chosen: Vec<_> = (0..1000)
            .map(|_| choose(scope, TREE, reader, &mut random))
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    #[test]
    fn readers_read_what_their_scope_says() {
        assert_eq!(chosen(Scope::Root, 1), [Tree::ROOT]);
        assert_eq!(chosen(Scope::OwnTenant, 1), [TREE.tenant(1)]);
        assert_eq!(chosen(Scope::OwnTenant, 3), [TREE.tenant(0)]);
        let queries: Vec<_> = (0..6).map(|query| TREE.query(query)).collect();
        assert_eq!(chosen(Scope::Leaf, 0), queries);
        let tenants = (0..3).map(|tenant| TREE.tenant(tenant));
        let mixed: Vec<_> = [Tree::ROOT]
            .into_iter()
            .chain(tenants)
            .chain(queries)
            .collect();
        assert_eq!(chosen(Scope::Mixed, 0), mixed);
    }
}
