//! The program's allocator, charged to groups.
//!
//! | file | concept |
//! |---|---|
//! | `record.rs` | one word that names a group's account until the process ends |
//! | `current.rs` | the group that this thread is in: entering and leaving, in any order |
//! | `label.rs` | eight bytes behind each block: the payer, and the bytes beyond the requested size |
//! | `real.rs` | the bytes that a block really takes |
//! | `charged.rs` | the allocator |
//! | `future.rs` | futures that are in a group while they are polled |
//! | `panics.rs` | a panic hook that runs outside of all groups |
//! | `twin.rs` | reserved bytes beside really allocated ones |
//!
//! # No re-entry
//! Allocating and freeing read a thread-local word that needs no initialization and no destructor (on systems with
//! native thread-local words, such as Linux and macOS). They charge by operations that take no lock, do not wait, call
//! no callback and allocate nothing ([`bursar::engine::Account`]). So the allocator is never entered again from inside. No
//! signal handler, thread-local destructor, code before `main` or child of a fork finds an operation half done. Work
//! that may do more (limits that refuse, drains, callbacks) is left to the next operation on the group that may wait.

mod charged;
mod current;
mod future;
mod label;
mod panics;
mod real;
mod record;
mod twin;

pub use charged::Charged;
pub use current::{Entered, GroupExt, current, outside, with_current};
pub use future::{InGroup, InGroupExt};
pub use panics::panics_charge_nobody;
pub use real::{ByLayout, RealSize, Usable, UsableByClass};
pub use twin::{HeapDrift, Twin, heap_drift};
