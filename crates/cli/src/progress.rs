//! Progress, on standard error.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Global;

/// How far a run is.
pub struct Progress {
    bar: ProgressBar,
    begun: Cell<u64>,
    verbose: bool,
}

impl Progress {
    /// A bar of `steps` steps if standard error is a terminal, else nothing to see.
    pub fn new(steps: u64, global: &Global) -> Self {
        let shown = !global.quiet && std::io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} [{bar:24}] {pos}/{len} {elapsed} {msg}")
        {
            bar.set_style(style);
        }
        if shown {
            // Rarely, because on a small machine whoever draws takes time from those who are measured.
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Self {
            bar,
            begun: Cell::new(0),
            verbose: global.verbose,
        }
    }

    /// The next step begins, and with it the one before has ended.
    pub fn begin(&self, what: &str) {
        self.bar
            .set_position(self.begun.replace(self.begun.get() + 1));
        self.bar.set_message(what.to_owned());
        if self.verbose {
            self.bar.suspend(|| {
                let _ = writeln!(std::io::stderr(), "{what}");
            });
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
