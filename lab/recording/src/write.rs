//! Writing a recording, record by record.

use std::io::{self, Write};
use std::{fmt, mem};

use crate::block::{FRAME_BYTES, Frame, kind};
use crate::code::{Last, Record, put_end, put_header};
use crate::header::Header;
use crate::names::Names;
use crate::number::{TEXT_BYTES_MAX, put, put_text};
use crate::record::{Burst, CpuChange, End, Flush, StatRead, Upkeep, Wait};
use crate::{MAGIC, VERSION};

/// Length after which a block is written.
const BLOCK_BYTES: usize = 64 << 10;

/// Reason why a recording cannot be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The file cannot be written.
    Io(io::Error),
    /// A record or the header is out of the format's range, and why. The file is as it was before.
    OutOfRange(&'static str),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::OutOfRange(why) => write!(f, "the format has no room for a record: {why}"),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Records that are not written yet.
struct Pending {
    contents: Vec<u8>,
    records: u32,
    last: Last,
}

/// A recording being written. It keeps less than 512 KiB in memory. A recording that is not [finished](Self::finish)
/// reads as one that was cut off.
pub struct Writer<W: Write> {
    file: W,
    header: Header,
    /// By kind.
    pending: [Pending; KINDS],
    records: u64,
}

const KINDS: usize = 6;
const FIRST_KIND: u8 = kind::UPKEEPS;

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// The file cannot be written, or the header is out of range.
    pub fn new(file: W, header: &Header) -> Result<Self, WriteError> {
        let mut contents = Vec::new();
        put_header(&mut contents, header);
        let read = crate::code::take_header(&mut crate::number::Input(&contents));
        let known = read.map_err(|bad| WriteError::OutOfRange(bad.0))?;
        let pending = || Pending {
            contents: Vec::new(),
            records: 0,
            last: Last::of(&known),
        };
        let mut writer = Self {
            file,
            pending: std::array::from_fn(|_| pending()),
            header: known,
            records: 0,
        };
        writer.file.write_all(&MAGIC)?;
        writer.file.write_all(&VERSION.to_le_bytes())?;
        writer.block(kind::HEADER, 1, &contents)?;
        Ok(writer)
    }

    /// Adds a call of upkeep.
    ///
    /// # Errors
    /// As for each record: the file cannot be written, or the record is out of range.
    pub fn upkeep(&mut self, upkeep: &Upkeep) -> Result<(), WriteError> {
        self.record(upkeep)
    }

    /// Adds a burst.
    ///
    /// # Errors
    /// See [`Self::upkeep`].
    pub fn burst(&mut self, burst: &Burst) -> Result<(), WriteError> {
        self.record(burst)
    }

    /// Adds a flush.
    ///
    /// # Errors
    /// See [`Self::upkeep`].
    pub fn flush_of(&mut self, flush: &Flush) -> Result<(), WriteError> {
        self.record(flush)
    }

    /// Adds a read of `memory.stat`.
    ///
    /// # Errors
    /// See [`Self::upkeep`].
    pub fn stat_read(&mut self, read: &StatRead) -> Result<(), WriteError> {
        self.record(read)
    }

    /// Adds a wait for a lock.
    ///
    /// # Errors
    /// See [`Self::upkeep`].
    pub fn wait(&mut self, wait: &Wait) -> Result<(), WriteError> {
        self.record(wait)
    }

    /// Adds a change of the number of CPUs.
    ///
    /// # Errors
    /// See [`Self::upkeep`].
    pub fn cpu_change(&mut self, change: &CpuChange) -> Result<(), WriteError> {
        self.record(change)
    }

    /// Adds names. Names of numbers that have one replace it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn names(&mut self, names: &Names) -> Result<(), WriteError> {
        let processes = names.processes.iter();
        let cgroups = names.cgroups.iter();
        let all = processes
            .map(|(pid, name)| (0, u64::from(*pid), name))
            .chain(cgroups.map(|(number, name)| (1, *number, name)));
        let mut contents = vec![u8::from(names.is_redacted)];
        let mut records = 0;
        for (of, number, name) in all {
            contents.push(of);
            put(&mut contents, number);
            put_text(&mut contents, name);
            records += 1;
            if contents.len() > BLOCK_BYTES - TEXT_BYTES_MAX {
                self.block(kind::NAMES, records, &contents)?;
                contents.truncate(1);
                records = 0;
            }
        }
        self.block(kind::NAMES, records, &contents)
    }

    /// Ends the recording, and returns the file. The writer counts the records itself.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, end: End) -> Result<W, WriteError> {
        for index in 0..KINDS {
            self.write_pending(index)?;
        }
        let end = End {
            records: self.records,
            ..end
        };
        let mut contents = Vec::new();
        put_end(&mut contents, &end);
        self.block(kind::END, 1, &contents)?;
        self.file.flush()?;
        Ok(self.file)
    }

    fn record<R: Record>(&mut self, record: &R) -> Result<(), WriteError> {
        if let Some(why) = record.refusal(&self.header) {
            return Err(WriteError::OutOfRange(why));
        }
        let index = usize::from(R::KIND - FIRST_KIND);
        let pending = &mut self.pending[index];
        record.put(&mut pending.contents, &mut pending.last);
        pending.records += 1;
        self.records += 1;
        if pending.contents.len() < BLOCK_BYTES {
            return Ok(());
        }
        self.write_pending(index)
    }

    fn write_pending(&mut self, index: usize) -> Result<(), WriteError> {
        let pending = &mut self.pending[index];
        if pending.records == 0 {
            return Ok(());
        }
        let mut contents = mem::take(&mut pending.contents);
        let records = mem::take(&mut pending.records);
        pending.last = Last::of(&self.header);
        self.block(FIRST_KIND + index as u8, records, &contents)?;
        contents.clear();
        self.pending[index].contents = contents;
        Ok(())
    }

    fn block(&mut self, kind: u8, records: u32, contents: &[u8]) -> Result<(), WriteError> {
        let frame: [u8; FRAME_BYTES] = Frame::of(kind, records, contents).to_bytes();
        self.file.write_all(&frame)?;
        self.file.write_all(contents)?;
        Ok(())
    }
}
