//! The screen of `bursar run` alone: one question of each kernel thread, and its answer by the figures of one run.

use bursar_lab::document::{Document, VariantResult};
use bursar_lab::machine_info::MachineInfo;

use crate::findings::failures;
use crate::form::Form;
use crate::grid::Grid;
use crate::rulings::change;
use crate::timeline::{Raster, cpus, of as timeline_of};
use crate::units::{counted, nanoseconds, percent, thousands};
use crate::view::{Load, Of, distribution, shown};
use crate::width::{columns, wrapped};

/// The screen is no wider, however wide the terminal is.
const WIDTH: usize = 80;
/// Before everything that belongs to a question.
const INDENT: &str = "   ";
/// Columns of the upkeep of a second.
const RASTER_COLUMNS: usize = 24;

/// A question, and the runs that answer it.
pub struct Question {
    asked: &'static str,
    pub experiment: &'static str,
    pub load: &'static str,
    /// Variants, each with its name on the screen; Bursar's first.
    rows: &'static [(&'static str, &'static str)],
    columns: &'static [Column],
    /// What is simulated.
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
    /// How much more of a metric there is than in another variant.
    More(&'static str, &'static str),
    /// What happened in a second.
    Raster(&'static str),
}

const fn column(title: &'static str, metric: &'static str, of: Of) -> Column {
    Column {
        title,
        cell: Cell::Number(metric, of),
    }
}

/// All of the screen. The loads are small: together they take some ten seconds of a CPU.
pub const QUESTIONS: [Question; 3] = [
    Question {
        asked: "Does a read show what has already happened?",
        experiment: "memcg-flush",
        load: "readers-100ms",
        rows: &[
            ("combining", "Bursar"),
            ("unified", "Linux 6.7 (unified)"),
            ("coalesced", "the thread's (coalesced)"),
            (MERGED, "Linux 6.8 (per-group)"),
        ],
        columns: &[
            column("wrong reads", "broken_reads", Of::Value),
            column("read p50", "read_latency", Of::P50),
            column("read p99", "read_latency", Of::P99),
            Column {
                title: "workers pay",
                cell: Cell::More(PAGE, MERGED),
            },
        ],
        scene: |document| {
            let readers = Load(&document.parameters).number("readers");
            format!("{}, {} readers", machine(document), thousands(readers))
        },
        answer: reads,
    },
    Question {
        asked: "Do all CPUs do their upkeep at once?",
        experiment: "vmstat-spread",
        load: "generic",
        rows: &[
            ("phase-exact", "Bursar"),
            ("upstream", "upstream"),
            ("skew-13", "upstream, skew of 13"),
            ("spread", "the thread's (spread)"),
        ],
        columns: &[
            Column {
                title: "upkeep in one second",
                cell: Cell::Raster("herd_timeline"),
            },
            column("at once", "herd", Of::Max),
            column("moments", "instants_per_second", Of::Value),
            column("mean", "refresh", Of::Mean),
        ],
        scene: |document| {
            let interval = Load(&document.parameters).number("interval_ms");
            let machine = machine(document);
            format!("{machine}, upkeep each {} ms", thousands(interval))
        },
        answer: upkeep,
    },
    Question {
        asked: "Who waits while many pages are freed?",
        experiment: "pcp-batch-free",
        load: "exit-storm",
        rows: &[
            ("bounded", "Bursar"),
            ("whole", "Linux 6.18 (whole)"),
            ("batched", "Linux 6.19 (batched)"),
        ],
        columns: &[
            column("pages a hold", "pages_per_hold", Of::Max),
            column("takers p99", TAKERS, Of::P99),
            column("freers p99", FREERS, Of::P99),
            column("pages freed", "ops_per_second", Of::Value),
        ],
        scene: |document| {
            let exiters = Load(&document.parameters).number("exiters");
            let machine = machine(document);
            format!("{machine}, {} tasks exit", thousands(exiters))
        },
        answer: frees,
    },
];

/// What the kernel merged after the thread about reads.
const MERGED: &str = "per-group";
/// The time of a worker's page.
const PAGE: &str = "page_ns";
/// Waits of tasks that take a few pages.
const TAKERS: &str = "bystander_alloc_wait";
/// Waits of tasks that free a few pages.
const FREERS: &str = "bystander_free_wait";

impl Question {
    /// What is set for its runs.
    pub fn assignments(&self) -> Vec<String> {
        let variants: Vec<_> = self.rows.iter().map(|(variant, _)| *variant).collect();
        vec![
            format!("load={}", self.load),
            format!("variants={}", variants.join(",")),
        ]
    }

