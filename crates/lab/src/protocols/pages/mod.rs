//! Pages: allocated and freed by tasks of several groups, in a zone of which only a few pages are left.
//!
//! | file | what runs at once | what is checked |
//! |---|---|---|
//! | `churn.rs` | allocations and frees of two groups, and a task that ticks | see below |
//! | `exhaustion.rs` | more is wanted than there is; one page, and a limit of one page | nobody is refused while pages are at rest |
//! | `exchange.rs` | pages allocated here and freed there, shelves that are full | see below |
//! | `many.rs` | many pages at a time | all or none |
//! | `raw.rs` | pages given out as raw memory, and claimed by several at once | one has it back |
//! | `fork.rs` | a fork with all of these | the child has all pages but those of tasks that are gone |
//! | `world.rs` | what all have in common: a small zone, and what tasks do with it | |
//! | `truth.rs` | who holds which page, and who has written there | |
//!
//! What all check: no page is in two hands; no task sees what another group wrote; a group's usage covers what it holds;
//! whoever is refused was in somebody's way; at the end each page is where it should be, and buddies have merged.
//!
//! Nothing else can be seen between steps, since the numbers of a zone are behind locks: so pages are counted when nobody is
//! at work, and followed by number through an allocation of all that is left.

mod churn;
mod exchange;
mod exhaustion;
mod fork;
mod many;
mod raw;
mod truth;
mod world;

use bursar_machine::Forks;

use super::Protocol;

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
