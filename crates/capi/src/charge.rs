//! Charging and returning bytes by number, and adding to statistics.

use std::ffi::c_int;
use std::ptr;

use bursar::Group;

use crate::error::{Error, Failure, guard};
use crate::handles::{Column, GroupHandle, Named};

// The first lines of most functions here are the way of most calls: the handle's account, and this CPU's stock. They cannot fail, and the rest is
// a call of another function, so that they need no stack.

fn named(group: GroupHandle) -> Result<&'static Named, Failure> {
    group.named().ok_or(Failure::Handle)
}

/// Runs `run` with the group. Reclaimers that a charge calls may release the handle: the group lives until `run` returns.
fn with_kept_group<R>(handle: GroupHandle, run: impl FnOnce(&Group) -> R) -> Result<R, Failure> {
    let group = named(handle)?.account.with_group(Group::clone);
    Ok(run(&group))
}

/// More bytes than a group can ever have charged.
const BYTES_MAX: u64 = 1 << 62;

fn check(bytes: u64) -> Result<(), Failure> {
    match bytes > BYTES_MAX {
        true => Err(Failure::Argument("more than 2^62 bytes")),
        false => Ok(()),
    }
}

#[inline(always)]
fn charges_from_stock(group: GroupHandle, bytes: u64) -> bool {
    group
        .named()
        .is_some_and(|named| named.account.charge_from_stock(bytes))
}

#[inline(always)]
fn returns_to_stock(group: GroupHandle, bytes: u64) -> bool {
    let is_usual = bytes > 0 && bytes <= BYTES_MAX;
    is_usual
        && group
            .named()
            .is_some_and(|named| named.account.return_to_stock(bytes))
}

/// # Safety
/// `error` is NULL, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_try_charge(
    group: GroupHandle,
    bytes: u64,
    error: *mut *mut Error,
) -> c_int {
    if charges_from_stock(group, bytes) {
        return 0;
    }
    // SAFETY: as the caller's.
    unsafe { try_charge_slowly(group, bytes, error) }
}

/// # Safety
/// As above.
#[cold]
#[inline(never)]
unsafe fn try_charge_slowly(group: GroupHandle, bytes: u64, error: *mut *mut Error) -> c_int {
    let run = || {
        let charge = with_kept_group(group, |group| group.try_charge(bytes))??;
        charge.forget();
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_charge(group: GroupHandle, bytes: u64) -> i64 {
    if charges_from_stock(group, bytes) {
        return bytes as i64;
    }
    charge_slowly(group, bytes)
}

#[cold]
#[inline(never)]
fn charge_slowly(group: GroupHandle, bytes: u64) -> i64 {
    let run = || {
        let charge = with_kept_group(group, |group| group.charge(bytes))?;
        Ok(charge.forget() as i64)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_try_charge_nowait(group: GroupHandle, bytes: u64) -> c_int {
    if charges_from_stock(group, bytes) {
        return 0;
    }
    try_charge_nowait_slowly(group, bytes)
}

#[cold]
#[inline(never)]
fn try_charge_nowait_slowly(group: GroupHandle, bytes: u64) -> c_int {
    let run = || {
        let named = named(group)?;
        // A charge of nothing takes a reference, and dropping one may wait.
        if bytes > 0 {
            let charge = named
                .account
                .with_group(|group| group.engine().try_charge_nowait(bytes))?;
            charge.forget();
        }
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_charge_nowait(group: GroupHandle, bytes: u64) -> i64 {
    if charges_from_stock(group, bytes) {
        return bytes as i64;
    }
    charge_nowait_slowly(group, bytes)
}

#[cold]
#[inline(never)]
fn charge_nowait_slowly(group: GroupHandle, bytes: u64) -> i64 {
    let run = || {
        let named = named(group)?;
        // As in `try_charge_nowait_slowly`.
        if bytes == 0 {
            return Ok(0);
        }
        let charge = named
            .account
            .with_group(|group| group.engine().charge_nowait(bytes));
        Ok(charge.forget() as i64)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_uncharge(group: GroupHandle, bytes: u64) -> c_int {
    if returns_to_stock(group, bytes) {
        return 0;
    }
    uncharge_slowly(group, bytes)
}

#[cold]
#[inline(never)]
fn uncharge_slowly(group: GroupHandle, bytes: u64) -> c_int {
    let run = || {
        let named = named(group)?;
        check(bytes)?;
        // Callbacks run after the bytes are returned, when nothing of the group is needed any more.
        named
            .account
            .with_group(|group| group.engine().uncharge(bytes));
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_uncharge_nowait(group: GroupHandle, bytes: u64) -> c_int {
    if returns_to_stock(group, bytes) {
        return 0;
    }
    uncharge_nowait_slowly(group, bytes)
}

#[cold]
#[inline(never)]
fn uncharge_nowait_slowly(group: GroupHandle, bytes: u64) -> c_int {
    let run = || {
        let named = named(group)?;
        check(bytes)?;
        if bytes > 0 {
            named.account.uncharge_nowait(bytes);
        }
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_add(group: GroupHandle, statistic: u32, delta: i64) -> c_int {
    let run = || {
        let named = named(group)?;
        let column = named.schema.columns.get(statistic as usize);
        match column.ok_or(Failure::Argument("there is no statistic of this number"))? {
            Column::Counter(counter) => {
                let delta = u64::try_from(delta).map_err(|_| {
                    Failure::Argument("a counter only grows: the delta is negative")
                })?;
                named.account.with_group(|group| group.add(*counter, delta));
            }
            Column::Gauge(gauge) => {
                named.account.with_group(|group| group.add(*gauge, delta));
            }
        }
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

version!(1: bursar_try_charge, bursar_charge, bursar_try_charge_nowait, bursar_charge_nowait, bursar_uncharge, bursar_uncharge_nowait, bursar_add);
