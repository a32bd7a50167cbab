//! Reading a recording, from a source that may be cut off or hostile.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use crate::block::{FRAME_BYTES, Frame, kind};
use crate::code::{Last, Record, take_end, take_header};
use crate::header::Header;
use crate::number::{Bad, Input};
use crate::recording::Recording;
use crate::{BLOCK_BYTES_MAX, MAGIC, RECORDS_MAX, VERSION};

/// Greatest length of all blocks of names.
const NAMES_BYTES_MAX: usize = 8 << 20;

/// Reason why a file is not read at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// It does not begin as recordings do.
    NotARecording,
    /// It is of a version that this program does not know.
    UnknownVersion {
        /// Its version.
        version: u16,
    },
    /// Its header cannot be read.
    Header(Damage),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotARecording => {
                f.write_str("it is no recording: it does not begin with `BURSAREC`")
            }
            Self::UnknownVersion { version } => write!(
                f,
                "its format has version {version}, and this program reads version {VERSION}"
            ),
            Self::Header(damage) => write!(f, "its header cannot be read: {damage}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Defect of a file, and its place. All records before that place were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First byte of the block that could not be read.
    pub offset: u64,
    /// The defect.
    pub kind: DamageKind,
}

/// Defect of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// The file ends in the middle, or before its end block.
    CutOff,
    /// The block says that it is longer than [`BLOCK_BYTES_MAX`].
    TooLong {
        /// Its length, as it says.
        bytes: u32,
    },
    /// Its checksum is wrong: bytes were changed.
    Checksum,
    /// Its contents are not what the format says.
    Contents(&'static str),
    /// There are more than [`RECORDS_MAX`] records.
    TooManyRecords,
    /// The end block counts other records than there were.
    Miscounted {
        /// Records read.
        read: u64,
        /// Records by the end block.
        expected: u64,
    },
    /// There are bytes behind the end block.
    BehindEnd,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, kind } = self;
        match kind {
            DamageKind::CutOff => write!(f, "it is cut off at or behind byte {offset}"),
            DamageKind::TooLong { bytes } => write!(
                f,
                "the block at byte {offset} has {bytes} bytes, and at most {BLOCK_BYTES_MAX} are allowed"
            ),
            DamageKind::Checksum => {
                write!(
                    f,
                    "the block at byte {offset} has a wrong checksum: bytes were changed"
                )
            }
            DamageKind::Contents(why) => write!(f, "in the block at byte {offset}: {why}"),
            DamageKind::TooManyRecords => write!(
                f,
                "it has more than {RECORDS_MAX} records; the rest, from byte {offset} on, was not read"
            ),
            DamageKind::Miscounted { read, expected } => write!(
                f,
                "it has {read} records, and its end block counts {expected}: blocks are missing"
            ),
            DamageKind::BehindEnd => write!(f, "there are bytes behind its end, byte {offset}"),
        }
    }
}

/// A file with the place that was reached in it.
struct Source<R: Read> {
    file: R,
    offset: u64,
    contents: Vec<u8>,
}

/// Reason why there is no further block.
enum Stop {
    Io(io::Error),
    /// The file has ended where a block could begin.
    Ended,
    Damage(DamageKind),
}

impl From<DamageKind> for Stop {
    fn from(kind: DamageKind) -> Self {
        Self::Damage(kind)
    }
}

impl From<Bad> for DamageKind {
    fn from(bad: Bad) -> Self {
        Self::Contents(bad.0)
    }
}

impl<R: Read> Source<R> {
    /// Reads as many bytes as there are, up to the length of `bytes`; returns how many.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Reads the next block into `contents`.
    fn block(&mut self) -> Result<Frame, Stop> {
        let mut bytes = [0; FRAME_BYTES];
        match self.fill(&mut bytes).map_err(Stop::Io)? {
            0 => return Err(Stop::Ended),
            FRAME_BYTES => {}
            _ => return Err(DamageKind::CutOff.into()),
        }
        let frame = Frame::from_bytes(bytes);
        let length = frame.bytes as usize;
        if length > BLOCK_BYTES_MAX {
            return Err(DamageKind::TooLong { bytes: frame.bytes }.into());
        }
        self.contents.clear();
        let mut limited = (&mut self.file).take(length as u64);
        let read = limited.read_to_end(&mut self.contents).map_err(Stop::Io)?;
        if read < length {
            return Err(DamageKind::CutOff.into());
        }
        if !frame.fits(&self.contents) {
            return Err(DamageKind::Checksum.into());
        }
        Ok(frame)
    }

    fn passed(&mut self, frame: Frame) {
        self.offset += FRAME_BYTES as u64 + u64::from(frame.bytes);
    }

    fn damage(&self, kind: DamageKind) -> Damage {
        Damage {
            offset: self.offset,
            kind,
        }
    }
}

