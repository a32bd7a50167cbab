//! Interruptions: Ctrl-C (SIGINT), and SIGTERM, by which batch systems, containers and `timeout` end a program.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, INTERRUPTED};

/// Calls `stop` at the first interruption. Ends the process at the second, or as soon as `stop` reports that nothing is left
/// to be stopped (`false`).
///
/// A signal that was ignored when the process began, as SIGINT is in the background of a shell, is caught all the same. SIGHUP
/// keeps its meaning, so that `nohup` works.
pub fn catch(stop: impl Fn() -> bool + Send + 'static) -> Result<(), Failure> {
    let refused =
        |error: io::Error| Failure::unavailable(format!("cannot catch interruptions: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(refused)?;
    let wait = move || {
        let mut arriving = signals.forever();
        if arriving.next().is_some() && stop() {
            arriving.next();
        }
        std::process::exit(i32::from(INTERRUPTED));
    };
    let waiter = thread::Builder::new().name("interruptions".to_owned());
    waiter.spawn(wait).map(drop).map_err(refused)
}
