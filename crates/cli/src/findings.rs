//! What a run found, in sentences.

use bursar_lab::document::{Document, VariantResult};
use bursar_lab::machine_info::MachineKind;
use bursar_lab::measure::Metric;

use crate::form::Form;
use crate::table::summary;
use crate::units::{nanoseconds, percent, thousands};

/// A sentence for each variant, what failed, and what was published beside what was measured.
pub fn findings(document: &Document, form: Form) -> String {
    let mut text = form.heading("Findings");
    for variant in &document.variants {
        if let Some(finding) = finding(variant) {
            text.push_str(&form.item(&finding));
        }
    }
    for expectation in document
        .expectations
        .iter()
        .filter(|expectation| !expectation.holds)
    {
        let said = format!(
            "FAILED: {} of {} is {}, and must be at most {}, because {}",
            expectation.metric,
            expectation.variant,
            expectation.measured,
            expectation.at_most,
            expectation.reason
        );
        text.push_str(&form.item(&form.alarm(&said)));
    }
    if document.verdicts.is_empty() {
        text.push_str(&form.item(match document.machine.kind() {
            MachineKind::Host => {
                "These are figures of this machine. The thread's are of 384 CPUs; no verdict on them is claimed here."
            }
            MachineKind::Sim => {
                "Nothing was published for this machine and load; no verdict is claimed here."
            }
        }));
    }
    text
}

fn finding(variant: &VariantResult) -> Option<String> {
    let Some(Metric::Ratio(broken)) = variant.metrics.get("broken_reads") else {
        return None;
    };
    let reads = summary(variant, "read_latency")?;
    let stale = summary(variant, "staleness")?;
    let samples = thousands(reads.samples);
    Some(if broken.value() == 0.0 {
        format!(
            "{}: none of {samples} reads missed a completed update",
            variant.name
        )
    } else {
        format!(
            "{}: {} of {samples} reads missed completed updates, up to {} old",
            variant.name,
            percent(broken.value()),
            nanoseconds(stale.max as f64)
        )
    })
}
