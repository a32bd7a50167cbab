//! `perf.data`, the file of `perf record`, without compression.
//!
//! A header names the events, the records, and then sections of features. One feature is the part of a `trace.dat` with the
//! formats of the events. A sample of a trace point holds the kernel's record as its raw data.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::ForeignError;
use super::intake::Intake;
use super::source::{ITEMS_MAX, Source};
use super::trace_dat::Texts;
use crate::event::Kind;
use crate::event::Problem;
use crate::merge::{self, Merge};
use crate::seen::Losses;
use crate::shown::shown;
use crate::writer::Writer;

/// First bytes of the file.
pub(super) const MAGIC: &[u8] = b"PERFILE2";
/// First bytes of a file of version 1.
pub(super) const MAGIC_OF_1: &[u8] = b"PERFFILE";
/// First bytes of a file with the other order of bytes.
pub(super) const MAGIC_OF_OTHERS: &[u8] = b"2ELIFREP";

/// Length of the header of a file that was not written to a pipe.
const HEADER_BYTES: u64 = 104;
/// Bytes of an event's attributes that are read.
const ATTRIBUTE_BYTES: u64 = 48;
/// Greatest number of identifiers of all events.
const IDS_MAX: u64 = 1 << 20;
/// Kind of an event that is a trace point.
const TRACE_POINT: u32 = 2;

/// Bits of the set of features.
mod feature {
    pub(super) const TRACING_DATA: u32 = 1;
    pub(super) const RELEASE: u32 = 4;
    pub(super) const CPUS: u32 = 7;
    pub(super) const COMMAND: u32 = 11;
    pub(super) const BITS: u32 = 256;
}

/// Kinds of records.
mod record {
    pub(super) const LOST: u32 = 2;
    pub(super) const COMM: u32 = 3;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const LOST_SAMPLES: u32 = 13;
    pub(super) const CGROUP: u32 = 19;
    pub(super) const FINISHED_ROUND: u32 = 68;
    pub(super) const AUX_TRACE: u32 = 71;
    pub(super) const COMPRESSED: [u32; 2] = [81, 83];
}

/// Bits of an event's sample type: the parts that its samples have.
mod part {
    pub(super) const IP: u64 = 1;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDRESS: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLERS: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// An event that was recorded.
#[derive(Clone, Copy, Debug)]
struct Attributes {
    kind: u32,
    /// Parts of its samples.
    parts: u64,
}

/// A file whose header was read.
#[derive(Debug)]
pub(super) struct PerfData<F> {
    source: Source<F>,
    pub(super) texts: Texts,
    /// The kernel's release.
    pub(super) release: Option<String>,
    /// CPUs that were online.
    pub(super) cpus: u64,
    /// The command that recorded.
    pub(super) command: String,
    events: Vec<Attributes>,
    /// Places in `events`.
    by_id: BTreeMap<u64, usize>,
    records: (u64, u64),
}

/// Content of the records beside events.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) losses: Losses,
    /// Names of tasks.
    pub(super) names: BTreeMap<i32, String>,
    /// Paths of cgroups.
    pub(super) cgroups: BTreeMap<u64, String>,
}

impl<F: Read + Seek> PerfData<F> {
    /// Reads everything but the records.
    pub(super) fn open(mut source: Source<F>) -> Result<Self, ForeignError> {
        source.seek(MAGIC.len() as u64)?;
        if source.u64()? < HEADER_BYTES {
            return Err(ForeignError::Recorded {
                fault: "it was written to a pipe",
                remedy: "record into a file: `perf record -o FILE`".to_owned(),
            });
        }
        let event_bytes = source.u64()?;
        let events = (source.u64()?, source.u64()?);
        let records = (source.u64()?, source.u64()?);
        let _event_types = (source.u64()?, source.u64()?);
        let features: [u64; (feature::BITS / 64) as usize] =
            [source.u64()?, source.u64()?, source.u64()?, source.u64()?];
        let end = source.check(records.0, records.1)?;
        let mut perf = Self {
            source,
            texts: Texts::default(),
            release: None,
            cpus: 0,
            command: String::new(),
            events: Vec::new(),
            by_id: BTreeMap::new(),
            records: (records.0, end),
        };
        perf.read_events(events, event_bytes)?;
        perf.read_features(end, features)?;
        if !perf.events.is_empty() && perf.events.iter().all(|it| it.kind != TRACE_POINT) {
            return Err(ForeignError::Recorded {
                fault: "it is a profile: it has samples by time or by count, and no event of the kernel",
                remedy: format!(
                    "record the events: `{}`",
                    Writer::Perf.command(Problem::ZoneLock)
                ),
            });
        }
        if perf.texts.header_page.is_empty() {
            return Err(ForeignError::Recorded {
                fault: "it has no formats of trace points",
                remedy: "record trace points, and let `perf record` end by itself or by Ctrl-C"
                    .to_owned(),
            });
        }
        perf.check_events()?;
        Ok(perf)
    }

