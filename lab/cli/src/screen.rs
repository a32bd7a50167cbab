//! The screen of `bursar-lab run` alone: one question of each kernel thread, and its answer by the figures of one run.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::metrics::memcg_flush::*;
use bursar_experiments::metrics::pcp_batch_free::*;
use bursar_experiments::metrics::vmstat_spread::*;

use crate::findings::failures;
use crate::timeline::{Raster, cpus, of as timeline_of};
use crate::units::{counted, nanoseconds, percent, thousands};
use crate::view::{self, Load, distribution, shown};
use bursar_experiments::metrics::Of;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;
use bursar_term::width::{columns, wrapped};

/// Greatest width of the screen, columns, however wide the terminal is.
const WIDTH: usize = 80;
/// Before everything that belongs to a question.
const INDENT: &str = "   ";
/// Columns of the upkeep of a second.
const RASTER_COLUMNS: usize = 20;

/// A question, and the runs that answer it.
pub struct Question {
    pub experiment: &'static str,
    pub load: &'static str,
    /// Further settings, so that all answers are there within a minute.
    set: &'static [&'static str],
    /// Variants; Bursar's first.
    rows: &'static [&'static str],
    columns: &'static [Column],
    /// The simulated machine and load.
    scene: fn(&Document) -> String,
    /// A sentence; nothing if a figure of it is missing.
    answer: fn(&Document) -> Option<String>,
}

struct Column {
    title: &'static str,
    cell: Cell,
}

