//! Figures of a run.

use super::load::Load;
use super::measure::{Call, Figures, Values, put, put_bursts, put_upkeep, put_waits};
use crate::measure::Distribution;
use crate::published::pages::HoldFigures;

/// Records of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) cpus: usize,
    pub(super) calls: Vec<Call>,
    pub(super) bursts_ns: Vec<u64>,
    pub(super) holds: HoldFigures,
    /// Pages that a drain did not find.
    pub(super) missed: u64,
}

impl Outcome {
    /// Computes the figures.
    ///
    /// # Errors
    /// Pages were missing, so that bursts were shorter than recorded.
    pub(super) fn figures(self, load: &Load) -> Result<Figures, String> {
        if self.missed > 0 {
            return Err(format!(
                "{} drains found no pages: a defect of the replay",
                self.missed
            ));
        }
        let mut figures = Figures::new();
        put_upkeep(&mut figures, &self.calls, self.cpus, load.seconds());
        let seconds = load.events_ns as f64 / 1e9;
        if !self.bursts_ns.is_empty() {
            put_bursts(&mut figures, &self.bursts_ns, seconds);
        }
        if self.holds.holds > 0 {
            put(
                &mut figures,
                [
                    ("hold_pages_max", max(&self.holds.pages)),
                    ("hold_max_ns", max(&self.holds.held_ns)),
                ],
            );
            put_waits(&mut figures, waits(&self.holds.waited_ns), seconds);
        }
        Ok(figures)
    }
}

fn max(distribution: &Distribution) -> Option<f64> {
    (distribution.samples() > 0).then(|| distribution.summary().max as f64)
}

/// Waits that were more than none.
fn waits(waited_ns: &Distribution) -> Values {
    let waits = waited_ns.values().filter(|(wait_ns, _)| *wait_ns > 0);
    waits
        .flat_map(|(wait_ns, count)| (0..count).map(move |_| wait_ns))
        .collect()
}
