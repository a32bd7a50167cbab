//! Bytes that are still charged to groups that have ended, as data.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::call_site::CallSite;
use crate::bytes::Bytes;
use crate::tree::printable;

/// A group that has ended, and to which bytes are still charged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The path from the root, unescaped. Another group may have this name by now.
    pub path: String,
    /// Bytes that are charged to the group itself.
    pub bytes: u64,
    /// Time since the group has ended.
    pub age: Duration,
    /// Code that charged them, biggest first; empty unless call sites are sampled ([`crate::Builder::sample_call_sites`]). Charges
    /// that became numbers ([`crate::Charge::forget`]), pages and the bytes of an allocator are never sampled. Of each group the 32
    /// biggest charges are looked at.
    pub call_sites: Vec<CallSite>,
}

/// A line for the group, and indented lines for each call site.
impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(&self.path);
        write!(
            f,
            "{path} has {} charged, {:.1?} after its end",
            Bytes(self.bytes),
            self.age
        )?;
        for site in &self.call_sites {
            let site = site.to_string().replace('\n', "\n  ");
            write!(f, "\n  {site}")?;
        }
        Ok(())
    }
}

/// A group that has ended with bytes charged, to itself or to groups below that have ended as well.
pub(super) struct Ended {
    pub(super) path: String,
    pub(super) ended_ns: u64,
}

/// Notes by record.
pub(super) type Notes = BTreeMap<u32, Ended>;

/// A note that was just made.
pub(super) struct Left {
    pub(super) path: String,
    pub(super) bytes: u64,
}