    fn read_events(
        &mut self,
        (offset, bytes): (u64, u64),
        event_bytes: u64,
    ) -> Result<(), ForeignError> {
        let source = &mut self.source;
        let end = source.check(offset, bytes)?;
        if event_bytes < ATTRIBUTE_BYTES + 16 || bytes / event_bytes > ITEMS_MAX {
            return Err(source.damaged("events of no possible size or number"));
        }
        let mut ids_left = IDS_MAX;
        let mut at = offset;
        while end - at >= event_bytes {
            source.seek(at)?;
            let kind = source.u32()?;
            source.skip(20)?;
            let parts = source.u64()?;
            at += event_bytes;
            source.seek(at - 16)?;
            let (ids, ids_bytes) = (source.u64()?, source.u64()?);
            source.check(ids, ids_bytes)?;
            let left = ids_left.checked_sub(ids_bytes / 8);
            ids_left = left.ok_or_else(|| source.damaged("too many identifiers of events"))?;
            source.seek(ids)?;
            for _ in 0..ids_bytes / 8 {
                self.by_id.insert(source.u64()?, self.events.len());
            }
            self.events.push(Attributes { kind, parts });
        }
        Ok(())
    }

    /// Reads the features whose places follow the records.
    fn read_features(&mut self, places: u64, set: [u64; 4]) -> Result<(), ForeignError> {
        let source = &mut self.source;
        let has = |bit: &u32| set[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
        for (place, bit) in (0..feature::BITS).filter(has).enumerate() {
            source.seek(places + 16 * place as u64)?;
            let (offset, bytes) = (source.u64()?, source.u64()?);
            source.check(offset, bytes)?;
            source.seek(offset)?;
            match bit {
                feature::TRACING_DATA => self.texts = Texts::of_perf(source)?,
                feature::RELEASE => self.release = Some(source.text32()?),
                feature::CPUS => {
                    let _possible = source.u32()?;
                    self.cpus = source.count("too many CPUs")?;
                }
                feature::COMMAND => {
                    for _ in 0..source.count("too many words of the command")? {
                        self.command.push_str(&source.text32()?);
                        self.command.push(' ');
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses files whose samples cannot be told apart, or lack a part that is needed.
    fn check_events(&self) -> Result<(), ForeignError> {
        let trace_points = || self.events.iter().filter(|it| it.kind == TRACE_POINT);
        let all = |parts| trace_points().all(|it| it.parts & parts == parts);
        let refused = |fault, remedy: &str| {
            let remedy = remedy.to_owned();
            Err(ForeignError::Recorded { fault, remedy })
        };
        if !all(part::TIME | part::CPU | part::RAW) {
            return refused(
                "its samples lack a time, a CPU or the raw record",
                "record trace points with `perf record -a -R`",
            );
        }
        if trace_points().any(|it| it.parts & part::READ != 0) {
            return refused(
                "its samples hold counts of a group of events",
                "record without `:S`",
            );
        }
        let mut others = self.events.windows(2);
        let are_equal = others.all(|pair| pair[0].parts == pair[1].parts);
        let has_id = |it: &Attributes| it.parts & part::IDENTIFIER != 0;
        match are_equal || self.events.iter().all(has_id) {
            true => Ok(()),
            false => refused(
                "its events have samples of different kinds without identifiers",
                "record trace points alone",
            ),
        }
    }

    /// Passes all events to `intake`.
    pub(super) fn records(&mut self, intake: &mut Intake) -> Result<Told, ForeignError> {
        let mut told = Told::default();
        let mut merge = Merge::default();
        let mut lost_samples = 0_u64;
        let mut body = Vec::new();
        let (start, end) = self.records;
        self.source.seek(start)?;
        while self.source.at() < end {
            let offset = self.source.at();
            let (kind, _misc, bytes) = (
                self.source.u32()?,
                self.source.u16()?,
                u64::from(self.source.u16()?),
            );
            if bytes < 8 || bytes > end - offset {
                return Err(ForeignError::Damaged {
                    offset,
                    why: "a record of no possible length",
                });
            }
            body.resize(bytes as usize - 8, 0);
            self.source.fill(&mut body)?;
            let mut input = Input(&body);
            match kind {
                record::SAMPLE => self.sample(input, intake, &mut merge, &mut told.losses),
                record::LOST => self.lost(input, &mut merge, &mut told.losses),
                record::LOST_SAMPLES => {
                    lost_samples = lost_samples.saturating_add(input.u64().unwrap_or(0));
                }
                record::COMM => {
                    if let (Some(_process), Some(thread)) = (input.u32(), input.u32()) {
                        told.names.insert(thread as i32, input.text());
                    }
                }
                record::CGROUP => {
                    if let Some(id) = input.u64() {
                        told.cgroups.insert(id, input.text());
                    }
                }
                record::FINISHED_ROUND => merge.complete(|event| intake.take(event)),
                record::AUX_TRACE => self.source.skip(input.u64().unwrap_or(0))?,
                kind if record::COMPRESSED.contains(&kind) => {
                    return Err(ForeignError::Compressed {
                        by: "zstd".to_owned(),
                        remedy: "record without `-z`",
                    });
                }
                _ => {}
            }
        }
        merge.rest(|event| intake.take(event));
        // Later versions count what was lost once more at the end.
        told.losses.events_lost = told.losses.events_lost.max(lost_samples);
        Ok(told)
    }

    fn sample(
        &self,
        input: Input<'_>,
        intake: &mut Intake,
        merge: &mut Merge,
        losses: &mut Losses,
    ) {
        let Some(attributes) = self.attributes(input.clone().u64()) else {
            return;
        };
        if attributes.kind != TRACE_POINT {
            return;
        }
        losses.events_read += 1;
        let bytes = input.0.len() as u64;
        let Some(sample) = Sample::of(input, attributes.parts) else {
            losses.bytes_undecoded += bytes;
            return;
        };
        let Some(event) = intake.decode(sample.time_ns, sample.cpu, sample.raw) else {
            return;
        };
        merge.events.push(event);
        if matches!(event.kind, Kind::ContentionBegin { .. }) && !sample.callers.is_empty() {
            let (callers, _) = sample.callers.as_chunks();
            let callers = callers.iter().map(|it| u64::from_ne_bytes(*it));
            merge.events.push(intake.stack(&event, callers));
        }
    }

    /// A loss. Its time and CPU are at the end of the record.
    fn lost(&self, mut input: Input<'_>, merge: &mut Merge, losses: &mut Losses) {
        let (Some(id), Some(count)) = (input.u64(), input.u64()) else {
            return;
        };
        losses.events_lost = losses.events_lost.saturating_add(count);
        let parts = self.by_id.get(&id).map_or(0, |it| self.events[*it].parts);
        let mut end = input.0;
        let mut last = |bit| {
            let (rest, bytes) = end.split_last_chunk().filter(|_| parts & bit != 0)?;
            end = rest;
            Some(u64::from_ne_bytes(*bytes))
        };
        last(part::IDENTIFIER);
        let cpu = last(part::CPU).map(|it| Input(&it.to_ne_bytes()).u32());
        last(part::STREAM);
        last(part::ID);
        if let (Some(Some(cpu)), Some(time_ns)) = (cpu, last(part::TIME)) {
            merge.events.push(merge::lost(time_ns, cpu));
            if !losses.cpus.contains(&cpu) && (losses.cpus.len() as u64) < ITEMS_MAX {
                losses.cpus.push(cpu);
            }
        }
    }

    /// The event of a record that begins with this number, if there are several.
    fn attributes(&self, first: Option<u64>) -> Option<Attributes> {
        let known = self.events.first()?;
        let place = match known.parts & part::IDENTIFIER {
            0 => 0,
            _ => *self.by_id.get(&first?)?,
        };
        self.events.get(place).copied()
    }
}

/// The parts of a sample that are needed.
struct Sample<'a> {
    time_ns: u64,
    cpu: u32,
    callers: &'a [u8],
    raw: &'a [u8],
}

impl<'a> Sample<'a> {
    fn of(mut input: Input<'a>, parts: u64) -> Option<Self> {
        let mut number = |bit| match parts & bit {
            0 => Some(0),
            _ => input.u64(),
        };
        for bit in [part::IDENTIFIER, part::IP, part::TID] {
            number(bit)?;
        }
        let time_ns = number(part::TIME)?;
        for bit in [part::ADDRESS, part::ID, part::STREAM] {
            number(bit)?;
        }
        let cpu = Input(&number(part::CPU)?.to_ne_bytes()).u32()?;
        number(part::PERIOD)?;
        let callers = match number(part::CALLERS)? {
            0 => &[],
            count => input.bytes(usize::try_from(count).ok()?.checked_mul(8)?)?,
        };
        let raw_bytes = input.u32()? as usize;
        let raw = input.bytes(raw_bytes)?;
        Some(Self {
            time_ns,
            cpu,
            callers,
            raw,
        })
    }
}

/// Bytes of a record that were not read yet.
#[derive(Clone)]
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A text that ends in 0.
    fn text(&mut self) -> String {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or(&[]);
        shown(&String::from_utf8_lossy(text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const ALL: u64 = part::IDENTIFIER
        | part::IP
        | part::TID
        | part::TIME
        | part::ADDRESS
        | part::ID
        | part::STREAM
        | part::CPU
        | part::PERIOD
        | part::CALLERS
        | part::RAW;

    fn bytes(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|it| it.to_ne_bytes()).collect()
    }

    #[test]
    fn parts_of_a_sample_are_in_the_order_of_the_kernel() {
        // The first ones, then two callers, then three bytes behind their length.
        let mut body = bytes(&[1, 2, 3, 44, 5, 6, 7, 8, 9, 2, 0xa, 0xb]);
        body.extend(3_u32.to_ne_bytes());
        body.extend(b"raw and more");
        let sample = Sample::of(Input(&body), ALL).expect("a sample");
        assert_eq!((sample.time_ns, sample.raw), (44, &b"raw"[..]));
        assert_eq!(
            sample.cpu,
            Input(&8_u64.to_ne_bytes()).u32().expect("a number")
        );
        assert_eq!(sample.callers, bytes(&[0xa, 0xb]));
        for length in 0..body.len() - 9 {
            assert!(
                Sample::of(Input(&body[..length]), ALL).is_none(),
                "{length}"
            );
        }
        let without = ALL & !(part::ADDRESS | part::CALLERS);
        let fewer = bytes(&[1, 2, 3, 44, 6, 7, 8, 9, 0]);
        let sample = Sample::of(Input(&fewer), without).expect("a sample");
        assert_eq!((sample.time_ns, sample.callers.len()), (44, 0));
    }

    #[test]
    fn a_loss_has_its_time_and_cpu_at_its_end() {
        let perf = PerfData {
            source: Source::new(Cursor::new(Vec::new())).expect("no bytes"),
            texts: Texts::default(),
            release: None,
            cpus: 0,
            command: String::new(),
            events: vec![Attributes {
                kind: TRACE_POINT,
                parts: ALL,
            }],
            by_id: BTreeMap::from([(70, 0)]),
            records: (0, 0),
        };
        let mut merge = Merge::default();
        let mut losses = Losses::default();
        let cpu = u64::from_ne_bytes([3, 3, 3, 3, 0, 0, 0, 0]);
        let body = bytes(&[70, 12, 2, 44, 5, 6, cpu, 70]);
        perf.lost(Input(&body), &mut merge, &mut losses);
        assert_eq!(merge.events, [merge::lost(44, 0x0303_0303)]);
        // Of an event that nobody knows, and cut off.
        perf.lost(Input(&bytes(&[71, 1])), &mut merge, &mut losses);
        perf.lost(Input(&bytes(&[70])), &mut merge, &mut losses);
        assert_eq!((merge.events.len(), losses.events_lost), (1, 13));
        assert_eq!(losses.cpus, [0x0303_0303]);
    }
}
