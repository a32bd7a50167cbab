//! The document for people.

use std::fmt::Write;

use bursar_term::bars;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;
use bursar_term::units::{counted, nanoseconds, percent, quantity, scaled, thousands};
use bursar_watch::diagnosis::{Answer, Problem};
use bursar_watch::event::WAITS;
use bursar_watch::figures::{Distribution, Herd};
use bursar_watch::seen::{BurstKind, HzSource, LockKind, Mode};

use crate::document::Document;

/// Readers that are listed.
const READERS: usize = 10;

/// A distribution with its place in the tables.
struct Row {
    group: &'static str,
    name: &'static str,
    unit: Unit,
    of: Distribution,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Ns,
    Count,
}

const UPKEEP: &str = "Upkeep: the work item vmstat_update";
const REFRESH: &str = "The function refresh_cpu_vm_stats()";
const ZONE: &str = "Zone lock";
const FLUSH: &str = "Statistics of cgroups";

fn rows(document: &Document) -> Vec<Row> {
    let figures = &document.figures;
    let mut rows = Vec::new();
    let mut add = |group, name, unit, of: Option<Distribution>| {
        rows.extend(of.map(|of| Row {
            group,
            name,
            unit,
            of,
        }));
    };
    if let Some(upkeep) = &figures.upkeep {
        for (name, unit, of) in [
            ("vmstat_update", Unit::Ns, Some(upkeep.duration_ns)),
            ("alone on its tick", Unit::Ns, upkeep.alone_ns),
            ("with other CPUs", Unit::Ns, upkeep.together_ns),
            ("timer to call", Unit::Ns, upkeep.start_delay_ns),
            ("slot to timer, ticks", Unit::Count, upkeep.late_ticks),
            ("pages freed in a call", Unit::Count, upkeep.pages),
        ] {
            add(UPKEEP, name, unit, of);
        }
    }
    let refresh = figures.refresh_cpu_vm_stats;
    add(REFRESH, "by vmstat_update", Unit::Ns, refresh.periodic_ns);
    add(REFRESH, "on idle entry", Unit::Ns, refresh.idle_entry_ns);
    for burst in &figures.bursts {
        let [time, pages, hold] = match burst.kind {
            BurstKind::Drain => [
                "burst of frees",
                "pages of a burst of frees",
                "hold in a burst of frees",
            ],
            BurstKind::Refill => [
                "burst of takes",
                "pages of a burst of takes",
                "hold in a burst of takes",
            ],
        };
        add(ZONE, time, Unit::Ns, Some(burst.duration_ns));
        add(ZONE, hold, Unit::Ns, burst.hold_ns);
        add(ZONE, pages, Unit::Count, Some(burst.pages));
    }
    for wait in &figures.waits {
        let name = match wait.lock {
            LockKind::Zone => "wait for a zone lock",
            LockKind::Other => "wait for another spin lock",
        };
        add(ZONE, name, Unit::Ns, Some(wait.wait_ns));
    }
    if let Some(flushes) = &figures.flushes {
        for (name, unit, of) in [
            ("flush for a reader", Unit::Ns, flushes.reader_ns),
            ("flush, periodic or forced", Unit::Ns, flushes.period_ns),
            ("flush of a removed cgroup", Unit::Ns, flushes.removal_ns),
            ("wait for the lock", Unit::Ns, flushes.wait_ns),
            ("longest hold", Unit::Ns, flushes.hold_ns),
            (
                "updates missed by a skip",
                Unit::Count,
                flushes.skipped_pending,
            ),
            ("age of a skip's answer", Unit::Ns, flushes.skipped_age_ns),
        ] {
            add(FLUSH, name, unit, of);
        }
    }
    if let Some(reads) = &figures.reads {
        for (name, of) in [
            ("read of memory.stat", reads.duration_ns),
            ("CPU time of such a read", reads.cpu_ns),
        ] {
            add(FLUSH, name, Unit::Ns, Some(of));
        }
    }
    rows
}

/// Title of the document as a page.
pub const TITLE: &str = "The kernel, observed";

