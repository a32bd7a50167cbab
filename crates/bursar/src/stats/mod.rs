//! Statistics of a tree of groups. Every CPU keeps its own numbers; a flush reconciles them.
//!
//! | file | concept |
//! |---|---|
//! | `schema.rs` | declared statistics and their handles |
//! | `marks.rs` | sets that are marked and taken without locks |
//! | `name.rs` | names of groups: which are allowed, and how they are shown |
//! | `tree.rs` | groups: birth, removal, rebirth |
//! | `publish.rs` | adding, and marking the way to the root |
//! | `fold.rs` | folded numbers of one group |
//! | `flush.rs` | reconciling a subtree |
//! | `combine.rs` | turns of flushes that overlap |
//! | `read.rs` | freshness |
//! | `snapshot.rs` | the numbers of a whole subtree |
//!
//! # The protocol
//! An update adds to the current CPU's word of its group and to nothing else. So that a flush finds it without a
//! search, the update *publishes* the slot once between two flushes. It marks the CPU in the group, the group in its
//! parent, and so on to the root. A flush takes the marks from the top down, sets the slots that it found back to
//! clean, and passes one fence. It then folds the difference between each word and its value at the last fold. Words
//! are never reset, so updates and folds do not race.
//!
//! With sections, an update commits only while its slot is published, so after the fence no update commits on an old
//! mark. Without sections, an update adds first and looks at the mark afterwards; the flusher cleans first and reads
//! afterwards. Either way: **an update that has returned is in a published slot, or in one that a flush took and has
//! not folded yet**. Flushes of overlapping subtrees do not overlap in time, so the next flush finds it.

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