impl Recording {
    /// Reads a recording. If only its beginning can be read, returns that and what is wrong behind it.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording of a known version with a whole header.
    pub fn read(file: impl Read) -> Result<(Self, Option<Damage>), ReadError> {
        let mut source = Source {
            file,
            offset: 0,
            contents: Vec::new(),
        };
        let header = read_header(&mut source)?;
        let mut recording = Recording::new(header);
        let mut names_bytes = 0;
        loop {
            let damage = match source.block() {
                Ok(frame) => {
                    if frame.kind == kind::NAMES {
                        names_bytes += source.contents.len();
                    }
                    if names_bytes > NAMES_BYTES_MAX {
                        let kind = DamageKind::Contents("it has too many names");
                        return Ok((recording, Some(source.damage(kind))));
                    }
                    let taken = take_block(frame, &source.contents, &mut recording);
                    match taken {
                        Ok(()) => {
                            source.passed(frame);
                            continue;
                        }
                        Err(kind) => Some(kind),
                    }
                }
                Err(Stop::Io(error)) => return Err(ReadError::Io(error)),
                Err(Stop::Ended) if recording.end.is_some() => None,
                Err(Stop::Ended) => Some(DamageKind::CutOff),
                Err(Stop::Damage(_)) if recording.end.is_some() => Some(DamageKind::BehindEnd),
                Err(Stop::Damage(kind)) => Some(kind),
            };
            return Ok((recording, damage.map(|kind| source.damage(kind))));
        }
    }
}

fn read_header(source: &mut Source<impl Read>) -> Result<Header, ReadError> {
    let mut begin = [0; MAGIC.len() + 2];
    let filled = source.fill(&mut begin).map_err(ReadError::Io)?;
    if filled < begin.len() || !begin.starts_with(&MAGIC) {
        return Err(ReadError::NotARecording);
    }
    let version = u16::from_le_bytes([begin[8], begin[9]]);
    if version != VERSION {
        return Err(ReadError::UnknownVersion { version });
    }
    source.offset = begin.len() as u64;
    let frame = match source.block() {
        Ok(frame) => frame,
        Err(Stop::Io(error)) => return Err(ReadError::Io(error)),
        Err(Stop::Ended) => return Err(ReadError::Header(source.damage(DamageKind::CutOff))),
        Err(Stop::Damage(kind)) => return Err(ReadError::Header(source.damage(kind))),
    };
    let mut input = Input(&source.contents);
    let header = match frame.kind {
        kind::HEADER => {
            take_header(&mut input).and_then(|header| all_read(&input).map(|()| header))
        }
        _ => Err(Bad("the first block is no header")),
    };
    let header = header.map_err(|bad| ReadError::Header(source.damage(bad.into())))?;
    source.passed(frame);
    Ok(header)
}

fn all_read(input: &Input<'_>) -> Result<(), Bad> {
    match input.is_empty() {
        true => Ok(()),
        false => Err(Bad("it has bytes behind its records")),
    }
}

fn take_block(frame: Frame, contents: &[u8], recording: &mut Recording) -> Result<(), DamageKind> {
    if recording.end.is_some() {
        return Err(DamageKind::BehindEnd);
    }
    let records = frame.records as usize;
    let known = matches!(frame.kind, kind::UPKEEPS..=kind::CPU_CHANGES);
    if known && recording.records().saturating_add(records) > RECORDS_MAX {
        return Err(DamageKind::TooManyRecords);
    }
    let header = &recording.header;
    match frame.kind {
        kind::UPKEEPS => take_records(contents, records, header, &mut recording.upkeeps),
        kind::BURSTS => take_records(contents, records, header, &mut recording.bursts),
        kind::FLUSHES => take_records(contents, records, header, &mut recording.flushes),
        kind::STAT_READS => take_records(contents, records, header, &mut recording.stat_reads),
        kind::WAITS => take_records(contents, records, header, &mut recording.waits),
        kind::CPU_CHANGES => take_records(contents, records, header, &mut recording.cpu_changes),
        kind::NAMES => take_names(contents, records, recording),
        kind::END => return take_last(contents, recording),
        kind::HEADER => Err(Bad("there is a second header")),
        // Of a later program: nothing here depends on it.
        _ => Ok(()),
    }
    .map_err(DamageKind::from)
}

/// Takes the records of a block. If one is bad, none of the block is kept.
fn take_records<R: Record>(
    contents: &[u8],
    records: usize,
    header: &Header,
    into: &mut Vec<R>,
) -> Result<(), Bad> {
    let before = into.len();
    let mut take = || {
        let mut input = Input(contents);
        let mut last = Last::of(header);
        for _ in 0..records {
            into.push(R::take(&mut input, &mut last)?);
        }
        all_read(&input)
    };
    let taken = take();
    if taken.is_err() {
        into.truncate(before);
    }
    taken
}

fn take_names(contents: &[u8], records: usize, recording: &mut Recording) -> Result<(), Bad> {
    let mut input = Input(contents);
    let names = &mut recording.names;
    names.is_redacted |= input.at_most(1, "unknown flags")? == 1;
    for _ in 0..records {
        match input.at_most(1, "a name of an unknown kind")? {
            0 => {
                let pid = input.u32()?;
                names.processes.insert(pid, input.text()?);
            }
            _ => {
                let number = input.any()?;
                names.cgroups.insert(number, input.text()?);
            }
        }
    }
    all_read(&input)
}

fn take_last(contents: &[u8], recording: &mut Recording) -> Result<(), DamageKind> {
    let mut input = Input(contents);
    let end = take_end(&mut input, &recording.header)?;
    all_read(&input)?;
    let read = recording.records() as u64;
    if read != end.records {
        return Err(DamageKind::Miscounted {
            read,
            expected: end.records,
        });
    }
    recording.end = Some(end);
    Ok(())
}
