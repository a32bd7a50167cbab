//! The document of a run.

use bursar_watch::diagnosis::{Verdict, diagnose};
use bursar_watch::figures::Figures;
use bursar_watch::pressure::Pressure;
use bursar_watch::seen::{Losses, Machine, Missing, Mode, Release, Seen};
use bursar_watch::writer::Writer;
use serde::Serialize;

use crate::command::Ended;

#[derive(Serialize)]
pub struct Document {
    schema: u32,
    /// Program that wrote the file that was read.
    pub recorded_by: Option<Writer>,
    pub mode: Mode,
    pub machine: Machine,
    pub interrupted: bool,
    pub command: Option<Ended>,
    pub verdicts: [Verdict; 3],
    pub figures: Figures,
    pub release: Release,
    pub decay_release: Release,
    pub pressure: Option<Pressure>,
    pub losses: Losses,
    pub missing: Vec<Missing>,
}

impl Document {
    pub fn new(seen: &Seen, command: Option<Ended>, interrupted: bool) -> Self {
        let figures = Figures::of(seen);
        Self {
            schema: 1,
            recorded_by: seen.recorded_by,
            mode: seen.mode(),
            machine: seen.machine.clone(),
            interrupted,
            command,
            verdicts: diagnose(seen, &figures),
            figures,
            release: seen.release,
            decay_release: seen.decay_release,
            pressure: seen.pressure,
            losses: seen.losses.clone(),
            missing: seen.missing.clone(),
        }
    }
}
