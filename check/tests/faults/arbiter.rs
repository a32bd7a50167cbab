//! Calls of the crate `bursar-arbiter`.

use crate::allocations::Case;

pub const CASES: &[Case] = &[];
