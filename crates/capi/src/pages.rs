//! Pages as addresses.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use bursar::pages::{Order, Zeroed};
use bursar_alloc::{from_raw, into_raw};

use crate::arguments::put;
use crate::error::{Error, Failure, guard};
use crate::group::group_of;
use crate::handles::GroupHandle;

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_pages_alloc(
    group: GroupHandle,
    order: u32,
    is_zeroed: c_int,
    pages: *mut *mut c_void,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(pages, ptr::null_mut(), "pages") }?;
        let order = u8::try_from(order)
            .ok()
            .and_then(|order| Order::try_new(order).ok());
        let order = order.ok_or(Failure::Argument("an order is at most 10"))?;
        let zeroed = match is_zeroed {
            0 => Zeroed::No,
            _ => Zeroed::Yes,
        };
        let page = group_of(group)?.0.alloc_pages(order, zeroed)?;
        // SAFETY: as the caller's.
        unsafe { put(pages, into_raw(page).as_ptr().cast(), "pages") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// As the header says: if the address may be freed now, the caller owns the pages, and nothing uses them any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_pages_free(
    group: GroupHandle,
    pages: *mut c_void,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        let memory = group_of(group)?.0.memory();
        let address = NonNull::new(pages.cast()).ok_or(Failure::Null("pages"))?;
        // SAFETY: as the caller's.
        let page = unsafe { from_raw(&memory, address) }?;
        drop(page);
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

version!(1: bursar_pages_alloc, bursar_pages_free);
