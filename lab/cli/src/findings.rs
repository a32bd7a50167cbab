//! Findings of a run, in sentences.

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::MachineKind;

use crate::view::View;
use bursar_term::markup::Markup;

/// A sentence for each variant, remarks on all of them, and expectations that do not hold.
pub fn findings(document: &Document, view: &View, form: Markup) -> String {
    let mut text = form.heading("Findings");
    let of_variants = document.variants.iter();
    let of_variants = of_variants.filter_map(|variant| (view.finding)(document, variant));
    for finding in of_variants.chain((view.remarks)(document)) {
        text.push_str(&form.item(&finding));
    }
    for failure in failures(document) {
        text.push_str(&form.item(&form.alarm(&failure)));
    }
    if document.verdicts.is_empty() {
        text.push_str(&form.item(&match document.machine.kind() {
            MachineKind::Host if view.published_of.is_empty() => {
                "These are figures of this machine. Nothing is judged by them.".to_owned()
            }
            MachineKind::Host => format!(
                "These are figures of this machine. The thread's are of {}, and are not judged by them.",
                view.published_of
            ),
            MachineKind::Sim => {
                "Nothing was published for this machine and load, so nothing is judged.".to_owned()
            }
        }));
    }
    text
}

/// Expectations that do not hold, in sentences.
pub fn failures(document: &Document) -> impl Iterator<Item = String> {
    let failed = document.expectations.iter().filter(|it| !it.holds);
    failed.map(|it| {
        format!(
            "FAILED: {} of {} is {}. It must be at most {}, because {}.",
            it.metric, it.variant, it.measured, it.at_most, it.reason
        )
    })
}
