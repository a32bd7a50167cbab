//! Sections on systems without restartable sequences here: each returns `ABSENT`, and the caller takes the atomic path.

use core::num::NonZeroU64;

use crate::Shard;

pub(super) const DONE: u64 = 0;
pub(super) const UNPUBLISHED: u64 = 1;
pub(super) const SHORT: u64 = 2;
pub(super) const ABSENT: u64 = 3;
pub(super) const MOVED: u64 = 4;

pub(super) fn enable(_offset: isize, _limit: u32) {}

pub(super) fn registration() -> Result<isize, &'static str> {
    Err("sections exist on Linux for x86-64 and little-endian 64-bit Arm only")
}

pub(super) fn current_cpu() -> Option<Shard> {
    None
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn add(_base: *mut u8, _byte: usize, _delta: i64) -> (u64, Shard) {
    (ABSENT, Shard(u32::MAX))
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn add_fetch(_base: *mut u8, _byte: usize, _delta: i64) -> (u64, Shard, i64) {
    (ABSENT, Shard(u32::MAX), 0)
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn charge(_base: *mut u8, _bytes: u64) -> (u64, Shard) {
    (ABSENT, Shard(u32::MAX))
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn uncharge(_base: *mut u8, _bytes: u64) -> (u64, Shard) {
    (ABSENT, Shard(u32::MAX))
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn adjust(_base: *mut u8, _shard: Shard, _charged: i64, _ceiling: i64) -> u64 {
    ABSENT
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn try_push(_list: *mut u8, _entry: NonZeroU64) -> bool {
    false
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn try_pop(_list: *mut u8) -> Option<NonZeroU64> {
    None
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn push_many(_list: *mut u8, _from: *const u64, _count: usize) -> bool {
    false
}

/// # Safety
/// None: nothing is done.
pub(super) unsafe fn pop_many(_list: *mut u8, _to: *mut u64, _count: usize) -> bool {
    false
}

pub(super) fn register_membarrier() -> bool {
    false
}

pub(super) fn membarrier() -> bool {
    false
}

/// # Safety
/// None: nothing is done.
#[inline]
pub(super) unsafe fn try_add(_base: *mut u8, _byte: usize, _delta: i64) -> bool {
    false
}

/// # Safety
/// None: nothing is done.
#[inline]
pub(super) unsafe fn try_charge(_base: *mut u8, _bytes: u64) -> bool {
    false
}

/// # Safety
/// None: nothing is done.
#[inline]
pub(super) unsafe fn try_uncharge(_base: *mut u8, _bytes: u64) -> bool {
    false
}
