//! Events for the crate `tracing`, in builds with the feature of that name. Each memory makes at most ten a second of each kind;
//! the next one tells how many were left out. A subscriber is a user's code: it is called outside of all locks and operations, and
//! its panic is counted and ends here.

#![cfg_attr(not(feature = "tracing"), expect(unused_variables))]

use std::time::Duration;

use bursar_machine::Machine;

use super::core::Core;
#[cfg(feature = "tracing")]
use super::core::EVENT_KINDS;
use super::error::LimitReached;

/// Kinds of events.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy)]
enum Kind {
    Refused,
    GaveUp,
    Overshot,
    Throttled,
    Reclaimed,
    Removed,
}

#[cfg(feature = "tracing")]
const _: () = assert!(Kind::Removed as usize + 1 == EVENT_KINDS);

/// Makes an event about a group, if it is due and a subscriber wants it.
macro_rules! event {
    ($core:ident, $index:expr, $kind:ident, $level:ident, $($fields:tt)+) => {
        #[cfg(feature = "tracing")]
        $core.call_user($index, || {
            if tracing::enabled!(target: "bursar", tracing::Level::$level)
                && let Some(left_out) = $core.event_rates[Kind::$kind as usize].allow($core.tree().machine.now_ns())
            {
                tracing::event!(target: "bursar", tracing::Level::$level, left_out, $($fields)+);
            }
        });
    };
}

/// A limit refused a charge.
pub(super) fn refused<M: Machine>(core: &Core<M>, limited: u32, reached: &LimitReached) {
    event!(core, limited, Refused, WARN,
        group = %crate::tree::printable(&reached.charged),
        limited = %crate::tree::printable(&reached.limited),
        requested_bytes = reached.requested, usage_bytes = reached.usage, max_bytes = reached.max,
        "refused");
}

/// A charge that waited for a limit was given up.
pub(super) fn gave_up<M: Machine>(core: &Core<M>, limited: u32, reached: &LimitReached) {
    event!(core, limited, GaveUp, WARN,
        group = %crate::tree::printable(&reached.charged),
        limited = %crate::tree::printable(&reached.limited),
        requested_bytes = reached.requested, usage_bytes = reached.usage, max_bytes = reached.max,
        "gave up waiting");
}

/// A charge that could not be refused went above the limit of `limited`.
pub(super) fn overshot<M: Machine>(core: &Core<M>, index: u32, limited: u32, bytes: u64) {
    event!(core, limited, Overshot, WARN,
        group = %crate::tree::printable(&core.tree().path(index)),
        limited = %crate::tree::printable(&core.tree().path(limited)),
        bytes, "overshot");
}

/// A charge slept above `high`.
pub(super) fn throttled<M: Machine>(core: &Core<M>, index: u32, slept: Duration) {
    event!(core, index, Throttled, INFO,
        group = %crate::tree::printable(&core.tree().path(index)),
        slept_ns = slept.as_nanos() as u64, "throttled");
}

/// Reclaimers at and below a group were asked for `target` bytes, and say that they freed so many.
pub(super) fn reclaimed<M: Machine>(core: &Core<M>, scope: u32, target: u64, freed: u64) {
    event!(core, scope, Reclaimed, INFO,
        group = %crate::tree::printable(&core.tree().path(scope)),
        target_bytes = target, freed_bytes = freed, "reclaimed");
}

/// A group was removed, and bytes are still charged to it or below.
pub(super) fn removed<M: Machine>(core: &Core<M>, path: &str, left_bytes: u64) {
    // A panic counts at the root: the group's record may have ended.
    event!(core, crate::tree::ROOT, Removed, WARN, group = %crate::tree::printable(path), left_bytes,
        "removed with bytes charged");
}
