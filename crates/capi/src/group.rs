//! Memories, groups and limits.

use std::ffi::{c_char, c_int};
use std::ptr;

use bursar::{Group, HighPolicy, Limits, Memory, Statistic};
use bursar_machine::Lock;
use bursar_machine::host::HostMutex;

use crate::arguments::{put, sized, text};
use crate::error::{Error, Failure, guard};
use crate::handles::{GroupHandle, Schema};

/// Memories with a thread that ticks, which would end with them. As the header says, it runs until the process ends.
static TICKING: HostMutex<Vec<Memory>> = HostMutex::of(Vec::new());

/// `bursar_statistic` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StatisticOption {
    name: *const c_char,
    is_counter: c_int,
}

/// `bursar_options` of the header.
#[repr(C)]
pub struct Options {
    size: usize,
    max: u64,
    stock_max: u64,
    throttles: c_int,
    ticks: c_int,
    statistics: *const StatisticOption,
    statistics_count: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            max: u64::MAX,
            stock_max: 0,
            throttles: 0,
            ticks: 0,
            statistics: ptr::null(),
            statistics_count: 0,
        }
    }
}

/// `bursar_limits` of the header.
#[repr(C)]
pub struct CLimits {
    size: usize,
    min: u64,
    low: u64,
    high: u64,
    max: u64,
}

impl Default for CLimits {
    fn default() -> Self {
        let Limits {
            min,
            low,
            high,
            max,
        } = Limits::none();
        Self {
            size: size_of::<Self>(),
            min,
            low,
            high,
            max,
        }
    }
}

pub(crate) fn group_of(handle: GroupHandle) -> Result<(Group, &'static Schema), Failure> {
    handle.group().ok_or(Failure::Handle)
}

fn handle_of(group: Group, schema: &'static Schema) -> Result<GroupHandle, Failure> {
    GroupHandle::new(group, schema).ok_or(Failure::TooManyHandles)
}

/// Declares statistics for the life of the process.
///
/// # Safety
/// `options.statistics` points to as many statistics as `options` says.
unsafe fn statistics(options: &Options) -> Result<&'static [Statistic], Failure> {
    let count = options.statistics_count;
    if count > 0 && options.statistics.is_null() {
        return Err(Failure::Null("statistics"));
    }
    if count > 252 {
        return Err(Failure::Argument("more than 252 statistics"));
    }
    let mut names: Vec<(&str, bool)> = Vec::new();
    for index in 0..count {
        // SAFETY: as the caller's.
        let statistic = unsafe { options.statistics.add(index).read() };
        // SAFETY: as the caller's.
        let name = unsafe { text(statistic.name, "the name of a statistic") }?;
        if names.iter().any(|(known, _)| *known == name) || name.is_empty() {
            return Err(Failure::Argument(
                "a statistic has no name, or the name of another",
            ));
        }
        names.push((name, statistic.is_counter != 0));
    }
    let declared: Vec<Statistic> = names
        .into_iter()
        .map(|(name, is_counter)| {
            let name = Box::leak(Box::from(name));
            match is_counter {
                true => Statistic::counter(name),
                false => Statistic::gauge(name),
            }
        })
        .collect();
    Ok(declared.leak())
}

