//! Figures of a run.

use bursar_kernel::pages::HoldFigures;
use bursar_watch::seen::BurstKind;
use hdrhistogram::Histogram;

use crate::load::Load;
use crate::measure::{Call, Figures, put_bursts, put_holds, put_upkeep, put_waits};
use bursar_experiments::measure::{Distribution, Unit};

/// Records of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) cpus: usize,
    pub(crate) calls: Vec<Call>,
    pub(crate) bursts_ns: Vec<(BurstKind, u64)>,
    pub(crate) holds: HoldFigures,
    /// Pages that a drain did not find.
    pub(crate) missed: u64,
}

impl Outcome {
    /// Computes the figures.
    ///
    /// # Errors
    /// Pages were missing, so that bursts were shorter than recorded.
    pub(crate) fn figures(self, load: &Load) -> Result<Figures, String> {
        if self.missed > 0 {
            return Err(format!(
                "{} drains found no pages: a defect of the replay",
                self.missed
            ));
        }
        let mut figures = Figures::new();
        put_upkeep(&mut figures, &self.calls, self.cpus, load.seconds());
        let seconds = load.events_ns as f64 / 1e9;
        put_bursts(&mut figures, &self.bursts_ns, seconds);
        if self.holds.holds > 0 {
            let holds = &self.holds;
            // A hold either puts pages in or takes them out.
            let taken = without(&holds.pages, &holds.given);
            let taken_held_ns = without(&holds.held_ns, &holds.given_held_ns);
            let longest = [
                (BurstKind::Drain, [&holds.given, &holds.given_held_ns]),
                (BurstKind::Refill, [&taken, &taken_held_ns]),
            ];
            put_holds(&mut figures, longest.map(|(kind, of)| (kind, of.map(max))));
            let waited_ns = Distribution::of_histogram(Unit::Ns, &holds.waited_ns);
            // Waits that were more than none.
            let waits = waited_ns.values().filter(|(wait_ns, _)| *wait_ns > 0);
            let waits = waits.flat_map(|(wait_ns, count)| (0..count).map(move |_| wait_ns));
            put_waits(&mut figures, waits, seconds);
        }
        Ok(figures)
    }
}

fn max(values: &Histogram<u64>) -> Option<f64> {
    (!values.is_empty()).then(|| values.max() as f64)
}

/// The values of `all` that are not those of `part`.
fn without(all: &Histogram<u64>, part: &Histogram<u64>) -> Histogram<u64> {
    let mut rest = all.clone();
    rest.subtract(part).expect("a part of it");
    rest
}
