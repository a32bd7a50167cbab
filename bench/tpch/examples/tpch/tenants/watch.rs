//! The tree of groups while queries run.
//!
//! On a terminal it is drawn in place on standard error, some times a second. Where the document goes elsewhere it becomes part
//! of that, at intervals that double, so that a long run has no more than some pictures.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::queries::Engine;
use crate::output::{self, Stopped};

/// Between two pictures on a terminal.
const REDRAW: Duration = Duration::from_millis(200);
/// Before the first picture in the document.
const FIRST: Duration = Duration::from_millis(400);

/// Draws the tree.
pub struct Watch {
    engine: Arc<Engine>,
    bar: ProgressBar,
    start: Instant,
}

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "a time to be shown")]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            bar: bar(),
            start: Instant::now(),
        }
    }

    /// Since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Draws until `work` is done.
    pub async fn until<T>(
        &self,
        work: impl Future<Output = Result<T, Stopped>>,
    ) -> Result<T, Stopped> {
        tokio::pin!(work);
        let mut ticks = tokio::time::interval(REDRAW);
        let mut next = FIRST;
        loop {
            tokio::select! {
                done = &mut work => {
                    self.bar.finish_and_clear();
                    return done;
                }
                _ = ticks.tick() => {
                    let elapsed = self.elapsed();
                    if !self.bar.is_hidden() {
                        self.bar.set_message(self.engine.tree());
                    }
                    if output::takes_pictures() && elapsed >= next {
                        next = elapsed * 2;
                        let seconds = elapsed.as_secs_f64();
                        let tree = self.engine.tree();
                        let table = self.engine.table().await?;
                        output::write(&format!("after {seconds:.1} s:\n{tree}\n{table}\n"))?;
                    }
                }
            }
        }
    }
}

/// A place on standard error that is drawn anew with each message, if that is a terminal.
pub fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    bar.set_style(
        ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}
