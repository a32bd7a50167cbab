//! Calls of other crates.

use crate::allocations::Case;

pub const CASES: &[Case] = &[];
