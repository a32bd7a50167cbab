//! The program's allocator, charged to groups.
//!
//! | file | concept |
//! |---|---|
//! | `record.rs` | one word that names a group's account, for good |
//! | `current.rs` | which group this thread is in: entering and leaving, in any order |
//! | `label.rs` | eight bytes behind each block: who was charged, and how much more than was asked for |
//! | `real.rs` | what a block really takes |
//! | `charged.rs` | the allocator |
//! | `future.rs` | futures that are in a group whenever they are polled |
//! | `panics.rs` | a panic hook that runs outside of all groups |
//! | `twin.rs` | what is reserved beside what is really allocated |
//!
//! # Never again inside itself
//! Allocating and freeing look at a thread-local word that needs no initialization and no destructor (where threads have words of
//! their own, as on Linux and macOS), and charge by operations
//! that take no lock, wait for nobody, call nobody and allocate nothing ([`bursar::Account`]). So there is no way back into the
//! allocator, and nothing to be found half done: by a signal handler, by the destructor of a thread-local, before `main`, or in
//! the child of a fork. What may do more (limits that refuse, drains, callbacks) comes with the next operation on the group that
//! may wait.

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
