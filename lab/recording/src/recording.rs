//! A whole recording in memory.

use std::io::Write;

use crate::header::Header;
use crate::names::Names;
use crate::record::{Burst, CpuChange, End, Flush, StatRead, Upkeep, Wait};
use crate::write::{WriteError, Writer};

/// A recording. Each list is in the order of the file; [`Recording::sort`] puts it into that of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The machine that was observed.
    pub header: Header,
    /// Calls of upkeep.
    pub upkeeps: Vec<Upkeep>,
    /// Bursts of pages.
    pub bursts: Vec<Burst>,
    /// Flushes, and those that were skipped.
    pub flushes: Vec<Flush>,
    /// Reads of `memory.stat`.
    pub stat_reads: Vec<StatRead>,
    /// Waits for locks.
    pub waits: Vec<Wait>,
    /// Changes of the number of CPUs.
    pub cpu_changes: Vec<CpuChange>,
    /// Names of processes and cgroups.
    pub names: Names,
    /// How it ended; `None` if the file was cut off.
    pub end: Option<End>,
}

impl Recording {
    /// An empty recording.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            upkeeps: Vec::new(),
            bursts: Vec::new(),
            flushes: Vec::new(),
            stat_reads: Vec::new(),
            waits: Vec::new(),
            cpu_changes: Vec::new(),
            names: Names::default(),
            end: None,
        }
    }

    /// Writes all of it. Its end is made from its lists, if it has none.
    ///
    /// # Errors
    /// The file cannot be written, or a record is out of the format's range.
    pub fn write(&self, file: impl Write) -> Result<(), WriteError> {
        let mut writer = Writer::new(file, &self.header)?;
        self.upkeeps.iter().try_for_each(|it| writer.upkeep(it))?;
        self.bursts.iter().try_for_each(|it| writer.burst(it))?;
        self.flushes.iter().try_for_each(|it| writer.flush_of(it))?;
        self.stat_reads
            .iter()
            .try_for_each(|it| writer.stat_read(it))?;
        self.waits.iter().try_for_each(|it| writer.wait(it))?;
        self.cpu_changes
            .iter()
            .try_for_each(|it| writer.cpu_change(it))?;
        writer.names(&self.names)?;
        writer.finish(End {
            duration_ns: self.duration_ns(),
            ..self.end.unwrap_or_default()
        })?;
        Ok(())
    }

    /// Returns the recording with pseudonyms in place of names, and with no more of the kernel's release than its numbers:
    /// a suffix may name a company.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let release = &self.header.kernel_release;
        let numbers = release.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let mut redacted = self.clone();
        redacted.header.kernel_release = numbers.take(1).collect();
        redacted.names = self.names.redacted();
        redacted
    }

    /// Number of records of all kinds.
    pub fn records(&self) -> usize {
        self.upkeeps.len()
            + self.bursts.len()
            + self.flushes.len()
            + self.stat_reads.len()
            + self.waits.len()
            + self.cpu_changes.len()
    }

    /// Length of the recording; of what can be read of it if it was cut off.
    pub fn duration_ns(&self) -> u64 {
        if let Some(end) = self.end {
            return end.duration_ns;
        }
        let ends = (self.upkeeps.iter().map(|it| it.end_ns))
            .chain(self.bursts.iter().map(|it| it.end_ns))
            .chain(self.flushes.iter().map(|it| it.end_ns))
            .chain(self.stat_reads.iter().map(|it| it.start_ns + it.latency_ns))
            .chain(self.waits.iter().map(|it| it.end_ns))
            .chain(self.cpu_changes.iter().map(|it| it.at_ns));
        ends.max().unwrap_or(0).saturating_sub(self.header.start_ns)
    }

    /// Puts each list into the order of time.
    pub fn sort(&mut self) {
        self.upkeeps.sort_by_key(|it| (it.start_ns, it.cpu));
        self.bursts.sort_by_key(|it| (it.start_ns, it.cpu));
        self.flushes.sort_by_key(|it| (it.start_ns, it.cpu));
        self.stat_reads.sort_by_key(|it| (it.start_ns, it.pid));
        self.waits.sort_by_key(|it| (it.start_ns, it.cpu));
        self.cpu_changes.sort_by_key(|it| it.at_ns);
    }
}
