//! Functions of C that Bursar calls.
//!
//! Their types are `C-unwind`: an exception that leaves such a function is foreign to Rust, which ends the process with a message when it
//! catches one, as [`guard`] does.

use std::ffi::{c_int, c_void};

use bursar::{Level, Pressure, ReclaimRequest};

use crate::arguments::put;
use crate::error::{Error, Failure, guard};
use crate::group::group_of;
use crate::handles::{GroupHandle, RegistrationHandle};

type Reclaim = unsafe extern "C-unwind" fn(data: *mut c_void, target: u64) -> u64;
type Tell = unsafe extern "C-unwind" fn(data: *mut c_void, level: c_int);
pub(crate) type Destroy = unsafe extern "C-unwind" fn(data: *mut c_void);

/// The program's data, and what ends it.
pub(crate) struct Data {
    pub(crate) data: *mut c_void,
    pub(crate) destroy: Option<Destroy>,
}

// SAFETY: the header says that callbacks run on any thread.
unsafe impl Send for Data {}
// SAFETY: the header says that callbacks run on several threads at a time.
unsafe impl Sync for Data {}

impl Data {
    pub(crate) fn get(&self) -> *mut c_void {
        self.data
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: as the header says: once, when no call runs or will come.
            unsafe { destroy(self.data) };
        }
    }
}

/// # Safety
/// `function` and `destroy` are NULL, or functions of their types that take `data` on any thread, `function` on several at a time.
/// `registration` and `error` are NULL, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_add_reclaimer(
    group: GroupHandle,
    order: c_int,
    function: Option<Reclaim>,
    data: *mut c_void,
    destroy: Option<Destroy>,
    registration: *mut RegistrationHandle,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        let function = function.ok_or(Failure::Null("function"))?;
        let (group, _) = group_of(group)?;
        if registration.is_null() {
            return Err(Failure::Null("registration"));
        }
        let data = Data { data, destroy };
        let call = move |request: &ReclaimRequest| {
            // SAFETY: as the caller's.
            unsafe { function(data.get(), request.target) }
        };
        let made = RegistrationHandle::new(group.add_reclaimer(order, call));
        // SAFETY: as the caller's.
        unsafe { put(registration, made, "registration") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

fn number_of(level: Level) -> c_int {
    match level {
        Level::None => 0,
        Level::Low => 1,
        Level::High => 2,
        Level::Critical => 3,
    }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_on_pressure(
    group: GroupHandle,
    function: Option<Tell>,
    data: *mut c_void,
    destroy: Option<Destroy>,
    registration: *mut RegistrationHandle,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        let function = function.ok_or(Failure::Null("function"))?;
        let (group, _) = group_of(group)?;
        if registration.is_null() {
            return Err(Failure::Null("registration"));
        }
        let data = Data { data, destroy };
        let call = move |pressure: Pressure| {
            // SAFETY: as the caller's.
            unsafe { function(data.get(), number_of(pressure.level)) };
        };
        let made = RegistrationHandle::new(group.on_pressure(call));
        // SAFETY: as the caller's.
        unsafe { put(registration, made, "registration") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_unregister(registration: RegistrationHandle) -> c_int {
    let run = || match registration.release() {
        true => Ok(0),
        false => Err(Failure::Handle),
    };
    // SAFETY: no error is wanted.
    unsafe { guard(std::ptr::null_mut(), run) as c_int }
}

version!(1: bursar_add_reclaimer, bursar_on_pressure, bursar_unregister);
