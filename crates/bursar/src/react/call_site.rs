//! Call sites of charges: where the bytes were charged that a group has left behind. A sample of the charges is followed.
//!
//! Only builds with debug assertions, or with the feature `call-sites`, follow any. In others a [`Site`] has no bytes and no code.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bursar_machine::{Lock, Machine};

use crate::bytes::Bytes;

/// Whether this build follows charges.
const FOLLOWS: bool = cfg!(any(debug_assertions, feature = "call-sites"));
/// Most charges that are followed at a time. A charge with a backtrace of 30 frames takes 2 KiB.
const FOLLOWED_MAX: usize = 1 << 16;
/// Due charges that are left out after a look at a full table. The look takes some 300 us, and each of these a part of it. Judgement.
const SKIPPED: u64 = 1 << 13;
/// Most call sites looked up for one group, biggest charges first. One lookup takes about 100 us.
const LOOKED_UP_MAX: usize = 32;
/// Most frames that are shown of a backtrace.
const FRAMES_MAX: usize = 16;

/// Functions between a program's charge and the backtrace, and their files, as builds without paths in their debugging information name
/// them.
const OWN_FUNCTIONS: [&str; 7] = [
    "follow",
    "sample",
    "sampled",
    "try_charge",
    "charge",
    "poll",
    "emergency_reserve",
];
const OWN_FILES: [&str; 5] = [
    "src/react/call_site.rs:",
    "src/react/leftover.rs:",
    "src/charge.rs:",
    "src/group_charge.rs:",
    "src/futures.rs:",
];

/// Code that charged bytes which are charged still, as far as charges were sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSite {
    /// Sampled charges by this code that are held.
    pub charges: u64,
    /// Bytes that they hold.
    pub bytes: u64,
    /// Age of the oldest.
    pub oldest: Duration,
    /// The calls that led there, the innermost first: a function, and its file and line where they are known.
    pub frames: Vec<String>,
}

/// A line with the numbers, and an indented line for each frame.
impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, oldest) = (Bytes(self.bytes), self.oldest);
        match self.charges {
            1 => write!(f, "{bytes} by one sampled charge, {oldest:.1?} ago:")?,
            many => write!(
                f,
                "{bytes} by {many} sampled charges, the oldest {oldest:.1?} ago:"
            )?,
        }
        self.frames
            .iter()
            .try_for_each(|frame| write!(f, "\n  {frame}"))
    }
}

/// A charge that is followed. With 0 bytes it has ended.
#[derive(Debug)]
struct Followed {
    index: AtomicU32,
    bytes: AtomicU64,
    charged_ns: u64,
    backtrace: Arc<Backtrace>,
}

/// A charge's own record, if the charge is one of the sample.
#[derive(Debug)]
pub(crate) struct Site([Option<Arc<Followed>>; FOLLOWS as usize]);

impl Site {
    pub(crate) const NONE: Self = Self([const { None }; FOLLOWS as usize]);

    fn new(followed: Arc<Followed>) -> Self {
        let mut site = Self::NONE;
        site.0.fill(Some(followed));
        site
    }

    #[inline(always)]
    fn followed(&self) -> Option<&Arc<Followed>> {
        self.0.first()?.as_ref()
    }

    /// The charge has so many bytes from now on. Async-signal-safe. A charge of 0 bytes is followed no longer.
    // Relaxed, here and below: a diagnosis that comes at the same time may miss it.
    #[inline(always)]
    pub(crate) fn set_bytes(&self, bytes: u64) {
        if let Some(followed) = self.followed() {
            followed.bytes.store(bytes, Relaxed);
        }
    }

    /// The charge has the bytes of another one, too. If both are followed, the other is no longer.
    pub(crate) fn take(&mut self, other: &mut Self) {
        if self.followed().is_none() {
            std::mem::swap(self, other);
        }
    }