/// The document for people.
pub fn text(document: &Document, form: Markup) -> String {
    let mut text = form.heading(&title(document));
    if document.interrupted {
        let said = "INTERRUPTED: the figures are those until then.";
        text.push_str(&form.paragraph(&form.alarm(said)));
    }
    let losses = &document.losses;
    if losses.events_lost > 0 {
        let lost = thousands(losses.events_lost);
        let of = match losses.events_read {
            0 => String::new(),
            read => format!(" of {}", thousands(losses.events_lost.saturating_add(read))),
        };
        let cpus = match losses.cpus.len() {
            0 => String::new(),
            cpus => format!(" of {}", counted(cpus, "CPU")),
        };
        let said = format!(
            "LOST: {lost} events{of} had no room in the buffers{cpus}. Counts are too low."
        );
        text.push_str(&form.paragraph(&form.alarm(&said)));
    }
    text.push_str(&pressure(document, form));
    for (number, verdict) in document.verdicts.iter().enumerate() {
        let (name, question) = match verdict.problem {
            Problem::UpkeepHerd => ("vmstat herd", "Do all CPUs do their upkeep at once?"),
            Problem::ZoneLock => ("pcp and zone lock", "Who waits while many pages are freed?"),
            Problem::MemcgFlush => (
                "memcg flush",
                "Do readers of memory statistics wait, or get old answers?",
            ),
        };
        let answer = match verdict.answer {
            Answer::Present => form.alarm("PRESENT"),
            Answer::Absent => "absent".to_owned(),
            Answer::CannotTell => "cannot tell".to_owned(),
        };
        text.push('\n');
        text.push_str(&form.subheading(&format!("{}  {question} ({name})", number + 1)));
        text.push_str(&form.paragraph(&format!("{answer}. {}", verdict.why)));
        text.push_str(&form.paragraph(&format!("Next step: {}", verdict.advice)));
        for change in &verdict.changes {
            text.push_str(&form.item(&change.sentence()));
        }
    }
    text.push('\n');
    text.push_str(&tables(document, form));
    for note in notes(document) {
        text.push_str(&form.item(&note));
    }
    text
}

fn title(document: &Document) -> String {
    let machine = &document.machine;
    let hz = match (machine.hz, machine.hz_source) {
        (Some(hz), Some(HzSource::Config)) => format!("HZ={hz} by its configuration"),
        (Some(hz), _) => format!("HZ={hz}"),
        (None, _) => "HZ unknown".to_owned(),
    };
    let recorded = (document.recorded_by)
        .map_or_else(String::new, |it| format!(", recorded by {}", it.name()));
    let guest = match machine.virtualized {
        Some(true) => ", a guest",
        _ => "",
    };
    format!(
        "Linux {}, {}, {hz}{guest}: observed for {:.1} s, {} mode{recorded}",
        machine.kernel,
        counted(machine.cpus, "CPU"),
        document.figures.seconds,
        document.mode.name()
    )
}

/// Time for which tasks waited, in shares of the run.
fn pressure(document: &Document, form: Markup) -> String {
    let Some(pressure) = &document.pressure else {
        return String::new();
    };
    let all = [
        ("some task waited for a CPU", pressure.cpu_some_us),
        ("some task waited for memory", pressure.memory_some_us),
        ("all tasks waited for memory", pressure.memory_full_us),
        ("tasks waited for interrupts", pressure.irq_full_us),
    ];
    let seconds = document.figures.seconds.max(f64::MIN_POSITIVE);
    let shown = all.into_iter().filter_map(|(what, us)| {
        let share = (us? as f64 / 1e6 / seconds).min(1.0);
        Some(format!("{what} {}", percent(share)))
    });
    let shown: Vec<_> = shown.collect();
    form.paragraph(&format!(
        "Pressure, in shares of this time: {}.",
        shown.join(", ")
    ))
}

