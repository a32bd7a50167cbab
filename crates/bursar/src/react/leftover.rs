//! Bytes that are still charged to groups that have ended: noting, following and telling them.
//!
//! A group that ends with bytes charged is noted. The note goes when its last byte was returned, before its record ends.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bursar_machine::{Lock, Machine};

use super::call_site::{CallSite, Site};
use super::core::{Core, Ended};
use super::{fork, trace};
use crate::bytes::Bytes;
use crate::tree::printable;

/// Groups that are listed.
const LISTED_MAX: usize = 64;

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

/// A note that was just made.
pub(super) struct Left {
    path: String,
    bytes: u64,
}

/// Follows a new charge, if it is one of the sample.
#[inline(always)]
pub(crate) fn sampled<M: Machine>(core: &Core<M>, index: u32, bytes: u64) -> Site {
    if bytes == 0 || !core.call_sites.is_due() {
        return Site::NONE;
    }
    sample(core, index, bytes)
}

#[cold]
fn sample<M: Machine>(core: &Core<M>, index: u32, bytes: u64) -> Site {
    // The sample is the library's own, so an allocator charges it to no group.
    let _operation = fork::operation(core);
    let now_ns = core.tree().machine.now_ns();
    core.call_sites.follow(index, bytes, now_ns)
}

/// Follows bytes that were split off a charge, if that is followed.
pub(crate) fn part<M: Machine>(core: &Core<M>, site: &Site, bytes: u64) -> Site {
    if bytes == 0 {
        return Site::NONE;
    }
    let _operation = fork::operation(core);
    core.call_sites.follow_part(site, bytes)
}

/// Notes a group that ends, if bytes are charged to it. It holds no stock, and its record has not ended.
pub(super) fn note<M: Machine>(core: &Core<M>, index: u32) -> Option<Left> {
    let bytes = core.counters.usage_now(index);
    if bytes == 0 {
        return None;
    }
    let path = core.tree().path(index);
    let ended_ns = core.tree().machine.now_ns();
    let ended = Ended {
        path: path.clone(),
        ended_ns,
    };
    core.leftovers.lock().insert(index, ended);
    Some(Left { path, bytes })
}

/// Forgets a group to which no byte is charged any more, before its record ends.
pub(super) fn forget<M: Machine>(core: &Core<M>, index: u32) {
    core.leftovers.lock().remove(&index);
}

/// Tells of notes that were made by one end of groups, those below before those above.
///
/// # Panics
/// If there are any and the memory's policy says so. Not while the thread unwinds.
pub(super) fn tell<M: Machine>(core: &Core<M>, left: &[Left]) {
    let Some(last) = left.last() else {
        return;
    };
    trace::removed(core, &last.path, last.bytes);
    if core.policies.panics_on_leftovers && !core.tree().machine.is_unwinding() {
        panic!("{}", list(&kept(core)));
    }
}

fn list(leftovers: &[Leftover]) -> String {
    let lines = leftovers.iter().map(|leftover| format!("\n{leftover}"));
    format!(
        "groups have ended with bytes charged:{}",
        lines.collect::<String>()
    )
}

/// The groups that were noted and to which bytes are still charged, the biggest first.
pub(crate) fn kept<M: Machine>(core: &Core<M>) -> Vec<Leftover> {
    let _operation = fork::operation(core);
    let now_ns = core.tree().machine.now_ns();
    let mut leftovers: Vec<(u32, Leftover)> = {
        // While it is noted, a record does not end. The lock is held for three loads a note; ends of groups wait for it.
        let notes = core.leftovers.lock();
        let usage = |&index| (index, core.counters.usage_now(index));
        let usage: BTreeMap<u32, u64> = notes.keys().map(usage).collect();
        let mut own = usage.clone();
        for (&index, &below) in &usage {
            let parent = core.tree().node(index).parent();
            if let Some(own) = parent.and_then(|parent| own.get_mut(&parent)) {
                *own = own.saturating_sub(below);
            }
        }
        let leftover = |(&index, ended): (&u32, &Ended)| {
            let made = Leftover {
                path: ended.path.clone(),
                bytes: own[&index],
                age: Duration::from_nanos(now_ns.saturating_sub(ended.ended_ns)),
                call_sites: Vec::new(),
            };
            (index, made)
        };
        notes.iter().map(leftover).collect()
    };
    leftovers.retain(|(_, leftover)| leftover.bytes > 0);
    leftovers.sort_by_key(|(index, leftover)| (Reverse(leftover.bytes), *index));
    leftovers.truncate(LISTED_MAX);
    let with_sites = |(index, leftover)| Leftover {
        call_sites: core.call_sites.of_group(index, now_ns),
        ..leftover
    };
    leftovers.into_iter().map(with_sites).collect()
}
