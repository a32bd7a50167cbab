//! A panic hook that runs outside of all groups.
//!
//! The standard library prints a backtrace with debug information that it parses once and keeps. The default hook runs in the
//! panicking thread's group, so that group would pay for the debug information until the process ends.
//!
//! Entering a group does not set the hook. Setting a hook takes a lock, allocates and affects the whole process; entering must do
//! none of these.

use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::current::outside;

/// Held while a hook is set. A panicking thread must not wait for it: the holder may wait for that thread's hook to return.
static SETTING: Mutex<()> = Mutex::new(());

/// Whether a [`Mark`] exists. Relaxed everywhere: `SETTING` orders the calls that set a hook, and a call that overlaps the drop of
/// the hook may answer as if it came before the drop.
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Belongs to the hook, and tells when the hook is dropped.
struct Mark;

impl Mark {
    fn new() -> Self {
        IS_SET.store(true, Ordering::Relaxed);
        Self
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        IS_SET.store(false, Ordering::Relaxed);
    }
}

/// Makes panics charge no group for what their hook allocates: wraps the panic hook so that it runs [`outside`] of all groups.
///
/// The standard library's hook prints a backtrace under `RUST_BACKTRACE=1`, and keeps the debug information that it parsed for
/// this. So one caught panic can charge its group tens of megabytes until the process ends. The wrapped hook charges
/// them to nobody, or to the group given to [`crate::Charged::charge_rest_to`].
///
/// The message and the payload of a panic are still charged to the group. They are freed with what `catch_unwind` returns.
///
/// Call this once when the program starts, after the program has set a hook of its own. `bursar_tower::TenantLayer::new` calls it
/// too. Further calls, from any thread, change nothing while the wrapped hook exists.
///
/// # The whole process
/// * All threads and all memories share one panic hook. The hook that was set before is still called, once for each panic.
/// * A hook that is set later replaces the wrapped one and runs in the panicking thread's group. Call this again to wrap it.
/// * A later hook that took the wrapped one ([`std::panic::take_hook`]) and calls it keeps the wrapped one in existence. A further
///   call then changes nothing, and only the later hook's own part runs in the group.
/// * Wrapping takes the hook and sets another, in two steps. A panic between the two is printed by the standard library's hook, and
///   a hook that another thread sets between the two is lost.
///
/// Returns whether the wrapped hook exists. That is `false` only on a panicking thread, which cannot set hooks: there the call
/// changes nothing, and a later call can still set the hook. On other threads the call may wait for a hook that is running.
///
/// ```
/// use std::alloc::System;
/// use std::panic::catch_unwind;
/// use bursar::{Freshness, Limits, Memory};
/// use bursar_alloc::{Charged, GroupExt};
///
/// #[global_allocator]
/// static HEAP: Charged<System> = Charged::new(System);
///
/// bursar_alloc::panics_charge_nobody();
/// let memory = Memory::host()?;
/// let tenant = memory.root().child("tenant", Limits::max(10 << 20))?;
/// let caught = tenant.scope(|| catch_unwind(|| panic!("a bug in a handler")));
/// drop(caught);
/// // Under RUST_BACKTRACE=1 too.
/// assert!(tenant.read(Freshness::Exact)?.usage().value < 10_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn panics_charge_nobody() -> bool {
    if thread::panicking() {
        return IS_SET.load(Ordering::Relaxed);
    }
    let _setting = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
    if IS_SET.load(Ordering::Relaxed) {
        return true;
    }
    outside(|| {
        let hook = panic::take_hook();
        let mark = Mark::new();
        panic::set_hook(Box::new(move |info| {
            let _mark = &mark;
            outside(|| hook(info));
        }));
    });
    true
}
