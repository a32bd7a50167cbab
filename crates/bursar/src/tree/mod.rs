//! Statistics of a tree of groups. Every CPU keeps its own numbers; a flush reconciles them.
//!
//! | file | concept |
//! |---|---|
//! | `schema.rs` | declared statistics and their handles |
//! | `marks.rs` | sets that are marked and taken without locks |
//! | `name.rs` | names of groups: which are allowed, and how they are shown |
//! | `names.rs` | children by name |
//! | `node.rs` | the record of one group |
//! | `groups.rs` | the tree: birth of groups, removal, rebirth |
//! | `publish.rs` | adding, and marking the way to the root |
//! | `fold.rs` | folded numbers of one group |
//! | `walk.rs` | bringing a subtree up to date |
//! | `turns.rs` | readers of one scope share walks |
//! | `retire.rs` | idle slots leave the marks |
//! | `roster.rs`, `enlist.rs`, `by_roster.rs` | reading without a walk: the slots in use, and the sum of all else |
//! | `reading.rs` | freshness, and the values of a read |
//! | `flush.rs` | reads: what each freshness costs, and the walks that bring numbers up to date |
//! | `snapshot.rs` | the numbers of a whole subtree |
//! | `fixture.rs` | small trees of tests |
//!
//! # The protocol
//! An update adds to the current CPU's word of its group and to nothing else. So that a walk finds it without a search, the
//! first update *publishes* the slot. It marks the CPU in the group, the group in its parent, and so on to the root. Later
//! updates find the slot published and do nothing more. A walk follows the marks from the top down and folds the difference
//! between each word and its value at the last look. It changes no mark and no slot, so it needs no fence. Words are never reset,
//! so updates and folds do not race.
//!
//! Slots that are idle for a while are *retired*: they leave the marks (`retire.rs`). This passes a fence, in nobody's way.
//!
//! With sections, an update commits only while its slot is published. Without sections, an update adds first and looks at the
//! state afterwards. Either way: **an update that has returned is in a marked slot, or in one that was folded before its mark was
//! removed**. A task that removes a mark holds the lock under which walks look at it.

mod by_roster;
mod enlist;
#[cfg(test)]
mod fixture;
mod flush;
mod fold;
mod groups;
mod marks;
mod name;
mod names;
mod node;
mod publish;
mod reading;
mod retire;
mod roster;
mod schema;
mod snapshot;
mod turns;
mod walk;

pub(crate) use flush::{age_ns, cached, exact, flush, flush_counts, read};
pub use groups::FlushPolicy;
pub(crate) use groups::{LEVELS, ROOT, Tree};
pub(crate) use marks::MarkSet;
pub use name::{CreateError, NAME_MAX, printable};
pub(crate) use node::References;
pub(crate) use reading::Keep;
pub use reading::{Freshness, NotFresh, Reading, Value};
pub(crate) use retire::retire;
pub(crate) use schema::{BadSchema, Layout, Place, sealed};
pub use schema::{Counter, Gauge, Handle, Statistic};
pub(crate) use snapshot::snapshot;
pub use turns::FlushCounts;
