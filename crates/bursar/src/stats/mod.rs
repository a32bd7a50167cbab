//! Statistics of a tree of groups: every CPU keeps its own, a flush reconciles them.
//!
//! | file | concept |
//! |---|---|
//! | `schema.rs` | which statistics there are |
//! | `marks.rs` | sets that are marked and taken without locks |
//! | `name.rs` | names that are allowed, and how they are shown |
//! | `tree.rs` | groups: birth, removal, rebirth |
//! | `publish.rs` | adding, and marking the way to the root |
//! | `fold.rs` | one group's folded numbers |
//! | `flush.rs` | reconciling a subtree |
//! | `combine.rs` | who flushes, who waits |
//! | `read.rs` | freshness |
//! | `snapshot.rs` | the numbers of a whole subtree |
//!
//! # The protocol
//! An update adds to the current CPU's word of its group and to nothing else. So that a flush finds it without looking
//! everywhere, the slot is *published* once between two flushes: its CPU is marked in the group, the group in its parent,
//! and so on to the root. A flush takes the marks from the top down, sets the slots it found back to clean, passes one
//! fence, and folds the difference of each word to what it held at the last fold. Words are never reset, so updates and
//! folds do not race.
//!
//! With sections, an update commits only while its slot is published: after the fence nobody commits on the strength of
//! the old mark. Without, an update adds first and looks at the mark afterwards, and the flusher cleans first and reads
//! afterwards. Either way: **an update that has returned is in a published slot, or in one that a flush took and has
//! not folded yet**. Flushes of overlapping subtrees do not overlap in time, so whoever flushes afterwards finds it.

mod combine;
mod flush;
mod fold;
mod marks;
mod name;
mod publish;
mod read;
mod schema;
mod snapshot;
mod tree;

pub use combine::FlushCounts;
pub(crate) use marks::MarkSet;
pub use name::{NAME_MAX, printable};
pub use read::{Freshness, NotFresh, Reading, Value};
pub(crate) use schema::{BadSchema, Layout, Place, sealed};
pub use schema::{Counter, Gauge, Handle, Statistic};
pub use tree::{CreateError, FlushPolicy};
pub(crate) use tree::{LEVELS, Node, ROOT, References, Tree};