fn tables(document: &Document, form: Markup) -> String {
    let mut text = String::new();
    let rows = rows(document);
    if !rows.is_empty() {
        let mut table = Grid::new(["", "samples", "mean", "p50", "p99", "max"]).right(1..6);
        let mut group = "";
        for row in &rows {
            if row.group != group {
                table.group(row.group);
                group = row.group;
            }
            let shown = |number: f64| match row.unit {
                Unit::Ns => nanoseconds(number),
                Unit::Count => quantity(number),
            };
            let of = row.of;
            table.row([
                row.name.to_owned(),
                thousands(of.samples),
                shown(of.mean),
                shown(of.p50 as f64),
                of.tail().map_or("-".to_owned(), |p99| shown(p99 as f64)),
                shown(of.max as f64),
            ]);
        }
        text.push_str(&(form.table(&table) + "\n"));
    }
    text.push_str(&durations(document, form));
    let mut add = |table: &Grid| text.push_str(&(form.table(table) + "\n"));
    if let Some(herd) = &document.figures.herd {
        add(&herd_table(herd));
    }
    if !document.figures.bursts.is_empty() {
        let mut table = Grid::new([
            "bursts",
            "told by kernel",
            "one hold",
            "not one hold",
            "unknown",
        ])
        .right(1..5);
        for burst in &document.figures.bursts {
            let name = match burst.kind {
                BurstKind::Drain => "frees",
                BurstKind::Refill => "takes",
            };
            let counts = [burst.traced, burst.proven, burst.refuted, burst.unknown].map(thousands);
            table.row([name.to_owned()].into_iter().chain(counts));
        }
        add(&table);
    }
    let readers = &document.figures.readers;
    if !readers.is_empty() {
        let header = [
            "reader of statistics",
            "tasks",
            "requests a second",
            "skipped",
            "age of skipped, p50",
            "max",
            "longest wait",
            "cgroup",
        ];
        let mut table = Grid::new(header).right(1..7);
        for reader in readers.iter().take(READERS) {
            let age = |of: fn(&Distribution) -> u64| {
                let age_ns = reader.skipped_age_ns.as_ref().map(of);
                age_ns.map_or_else(|| "-".to_owned(), |it| nanoseconds(it as f64))
            };
            table.row([
                reader
                    .task
                    .clone()
                    .unwrap_or_else(|| "(had ended)".to_owned()),
                thousands(reader.tasks as u64),
                quantity(reader.requests_per_s),
                reader.skipped.map_or_else(|| "-".to_owned(), thousands),
                age(|it| it.p50),
                age(|it| it.max),
                (reader.wait_ns_max).map_or_else(|| "-".to_owned(), |it| nanoseconds(it as f64)),
                reader
                    .path
                    .clone()
                    .unwrap_or_else(|| format!("id {}", reader.cgroup)),
            ]);
        }
        add(&table);
    }
    text
}

/// A picture of the durations. Nothing if it does not fit.
fn durations(document: &Document, form: Markup) -> String {
    let all = document.figures.durations_ns.iter();
    let rows: Vec<_> = all.map(|it| (it.name, it.octaves.clone())).collect();
    let mark = |ns| {
        let (value, unit) = scaled(ns);
        format!("{value:.0}{unit}")
    };
    let picture = bars::picture(&rows, mark, form.width());
    if picture.is_empty() {
        return String::new();
    }
    let title = "Durations. A bar has those of one power of two, and grows with the logarithm of their number:";
    form.paragraph(title) + &form.verbatim(&picture) + "\n"
}

fn herd_table(herd: &Herd) -> Grid {
    let header = [
        "vmstat timers",
        "distinct a second",
        "CPUs on one, mean",
        "max",
        "at random slots",
    ];
    let mut table = Grid::new(header).right(1..5);
    let even = quantity(herd.cpus_per_slot_random);
    let mut row = |name: &str, per_s: f64, mean: Option<f64>, max: Option<u64>| {
        table.row([
            name.to_owned(),
            quantity(per_s),
            mean.map_or_else(String::new, quantity),
            max.map_or_else(String::new, thousands),
            if mean.is_some() {
                even.clone()
            } else {
                String::new()
            },
        ]);
    };
    if let Some(targets) = herd.targets_per_s {
        row("ticks asked for", targets, None, None);
    }
    row(
        "slots of the wheel",
        herd.slots_per_s,
        Some(herd.cpus_per_slot),
        Some(herd.cpus_per_slot_max),
    );
    row(
        "ticks of expiry",
        herd.instants_per_s,
        Some(herd.cpus_per_tick),
        Some(herd.cpus_per_tick_max),
    );
    table
}

