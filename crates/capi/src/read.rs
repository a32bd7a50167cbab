//! Reading.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use bursar::{Freshness, LimitReached, Reading, Value};

use crate::arguments::{put, sized};
use crate::error::{Error, Failure, guard};
use crate::group::group_of;
use crate::handles::{Column, GroupHandle, Schema};

/// `bursar_value` of the header.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CValue {
    value: i64,
    lo: i64,
    hi: i64,
}

impl From<Value> for CValue {
    fn from(Value { value, lo, hi, .. }: Value) -> Self {
        Self { value, lo, hi }
    }
}

/// `bursar_reading` of the header.
#[repr(C)]
#[derive(Default)]
pub struct CReading {
    size: usize,
    usage: CValue,
    peak: u64,
    age_ns: u64,
    over_returned: u64,
}

fn freshness(kind: u32, bound: u64) -> Result<Freshness, Failure> {
    Ok(match kind {
        0 => Freshness::Cached,
        1 => Freshness::AtMost(Duration::from_nanos(bound)),
        2 => Freshness::UsageWithin(bound),
        3 => Freshness::Exact,
        _ => return Err(Failure::Argument("freshness is none of the header's")),
    })
}

fn values_of(reading: &Reading, schema: &Schema) -> impl Iterator<Item = CValue> {
    schema.columns.iter().map(|column| match column {
        Column::Counter(counter) => reading.get(*counter).into(),
        Column::Gauge(gauge) => reading.get(*gauge).into(),
    })
}

/// # Safety
/// `reading` is NULL, or begins with its size, and so many bytes can be written to. `values` is NULL, or has room for `count` values.
/// Here and below, `error` is NULL, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_read(
    group: GroupHandle,
    kind: u32,
    bound: u64,
    reading: *mut CReading,
    values: *mut CValue,
    count: usize,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's; `CReading` has numbers only.
        let size = unsafe { sized(reading, "reading") }?.size;
        let (group, schema) = group_of(group)?;
        let (read, is_stale) = match group.read(freshness(kind, bound)?) {
            Ok(read) => (read, None),
            Err(stale) => (stale.cached.clone(), Some(stale.to_string())),
        };
        let shown = CReading {
            size,
            usage: read.usage().into(),
            peak: group.peak(),
            age_ns: u64::try_from(read.age().as_nanos()).unwrap_or(u64::MAX),
            over_returned: read.over_returned(),
        };
        let length = size.min(size_of::<CReading>());
        // SAFETY: as the caller's: that many bytes can be written to.
        unsafe {
            (&raw const shown)
                .cast::<u8>()
                .copy_to_nonoverlapping(reading.cast(), length)
        };
        if count > schema.columns.len() {
            return Err(Failure::Argument(
                "count is more than the statistics that were declared",
            ));
        }
        if count > 0 && values.is_null() {
            return Err(Failure::Null("values"));
        }
        for (index, value) in values_of(&read, schema).take(count).enumerate() {
            // SAFETY: as the caller's, and below `count`.
            unsafe { values.add(index).write(value) };
        }
        match is_stale {
            Some(reason) => Err(Failure::NotFresh(reason)),
            None => Ok(0),
        }
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// `json` is NULL, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_snapshot_json(
    group: GroupHandle,
    kind: u32,
    bound: u64,
    json: *mut *mut c_char,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(json, ptr::null_mut(), "json") }?;
        let snapshot = group_of(group)?.0.snapshot(freshness(kind, bound)?);
        let snapshot = snapshot.map_err(|stale| Failure::NotFresh(stale.to_string()))?;
        let text =
            serde_json::to_string(&snapshot).map_err(|error| Failure::Panic(error.to_string()))?;
        // SAFETY: as the caller's.
        unsafe { put(json, for_c(text)?, "json") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// `text` is NULL, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_refusals(
    group: GroupHandle,
    text: *mut *mut c_char,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(text, ptr::null_mut(), "text") }?;
        let memory = group_of(group)?.0.memory();
        let line = |(age, refusal): (Duration, LimitReached)| {
            format!("{:.1} s ago: {refusal}\n", age.as_secs_f64())
        };
        let lines = memory.refusals().into_iter().map(line).collect();
        // SAFETY: as the caller's.
        unsafe { put(text, for_c(lines)?, "text") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// A text that C frees. JSON and shown paths have an escape in the place of NUL.
fn for_c(text: String) -> Result<*mut c_char, Failure> {
    let text = CString::new(text).map_err(|error| Failure::Panic(error.to_string()))?;
    Ok(text.into_raw())
}

/// # Safety
/// `text` is NULL, or came from this library, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: as the caller's: it came from `CString::into_raw`.
        drop(unsafe { CString::from_raw(text) });
    }
}

version!(1: bursar_read, bursar_snapshot_json, bursar_refusals, bursar_text_free);
