//! Timeline of events on CPUs, on the terminal: CPUs folded into rows, time into columns.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::measure::{Metric, Timeline};

use crate::units::{nanoseconds, thousands};
use crate::view::{Load, Moments, shown};
use bursar_term::bars::BARS;

/// Rows of a variant, at most.
const ROWS: usize = 6;
/// Columns of the whole time, where there is room.
const COLUMNS: usize = 80;
/// Columns beside those.
const BESIDE: usize = 10;

/// Its title, and a block for each variant that has one; nothing below the title if none has. All blocks have one scale.
pub fn timeline(document: &Document, moments: Moments, width: Option<usize>) -> (String, String) {
    let columns = width.map_or(COLUMNS, |width| (width - BESIDE).min(COLUMNS));
    let timelines = document.variants.iter();
    let timelines: Vec<_> = timelines
        .filter_map(|variant| Some((variant, of(variant, moments.metric)?)))
        .collect();
    let cpus = cpus(document, timelines.iter().map(|(_, timeline)| *timeline));
    let span_us = (moments.span_us)(Load(&document.parameters));
    let grids: Vec<_> = timelines
        .iter()
        .map(|(variant, timeline)| {
            (
                *variant,
                Raster::of(timeline, cpus, span_us, [ROWS, columns]),
            )
        })
        .collect();
    let most = grids.iter().map(|(_, grid)| grid.most());
    let most = most.max().unwrap_or(0);
    if most == 0 {
        return (String::new(), String::new());
    }
    let title = format!(
        "{} (up: CPU numbers; across: {}; {} stands for {} in {})",
        moments.title,
        nanoseconds(span_us as f64 * 1e3),
        BARS[BARS.len() - 1],
        thousands(most),
        nanoseconds(span_us as f64 * 1e3 / columns as f64)
    );
    let blocks: Vec<_> = grids
        .iter()
        .map(|(variant, grid)| {
            let beside = moments.beside.iter();
            let beside =
                beside.map(|it| format!("{} {}", it.title, shown(variant, it.metric, it.of)));
            let beside: Vec<_> = beside.collect();
            format!(
                "  {}: {}\n{}",
                variant.name,
                beside.join(", "),
                grid.drawn(most)
            )
        })
        .collect();
    (title, blocks.concat())
}

/// A variant's timeline.
pub fn of<'a>(variant: &'a VariantResult, metric: &str) -> Option<&'a Timeline> {
    match variant.metrics.get(metric) {
        Some(Metric::Timeline(timeline)) => Some(timeline),
        _ => None,
    }
}

/// CPUs of the machine, or more if a timeline has more.
pub fn cpus<'a>(document: &Document, timelines: impl Iterator<Item = &'a Timeline>) -> usize {
    let own = match &document.machine {
        MachineInfo::Host(host) => host.cpus,
        MachineInfo::Sim(sim) => sim.cpus,
    };
    let seen = timelines
        .flat_map(Timeline::points)
        .map(|&(cpu, _)| cpu as usize + 1);
    seen.max().unwrap_or(0).max(own)
}

/// Number of events by row and column; the highest CPU numbers are in the first row.
pub struct Raster {
    cpus_per_row: usize,
    cells: Vec<Vec<u64>>,
}

impl Raster {
    /// With at most so many rows, and so many columns.
    pub fn of(timeline: &Timeline, cpus: usize, span_us: u64, [rows, columns]: [usize; 2]) -> Self {
        let cpus_per_row = cpus.div_ceil(rows).max(1);
        let mut cells = vec![vec![0; columns]; cpus.div_ceil(cpus_per_row)];
        for &(cpu, us) in timeline.points() {
            let column = us.saturating_mul(columns as u64) / span_us.max(1);
            let row = cells.len() - 1 - cpu as usize / cpus_per_row;
            if let Some(cell) = cells[row].get_mut(usize::try_from(column).unwrap_or(columns)) {
                *cell += 1;
            }
        }
        Self {
            cpus_per_row,
            cells,
        }
    }

    /// Largest count of a cell.
    pub fn most(&self) -> u64 {
        self.cells.iter().flatten().copied().max().unwrap_or(0)
    }

    /// The row of the least CPU numbers.
    pub fn last_row(&self, most: u64) -> String {
        let last = self.cells.last().into_iter().flatten();
        last.map(|count| bar(*count, most)).collect()
    }

    /// Lines with the number of the least CPU of each.
    fn drawn(&self, most: u64) -> String {
        let mut text = String::new();
        for (row, cells) in self.cells.iter().enumerate() {
            let least = (self.cells.len() - 1 - row) * self.cpus_per_row;
            let bars: String = cells.iter().map(|count| bar(*count, most)).collect();
            text.push_str(&format!("  {least:>5} |{bars}|\n"));
        }
        text
    }
}

/// Bar of a cell. A single event is visible beside any number of others.
fn bar(count: u64, most: u64) -> char {
    if count == 0 {
        return ' ';
    }
    let step = (count * BARS.len() as u64).div_ceil(most.max(1));
    BARS[usize::try_from(step)
        .unwrap_or(BARS.len())
        .clamp(1, BARS.len())
        - 1]
}