    fn text(&self, number: usize, document: &Document, form: Form) -> String {
        let form = narrower(form);
        let mut text = form.heading(&apart(
            &format!("{number}  {}", self.asked),
            &(self.scene)(document),
            line_width(form) + INDENT.len(),
        ));
        let header = ["policy"].into_iter();
        let header = header.chain(self.columns.iter().map(|column| column.title));
        let is_raster = |column: &Column| matches!(column.cell, Cell::Raster(_));
        let left = 1 + self.columns.iter().filter(|it| is_raster(it)).count();
        let mut table = Grid::new(header).right(left..self.columns.len() + 1);
        for (variant, name) in self.rows {
            let Some(variant) = of(document, variant) else {
                continue;
            };
            let cells = self.columns.iter().map(|it| it.cell.of(document, variant));
            table.row([(*name).to_owned()].into_iter().chain(cells));
        }
        text.push_str(&indented(&form.table(&table)));
        if let Some(answer) = (self.answer)(document) {
            text.push_str(&wrapped(&answer, form.width(), "", "").lines().fold(
                String::new(),
                |all, line| all + INDENT + line + "\n",
            ));
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
                more(document, variant, metric, base).map_or_else(unknown, change)
            }
            Cell::Raster(metric) => raster(document, variant, metric).unwrap_or_else(unknown),
        }
    }
}

/// The whole screen. `page` says where the pictures are.
pub fn text(documents: &[Document], seconds: f64, page: &str, form: Form) -> String {
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
        "p50, p99, mean: half and 99 of 100 took at most as long, and the mean. One seed judges nothing; \
         `bursar run NAME --seeds 20` judges by published figures.",
        page,
        "More: `bursar list` for experiments and loads, `bursar run NAME -v` for all figures.",
    ];
    if is_interrupted {
        text.push_str(&wrapped(&form.alarm(interrupted), Some(line_width(form)), "", ""));
    }
    for line in last {
        text.push_str(&wrapped(line, Some(line_width(form)), "", ""));
    }
    text
}

/// Columns of the screen's lines.
fn line_width(form: Form) -> usize {
    form.width().map_or(WIDTH, |width| width.min(WIDTH))
}

/// The form of what is indented.
fn narrower(form: Form) -> Form {
    let width = Some(line_width(form) - INDENT.len());
    match form {
        Form::Terminal { color, .. } => Form::Terminal { color, width },
        Form::Markdown => form,
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

/// How much more of a metric a variant has than another one, as a part of it.
fn more(document: &Document, variant: &VariantResult, metric: &str, base: &str) -> Option<f64> {
    let number = |variant| Of::Value.get(variant, metric).map(|(number, _)| number);
    Some(number(variant)? / number(of(document, base)?)? - 1.0)
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
    let missed = |variant| -> Option<(f64, String)> {
        let variant = of(document, variant)?;
        let (share, _) = Of::Value.get(variant, "broken_reads")?;
        let (oldest, _) = Of::Max.get(variant, "staleness")?;
        Some(match share {
            0.0 => (share, "none".to_owned()),
            _ => (share, format!("{}, up to {} old", percent(share), nanoseconds(oldest))),
        })
    };
    let ((_, own), (_, merged)) = (missed("combining")?, missed(MERGED)?);
    let pay = more(document, of(document, "combining")?, PAGE, MERGED)?;
    let longer = if pay < 0.0 { "shorter" } else { "longer" };
    Some(format!(
        "Reads that miss a completed update: with Linux 6.8 {merged}; with Bursar {own}, and a worker's page takes {} {longer}.",
        percent(pay.abs())
    ))
}

fn upkeep(document: &Document) -> Option<String> {
    let of = |variant| {
        let variant = of(document, variant)?;
        let (together, _) = Of::Max.get(variant, "herd")?;
        let (mean, _) = Of::Mean.get(variant, "refresh")?;
        Some((counted(together as u64, "CPU"), nanoseconds(mean)))
    };
    let ((own, own_mean), (all, mean)) = (of("phase-exact")?, of("upstream")?);
    Some(format!(
        "Upstream, up to {all} of {} begin on one tick, and one upkeep takes {mean} in the mean; with Bursar {own} does, \
         and it takes {own_mean}.",
        machine(document)
    ))
}

fn frees(document: &Document) -> Option<String> {
    let waits = |variant| {
        let variant = of(document, variant)?;
        let p99 = |metric| Some(distribution(variant, metric)?.summary().p99 as f64);
        Some([(p99(TAKERS)?, "takers"), (p99(FREERS)?, "freers")])
    };
    let ([mut long, mut short], own) = (waits("batched")?, waits("bounded")?);
    if long.0 < short.0 {
        std::mem::swap(&mut long, &mut short);
    }
    let own_of = |who: &str| {
        let mut both = own.iter().filter(|(_, it)| *it == who);
        both.next().map_or(0.0, |(wait, _)| *wait)
    };
    Some(format!(
        "With Linux 6.19 {} of a few pages wait longest, p99 {} against {} of {}; with Bursar it is {} against {}.",
        long.1,
        nanoseconds(long.0),
        nanoseconds(short.0),
        short.1,
        nanoseconds(own_of(long.1)),
        nanoseconds(own_of(short.1))
    ))
}
