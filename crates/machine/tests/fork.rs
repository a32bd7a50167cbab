//! Forks: none cuts an operation in two, and no task waits without end.
#![cfg(unix)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar_machine::{Host, Machine};

const FORKS: usize = 300;

/// Turns a hang into a failure; nothing else depends on it. Ten times the slowest of these tests (110 s, in an emulated machine beside builds).
const LIMIT_SECONDS: u32 = 1200;

/// The host; with handlers of somebody else's, registered before ours, so that they run while the gate is closed.
fn host() -> Host {
    extern "C" fn operate() {
        let host = Host::start().unwrap();
        let _operation = host.operation();
        host.fence();
    }
    static HOST: OnceLock<Host> = OnceLock::new();
    *HOST.get_or_init(|| {
        // SAFETY: an alarm without a handler ends the process; the handlers live as long as it does.
        let failed = unsafe {
            libc::alarm(LIMIT_SECONDS);
            libc::pthread_atfork(Some(operate), Some(operate), Some(operate))
        };
        assert_eq!(failed, 0);
        Host::start().expect("the host starts")
    })
}

/// Forks, runs `work` in the child and waits for its end.
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child runs on with this thread alone; what it uses of the C library is kept usable by it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: as in `host`.
        unsafe { libc::alarm(LIMIT_SECONDS) };
        let code = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and `status` is a place to write to.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
}

#[test]
fn no_operation_is_cut_in_two() {
    let host = host();
    let pairs: Vec<[AtomicU64; 2]> = (0..4).map(|_| Default::default()).collect();
    let stop = AtomicBool::new(false);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for pair in &pairs {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let operation = host.operation();
                    pair[0].fetch_add(1, Ordering::SeqCst);
                    {
                        let _inner = host.operation();
                        std::hint::spin_loop();
                    }
                    pair[1].fetch_add(1, Ordering::SeqCst);
                    drop(operation);
                    // Its lock is the process's.
                    host.fence();
                }
            });
        }
        let _stop = Stop(&stop);
        // Two fork at the same time.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..FORKS {
                        let forks = host.forks();
                        in_child(|| {
                            for pair in &pairs {
                                let [first, last] =
                                    pair.each_ref().map(|word| word.load(Ordering::SeqCst));
                                assert_eq!(first, last, "an operation was cut in two");
                            }
                            assert_eq!(host.forks(), forks + 1);
                            drop(host.operation());
                            host.fence();
                            std::thread::scope(|scope| {
                                scope.spawn(|| drop(host.operation()));
                            });
                            in_child(|| assert_eq!(host.forks(), forks + 2));
                        });
                        assert_eq!(host.forks(), forks, "the parent is as it was");
                    }
                });
            }
        });
    });
}

/// A signal handler that forks inside an operation is not promised to work while others fork, but its own operation goes
/// on in both processes.
#[test]
fn an_operation_of_the_forking_thread_goes_on() {
    let host = host();
    let forks = host.forks();
    // While another test forks, this one would wait for that one and that one for this.
    in_child(|| {
        let outer = host.operation();
        in_child(|| {
            drop(host.operation());
            in_child(|| assert_eq!(host.forks(), forks + 3));
        });
        drop(outer);
        in_child(|| drop(host.operation()));
    });
}
