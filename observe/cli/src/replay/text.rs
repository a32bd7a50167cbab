//! The document of a replay, for people.

use bursar_replay::{MEASURES, Part};
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;
use bursar_term::units::counted;

use super::compared::Compared;
use super::document::{Document, Total};
use super::figures::{OfPolicy, Spread, in_unit};

/// All tables and remarks.
pub(super) fn text(document: &Document, form: Markup) -> String {
    let recording = &document.recording;
    let mut text = form.heading(&format!("Replay of {}", recording.file));
    text.push_str(&form.paragraph(&format!(
        "Linux {}, {}, {} ticks a second; {:.1} s replayed on {}.",
        recording.kernel,
        counted(recording.cpus, "CPU"),
        recording.hz,
        recording.replayed_seconds,
        document.machine
    )));
    text.push('\n');
    for reason in &document.recorded_policies {
        text.push_str(&form.item(reason));
    }
    text.push('\n');
    text.push_str(&form.heading("Does the replay match what was seen?"));
    let Total { agree, judged } = document.total;
    let but = match agree == judged {
        true => "",
        false => " The others predict nothing, and are left out of what follows.",
    };
    let total = format!("{agree} of {judged} measures agree.{but}");
    text.push_str(&form.paragraph(&total));
    text.push_str(&form.paragraph(&format!(
        "{} Simulated figures are virtual time: median and range of {} draws.",
        document.criterion, document.draws
    )));
    for part in [Part::Upkeep, Part::Pages, Part::Flushes] {
        let rows = || document.measures.iter().filter(|row| row.of.part == part);
        if rows().next().is_none() {
            continue;
        }
        text.push('\n');
        text.push_str(&form.subheading(part.heading()));
        let mut grid =
            Grid::new(["measure", "seen (host)", "simulated", "range", "match"]).right(1..4);
        rows().for_each(|row| grid.row(cells(row)));
        text.push_str(&form.table(&grid));
    }
    text.push('\n');
    text.push_str(&form.heading("What would changes of the kernel do?"));
    text.push_str(&form.paragraph(&format!(
        "Simulated, on {}: median and range of {} draws.",
        document.what_if.machine, document.draws
    )));
    for prediction in &document.predictions {
        text.push_str(&form.item(&prediction.sentences()));
    }
    text.push('\n');
    text.push_str(&what_if(document, form));
    text.push('\n');
    text.push_str(&form.heading("This recording cannot tell"));
    for sentence in &document.cannot_tell {
        text.push_str(&form.item(sentence));
    }
    text
}

fn cells(row: &Compared) -> [String; 5] {
    let unit = row.of.unit;
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| in_unit(value, unit));
    let range =
        |Spread { lo, hi, .. }: Spread| format!("{} to {}", in_unit(lo, unit), in_unit(hi, unit));
    [
        row.of.label.to_owned(),
        shown(row.seen),
        shown(row.simulated.map(|it| it.median)),
        row.simulated.map_or("-".to_owned(), range),
        row.agreement.to_owned(),
    ]
}

fn what_if(document: &Document, form: Markup) -> String {
    let what_if = &document.what_if;
    let mut text = form.heading("What would other policies change?");
    let scaled = match what_if.is_scaled {
        true => " Each further CPU has the load of a recorded one, at other moments.",
        false => "",
    };
    text.push_str(&form.paragraph(&format!(
        "All figures are simulated, on {}: medians of {} draws. `~` marks a figure that some draws raise and others lower.{scaled}",
        what_if.machine, document.draws
    )));
    for part in [Part::Upkeep, Part::Pages, Part::Flushes] {
        // Upkeep gives pages back, so a policy of either changes figures of both.
        let concerns = |of: &&OfPolicy| match (of.part, part) {
            (None, _) => true,
            (Some(changed), part) => (changed == Part::Flushes) == (part == Part::Flushes),
        };
        let columns: Vec<&OfPolicy> = what_if.policies.iter().filter(concerns).collect();
        let measures = MEASURES.iter().filter(|measure| {
            let has = |of: &&OfPolicy| of.simulated.contains_key(measure.name);
            measure.part == part && columns.iter().any(has)
        });
        let header = ["simulated"]
            .into_iter()
            .chain(columns.iter().map(|of| of.policy));
        let mut grid = Grid::new(header).right(1..columns.len() + 1);
        let mut is_empty = true;
        for measure in measures {
            is_empty = false;
            let cell = |of: &&OfPolicy| match of.simulated.get(measure.name) {
                None => "-".to_owned(),
                Some(change) => {
                    let value = in_unit(change.figure.median, measure.unit);
                    let is_equal = change.figure.median == stock_median(&columns, measure.name);
                    let mark = if change.is_clear == Some(false) && !is_equal {
                        "~"
                    } else {
                        ""
                    };
                    format!("{mark}{value}")
                }
            };
            let label = measure.label.to_owned();
            grid.row([label].into_iter().chain(columns.iter().map(cell)));
        }
        if is_empty || columns.len() < 2 {
            continue;
        }
        text.push('\n');
        text.push_str(&form.subheading(part.heading()));
        text.push_str(&form.table(&grid));
    }
    text.push('\n');
    for of in &what_if.policies {
        text.push_str(&form.item(&format!("{}: {}", of.policy, of.summary)));
    }
    text
}

fn stock_median(columns: &[&OfPolicy], name: &str) -> f64 {
    let stock = columns.iter().find(|of| of.part.is_none());
    let change = stock.and_then(|of| of.simulated.get(name));
    change.map_or(f64::NAN, |change| change.figure.median)
}
