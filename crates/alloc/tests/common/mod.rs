//! Shared by the tests: groups, and short forms of the most frequent steps.
#![allow(dead_code, reason = "each test uses a part")]

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::outside;

/// A group of a memory of its own.
pub fn group() -> Group {
    Memory::host().unwrap().make("group")
}

/// Exact usage.
pub fn usage(group: &Group) -> i64 {
    // A reading is made of allocations itself.
    outside(|| group.read(Freshness::Exact).unwrap().usage().value)
}

/// Short forms of the most frequent steps of tests.
pub trait Short {
    fn handle(&self) -> Group;

    /// A child without limits.
    fn make(&self, name: impl AsRef<str>) -> Group {
        self.make_max(name, u64::MAX)
    }

    fn make_max(&self, name: impl AsRef<str>, max: u64) -> Group {
        self.handle().child(name, Limits::max(max)).unwrap()
    }
}

impl Short for Group {
    fn handle(&self) -> Group {
        self.clone()
    }
}

impl Short for Memory {
    fn handle(&self) -> Group {
        self.root()
    }
}
