//! Fence of the rseq backend: membarrier's rseq form, shared by callers that want one at the same time.
//!
//! The kernel serialises these calls, and each interrupts every CPU that runs this process. A call takes about 0.15 us
//! for a CPU that does not run it and 15 us for one that does (measured on a 2-core virtual machine). So callers number
//! the fences. A caller is served by any fence that *started* after it asked. At most two fences are between its call
//! and its return.

use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Debug)]
struct Fences {
    started: u64,
    completed: u64,
    running: bool,
}

static FENCES: Mutex<Fences> = Mutex::new(Fences {
    started: 0,
    completed: 0,
    running: false,
});
static COMPLETED: Condvar = Condvar::new();

/// Passes a fence that starts after this call.
pub(super) fn combined() {
    // The lock below belongs to the process, so a fork must not leave it taken in the child.
    let _operation = super::fork::operation();
    let mut fences = FENCES.lock().unwrap_or_else(PoisonError::into_inner);
    let mine = fences.started + 1;
    while fences.completed < mine {
        if fences.running {
            fences = COMPLETED
                .wait(fences)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        fences.running = true;
        fences.started += 1;
        let number = fences.started;
        drop(fences);
        pass();
        fences = FENCES.lock().unwrap_or_else(PoisonError::into_inner);
        fences.completed = number;
        fences.running = false;
        COMPLETED.notify_all();
    }
}

/// Makes the call. It may need memory, and is repeated because no caller can go on without a fence.
fn pass() {
    const TRIES: usize = 10_000;
    for _ in 0..TRIES {
        if super::rseq::membarrier() {
            return;
        }
        std::thread::yield_now();
    }
    eprintln!(
        "bursar: membarrier, which worked at start, fails: {}",
        std::io::Error::last_os_error()
    );
    std::process::abort();
}

#[cfg(test)]
mod tests {
    #[test]
    fn callers_share_fences_and_all_return() {
        if crate::host::report().backend != crate::host::Backend::Rseq {
            return;
        }
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| super::combined()));
            }
        });
        let fences = super::FENCES.lock().unwrap();
        assert!(
            fences.completed >= 100,
            "each caller saw 100 fences of its own"
        );
        assert!(!fences.running);
    }

    /// Another test's fences may hide one that is missing, but none of theirs makes this fail.
    #[test]
    fn a_fence_of_the_host_is_one_of_the_systems() {
        use crate::Machine;
        let host = crate::Host::start().unwrap();
        let completed = || super::FENCES.lock().unwrap().completed;
        let before = completed();
        host.fence();
        let has_sections = host.report().backend == crate::host::Backend::Rseq;
        assert!(completed() > before || !has_sections);
    }
}
