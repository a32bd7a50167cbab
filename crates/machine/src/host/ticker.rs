//! Thread that ticks on request.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::caught;

/// Minimum rest of a ticker after a call that panicked.
const AFTER_PANIC: Duration = Duration::from_millis(1);

/// Thread that calls a function periodically until this value is dropped. A forked child has no such thread.
#[derive(Debug)]
#[must_use = "dropping a ticker stops it"]
pub struct Ticker {
    /// [`crate::Machine::forks`] of the process that has the thread.
    forks: u64,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts a thread named `name` that calls `tick` every `period`. A panic of a call is reported as usual, and later
    /// calls come all the same.
    ///
    /// # Errors
    /// The system's error, if it cannot start a thread.
    pub fn start(
        name: &str,
        period: Duration,
        mut tick: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start_varying(name, period, move || {
            tick();
            period
        })
    }

    /// Starts a thread named `name` that calls `tick` after `first`, and then after the time that each call returns. If
    /// a call panics, which is reported as usual, the next comes after the same time again, at least a millisecond.
    ///
    /// # Errors
    /// The system's error, if it cannot start a thread.
    pub fn start_varying(
        name: &str,
        first: Duration,
        mut tick: impl FnMut() -> Duration + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let mut wait = first;
                while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    // A tick leaves its data consistent when it unwinds, and without the thread no upkeep would follow.
                    wait = caught(&mut tick).unwrap_or(wait.max(AFTER_PANIC));
                }
            })?;
        Ok(Self {
            forks: super::fork::forks(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if self.forks != super::fork::forks() {
            // A forked child has no such thread, and the thread may have held the channel's locks.
            std::mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        self.stop = None;
        // A tick may drop its own ticker; then it is the last one, and does not wait for itself.
        let is_other =
            |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // A panic of `tick` has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_tick_that_panics_is_not_the_last() {
        let ticks = Arc::new(AtomicU64::new(0));
        let counted = ticks.clone();
        let ticker = Ticker::start("test-tick", Duration::from_millis(1), move || {
            let before = counted.fetch_add(1, Ordering::Relaxed);
            assert_ne!(before, 0, "as planned");
        });
        // Never ends if that tick was the last.
        while ticks.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        drop(ticker);
    }

    #[test]
    fn a_payload_that_panics_in_its_drop_ends_no_ticker() {
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                panic!("as planned");
            }
        }
        let (say, said) = channel();
        let mut is_first = true;
        let ticker = Ticker::start("test-tick", Duration::from_millis(1), move || {
            if std::mem::take(&mut is_first) {
                std::panic::panic_any(Payload);
            }
            // The test may have ended.
            let _ = say.send(());
        });
        assert_eq!(said.recv(), Ok(()), "the thread lives");
        drop(ticker);
    }

    #[test]
    fn a_tick_may_drop_its_own_ticker() {
        let (give, take) = channel::<Ticker>();
        let (say, said) = channel();
        let ticker = Ticker::start("test-tick", Duration::from_millis(1), move || {
            drop(take.recv());
            say.send(()).expect("the test waits");
        });
        give.send(ticker.expect("a thread")).expect("it takes one");
        assert_eq!((said.recv(), said.recv().is_err()), (Ok(()), true));
    }

    #[test]
    fn a_tick_says_when_the_next_one_is() {
        let ticks = Arc::new(AtomicU64::new(0));
        let counted = ticks.clone();
        let ticker = Ticker::start_varying("test-tick", Duration::ZERO, move || {
            if counted.fetch_add(1, Ordering::Relaxed) < 2 {
                return Duration::ZERO;
            }
            // Longer than the channel's clock can wait; the drop ends the wait all the same.
            Duration::MAX
        });
        while ticks.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        drop(ticker);
        assert_eq!(ticks.load(Ordering::Relaxed), 3);
    }
}
