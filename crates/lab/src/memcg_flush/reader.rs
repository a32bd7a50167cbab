//! The readers: tasks that read the statistics of a group now and then.

use bursar_machine::Tasks;

use super::parameters::Parameters;
use super::statistics::Stat;
use super::subject::{Need, Subject};
use super::tree::Tree;
use crate::published::GroupIndex;
use crate::random::Random;

/// One read, as its reader saw it. Times in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) group: GroupIndex,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) value: i64,
}

/// Of ten reads, one reads the root and one a query; the others read a tenant.
fn choose(tree: Tree, random: &mut Random) -> GroupIndex {
    match random.below(10) {
        0 => Tree::ROOT,
        1 => tree.query(random.below(tree.all_queries() as u64) as usize),
        _ => tree.tenant(random.below(tree.tenants as u64) as usize),
    }
}

/// Reads until `end_ns`. Readers begin at random moments of the interval, and one that is late does not catch up.
pub(super) fn read<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
    index: u64,
    (start_ns, end_ns): (u64, u64),
) -> Result<Vec<Read>, String> {
    let mut random = Random::fork(parameters.seed, index);
    let interval_ns = parameters.read_interval_ms * 1_000_000;
    let mut next_ns = start_ns + random.below(interval_ns);
    let mut reads =
        Vec::with_capacity((parameters.duration_ms / parameters.read_interval_ms + 1) as usize);
    while next_ns < end_ns {
        machine.sleep_until(next_ns);
        let group = choose(parameters.tree(), &mut random);
        let began_ns = machine.now_ns();
        let numbers = subject.read(group, Need::Own, &[Stat::Pgfault])?;
        if parameters.format_ns > 0 {
            machine.compute(parameters.format_ns);
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
