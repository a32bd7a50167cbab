//! Files of other programs: `trace.dat` of `trace-cmd record`, and `perf.data` of `perf record`.
//!
//! Both hold the kernel's format files and the records that a live session reads. So they pass through the same decoder and
//! the same analysis. They differ from a live session in two ways: nothing filtered their events, so `intake.rs` does, and they
//! say little of the machine.
//!
//! # Invariants
//! * Each length and count is compared with the file, or with a constant, before memory is allocated.
//! * Memory is bounded by a constant and a multiple of the file's length, whatever the file says.
//! * Texts of the result and of errors have no character that a terminal obeys.

mod error;
mod intake;
mod other;
mod perf_data;
mod source;
mod trace_dat;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{Read, Seek};
use std::vec;

pub use error::ForeignError;
use intake::{Facts, Intake};
use perf_data::PerfData;
use source::Source;
use trace_dat::{Pages, TraceDat};

use crate::event::Event;
use crate::merge::take_page;
use crate::page::PageLayout;
use crate::seen::{Losses, Machine, Seen};
use crate::shown::shown;
use crate::symbols::Symbols;
use crate::writer::Writer;

/// Length of a file's beginning by which its kind is known.
const BEGIN_BYTES: u64 = 4_096;

/// Clocks that count nanoseconds.
const CLOCKS: [&str; 7] = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai"];

/// Reads a file. `symbols` replace the addresses of functions that the file has.
///
/// # Errors
/// [`ForeignError`] says why the file cannot be read.
pub fn read(file: impl Read + Seek, symbols: Option<Symbols>) -> Result<Seen, ForeignError> {
    let mut source = Source::new(file)?;
    let begin = source.begin(BEGIN_BYTES)?;
    let Some(magic) = begin.first_chunk::<10>() else {
        return Err(other::error(&begin));
    };
    source.seek(magic.len() as u64)?;
    if magic == trace_dat::MAGIC {
        return read_trace_dat(source, symbols);
    }
    if magic.starts_with(perf_data::MAGIC) {
        return read_perf_data(source, symbols);
    }
    if magic.starts_with(perf_data::MAGIC_OF_OTHERS) {
        return Err(ForeignError::OtherByteOrder);
    }
    Err(other::error(&begin))
}

/// A buffer of a CPU, of which one page was decoded.
struct Stream {
    pages: Pages,
    events: vec::IntoIter<Event>,
}

fn read_trace_dat<F: Read + Seek>(
    source: Source<F>,
    symbols: Option<Symbols>,
) -> Result<Seen, ForeignError> {
    let mut dat = TraceDat::open(source)?;
    if let Some(clock) = &dat.clock
        && !CLOCKS.contains(&clock.as_str())
    {
        let clock = shown(clock);
        return Err(ForeignError::Clock { clock });
    }
    let layout = PageLayout::parse(&dat.texts.header_page).ok();
    let layout = layout.filter(|it| it.size > 0);
    let layout = layout.ok_or(ForeignError::Damaged {
        offset: 0,
        why: "the text of `events/header_page` makes no sense",
    })?;
    let release = dat.uname.as_deref().and_then(|it| it.split(' ').nth(2));
    let highest = dat.pages.iter().map(|it| u64::from(it.cpu) + 1).max();
    let mut intake = Intake::new(Facts {
        writer: Writer::TraceCmd,
        machine: machine(release, dat.cpus.max(highest.unwrap_or(0))),
        symbols: symbols.unwrap_or_else(|| Symbols::parse(&dat.texts.kallsyms)),
        texts: &dat.texts,
        command: "",
    });
    let mut streams: Vec<Stream> = (std::mem::take(&mut dat.pages).into_iter())
        .map(|pages| Stream {
            pages,
            events: vec::IntoIter::default(),
        })
        .collect();
    let mut losses = Losses::default();
    let mut page = vec![0; layout.size];
    // The next event of a stream that has one, in the order of time; pages without events are passed over.
    let mut advance = |stream: &mut Stream, intake: &mut Intake| {
        while stream.events.as_slice().is_empty() && !stream.pages.is_empty() {
            let cpu = stream.pages.cpu;
            let bytes = dat.next_page(&mut stream.pages, &mut page)?;
            let mut events = Vec::new();
            let decode = |time, record: &[u8]| intake.decode(time, cpu, record);
            take_page(&layout, cpu, bytes, &mut events, &mut losses, decode);
            stream.events = events.into_iter();
        }
        let next = stream.events.as_slice().first();
        Ok::<_, ForeignError>(next.map(|event| event.time_ns))
    };
    let mut next = BinaryHeap::new();
    for (index, stream) in streams.iter_mut().enumerate() {
        next.extend(advance(stream, &mut intake)?.map(|time| Reverse((time, index))));
    }
    while let Some(Reverse((_, index))) = next.pop() {
        let stream = &mut streams[index];
        stream.events.next().iter().for_each(|it| intake.take(it));
        next.extend(advance(stream, &mut intake)?.map(|time| Reverse((time, index))));
    }
    for (cpu, lost) in dat.lost {
        losses.events_lost = losses.events_lost.saturating_add(lost);
        losses.cpus.push(cpu);
    }
    let names = dat.texts.cmdlines.lines().filter_map(|line| {
        let (pid, name) = line.trim_start().split_once(' ')?;
        Some((pid.parse().ok()?, shown(name)))
    });
    Ok(intake.finish(losses, &names.collect(), &BTreeMap::new()))
}

fn read_perf_data<F: Read + Seek>(
    source: Source<F>,
    symbols: Option<Symbols>,
) -> Result<Seen, ForeignError> {
    let mut perf = PerfData::open(source)?;
    let mut intake = Intake::new(Facts {
        writer: Writer::Perf,
        machine: machine(perf.release.as_deref(), perf.cpus),
        symbols: symbols.unwrap_or_else(|| Symbols::parse(&perf.texts.kallsyms)),
        texts: &perf.texts,
        command: &perf.command,
    });
    let told = perf.records(&mut intake)?;
    Ok(intake.finish(told.losses, &told.names, &told.cgroups))
}

/// The machine, as far as a file describes it.
fn machine(release: Option<&str>, cpus: u64) -> Machine {
    Machine {
        kernel: release.map_or_else(|| "of an unknown release".to_owned(), shown),
        cpus: cpus.min(source::ITEMS_MAX) as usize,
        ..Machine::default()
    }
}
