//! View of an experiment that has none of its own: all figures in one table.

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
