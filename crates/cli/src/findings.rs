//! What a run found, in sentences.

use bursar_lab::document::Document;
use bursar_lab::machine_info::MachineKind;

use crate::form::Form;
use crate::view::View;

/// A sentence for each variant, what concerns them all, what failed, and what was published beside what was measured.
pub fn findings(document: &Document, view: &View, form: Form) -> String {
    let mut text = form.heading("Findings");
    let of_variants = document.variants.iter();
    let of_variants = of_variants.filter_map(|variant| (view.finding)(document, variant));
    for finding in of_variants.chain((view.remarks)(document)) {
        text.push_str(&form.item(&finding));
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
        text.push_str(&form.item(&match document.machine.kind() {
            MachineKind::Host if view.published_of.is_empty() => {
                "These are figures of this machine; no verdict is claimed here.".to_owned()
            }
            MachineKind::Host => format!(
                "These are figures of this machine. The thread's are of {}; no verdict on them is claimed here.",
                view.published_of
            ),
            MachineKind::Sim => {
                "Nothing was published for this machine and load; no verdict is claimed here.".to_owned()
            }
        }));
    }
    text
}