    /// The charge has moved to another group.
    pub(crate) fn set_group(&self, index: u32) {
        if let Some(followed) = self.followed() {
            followed.index.store(index, Relaxed);
        }
    }
}

// No allocator is called: the table has another reference, and drops it after this.
impl Drop for Site {
    #[inline(always)]
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

/// The charges of a memory that are followed.
pub(super) struct CallSites<M: Machine> {
    /// One in so many charges is followed; 0 for none.
    pub(super) one_in: u32,
    charges: AtomicU64,
    /// Charges that are not followed, and after which ended ones are looked for again. The table was full.
    skipped: AtomicU64,
    followed: M::Mutex<Vec<Arc<Followed>>>,
}

impl<M: Machine> CallSites<M> {
    pub(super) fn new(one_in: u32) -> Self {
        Self {
            one_in,
            charges: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            followed: M::Mutex::new(Vec::new()),
        }
    }

    /// Decides about the next charge.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        FOLLOWS && self.one_in != 0 && self.count()
    }

    #[cold]
    fn count(&self) -> bool {
        let before = self.charges.fetch_add(1, Relaxed);
        before.is_multiple_of(self.one_in.into())
    }

    /// Follows a charge that the caller of the library's caller made.
    pub(super) fn follow(&self, index: u32, bytes: u64, now_ns: u64) -> Site {
        if self.skips() {
            return Site::NONE;
        }
        self.put(index, bytes, now_ns, Arc::new(Backtrace::force_capture()))
    }

    /// Whether the table was full a short while ago.
    fn skips(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        let before = self.skipped.fetch_update(Relaxed, Relaxed, one_less);
        before.is_ok()
    }

    /// Follows bytes that were split off a charge.
    pub(super) fn follow_part(&self, site: &Site, bytes: u64) -> Site {
        match site.followed() {
            Some(whole) if !self.skips() => {
                let index = whole.index.load(Relaxed);
                self.put(index, bytes, whole.charged_ns, whole.backtrace.clone())
            }
            _ => Site::NONE,
        }
    }

    fn put(&self, index: u32, bytes: u64, charged_ns: u64, backtrace: Arc<Backtrace>) -> Site {
        let made = Arc::new(Followed {
            index: AtomicU32::new(index),
            bytes: AtomicU64::new(bytes),
            charged_ns,
            backtrace,
        });
        let mut followed = self.followed.lock();
        if followed.len() == followed.capacity() || followed.len() >= FOLLOWED_MAX {
            followed.retain(|followed| followed.bytes.load(Relaxed) > 0);
        }
        if followed.len() >= FOLLOWED_MAX {
            self.skipped.store(SKIPPED, Relaxed);
            return Site::NONE;
        }
        followed.push(made.clone());
        Site::new(made)
    }

    /// The code that charged what is charged to a group, the biggest first.
    pub(super) fn of_group(&self, index: u32, now_ns: u64) -> Vec<CallSite> {
        let mut held: Vec<(u64, Arc<Followed>)> = self
            .followed
            .lock()
            .iter()
            .filter(|followed| followed.index.load(Relaxed) == index)
            .map(|followed| (followed.bytes.load(Relaxed), followed.clone()))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        held.sort_by_key(|(bytes, followed)| (u64::MAX - bytes, followed.charged_ns));
        held.truncate(LOOKED_UP_MAX);
        let mut sites = BTreeMap::<Vec<String>, CallSite>::new();
        for (bytes, followed) in held {
            let frames = frames(&followed.backtrace.to_string());
            let age = Duration::from_nanos(now_ns.saturating_sub(followed.charged_ns));
            let site = sites.entry(frames).or_insert_with_key(|frames| CallSite {
                charges: 0,
                bytes: 0,
                oldest: age,
                frames: frames.clone(),
            });
            site.charges += 1;
            site.bytes += bytes;
            site.oldest = site.oldest.max(age);
        }
        let mut sites: Vec<CallSite> = sites.into_values().collect();
        sites.sort_by_key(|site| u64::MAX - site.bytes);
        sites
    }
}

