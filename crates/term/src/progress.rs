//! Progress, on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use terminal_size::{Width, terminal_size_of};

use crate::options::Global;

/// A narrower terminal has no room for a bar.
const BAR_COLUMNS: u16 = 72;

/// Progress of a run. Its line is cut to the width of the terminal.
pub struct Progress {
    bar: ProgressBar,
    steps: u64,
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
        let columns = terminal_size_of(std::io::stderr()).map_or(BAR_COLUMNS, |(Width(it), _)| it);
        let template = match columns >= BAR_COLUMNS {
            true => "{spinner} [{bar:16}] {pos}/{len} {elapsed}, {eta} to go: {wide_msg}",
            false => "{pos}/{len} {elapsed} {wide_msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if shown {
            // Rarely: on a small machine, drawing takes time from the tasks that are measured.
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Self {
            bar,
            steps,
            verbose: global.verbose,
        }
    }

    /// A step begins, of which more is said where there is room.
    pub fn begin(&self, what: &str, more: &str) {
        self.bar.set_message(what.to_owned());
        self.say(&format!("{what}{more}"));
    }

    /// A step has ended.
    pub fn end(&self, what: &str) {
        self.bar.inc(1);
        self.say(&format!(
            "finished {} of {}: {what}",
            self.bar.position(),
            self.steps
        ));
    }

    /// A step has ended without a result.
    pub fn fail(&self, what: &str) {
        self.bar.inc(1);
        self.say(&format!("failed: {what}"));
    }

    /// Some steps have ended, and more of `what` follow.
    pub fn advance(&self, steps: u64, what: &str) {
        self.bar.inc(steps);
        self.bar.set_message(what.to_owned());
    }

    /// Seconds since the first step could begin.
    pub fn seconds(&self) -> f64 {
        self.bar.elapsed().as_secs_f64()
    }

    /// Says how fast steps were done.
    pub fn say_rate(&self, what: &str) {
        let (steps, seconds) = (self.bar.position(), self.seconds());
        let rate = steps as f64 / seconds;
        self.say(&format!(
            "{steps} {what} in {seconds:.1} s, {rate:.0} a second"
        ));
    }

    fn say(&self, line: &str) {
        if self.verbose {
            self.bar.suspend(|| {
                let _ = writeln!(std::io::stderr(), "{line}");
            });
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