/// # Safety
/// As the header says, here and below: pointers are NULL, or point to what their type says, and nobody else changes it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_create(
    options: *const Options,
    root: *mut GroupHandle,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(root, GroupHandle::NONE, "root") }?;
        // SAFETY: as the caller's; `Options` has numbers and pointers only.
        let options = match options.is_null() {
            true => Options::default(),
            // SAFETY: as above.
            false => unsafe { sized(options, "options") }?,
        };
        // SAFETY: as the caller's.
        let statistics = unsafe { statistics(&options) }?;
        let mut builder = Memory::builder()
            .statistics(statistics)
            .max(options.max)
            .ticker(options.ticks != 0)
            .high_policy(match options.throttles {
                0 => HighPolicy::Owe,
                _ => HighPolicy::Throttle,
            });
        if options.stock_max > 0 {
            builder = builder.stock_max(options.stock_max);
        }
        let memory = builder.build()?;
        let handle = handle_of(memory.root(), Schema::of(statistics))?;
        // SAFETY: as the caller's.
        unsafe { put(root, handle, "root") }?;
        if options.ticks != 0 {
            TICKING.lock().push(memory);
        }
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_child(
    parent: GroupHandle,
    name: *const c_char,
    max: u64,
    child: *mut GroupHandle,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(child, GroupHandle::NONE, "child") }?;
        // SAFETY: as the caller's.
        let name = unsafe { text(name, "name") }?;
        let (parent, schema) = group_of(parent)?;
        let handle = handle_of(parent.child(name, Limits::max(max))?, schema)?;
        // SAFETY: as the caller's.
        unsafe { put(child, handle, "child") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_find(
    from: GroupHandle,
    path: *const c_char,
    found: *mut GroupHandle,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's.
        unsafe { put(found, GroupHandle::NONE, "found") }?;
        // SAFETY: as the caller's.
        let path = unsafe { text(path, "path") }?;
        let (mut group, schema) = group_of(from)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let next = group.find(name);
            group = next.ok_or_else(|| Failure::NoGroup(format!("{path} below {group}")))?;
        }
        let handle = handle_of(group, schema)?;
        // SAFETY: as the caller's.
        unsafe { put(found, handle, "found") }?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_release(group: GroupHandle) -> c_int {
    let run = || match group.release() {
        true => Ok(0),
        false => Err(Failure::Handle),
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_tick(group: GroupHandle) -> c_int {
    let run = || {
        group_of(group)?.0.memory().tick();
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_close(group: GroupHandle, error: *mut *mut Error) -> c_int {
    let run = || {
        group_of(group)?.0.close()?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_get_limits(group: GroupHandle, limits: *mut CLimits) -> c_int {
    let run = || {
        // SAFETY: as the caller's; `CLimits` has numbers only.
        let size = unsafe { sized(limits, "limits") }?.size;
        let Limits {
            min,
            low,
            high,
            max,
        } = group_of(group)?.0.limits();
        let value = CLimits {
            size,
            min,
            low,
            high,
            max,
        };
        let length = size.min(size_of::<CLimits>());
        // SAFETY: as the caller's: that many bytes can be written to.
        unsafe {
            (&raw const value)
                .cast::<u8>()
                .copy_to_nonoverlapping(limits.cast(), length)
        };
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_set_limits(
    group: GroupHandle,
    limits: *const CLimits,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's; `CLimits` has numbers only.
        let limits: CLimits = unsafe { sized(limits, "limits") }?;
        let group = group_of(group)?.0;
        // Limits that a later version adds, and this structure lacks, stay.
        let mut wanted = group.limits();
        (wanted.min, wanted.low) = (limits.min, limits.low);
        (wanted.high, wanted.max) = (limits.high, limits.max);
        group.set_limits(wanted);
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

/// # Safety
/// `buffer` is NULL, or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_path(
    group: GroupHandle,
    buffer: *mut c_char,
    length: usize,
) -> i64 {
    let run = || {
        let path = group_of(group)?.0.path();
        if !buffer.is_null() && length > 0 {
            let shown = path.len().min(length - 1);
            // SAFETY: as the caller's, and one byte less than there is room for.
            unsafe { path.as_ptr().copy_to_nonoverlapping(buffer.cast(), shown) };
            // SAFETY: the byte after these.
            unsafe { buffer.add(shown).write(0) };
        }
        Ok(path.len() as i64)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) }
}

version!(1: bursar_create, bursar_child, bursar_find, bursar_release, bursar_tick, bursar_close, bursar_get_limits, bursar_set_limits, bursar_path);
