//! The comparison for people.

use std::fmt::Write;

use super::compared::Compared;
use crate::units::{counted, in_unit, quantity};
use bursar_experiments::compare::rule::SEEDS_NEEDED;
use bursar_experiments::compare::{Change, Comparison, Judgement};
use bursar_experiments::machine_info::MachineKind;
use bursar_experiments::measure::Unit;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;

/// A table for each point that can be judged, and what is clear at the end, where a terminal shows it.
pub fn text(compared: &Compared, form: Markup, is_verbose: bool) -> String {
    let mut text = String::new();
    for (comparison, point) in compared.comparisons.iter().zip(&compared.points) {
        text.push_str(&one(compared, comparison, point, form, is_verbose));
        text.push('\n');
    }
    text.push_str(&summary(compared, form));
    text
}

fn one(
    compared: &Compared,
    comparison: &Comparison,
    point: &str,
    form: Markup,
    is_verbose: bool,
) -> String {
    let mut title = comparison.experiment.clone();
    if !point.is_empty() {
        let _ = write!(title, ", {point}");
    }
    let mut text = form.heading(&title);
    let kind = match comparison.machine.kind() {
        MachineKind::Host => "host figures (real threads, real time)",
        MachineKind::Sim => "SIMULATED figures (virtual time)",
    };
    text.push_str(&form.paragraph(&format!("{kind}: {}", comparison.machine)));
    let sides = ["A", "B"].into_iter().zip(&compared.files);
    for ((side, file), (seeds, revision)) in
        sides.zip(comparison.seeds.iter().zip(&comparison.revisions))
    {
        text.push_str(&form.item(&format!(
            "{side}: {file}, {}, revision {revision}",
            counted(*seeds, "seed")
        )));
    }
    text.push('\n');
    let is_judged =
        |change: &Change| !matches!(change.judgement, Judgement::TooFew | Judgement::Shown);
    match is_verbose || comparison.changes.iter().any(is_judged) {
        true => text.push_str(&figures(comparison, form)),
        false => text.push_str(&form.item(&format!(
            "{}: not enough runs to say. At least {SEEDS_NEEDED} seeds of A and of B are needed; -v prints the figures",
            counted(comparison.changes.len() as u64, "figure")
        ))),
    }
    for (side, names) in ["A", "B"].into_iter().zip(&comparison.unmatched) {
        if !names.is_empty() {
            text.push_str(&form.item(&format!("only {side} has {}", names.join(", "))));
        }
    }
    text
}

/// A table of all figures.
fn figures(comparison: &Comparison, form: Markup) -> String {
    let header = ["metric", "A", "B", "change", "", "why"];
    let mut table = Grid::new(header).right(1..4).prose();
    let mut variant = "";
    for change in &comparison.changes {
        let said = said(change.judgement);
        if change.variant != variant {
            table.group(&change.variant);
        }
        table.row([
            format!("  {}", metric(change)),
            value(change.a, change.unit),
            value(change.b, change.unit),
            relative(change),
            match change.judgement {
                Judgement::Worse => form.alarm(said),
                _ => said.to_owned(),
            },
            match change.judgement {
                Judgement::Shown => String::new(),
                _ => change.reason.clone(),
            },
        ]);
        variant = &change.variant;
    }
    form.table(&table)
}

fn summary(compared: &Compared, form: Markup) -> String {
    let mut text = form.heading("Findings");
    for (comparison, point) in compared.comparisons.iter().zip(&compared.points) {
        for change in &comparison.changes {
            if matches!(change.judgement, Judgement::Worse | Judgement::Better) {
                let place = if point.is_empty() {
                    String::new()
                } else {
                    format!(" ({point})")
                };
                let found = format!(
                    "{}: {} of {}{place}: {} -> {}, {}; {}",
                    said(change.judgement),
                    metric(change),
                    change.variant,
                    value(change.a, change.unit),
                    value(change.b, change.unit),
                    relative(change),
                    change.reason
                );
                text.push_str(&form.item(&match change.judgement {
                    Judgement::Worse => form.alarm(&found),
                    _ => found,
                }));
            }
        }
    }
    for (file, documents) in compared.files.iter().zip(&compared.unmatched) {
        for document in documents {
            text.push_str(&form.item(&format!("only in {file}: {document}")));
        }
    }
    let count = |judgement| -> usize {
        let comparisons = compared.comparisons.iter();
        comparisons.map(|it| it.count(judgement)).sum()
    };
    text.push_str(&form.item(&format!(
        "{} figures clearly worse, {} clearly better, {} neither, {} without enough runs to say, {} only shown",
        compared.worse,
        compared.better,
        count(Judgement::Neither),
        count(Judgement::TooFew),
        count(Judgement::Shown)
    )));
    let chance: f64 = compared.comparisons.iter().map(Comparison::by_chance).sum();
    if chance >= 0.001 {
        text.push_str(&form.item(&format!(
            "if nothing had changed, at most {chance:.3} of them would be clearly worse by chance; more seeds make that fewer"
        )));
    }
    text
}

fn said(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Better => "clearly better",
        Judgement::Worse => "CLEARLY WORSE",
        Judgement::Neither => "neither",
        Judgement::TooFew => "not enough runs to say",
        Judgement::Shown => "",
    }
}

fn metric(change: &Change) -> String {
    match change.figure {
        "value" => change.metric.clone(),
        "per_seed" => format!("{} a seed", change.metric),
        figure => format!("{} {figure}", change.metric),
    }
}

fn value(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| "-".to_owned(), |value| in_unit(value, unit))
}

fn relative(change: &Change) -> String {
    match change.change {
        None if change.a.is_none() || change.b.is_none() => "-".to_owned(),
        None => "from 0".to_owned(),
        Some(0.0) => "0 %".to_owned(),
        Some(part) if part.abs() < 0.000_5 => {
            format!("{}0.0 %", if part < 0.0 { '-' } else { '+' })
        }
        Some(part) if part >= 9.995 => format!("x {}", quantity(part + 1.0)),
        // It would look as if nothing were left.
        Some(part) if part > -1.0 && part <= -0.999_5 => {
            format!("1/{}", quantity(1.0 / (part + 1.0)))
        }
        Some(part) => format!("{:+.1} %", part * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_to_almost_nothing_is_a_part_and_no_hundred_per_cent() {
        let said = |part| {
            relative(&Change {
                variant: String::new(),
                metric: String::new(),
                figure: "mean",
                unit: Unit::Ns,
                a: Some(1.0),
                b: Some(1.0 + part),
                change: Some(part),
                judgement: Judgement::Neither,
                reason: String::new(),
                seeds: 1,
            })
        };
        assert_eq!(said(-0.999_8), "1/5,000");
        assert_eq!(said(-1.0), "-100.0 %");
        assert_eq!(said(-0.5), "-50.0 %");
        assert_eq!(said(11.0), "x 12.0");
    }
}
