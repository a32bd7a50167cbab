//! The tree of groups while queries run.
//!
//! On a terminal it is drawn in place on standard error, some times a second. Where the document goes elsewhere it becomes part
//! of that, at intervals that double, so that a long run has no more than some pictures.

use std::fmt::Write;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar::{Bytes, Freshness, Group};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::queries::Engine;
use crate::output::{self, Stopped};

/// Between two pictures on a terminal.
const REDRAW: Duration = Duration::from_millis(200);
/// Before the first picture in the document.
const FIRST: Duration = Duration::from_millis(400);
/// Operators shown of each query: its largest.
const OPERATORS: usize = 2;

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
                        self.bar.set_message(self.picture()?);
                    }
                    if output::takes_pictures() && elapsed >= next {
                        next = elapsed * 2;
                        let seconds = elapsed.as_secs_f64();
                        let picture = self.picture()?;
                        output::write(&format!("after {seconds:.1} s:\n{picture}\n"))?;
                    }
                }
            }
        }
    }

    fn picture(&self) -> Result<String, Stopped> {
        let root = self.engine.root();
        // One flush for all; what follows reads what it folded.
        root.engine().flush()?;
        let mut text = String::new();
        line(&mut text, 1, "all tenants", &root)?;
        for tenant in self.engine.tenants() {
            line(&mut text, 2, &tenant.name(), tenant)?;
            for query in tenant.children() {
                line(&mut text, 3, &query.name(), &query)?;
                for (name, _) in query.engine().largest_children(OPERATORS) {
                    // It may have ended meanwhile.
                    if let Some(operator) = query.find(&name) {
                        line(&mut text, 4, &name, &operator)?;
                    }
                }
            }
        }
        Ok(text)
    }
}

/// Name, bytes in use, limit and peak of a group, on a line.
fn line(text: &mut String, depth: usize, name: &str, group: &Group) -> Result<(), Stopped> {
    const WIDTH: usize = 34;
    let indent = depth * 2;
    let used = u64::try_from(group.read(Freshness::Cached)?.usage().value).unwrap_or(0);
    let limit = match group.limits().max {
        u64::MAX => String::new(),
        max => format!("of {:>8}  {}", Bytes(max).to_string(), gauge(used, max)),
    };
    writeln!(
        text,
        "{:indent$}{name:<width$} {:>9} {limit:<34} peak {:>9}",
        "",
        Bytes(used).to_string(),
        Bytes(group.engine().peak()).to_string(),
        width = WIDTH - indent,
    )?;
    Ok(())
}

/// How full a group is.
fn gauge(used: u64, max: u64) -> String {
    const WIDTH: usize = 20;
    let filled = (used as f64 / max.max(1) as f64 * WIDTH as f64).round() as usize;
    let filled = filled.min(WIDTH);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

/// A place on standard error that is drawn anew with each message, if that is a terminal.
pub fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    bar.set_style(
        ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}