/// The frames of a backtrace as the standard library prints it, without those of the library itself, and without those that start
/// a thread or `main`.
fn frames(backtrace: &str) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    for line in backtrace.lines().map(str::trim) {
        let numbered = line.split_once(": ").filter(|(number, _)| {
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        });
        match (numbered, line.strip_prefix("at "), frames.last_mut()) {
            (Some((_, name)), ..) => frames.push(name.to_owned()),
            (None, Some(place), Some(last)) => *last += &format!(" at {place}"),
            _ => {}
        }
    }
    // Without its path a name may be anybody's, and so may a file: both must be ours.
    let is_ours = |frame: &String| {
        let (name, place) = frame.split_once(" at ").unwrap_or((frame, ""));
        let function = name.split('<').next().unwrap_or_default();
        let is_known = |names: &[&str], found: &str| names.iter().any(|name| found.contains(name));
        name.contains("bursar::")
            || name.contains("std::backtrace")
            || OWN_FUNCTIONS.contains(&function) && is_known(&OWN_FILES, place)
    };
    let begin = frames.iter().take_while(|frame| is_ours(frame)).count();
    let starts_thread = |frame: &String| frame.contains("__rust_begin_short_backtrace");
    let calls_closure = |frame: &String| {
        frame.contains("core::ops::function::") || frame.contains("core/src/ops/function.rs")
    };
    let end = frames.iter().position(starts_thread);
    let mut end = end.unwrap_or(frames.len());
    while end > begin && calls_closure(&frames[end - 1]) {
        end -= 1;
    }
    frames.truncate(end);
    frames.into_iter().skip(begin).take(FRAMES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::*;

    /// Each look at the full table takes long.
    #[test]
    #[cfg_attr(
        not(any(debug_assertions, feature = "call-sites")),
        ignore = "this build follows no charges"
    )]
    fn a_full_table_is_looked_at_once_in_many_charges() {
        let sites = CallSites::<Host>::new(1);
        let first = sites.follow(1, 1, 0);
        let part = || sites.follow_part(&first, 1);
        let all: Vec<Site> = (1..FOLLOWED_MAX).map(|_| part()).collect();
        assert!(all.iter().all(|site| site.followed().is_some()));
        assert!(part().followed().is_none(), "the table is full");
        drop(all);
        for _ in 0..SKIPPED {
            assert_eq!(sites.followed.lock().len(), FOLLOWED_MAX, "not looked at");
            assert!(sites.follow(1, 1, 0).followed().is_none());
        }
        assert!(part().followed().is_some());
        assert_eq!(sites.followed.lock().len(), 2);
    }

    #[test]
    fn frames_are_those_of_the_program() {
        let printed = "   0: <std::backtrace::Backtrace>::create
             at /rustc/5980/library/std/src/backtrace.rs:331:13
   1: bursar::react::call_site::CallSites<M>::follow
             at ./src/react/call_site.rs:1:2
   2: <bursar::group::Group>::try_charge
   3: server::cache::load
             at ./src/cache.rs:12:5
   4: core::ops::function::FnOnce::call_once
   5: std::sys::backtrace::__rust_begin_short_backtrace
             at /rustc/5980/library/std/src/sys/backtrace.rs:158:18
   6: main";
        assert_eq!(
            frames(printed),
            ["server::cache::load at ./src/cache.rs:12:5"]
        );
        let short = "0: follow<bursar_machine::host::Host>
             at ./src/react/call_site.rs:146:49
   1: try_charge<bursar_machine::host::Host>
             at ./src/group_charge.rs:62:36
   2: charge
             at ./src/cache.rs:12:5";
        assert_eq!(frames(short), ["charge at ./src/cache.rs:12:5"]);
        assert!(frames("").is_empty() && frames("<disabled>").is_empty());
    }
}
