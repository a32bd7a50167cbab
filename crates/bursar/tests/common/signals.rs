//! Signals to threads, which std does not offer.

use std::sync::OnceLock;

/// A thread that signals can be sent to.
pub struct Target(libc::pthread_t);

// SAFETY: `pthread_kill` may be called for any thread that has not ended.
unsafe impl Send for Target {}

/// By signal; none of ours is higher.
static HANDLERS: [OnceLock<fn()>; 32] = [const { OnceLock::new() }; 32];

extern "C" fn handle(signal: libc::c_int) {
    if let Some(handler) = HANDLERS[signal as usize].get() {
        handler();
    }
}

/// Calls `handler` on each `signal`.
pub fn on(signal: libc::c_int, handler: fn()) {
    let is_first = HANDLERS[signal as usize].set(handler).is_ok();
    assert!(is_first, "one handler a signal");
    let address = handle as extern "C" fn(libc::c_int);
    // SAFETY: `handle` only calls a function that the test promises to be async-signal-safe.
    let before = unsafe { libc::signal(signal, address as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
}

/// The calling thread.
pub fn this_thread() -> Target {
    // SAFETY: no arguments.
    Target(unsafe { libc::pthread_self() })
}

/// Sends `signal` to a thread that the caller knows to live.
pub fn send(target: &Target, signal: libc::c_int) {
    // SAFETY: the thread lives, as the caller promises.
    let failed = unsafe { libc::pthread_kill(target.0, signal) };
    assert_eq!(failed, 0);
}

/// Signals to this process at short intervals, until dropped.
#[cfg(target_os = "linux")]
pub struct Signals(libc::timer_t);

#[cfg(target_os = "linux")]
impl Signals {
    pub fn every_ns(interval_ns: libc::c_long, signal: libc::c_int) -> Self {
        // SAFETY: plain data, for which all zeroes is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        let mut timer = std::ptr::null_mut();
        // SAFETY: both places are ours.
        let failed = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) };
        assert_eq!(failed, 0);
        let interval = libc::timespec {
            tv_sec: 0,
            tv_nsec: interval_ns,
        };
        let times = libc::itimerspec {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: the timer was just made; the old times are not asked for.
        let failed = unsafe { libc::timer_settime(timer, 0, &times, std::ptr::null_mut()) };
        assert_eq!(failed, 0);
        Self(timer)
    }
}

#[cfg(target_os = "linux")]
impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}
