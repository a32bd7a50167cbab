//! Operations that a fork waits for.
//!
//! A fork copies the memory as it is at one moment and takes along the calling thread alone. In the child, work of the
//! other threads that was under way stays half done: locks stay taken, protocols stay cut in two. So operations count
//! themselves in, and a fork waits until no other thread is inside one:
//!
//! | operation begins | fork begins |
//! |---|---|
//! | counts itself in | names the forking thread (`FORKING`) |
//! | checks whether another thread forks; if so counts itself out and waits | waits until all counts are zero |
//!
//! All four steps are `SeqCst`, so at least one of the two sees the other. One thread forks at a time. Other threads
//! wait in front of their own fork, counted out. Threads share counters by a hash of their address, so that a counter
//! is mostly in the cache of the CPU that uses it.
//!
//! Handlers before a fork run in the reverse order of their registration. So a foreign one that is older than ours takes
//! its lock while we hold all operations up. A thread that has that lock and begins an operation then waits for the fork,
//! and the fork for the thread. We cannot come last: the program starts Bursar first, or calls it without that lock.
//!
//! The forking thread never waits for its own fork. Neither does a foreign handler that runs inside `fork` and begins
//! an operation, nor a signal handler that forks while this thread does. Calls that signal handlers may make are no
//! operations, and never look here.
//!
//! A signal handler that interrupted an operation and forks while another thread forks would wait without end, because
//! each waits for the other. Since POSIX 2024 `fork` is not for signal handlers anyway. `_Fork`, which is, calls no
//! handlers, and its child must not use the state that it inherited.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{backend, rseq, time};
use crate::busy_wait;

/// Number of counters, so that threads that work at the same time seldom share one.
const COUNTERS: usize = 64;

/// Number of operations under way. Two lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Counter(AtomicU64);

static COUNTS: [Counter; COUNTERS] = [const { Counter(AtomicU64::new(0)) }; COUNTERS];
/// Thread that forks or is about to, as [`task`] names it; 0 for none.
static FORKING: AtomicU64 = AtomicU64::new(0);
/// Number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

// Constant and without destructors, so usable at any moment of a thread's life.
thread_local! {
    /// Byte whose address tells threads apart.
    static HERE: u8 = const { 0 };
    /// Number of nested operations of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Number of nested forks of this thread.
    static FORK_DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Guard of an operation that a fork must not cut in two.
#[derive(Debug)]
pub struct HostOperation {
    /// Ties the value to its thread, which is counted.
    _thread: PhantomData<*const ()>,
}

impl Drop for HostOperation {
    #[inline]
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            // Release: pairs with the load in `prepare`, so that our work is complete before the fork copies it.
            COUNTS[place()].0.fetch_sub(1, Ordering::Release);
        }
    }
}

pub(super) fn operation() -> HostOperation {
    let depth = DEPTH.get();
    if depth == 0 {
        count_in();
    }
    DEPTH.set(depth + 1);
    HostOperation {
        _thread: PhantomData,
    }
}

fn count_in() {
    let count = &COUNTS[place()].0;
    loop {
        // SeqCst, both: pair with `FORKING` and the counts in `prepare`. If our count comes first, the fork waits for
        // us. If the fork comes first, we see it.
        count.fetch_add(1, Ordering::SeqCst);
        let forking = FORKING.load(Ordering::SeqCst);
        if forking == 0 || forking == task() {
            return;
        }
        // Release: as in `HostOperation::drop`, though there is nothing to see.
        count.fetch_sub(1, Ordering::Release);
        // Relaxed: the next round looks again.
        busy_wait(|| FORKING.load(Ordering::Relaxed) == 0, time::relax);
    }
}

/// Whether the calling thread is inside an operation, and so in this library's code and no caller's: callbacks run outside of
/// operations. Async-signal-safe.
#[inline]
pub fn is_in_operation() -> bool {
    DEPTH.get() > 0
}

pub(super) fn forks() -> u64 {
    // Relaxed: it changes in a process that has one thread, and starting the other threads made it visible.
    FORKS.load(Ordering::Relaxed)
}

pub(super) fn task() -> u64 {
    HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
}

/// Index of the calling thread's counter. Fibonacci hashing spreads the upper bits of the address.
fn place() -> usize {
    let hash = task().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash as usize % COUNTERS
}

/// The calling thread's own part of `counter`.
fn own(counter: usize) -> u64 {
    u64::from(counter == place() && DEPTH.get() > 0)
}

/// Makes forks wait for operations from now on.
pub(super) fn register() -> io::Result<()> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // Relaxed: a flag for one caller. A `Once` would stay taken in the child of a fork at this moment. A second caller
    // that comes while the first registers may begin an operation that a fork at this moment cuts; no memory exists
    // yet.
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the functions live as long as the process and may be called on any thread.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        error => {
            REGISTERED.store(false, Ordering::Relaxed);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Handler on the forking thread, before it forks.
extern "C" fn prepare() {
    // First: a signal handler that forks from here on leaves `FORKING` to us.
    FORK_DEPTH.set(FORK_DEPTH.get() + 1);
    let me = task();
    busy_wait(
        // SeqCst: pairs with `count_in`.
        || match FORKING.compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => true,
            Err(other) => other == me,
        },
        time::relax,
    );
    for (at, count) in COUNTS.iter().enumerate() {
        // SeqCst: pairs with `count_in`, and as an acquire with the end of an operation.
        busy_wait(|| count.0.load(Ordering::SeqCst) == own(at), time::relax);
    }
}

/// Handler on the forking thread, in the parent.
extern "C" fn parent() {
    end();
}

/// Handler on the only thread of the child.
extern "C" fn child() {
    // Relaxed, all: alone in this process. A thread that we copied while it counted itself in and saw the fork is gone.
    for (at, count) in COUNTS.iter().enumerate() {
        count.0.store(own(at), Ordering::Relaxed);
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
    if backend::has_sections() {
        // The child inherits it on the known systems. Registering twice does no harm; without it no fence would pass.
        rseq::register_membarrier();
    }
    end();
}

fn end() {
    let depth = FORK_DEPTH.get() - 1;
    FORK_DEPTH.set(depth);
    if depth == 0 {
        // Release: pairs with `prepare` of the next fork.
        FORKING.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn threads_do_not_all_share_one_counter() {
        const THREADS: usize = 8;
        // Threads that have ended leave their address to others.
        let is_over = AtomicBool::new(false);
        let here = || {
            let here = place();
            while !is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            here
        };
        let places: BTreeSet<usize> = std::thread::scope(|scope| {
            let threads = std::array::from_fn::<_, THREADS, _>(|number| {
                // Different sizes, so that the addresses do not follow one another at equal distances.
                let size = (128 + 52 * number) << 10;
                let builder = std::thread::Builder::new().stack_size(size);
                builder.spawn_scoped(scope, here)
            });
            is_over.store(true, Ordering::Relaxed);
            threads.map(|thread| thread.unwrap().join().unwrap()).into()
        });
        assert!(places.iter().all(|&place| place < COUNTERS));
        assert!(places.len() > 1, "{places:?}");
    }
}
