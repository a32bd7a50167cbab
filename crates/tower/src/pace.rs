//! The rate at which a client sends a body.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::body_error::BodyError;
use crate::purse::Purse;

/// Time that a body waits for its client before the client is judged. Judgement: longer than TCP takes to send a lost segment again.
const PERIOD: Duration = Duration::from_secs(5);

/// Bytes since a client was last judged, and the time that the body waited for them.
#[derive(Default)]
pub(crate) struct Pace {
    bytes: u64,
    waited: Duration,
    /// Time since when the body waits for the client now.
    since: Option<Instant>,
    /// Made when the body first waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    pub(crate) fn received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Notes that the body waits for its client, and judges the client if its time has come.
    ///
    /// # Errors
    /// [`BodyError::TooSlow`].
    pub(crate) fn wait(
        &mut self,
        purse: &Purse,
        context: &mut Context<'_>,
    ) -> Result<(), BodyError> {
        let min_rate = purse.policy.min_rate;
        if min_rate == 0 {
            return Ok(());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(PERIOD)));
        self.since.get_or_insert_with(Instant::now);
        while timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let since = self.since.replace(now).unwrap_or(now);
            self.waited += now - since;
            let waited = self.waited;
            if waited >= PERIOD {
                let rate = (self.bytes as f64 / waited.as_secs_f64()) as u64;
                if rate < min_rate && purse.others_wait() {
                    return Err(BodyError::TooSlow { rate, min_rate });
                }
                (self.bytes, self.waited) = (0, Duration::ZERO);
                timer.as_mut().reset(now + PERIOD);
            } else {
                timer.as_mut().reset(now + (PERIOD - waited));
            }
        }
        Ok(())
    }
}