enum Cell {
    /// A number of a metric.
    Number(&'static str, Of),
    /// Excess of a metric over that of another variant.
    More(&'static str, &'static str),
    /// Firings in one second.
    Raster(&'static str),
}

const fn column(title: &'static str, metric: &'static str, of: Of) -> Column {
    Column {
        title,
        cell: Cell::Number(metric, of),
    }
}

/// All of the screen. The first variant of the first question takes most of its time, some 25 seconds of a CPU.
pub const QUESTIONS: [Question; 3] = [
    Question {
        experiment: "memcg-flush",
        load: "readers-100ms",
        // A period of the periodic flush, and some: half the load's time.
        set: &["duration_ms=2200"],
        rows: &["combining", TODAY, "coalesced", "unified"],
        columns: &[
            column("stale reads", BROKEN_READS.name, Of::Value),
            column("miss", MISSING_UPDATES.name, Of::P99),
            column("read p50", READ_LATENCY.name, Of::P50),
            column("read p99", READ_LATENCY.name, Of::P99),
            Column {
                title: "workers pay",
                cell: Cell::More(PAGE, TODAY),
            },
        ],
        scene: |document| {
            let readers = Load(&document.parameters).number("readers");
            format!("{}, {} readers", machine(document), thousands(readers))
        },
        answer: reads,
    },
    Question {
        experiment: "vmstat-spread",
        load: "generic",
        set: &[],
        rows: &["phase-exact", "upstream", "skew-13", "spread"],
        columns: &[
            Column {
                title: "upkeep in one second",
                cell: Cell::Raster(HERD_TIMELINE.name),
            },
            column("CPUs at once", HERD.name, Of::Max),
            column("moments", INSTANTS_PER_SECOND.name, Of::Value),
            column("takes", REFRESH.name, Of::Mean),
        ],
        scene: |document| {
            let lock = synthetic_lock(document);
            let lock =
                lock.map_or_else(String::new, |lock| format!(", synthetic: one {lock} lock"));
            machine(document) + &lock
        },
        answer: upkeep,
    },
    Question {
        experiment: "pcp-batch-free",
        load: "exit-storm",
        set: &[],
        rows: &["bounded", "whole", "batched"],
        columns: &[
            column("pages a hold", PAGES_PER_HOLD.name, Of::Max),
            column("takers p99", TAKERS, Of::P99),
            column("freers p99", FREERS, Of::P99),
            column("pages moved", ALL_PAGES_PER_SECOND.name, Of::Value),
        ],
        scene: |document| {
            let exiters = Load(&document.parameters).number("exiters");
            let machine = machine(document);
            format!("{machine}, {} tasks exit", thousands(exiters))
        },
        answer: frees,
    },
];

/// The policy of today's kernel for reads.
const TODAY: &str = "kernel-6.17";
/// The time of a worker's page.
const PAGE: &str = PAGE_NS.name;
/// Waits of tasks that take a few pages.
const TAKERS: &str = BYSTANDER_ALLOC_WAIT.name;
/// Waits of tasks that free a few pages.
const FREERS: &str = BYSTANDER_FREE_WAIT.name;

impl Question {
    /// Settings of its runs. Of the model's own constants, as the tables of the answers: a draw is one of several models, and another
    /// calibration has others.
    pub fn assignments(&self) -> Vec<String> {
        let own = [
            "draws=none".to_owned(),
            format!("load={}", self.load),
            format!("variants={}", self.rows.join(",")),
        ];
        let set = self.set.iter().map(|&it| it.to_owned());
        own.into_iter().chain(set).collect()
    }

    fn text(&self, number: usize, document: &Document, form: Markup) -> String {
        let view = view::of_experiment(self.experiment);
        let mut text = form.heading(&apart(
            &format!("{number}  {}", view.asked),
            &(self.scene)(document),
            line_width(form),
        ));
        let form = narrower(form);
        let header = ["policy"].into_iter();
        let header = header.chain(self.columns.iter().map(|column| column.title));
        let is_raster = |column: &Column| matches!(column.cell, Cell::Raster(_));
        let left = 1 + self.columns.iter().filter(|it| is_raster(it)).count();
        let mut table = Grid::new(header).right(left..self.columns.len() + 1);
        for name in self.rows {
            let Some(variant) = of(document, name) else {
                continue;
            };
            let cells = self.columns.iter().map(|it| it.cell.of(document, variant));
            table.row([view.label(name)].into_iter().chain(cells));
        }
        text.push_str(&indented(&form.table(&table)));
        if let Some(answer) = (self.answer)(document) {
            text.push_str(&indented(&form.paragraph(&answer)));
        }
        for failure in failures(document) {
            text.push_str(&indented(&form.paragraph(&form.alarm(&failure))));
        }
        text
    }
}

impl Cell {
    fn of(&self, document: &Document, variant: &VariantResult) -> String {
        let unknown = || "-".to_owned();
        match *self {
            Cell::Number(metric, of) => shown(variant, metric, of),
            Cell::More(metric, base) => {
                if variant.name == base {
                    return "0 %".to_owned();
                }
                let more = more(document, variant, metric, base);
                more.map_or_else(unknown, |more| match is_shown_as_zero(more) {
                    // Without a sign.
                    true => "0 %".to_owned(),
                    false => format!("{:+.1} %", more * 100.0),
                })
            }
            Cell::Raster(metric) => raster(document, variant, metric).unwrap_or_else(unknown),
        }
    }
}

/// The answer to the question of a document's experiment; `None` if there is no question, or a figure is missing.
pub fn answer(document: &Document) -> Option<String> {
    let mut questions = QUESTIONS.iter();
    let question = questions.find(|it| it.experiment == document.experiment)?;
    (question.answer)(document)
}

/// The whole screen. `page` says where the pictures are.
pub fn text(documents: &[Document], seconds: f64, page: &str, form: Markup) -> String {
    let seeds = documents.first().map_or(0, |document| document.seed);
    let time = format!("SIMULATED, seed {seeds}, {seconds:.0} s");
    let title = "Bursar's lab: three problems of per-CPU memory books";
    let mut text = form.heading(&apart(title, &time, line_width(form)));
    for (place, question) in QUESTIONS.iter().enumerate() {
        let mut documents = documents.iter();
        if let Some(document) = documents.find(|it| it.experiment == question.experiment) {
            text.push('\n');
            text.push_str(&question.text(place + 1, document, form));
        }
    }
    text.push('\n');
    let is_interrupted = documents.iter().any(|document| document.interrupted);
    let interrupted = "INTERRUPTED: only the runs that had finished are in these figures.";
    let last = [
        "p50 and p99: half, and 99 of 100, took at most as long. One seed judges nothing: \
         `bursar-lab run NAME --seeds 20` judges by published figures.",
        page,
        "More: `bursar-lab list`, and `bursar-lab run NAME -v` for all figures of one.",
    ];
    if is_interrupted {
        text.push_str(&wrapped(
            &form.alarm(interrupted),
            Some(line_width(form)),
            "",
            "",
        ));
    }
    for line in last {
        text.push_str(&wrapped(line, Some(line_width(form)), "", ""));
    }
    text
}

/// Columns of the screen's lines.
fn line_width(form: Markup) -> usize {
    form.width().map_or(WIDTH, |width| width.min(WIDTH))
}

/// The form of what is indented.
fn narrower(form: Markup) -> Markup {
    let width = Some(line_width(form) - INDENT.len());
    match form {
        Markup::Terminal { color, .. } => Markup::Terminal { color, width },
        Markup::Html => form,
    }
}

fn indented(text: &str) -> String {
    let line = |line: &str| match line {
        "" => "\n".to_owned(),
        line => format!("{INDENT}{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Two texts at the ends of a line, or one after the other.
fn apart(left: &str, right: &str, width: usize) -> String {
    let used = columns(left) + columns(right);
    match used + 2 <= width {
        true => format!("{left}{}{right}", " ".repeat(width - used)),
        false => format!("{left} ({right})"),
    }
}

fn of<'a>(document: &'a Document, variant: &str) -> Option<&'a VariantResult> {
    document.variants.iter().find(|it| it.name == variant)
}

fn machine(document: &Document) -> String {
    counted(
        match &document.machine {
            MachineInfo::Host(host) => host.cpus,
            MachineInfo::Sim(sim) => sim.cpus,
        },
        "CPU",
    )
}

/// Excess of a variant's metric over another one's, as a part of it.
fn more(document: &Document, variant: &VariantResult, metric: &str, base: &str) -> Option<f64> {
    let number =
        |variant: &VariantResult| variant.number(metric, Of::Value).map(|(number, _)| number);
    let more = number(variant)? / number(of(document, base)?)? - 1.0;
    more.is_finite().then_some(more)
}

/// Whether a part is 0 in tenths of a percent.
fn is_shown_as_zero(part: f64) -> bool {
    (part * 1000.0).round() == 0.0
}

fn raster(document: &Document, variant: &VariantResult, metric: &str) -> Option<String> {
    const SECOND_US: u64 = 1_000_000;
    let all = document.variants.iter();
    let all = all.filter_map(|it| timeline_of(it, metric));
    let cpus = cpus(document, all.clone());
    let raster = |timeline| Raster::of(timeline, cpus, SECOND_US, [1, RASTER_COLUMNS]);
    let most = all.map(|timeline| raster(timeline).most()).max()?;
    Some(raster(timeline_of(variant, metric)?).last_row(most))
}

fn reads(document: &Document) -> Option<String> {
    let missed = |variant| -> Option<(String, String)> {
        let variant = of(document, variant)?;
        let (share, _) = variant.number(BROKEN_READS.name, Of::Value)?;
        let of_all = |metric, of| variant.number(metric, of).map_or(0.0, |(number, _)| number);
        let pages = thousands(of_all(MISSING_UPDATES.name, Of::P99) as u64);
        let oldest = nanoseconds(of_all(STALENESS.name, Of::Max));
        Some(match share {
            0.0 => ("none".to_owned(), String::new()),
            _ => (
                percent(share),
                format!(", up to {oldest} old; 99 of 100 miss {pages} pages at most"),
            ),
        })
    };
    let takes = |variant, of_all| -> Option<String> {
        let (ns, _) = of(document, variant)?.number(READ_LATENCY.name, of_all)?;
        Some(nanoseconds(ns))
    };
    let ((own, own_age), (today, age)) = (missed("combining")?, missed(TODAY)?);
    let page = match more(document, of(document, "combining")?, PAGE, TODAY) {
        None => String::new(),
        Some(pay) if is_shown_as_zero(pay) => ", and a worker's page takes as long".to_owned(),
        Some(pay @ ..0.0) => format!(", and a worker's page takes {} shorter", percent(-pay)),
        Some(pay) => format!(", and a worker's page takes {} longer", percent(pay)),
    };
    Some(format!(
        "With Linux 6.17's policy ({TODAY}), {today} of the reads miss a completed update{age}. With Bursar {own} do{own_age}. Half of its reads \
         take at most {}, not {}, and 99 of 100 at most {}, not {}{page}.",
        takes("combining", Of::P50)?,
        takes(TODAY, Of::P50)?,
        takes("combining", Of::P99)?,
        takes(TODAY, Of::P99)?,
    ))
}

fn upkeep(document: &Document) -> Option<String> {
    let of = |variant| {
        let variant = of(document, variant)?;
        let (together, _) = variant.number(HERD.name, Of::Max)?;
        let (mean, _) = variant.number(REFRESH.name, Of::Mean)?;
        // None at once: nothing was seen.
        (together > 0.0).then(|| (together as u64, nanoseconds(mean)))
    };
    let ((own, own_mean), (all, mean)) = (of("phase-exact")?, of("upstream")?);
    let synthetic = synthetic_lock(document).map_or_else(String::new, |lock| {
        format!(
            " The load is synthetic: upkeep is one hold of a shared lock for {lock}. The thread's load: `bursar-lab run vmstat-spread`."
        )
    });
    Some(format!(
        "Upstream, up to {all} of {} begin on one tick, and the upkeep of one takes {mean} on average. With Bursar at most {own} \
         begins at once, and it takes {own_mean}.{synthetic}",
        machine(document)
    ))
}

/// Time for which upkeep holds its lock, if it does nothing else; `None` if it works on memory.
fn synthetic_lock(document: &Document) -> Option<String> {
    let load = Load(&document.parameters);
    let hold_us = load.number("lock_hold_ns") / 1_000;
    (load.word("work") == "lock").then(|| format!("{hold_us} us"))
}

fn frees(document: &Document) -> Option<String> {
    let waits = |variant| {
        let variant = of(document, variant)?;
        let p99 = |metric| distribution(variant, metric)?.summary().number(Of::P99);
        Some([(p99(TAKERS)?, "takers"), (p99(FREERS)?, "freers")])
    };
    let ([mut long, mut short], own) = (waits("batched")?, waits("bounded")?);
    if long.0 < short.0 {
        std::mem::swap(&mut long, &mut short);
    }
    if long.0 == 0.0 {
        return None;
    }
    let own_of = |who: &str| {
        let mut both = own.iter().filter(|(_, it)| *it == who);
        both.next().map_or(0.0, |(wait, _)| *wait)
    };
    Some(format!(
        "With Linux 6.19's policy (batched), {} of {} pages wait longest: {} at p99, and {} {}. With Bursar {} wait {}, and {} {}. \
         Pages moved do not compare: Bursar's take less time under the lock.",
        long.1,
        Load(&document.parameters).number("bystander_pages"),
        nanoseconds(long.0),
        short.1,
        nanoseconds(short.0),
        long.1,
        nanoseconds(own_of(long.1)),
        short.1,
        nanoseconds(own_of(short.1))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, figure, many, variant};
    use bursar_experiments::measure::{Metric, Share, Unit};

    const PAGE: &str = "Pictures: there";

    fn reader(name: &str, wrong: u64, stale_ns: u64, page_ns: f64) -> VariantResult {
        variant(
            name,
            &[
                (BROKEN_READS.name, Metric::Ratio(Share::of(1, wrong, 100))),
                (READ_LATENCY.name, many(Unit::Ns, &[2_000])),
                (STALENESS.name, many(Unit::Ns, &[stale_ns])),
                (MISSING_UPDATES.name, many(Unit::Count, &[wrong])),
                (super::PAGE, figure(Unit::Ns, page_ns)),
            ],
        )
    }

    fn documents() -> [Document; 3] {
        let reads = vec![
            reader("combining", 0, 0, 303.0),
            reader(TODAY, 96, 2_000_000, 300.0),
        ];
        let upkeep = samples::vmstat_spread(72, 18).variants.into_iter();
        let upkeep = upkeep.map(|mut it| {
            if it.name == "spread" {
                it.name = "phase-exact".to_owned();
            }
            it
        });
        let waits = |name: &str, takers_ns: u64, freers_ns: u64| {
            variant(
                name,
                &[
                    (PAGES_PER_HOLD.name, many(Unit::Count, &[63])),
                    (TAKERS, many(Unit::Ns, &[takers_ns])),
                    (FREERS, many(Unit::Ns, &[freers_ns])),
                    (ALL_PAGES_PER_SECOND.name, figure(Unit::PerSecond, 9e6)),
                ],
            )
        };
        let frees = vec![waits("batched", 500, 7_000), waits("bounded", 100, 200)];
        [
            samples::document("memcg-flush", 384, reads),
            samples::document("vmstat-spread", 72, upkeep.collect()),
            samples::document("pcp-batch-free", 316, frees),
        ]
    }

    fn screen(documents: &[Document], width: Option<usize>) -> String {
        let form = Markup::Terminal {
            color: false,
            width,
        };
        text(documents, 9.4, PAGE, form)
    }

    /// The sentences of a screen, each on one line.
    fn said(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn answers_are_made_of_the_figures() {
        let text = said(&screen(&documents(), None));
        for part in [
            "SIMULATED, seed 1, 9 s",
            "With Linux 6.17's policy (kernel-6.17), 96.0 % of the reads miss a completed update, up to 2.00 ms old; 99 of 100 miss 96 pages at most. With Bursar none do. Half of \
             its reads take at most 2.00 us, not 2.00 us, and 99 of 100 at most 2.00 us, not 2.00 us, and a worker's page takes 1.00 % longer.",
            "Bursar (combining) 0 % 0 2.00 us 2.00 us +1.0 %",
            "Upstream, up to 18 of 72 CPUs begin on one tick",
            "With Bursar at most 1 begins at once",
            "freers of 0 pages wait longest: 7.00 us at p99, and takers 500 ns. With Bursar freers wait 200 ns, and takers 100 ns.",
            PAGE,
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let mut worse = documents();
        worse[0].variants.swap(0, 1);
        worse[0].variants[0].name = "combining".to_owned();
        worse[0].variants[1].name = TODAY.to_owned();
        let mut waits = documents()[2].variants.clone();
        waits[0].metrics = documents()[2].variants[1].metrics.clone();
        worse[2].variants = waits;
        let text = said(&screen(&worse, None));
        assert!(
            text.contains("none of the reads miss a completed update. With Bursar 96.0 % do, up to 2.00 ms old; 99 of 100 miss 96 pages at most. Half"),
            "{text}"
        );
        assert!(text.contains("takes 0.99 % shorter."), "{text}");
        worse[0].variants[0].metrics = documents()[0].variants[0].metrics.clone();
        worse[0].variants[1].metrics = documents()[0].variants[0].metrics.clone();
        let text = said(&screen(&worse, None));
        assert!(text.contains("a worker's page takes as long."), "{text}");
    }

    #[test]
    fn a_load_without_memory_is_called_synthetic() {
        let [_, mut upkeep, _] = documents();
        assert!(!screen(&[upkeep.clone()], None).contains("synthetic"));
        let parameters = &mut upkeep.parameters;
        parameters.insert("work".to_owned(), "lock".into());
        parameters.insert("lock_hold_ns".to_owned(), 5_000.into());
        let text = said(&screen(&[upkeep], None));
        assert!(text.contains("72 CPUs, synthetic: one 5 us lock"), "{text}");
        assert!(
            text.contains("The load is synthetic: upkeep is one hold of a shared lock for 5 us."),
            "{text}"
        );
    }

    #[test]
    fn figures_of_nothing_are_no_answer() {
        let [mut reads, mut upkeep, mut frees] = documents();
        reads.variants = vec![reader("combining", 0, 0, 0.0), reader(TODAY, 96, 9, 0.0)];
        let said = answer(&reads).expect("an answer about reads");
        assert!(said.ends_with("at most 2.00 us, not 2.00 us."), "{said}");
        let nothing_at_once = [
            (HERD.name, many(Unit::Count, &[])),
            (REFRESH.name, many(Unit::Ns, &[5])),
        ];
        upkeep.variants[0] = variant("upstream", &nothing_at_once);
        assert_eq!(answer(&upkeep), None);
        for waits in &mut frees.variants {
            let none = [TAKERS, FREERS].map(|name| (name, many(Unit::Ns, &[0])));
            *waits = variant(&waits.name, &none);
        }
        assert_eq!(answer(&frees), None);
    }

    #[test]
    fn what_is_missing_is_no_answer() {
        let mut documents = documents();
        documents[0].variants.remove(1);
        documents[0].interrupted = true;
        documents[1].variants.clear();
        let text = screen(&documents, None);
        assert!(text.contains("INTERRUPTED"), "{text}");
        assert!(!text.contains("With Linux 6.17"), "{text}");
        assert!(!text.contains("Upstream, up to"), "{text}");
    }

    #[test]
    fn the_screen_fits_a_terminal() {
        for (given, most) in [(None, 80), (Some(200), 80), (Some(80), 80), (Some(40), 40)] {
            let text = screen(&documents(), given);
            let widest = text.lines().map(columns).max();
            assert!(widest <= Some(most), "{given:?}: {text}");
            if most == 80 {
                assert!(text.lines().count() <= 40, "{text}");
            }
        }
    }

    #[test]
    fn what_failed_is_on_the_screen() {
        let mut documents = documents();
        documents[0].expectations = vec![bursar_experiments::document::ExpectationResult {
            variant: "combining".to_owned(),
            metric: BROKEN_READS.name.to_owned(),
            at_most: 0.0,
            measured: 0.5,
            holds: false,
            reason: "of a promise".to_owned(),
        }];
        let text = said(&screen(&documents, None));
        assert!(
            text.contains("FAILED: broken_reads of combining is 0.5."),
            "{text}"
        );
    }
}
