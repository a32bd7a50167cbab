//! Bytes that are still charged to groups that have ended: noting, following and telling them.
//!
//! A group that ends with bytes charged is noted. The note goes when its last byte was returned, before its record ends.

use std::cmp::Reverse;
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

/// Notes that are looked at under one hold of their lock.
const NOTES_PER_HOLD: usize = 64;

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
    let noted = noted(core);
    let mut own: Vec<u64> = noted.iter().map(|note| note.usage).collect();
    for note in &noted {
        let parent = note.parent;
        let place = noted.binary_search_by(|other| Some(other.index).cmp(&parent));
        if let Ok(place) = place {
            own[place] = own[place].saturating_sub(note.usage);
        }
    }
    let mut biggest: Vec<(u64, &Noted)> = own.into_iter().zip(&noted).collect();
    biggest.retain(|&(bytes, _)| bytes > 0);
    biggest.sort_by_key(|&(bytes, note)| (Reverse(bytes), note.index));
    let leftover = |(bytes, note): (u64, &Noted)| {
        let path = {
            let notes = core.leftovers.lock();
            // It may be gone, and another one of the same record be there.
            let ended = notes.get(&note.index);
            let ended = ended.filter(|ended| ended.ended_ns == note.ended_ns);
            ended.map(|ended| ended.path.clone())?
        };
        Some(Leftover {
            path,
            bytes,
            age: Duration::from_nanos(now_ns.saturating_sub(note.ended_ns)),
            call_sites: core.call_sites.of_group(note.index, now_ns),
        })
    };
    biggest
        .into_iter()
        .filter_map(leftover)
        .take(LISTED_MAX)
        .collect()
}

/// A note, and the bytes of its group and below.
struct Noted {
    index: u32,
    parent: Option<u32>,
    usage: u64,
    ended_ns: u64,
}

/// All notes, by record. Ends of groups wait for no more than a few of them.
fn noted<M: Machine>(core: &Core<M>) -> Vec<Noted> {
    let mut noted: Vec<Noted> = Vec::new();
    let mut next = 0;
    loop {
        // While it is noted, a record does not end.
        let notes = core.leftovers.lock();
        let before = noted.len();
        let note = |(&index, ended): (&u32, &Ended)| Noted {
            index,
            parent: core.tree().node(index).parent(),
            usage: core.counters.usage_now(index),
            ended_ns: ended.ended_ns,
        };
        noted.extend(notes.range(next..).take(NOTES_PER_HOLD).map(note));
        if noted.len() - before < NOTES_PER_HOLD {
            return noted;
        }
        next = noted[noted.len() - 1].index + 1;
    }
}
