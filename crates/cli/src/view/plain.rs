//! What is shown of an experiment that has no view of its own: everything it measured, in one table.

use super::{COUNTED, View};

pub const VIEW: View = View {
    experiment: "",
    load: |load| load.all(),
    columns: &[],
    legend: &[],
    counted: COUNTED,
    elsewhere: &[],
    buckets: None,
    bars: &[],
    lines: &[],
    timeline: None,
    sweeps: &[],
    finding: |_, _| None,
    remarks: |_| Vec::new(),
    published_of: "",
    glossary: &[],
};
