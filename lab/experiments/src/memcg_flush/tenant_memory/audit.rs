//! Audit of the books after all tasks of a run have ended: the pages in memory, the charges and the statistics must
//! agree, by group.

use bursar_machine::Lock;
use bursar_rig::Tasks;

use super::Space;
use crate::memcg_flush::parameters::Parameters;
use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::Subject;

/// Statistics that are amounts, not numbers of events.
const LEVELS: [Stat; 7] = [
    Stat::Anon,
    Stat::File,
    Stat::InactiveAnon,
    Stat::ActiveAnon,
    Stat::InactiveFile,
    Stat::ActiveFile,
    Stat::Zswapped,
];

/// Compares pages, charges and statistics with each other, then frees all memory and checks that no charge is left.
///
/// # Errors
/// The first disagreement.
pub(in super::super) fn audit<M: Tasks, S: Subject<M>>(
    subject: &S,
    parameters: &Parameters,
    spaces: Vec<Space<M, S::Charge>>,
) -> Result<(), String> {
    let tree = parameters.tree();
    let mut expected = vec![[0_i64; Stat::COUNT]; tree.groups()];
    subject.settle()?;
    for (tenant, space) in spaces.iter().enumerate() {
        let count = |group: usize, stat: Stat| expected[group][stat as usize] += 1;
        let resident = space.lruvec.0.lock().check(&space.table, count)?;
        let charged = subject.charged_pages(tree.tenant(tenant));
        if charged != resident {
            return Err(format!(
                "tenant {tenant} has {resident} pages in memory, and {charged} charged"
            ));
        }
    }
    for query in 0..tree.all_queries() {
        let group = tree.query(query);
        let shown = subject.seen(group, &LEVELS);
        for stat in LEVELS {
            let (shown, expected) = (shown.get(stat), expected[group][stat as usize]);
            if shown != expected {
                return Err(format!(
                    "{stat:?} of query {query} is {expected}, and {shown} is shown"
                ));
            }
        }
    }
    drop(spaces);
    for tenant in 0..tree.tenants {
        let left = subject.charged_pages(tree.tenant(tenant));
        if left > 0 {
            return Err(format!(
                "tenant {tenant} is charged {left} pages after all memory was freed"
            ));
        }
    }
    Ok(())
}
