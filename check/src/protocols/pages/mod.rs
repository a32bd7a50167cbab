//! Pages: allocated and freed by tasks of several groups, in a zone of which only a few pages are left.
//!
//! | file | concurrent operations | checks |
//! |---|---|---|
//! | `churn.rs` | allocations and frees of two groups, and a task that ticks | see below |
//! | `exhaustion.rs` | more pages are wanted than there are; one page, and a limit of one page | no task is refused while pages are at rest |
//! | `exchange.rs` | pages allocated here and freed there, shelves that are full | see below |
//! | `many.rs` | many pages at a time | all or none |
//! | `raw.rs` | pages given out as raw memory, and claimed by several at once | one has it back |
//! | `fork.rs` | a fork with all of these | the child has all pages but those of tasks that are gone |
//! | `world.rs` | the common part: a small zone, and the tasks' work with it | |
//! | `truth.rs` | the holder and the last writer of each page | |
//!
//! Common checks: no page has two holders; no task sees what another group wrote; a group's usage covers the pages that
//! it holds; a refused task met another that was moving pages; at the end each page is where it should be, and buddies
//! have merged.
//!
//! Nothing else can be seen between steps, because the numbers of a zone are behind locks. So pages are counted while
//! no task works, and followed by number through an allocation of all that are left.

mod churn;
mod exchange;
mod exhaustion;
mod fork;
mod many;
mod raw;
mod world;

use bursar_rig::Forks;

use crate::protocols::protocol::Protocol;

pub(super) fn protocols<M: Forks>() -> Vec<Protocol<M>> {
    vec![
        churn::protocol(),
        churn::tuning(),
        exhaustion::protocol(),
        exhaustion::last_page(),
        exchange::protocol(),
        many::protocol(),
        raw::protocol(),
        fork::protocol(),
    ]
}
