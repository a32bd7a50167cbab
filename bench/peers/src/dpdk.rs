//! DPDK's mempool, if it was installed when this was built (`build.rs`) and is now. It runs without huge pages, devices
//! and root.
//!
//! A pool's objects are not aligned to pages, for each has a header before it. Threads register: without a number a thread
//! has no cache.

use std::cell::Cell;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Absent;
use crate::heap::{Heap, Library};
use crate::shared::Shared;

/// Memory that DPDK takes at its start, MiB: for the pools of both sizes. Only what is touched becomes resident.
const MEMORY_MIB: c_uint = 2048;

type Start = unsafe extern "C" fn(c_uint, c_uint) -> c_int;
type Pool = unsafe extern "C" fn(c_uint, c_uint) -> *mut c_void;
type Get = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Put = unsafe extern "C" fn(*mut c_void, *mut c_void);
type Enter = unsafe extern "C" fn() -> c_int;
type Leave = unsafe extern "C" fn();

/// The functions of `dpdk.c`.
#[derive(Clone, Copy)]
struct Shim {
    pool: Pool,
    get: Get,
    put: Put,
    enter: Enter,
    leave: Leave,
}

/// One pool; there is one for each size in a process.
pub struct Dpdk {
    shim: Shim,
    pool: NonNull<c_void>,
}

// SAFETY: a mempool is made for use by many threads.
unsafe impl Send for Dpdk {}
// SAFETY: as above.
unsafe impl Sync for Dpdk {}

thread_local! {
    /// Whether the thread is registered because of `enter`: the one that started DPDK was from the beginning.
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Blocks from a mempool with `count` of them, or as many as the first one of this size had. `cpu` is one that the process
/// may use.
///
/// # Errors
/// If it is not installed or does not start.
pub fn dpdk<const BYTES: usize>(count: usize, cpu: usize) -> Result<Heap<Dpdk, BYTES>, Absent> {
    static SHIM: OnceLock<Result<Shim, Absent>> = OnceLock::new();
    let shim = SHIM.get_or_init(|| start(cpu)).clone()?;
    let pool = pool(shim, count, BYTES)?;
    Ok(Heap(Dpdk { shim, pool }))
}

fn start(cpu: usize) -> Result<Shim, Absent> {
    let not_installed = || {
        Absent("not installed (Debian: apt-get install libdpdk-dev, and build again)".to_owned())
    };
    let path = CString::new(env!("DPDK_SHIM")).map_err(|_| not_installed())?;
    // SAFETY: DPDK's libraries register themselves when they are loaded, and do nothing else.
    let library = unsafe { Shared::open(&[&path]) }.ok_or_else(not_installed)?;
    let symbol = |name| library.symbol(name).ok_or_else(not_installed);
    let begin = symbol(c"bench_dpdk_start")?;
    // SAFETY: all are of these types, by `dpdk.c`, and stay loaded.
    let (begin, shim) = unsafe {
        (
            transmute::<NonNull<c_void>, Start>(begin),
            Shim {
                pool: transmute::<NonNull<c_void>, Pool>(symbol(c"bench_dpdk_pool")?),
                get: transmute::<NonNull<c_void>, Get>(symbol(c"bench_dpdk_get")?),
                put: transmute::<NonNull<c_void>, Put>(symbol(c"bench_dpdk_put")?),
                enter: transmute::<NonNull<c_void>, Enter>(symbol(c"bench_dpdk_enter")?),
                leave: transmute::<NonNull<c_void>, Leave>(symbol(c"bench_dpdk_leave")?),
            },
        )
    };
    let cpu = c_uint::try_from(cpu).unwrap_or(0);
    // SAFETY: `SHIM` sees to it that this happens once.
    let started = unsafe { begin(cpu, MEMORY_MIB) };
    if started < 0 {
        return Err(Absent("DPDK does not start here".to_owned()));
    }
    Ok(shim)
}

/// The process's pool of objects of this size.
fn pool(shim: Shim, count: usize, bytes: usize) -> Result<NonNull<c_void>, Absent> {
    // Addresses, not pointers: those could not be in a static.
    static POOLS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&(_, address)) = pools.iter().find(|&&(of, _)| of == bytes) {
        return NonNull::new(std::ptr::with_exposed_provenance_mut(address))
            .ok_or_else(|| Absent("no pool".to_owned()));
    }
    let narrow =
        |number: usize| c_uint::try_from(number).map_err(|_| Absent("too many".to_owned()));
    // SAFETY: DPDK has started.
    let pool = unsafe { (shim.pool)(narrow(count)?, narrow(bytes)?) };
    let pool = NonNull::new(pool)
        .ok_or_else(|| Absent(format!("DPDK has no memory for {count} x {bytes} bytes")))?;
    pools.push((bytes, pool.as_ptr().expose_provenance()));
    Ok(pool)
}

// SAFETY: a mempool hands out each of its objects to one caller at a time. `Heap`s of one size have one pool, made for
// objects of that size.
unsafe impl Library for Dpdk {
    #[inline(always)]
    fn alloc(&self, _bytes: usize) -> *mut u8 {
        // SAFETY: the pool is never freed.
        unsafe { (self.shim.get)(self.pool.as_ptr()).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, _bytes: usize) {
        // SAFETY: the caller says that it came from the pool of this size and was not freed.
        unsafe { (self.shim.put)(self.pool.as_ptr(), start.as_ptr().cast()) };
    }

    fn enter(&self) {
        // SAFETY: DPDK has started.
        let result = unsafe { (self.shim.enter)() };
        assert!(result >= 0, "DPDK has no number for this thread");
        REGISTERED.set(result == 1);
    }

    fn leave(&self) {
        if REGISTERED.take() {
            // SAFETY: the thread is registered, and does nothing more here.
            unsafe { (self.shim.leave)() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::tests::no_two_overlap;

    #[test]
    fn no_two_blocks_overlap_where_it_is_installed() {
        // The first CPU that the test may use is not known here; where it is not 0, DPDK says that it does not start.
        let Ok(pages) = dpdk::<4096>(4096, 0) else {
            return;
        };
        let large = dpdk::<65536>(1024, 0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| no_two_overlap(&pages, 4096, 500, 64));
            scope.spawn(|| no_two_overlap(&large, 65536, 50, 64));
        });
    }
}
