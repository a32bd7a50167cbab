//! Arbiters, and the grants of queries.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use bursar::{Group, Ticker};
use bursar_arbiter::{Arbiter, Ask, Engine, Grant, Policy, Widener};

use crate::arguments::{put, sized, text};
use crate::error::{Error, Failure, guard};
use crate::group::group_of;
use crate::handles::{GroupHandle, Numbered};

/// An arbiter's handle, `bursar_arbiter` of the header. All zeros is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArbiterHandle {
    bits: u64,
}

/// A grant's handle, `bursar_grant` of the header. All zeros is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GrantHandle {
    bits: u64,
}

/// `bursar_arbiter_options` of the header.
#[repr(C)]
pub struct ArbiterOptions {
    size: usize,
    ask_after_ms: u64,
    ask_max_ms: u64,
    stop_after_ms: u64,
    stop_max_ms: u64,
    tick_ms: u64,
}

impl Default for ArbiterOptions {
    fn default() -> Self {
        let yielding = Policy::default().yielding;
        let ms = |duration: Duration| duration.as_millis() as u64;
        Self {
            size: size_of::<Self>(),
            ask_after_ms: ms(yielding.ask_after),
            ask_max_ms: ms(yielding.ask_max),
            stop_after_ms: ms(yielding.stop_after),
            stop_max_ms: ms(yielding.stop_max),
            tick_ms: 10,
        }
    }
}

/// An arbiter with its thread. It lives until its handle and its grants are closed, in any order.
struct Ticking {
    arbiter: Arbiter,
    _ticker: Ticker,
}

struct Held {
    // Ends before the thread does.
    grant: Grant,
    _ticking: Arc<Ticking>,
}

static ARBITERS: Numbered<Arc<Ticking>> = Numbered::new();
static GRANTS: Numbered<Arc<Held>> = Numbered::new();

/// A time of C's; `None` for one without end.
fn time(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Parts of a grant that do not keep it: another thread may close it during a call.
fn widener_of(grant: GrantHandle) -> Result<(Widener, Group), Failure> {
    let held = GRANTS.get(grant.bits).ok_or(Failure::Handle)?;
    Ok((held.grant.widener(), held.grant.group().clone()))
}

pub(crate) fn attach(
    grant: GrantHandle,
    engine: impl FnOnce() -> Arc<dyn Engine>,
) -> Result<(), Failure> {
    let held = GRANTS.get(grant.bits).ok_or(Failure::Handle)?;
    held.grant.attach(engine());
    Ok(())
}

/// # Safety
/// As the header says, here and below: pointers are NULL, or point to what their type says, and nobody else changes it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_arbiter_create(
    root: GroupHandle,
    options: *const ArbiterOptions,
    arbiter: *mut ArbiterHandle,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(arbiter, ArbiterHandle { bits: 0 }, "arbiter") }?;
        let options = match options.is_null() {
            true => ArbiterOptions::default(),
            // SAFETY: as the caller's; `ArbiterOptions` has numbers only.
            false => unsafe { sized(options, "options") }?,
        };
        if options.tick_ms == 0 {
            return Err(Failure::Argument("tick_ms is 0"));
        }
        let mut policy = Policy::default();
        policy.yielding.ask_after = Duration::from_millis(options.ask_after_ms);
        policy.yielding.ask_max = Duration::from_millis(options.ask_max_ms);
        policy.yielding.stop_after = Duration::from_millis(options.stop_after_ms);
        policy.yielding.stop_max = Duration::from_millis(options.stop_max_ms);
        let made = Arbiter::new(&group_of(root)?.0.memory(), policy);
        let ticker = made.start_ticker(Duration::from_millis(options.tick_ms));
        let bits = ARBITERS.add(Arc::new(Ticking {
            arbiter: made,
            _ticker: ticker.map_err(Failure::Thread)?,
        }));
        // SAFETY: as the caller's.
        unsafe { put(arbiter, ArbiterHandle { bits }, "arbiter") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_arbiter_close(arbiter: ArbiterHandle) -> c_int {
    let run = || match ARBITERS.take(arbiter.bits) {
        Some(_) => Ok(0),
        None => Err(Failure::Handle),
    };
    // SAFETY: no error is wanted.
    unsafe { guard(std::ptr::null_mut(), run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_admit(
    arbiter: ArbiterHandle,
    group: GroupHandle,
    name: *const c_char,
    least: u64,
    wanted: u64,
    score: c_int,
    patience_ms: i64,
    grant: *mut GrantHandle,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(grant, GrantHandle { bits: 0 }, "grant") }?;
        // SAFETY: as the caller's.
        let name = unsafe { text(name, "name") }?;
        let ticking = ARBITERS.get(arbiter.bits).ok_or(Failure::Handle)?;
        let mut ask = Ask::new(&group_of(group)?.0, name).score(score);
        if least > 0 {
            ask = ask.least(least, 0);
        }
        if wanted > 0 {
            ask = ask.wanted(wanted);
        }
        if let Some(patience) = time(patience_ms) {
            ask = ask.patience(patience);
        }
        let granted = ticking.arbiter.admit_blocking(ask)?;
        let bits = GRANTS.add(Arc::new(Held {
            grant: granted,
            _ticking: ticking,
        }));
        // SAFETY: as the caller's.
        unsafe { put(grant, GrantHandle { bits }, "grant") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_grant_group(grant: GrantHandle, group: *mut GroupHandle) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(group, GroupHandle::NONE, "group") }?;
        let made = GroupHandle::of(&widener_of(grant)?.1).ok_or(Failure::TooManyHandles)?;
        // SAFETY: as the caller's.
        unsafe { put(group, made, "group") }?;
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(std::ptr::null_mut(), run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_grant_close(grant: GrantHandle) -> c_int {
    let run = || match GRANTS.take(grant.bits) {
        Some(_) => Ok(0),
        None => Err(Failure::Handle),
    };
    // SAFETY: no error is wanted.
    unsafe { guard(std::ptr::null_mut(), run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_grant_try_charge(
    grant: GrantHandle,
    bytes: u64,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        let (widener, group) = widener_of(grant)?;
        widener.try_charge(&group, bytes)?.forget();
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_grant_grow(
    grant: GrantHandle,
    bytes: u64,
    timeout_ms: i64,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        let (widener, _) = widener_of(grant)?;
        widener.grow_blocking(bytes, time(timeout_ms))?.forget();
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

version!(1: bursar_arbiter_create, bursar_arbiter_close, bursar_admit, bursar_grant_group, bursar_grant_close, bursar_grant_try_charge, bursar_grant_grow);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_defaults() {
        let options = ArbiterOptions::default();
        let line = format!(
            "#define BURSAR_ARBITER_OPTIONS_INIT {{sizeof(bursar_arbiter_options), {}, {}, {}, {}, {}}}\n",
            options.ask_after_ms,
            options.ask_max_ms,
            options.stop_after_ms,
            options.stop_max_ms,
            options.tick_ms
        );
        assert!(
            include_str!("../include/bursar.h").contains(&line),
            "{line}"
        );
    }
}
