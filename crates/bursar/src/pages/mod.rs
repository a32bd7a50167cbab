//! Page memory: the free blocks of a zone, sizes that follow from it, and the tuning of per-CPU lists.

mod buddy;
pub mod sizes;
pub mod tuning;

pub use buddy::Buddy;
