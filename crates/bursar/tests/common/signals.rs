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
