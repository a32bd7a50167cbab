//! The share of a metric's values that are above 0: a bar for each variant.
//!
//! Where 0 means that nothing happened (no update was missed, nothing waited), this share is the answer. The size of the values
//! above 0 is a detail of it.

use bursar_experiments::document::VariantResult;
use bursar_experiments::measure::{Distribution, Metric};
use bursar_experiments::metrics::Event;

use super::canvas::{Anchor, Canvas, text_width};

use super::cast::Part;
use super::panel::shortened;
use super::style::{BAR_REST, BODY, NAME};
use crate::units::percent;
use crate::view::distribution;

/// A share for each variant.
pub struct Bars<'a> {
    rows: Vec<(Part<'a>, f64)>,
}

/// The bars of an event; `None` if it was not measured.
pub fn bars<'a>(parts: &[Part<'a>], metric: &str, event: Event) -> Option<Bars<'a>> {
    let row = |part: &Part<'a>| Some((*part, share_of(part.result, metric, event)?));
    let rows: Vec<_> = parts.iter().filter_map(row).collect();
    (!rows.is_empty()).then_some(Bars { rows })
}

fn share_of(variant: &VariantResult, metric: &str, event: Event) -> Option<f64> {
    if let Some(Metric::Ratio(share)) = variant.metrics.get(event.share) {
        return Some(share.value());
    }
    let all = distribution(variant, metric)?;
    (all.samples() > 0).then(|| above_zero(all) as f64 / all.samples() as f64)
}

/// The number of values above 0.
pub fn above_zero(distribution: &Distribution) -> u64 {
    distribution.above(0)
}

const ROW: f64 = 22.0;
const HEIGHT: f64 = 13.0;
const LEAST_BAR: f64 = 120.0;

impl Bars<'_> {
    /// Draws a row a variant, below what is there.
    pub fn draw(&self, canvas: &mut Canvas) {
        let sheet = canvas.sheet;
        let look = |part: &Part<'_>| if part.is_reference() { NAME } else { BODY };
        let widths = |(part, _): &(Part<'_>, f64)| text_width(&part.label(), look(part));
        let names = self.rows.iter().map(widths).fold(0.0, f64::max);
        let number = text_width("> 99.99 %", BODY) + 8.0;
        let room = sheet.width - 2.0 * sheet.margin - number - 16.0;
        let names = names.min(room - LEAST_BAR);
        let left = sheet.margin + names + 8.0;
        let width = sheet.plot_right.min(sheet.width - sheet.margin - number) - left;
        for (part, share) in &self.rows {
            let name = shortened(&part.label(), look(part), names);
            let (top, base) = (canvas.top + 4.0, canvas.top + HEIGHT + 1.0);
            canvas.text((left - 8.0, base), Anchor::End, look(part), &name);
            canvas.block((left, top), (width, HEIGHT), BAR_REST);
            if *share > 0.0 {
                // A share that is not 0 can be seen.
                let filled = (share * width).max(1.5);
                canvas.block((left, top), (filled, HEIGHT), part.stroke.color);
            }
            let at = (left + width + 6.0, base);
            canvas.text(at, Anchor::Start, BODY, &percent(*share));
            canvas.top += ROW;
        }
        canvas.top += 6.0;
    }
}
