//! Measures of the replay beside those that were seen, and which of them may predict.

use bursar_replay::{Agreement, Figures, Load, MEASURES, Measure, agreement};
use serde::Serialize;

use super::figures::{Spread, values};

/// A measure as it was seen and as the replay gives it.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    pub(super) measure: &'static str,
    #[serde(skip)]
    pub(super) of: &'static Measure,
    unit: &'static str,
    /// On the recorded machine.
    pub(super) seen: Option<f64>,
    /// On the simulated machine, in virtual time.
    pub(super) simulated: Option<Spread>,
    pub(super) agreement: &'static str,
    #[serde(skip)]
    pub(super) ruling: Agreement,
}

impl Compared {
    pub(super) fn disagrees(&self) -> bool {
        matches!(self.ruling, Agreement::SeenBelow | Agreement::SeenAbove)
    }

    pub(super) fn is_judged(&self) -> bool {
        self.ruling == Agreement::Agrees || self.disagrees()
    }
}

/// Whether the replay may predict a measure: it agrees, or cannot be judged and no other measure of its part disagrees.
pub(super) fn predicts(measure: &Measure, rows: &[Compared]) -> bool {
    let own = rows.iter().find(|row| row.of == measure);
    match own.is_some_and(Compared::is_judged) {
        true => own.is_some_and(|row| !row.disagrees()),
        false => !(rows.iter()).any(|row| row.of.part == measure.part && row.disagrees()),
    }
}

/// The measures that were seen or simulated.
pub(super) fn compare(load: &Load, seen: &Figures, replayed: &[Figures]) -> Vec<Compared> {
    let compared = MEASURES.iter().map(|measure| {
        let seen = seen.get(measure.name).copied();
        let values = values(measure.name, replayed);
        let ruling = match load.lacks(measure) {
            true => Agreement::NotComparable,
            false => agreement(measure, load.sets(measure), seen, &values),
        };
        Compared {
            measure: measure.name,
            of: measure,
            unit: measure.unit.name(),
            seen,
            simulated: Spread::of(values),
            agreement: Agreement::name(ruling),
            ruling,
        }
    });
    compared
        .filter(|row| row.seen.is_some() || row.simulated.is_some())
        .collect()
}