fn notes(document: &Document) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(command) = &document.command {
        let stopped = if command.was_stopped {
            ", stopped by this run"
        } else {
            ""
        };
        notes.push(format!(
            "`{}`: {}{stopped}",
            command.words.join(" "),
            command.status
        ));
    }
    if let Some(upkeep) = &document.figures.upkeep {
        let mut note = "vmstat_update is the whole work item. Do not compare it with times of refresh_cpu_vm_stats() alone.".to_owned();
        // A file may have no timers at all.
        if upkeep.start_delay_ns.is_some() {
            let _ = write!(
                note,
                " {} of {} calls followed no timer that was seen: the shepherd queued them, or they were among the first of the run.",
                thousands(upkeep.without_timer),
                thousands(upkeep.duration_ns.samples)
            );
        }
        notes.push(note);
    }
    if !document.figures.bursts.is_empty() {
        notes.push(
            "A burst is a run of page events of one task on one CPU. It is one hold of the zone lock only where the table says \
             so. Tracing each page makes bursts longer, by 30 % or so."
                .to_owned(),
        );
        for (release, of) in [
            (&document.release, "frees outside of upkeep"),
            (&document.decay_release, "frees by upkeep"),
        ] {
            let gaps = (release.gap_at_batch_ns, release.gap_elsewhere_ns);
            let (Some(at_batch), Some(elsewhere)) = gaps else {
                continue;
            };
            notes.push(format!(
                "{} bursts of {of} were larger than a batch. Median gap between pages at a multiple of the batch: {}; elsewhere: {}.",
                thousands(release.bursts),
                nanoseconds(at_batch as f64),
                nanoseconds(elsewhere as f64)
            ));
        }
    }
    let has_waits = !document.missing.iter().any(|it| it.removes == WAITS);
    if document.mode != Mode::Light && has_waits {
        let waits = document
            .figures
            .waits
            .iter()
            .map(|wait| wait.wait_ns.samples)
            .sum::<u64>();
        notes.push(match (waits, document.machine.virtualized) {
            (0, None | Some(true)) => "No wait for a spin lock was seen. In a guest without paravirtual spin locks the kernel reports none.".to_owned(),
            (0, Some(false)) => "No wait for a spin lock was seen. The kernel reports none while only one CPU waits.".to_owned(),
            _ => "Waits for spin locks are reported here. On real hardware the kernel leaves out a lone waiter.".to_owned(),
        });
    }
    if let Some(reads) = &document.figures.reads {
        let of = (reads.path.clone()).unwrap_or_else(|| format!("cgroup {}", reads.cgroup));
        notes.push(format!(
            "The reads of memory.stat are this tool's own, of {of}. Each of them may make the kernel fold statistics, so answers \
             were fresher than they would have been."
        ));
    }
    for wait in &document.figures.waits {
        if wait.lock == LockKind::Zone {
            notes.push(format!(
                "Waits for zone locks took {} of all CPUs' time.",
                percent(wait.cpu_share)
            ));
        }
    }
    if document.losses.items_left_out > 0 {
        notes.push(format!(
            "{} items had no room and are not in the figures.",
            thousands(document.losses.items_left_out)
        ));
    }
    if document.losses.bytes_undecoded > 0 {
        notes.push(format!(
            "{} bytes of trace buffers made no sense.",
            thousands(document.losses.bytes_undecoded)
        ));
    }
    for missing in &document.missing {
        notes.push(format!(
            "{} Missing here: {}.",
            missing.sentence(),
            missing.removes
        ));
    }
    notes
}
