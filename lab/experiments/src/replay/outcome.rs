//! Figures of a run.

use bursar_kernel::pages::HoldFigures;

use super::load::Load;
use super::measure::{Call, Figures, Values, put, put_bursts, put_upkeep, put_waits};
use crate::measure::{Distribution, Unit};

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
            let pages = Distribution::of_histogram(Unit::Count, &self.holds.pages);
            let [held_ns, waited_ns] = [&self.holds.held_ns, &self.holds.waited_ns]
                .map(|values| Distribution::of_histogram(Unit::Ns, values));
            put(
                &mut figures,
                [
                    ("hold_pages_max", max(&pages)),
                    ("hold_max_ns", max(&held_ns)),
                ],
            );
            put_waits(&mut figures, waits(&waited_ns), seconds);
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
