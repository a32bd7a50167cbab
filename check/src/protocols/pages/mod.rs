//! Pages: allocated and freed by tasks of several groups, in a zone of which only a few pages are left.
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

#[rustfmt::skip]
pub(super) fn protocols<M: Forks>() -> Vec<Protocol<M>> {
    vec![
        Protocol::of(2, "pages", churn::scenario,
            "pages of two groups, with upkeep: none has two holders, none is lost, no group sees what another wrote"),
        Protocol::of(2, "pages-tuning", churn::tuning_scenario,
            "lists grow and shrink while they are frozen and drained: no task thaws a list that another has frozen"),
        Protocol::of(2, "pages-exhaustion", exhaustion::scenario,
            "more pages are wanted than there are: drains by several at once, no refusal while pages are at rest"),
        Protocol::of(2, "pages-last", exhaustion::last_page_scenario,
            "one page, and a limit of one page: a task within the limit gets it"),
        Protocol::of(2, "pages-exchange", exchange::scenario,
            "pages allocated here and freed there, through small lists and full shelves"),
        Protocol::of(2, "pages-many", many::scenario,
            "many pages at a time, and freed with those of others: all or none, and charged as they are held"),
        Protocol::of(2, "pages-raw", raw::scenario,
            "pages given out as raw memory and claimed by several at once: one has it back"),
        Protocol::of(2, "pages-fork", fork::scenario,
            "a task forks while others allocate, free and drain: only what they held is lost to the child")
            .of_forks(),
    ]
}
