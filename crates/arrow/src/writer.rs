//! Writers of Parquet whose buffered row group is charged.

use std::fmt;
use std::io::Write;

use arrow_array::{Array, RecordBatch};
use bursar::{Charge, ChargeError, Group};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

/// Size below which a row group is not flushed because the group is near its limit, bytes. Judgement: a column chunk costs about a hundred bytes of the
/// footer, and a reader seeks to each, so smaller row groups cost more than they free.
pub const ROW_GROUP_MIN: u64 = 64 << 10;

/// Whether a writer with `buffered` bytes flushes its row group, in a group that may charge `room` bytes more.
///
/// It does once it has as much as there is room, so the largest writers of a full group flush first. *n* writers of equal speed then have row groups of
/// about 1/*n* of the limit, and the group is used almost wholly. Row groups below [`ROW_GROUP_MIN`] stay, until a charge is refused.
pub fn flushes_early(buffered: u64, room: u64) -> bool {
    buffered >= ROW_GROUP_MIN && buffered >= room
}

/// A writer of Parquet whose buffered row group is charged to a group.
///
/// `W` is an [`ArrowWriter`], or with the feature `async` an `AsyncArrowWriter`, that you made with your own options. A batch is charged by its size before
/// it is encoded, and by [`ArrowWriter::memory_size`] afterwards. The row group is flushed early, and its bytes are returned,
///
/// * when the charge for a batch is refused;
/// * when encoding took more than the batch, and that is refused;
/// * when [`flushes_early`] says so, after a batch.
///
/// A file is whole or cannot be read: only `finish` writes the footer, and it refuses to once a call failed, panicked, or was dropped as a future.
///
/// Not charged are the batch itself, the 8 KiB that parquet collects for the sink, the page that a flush compresses, and the metadata of row groups
/// that are written, which stay until the end: about 1 KiB a column chunk.
///
/// ```
/// # use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int64Array, RecordBatch};
/// use bursar::{Limits, Memory};
/// use bursar_arrow::ChargedWriter;
/// use parquet::arrow::ArrowWriter;
///
/// let memory = Memory::host()?;
/// let group = memory.root().child("writers", Limits::max(8 << 20))?;
/// let ids = Arc::new(Int64Array::from_iter_values(0..1000)) as ArrayRef;
/// let batch = RecordBatch::try_from_iter([("id", ids)])?;
/// let mut file = Vec::new();
/// let mut writer = ChargedWriter::new(ArrowWriter::try_new(&mut file, batch.schema(), None)?, &group);
/// writer.write(&batch)?;
/// assert!(writer.buffered() > 0);
/// writer.finish()?;
/// assert!(file.ends_with(b"PAR1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "parquet")))]
pub struct ChargedWriter<W> {
    pub(crate) writer: W,
    charge: Charge,
    group: Group,
    // Whether each call so far has ended well.
    is_whole: bool,
}

impl<W> ChargedWriter<W> {
    /// Charges to `group` what `writer` buffers from now on.
    pub fn new(writer: W, group: &Group) -> Self {
        Self {
            writer,
            charge: group.charge(0),
            group: group.clone(),
            is_whole: true,
        }
    }

    /// Bytes charged for the row group that is buffered.
    pub fn buffered(&self) -> u64 {
        self.charge.bytes()
    }

    /// The writer, to look at.
    pub fn inner(&self) -> &W {
        &self.writer
    }

    /// Begins a call of the writer. Until [`Self::end`] the file counts as broken.
    pub(crate) fn begin(&mut self) -> Result<(), WriteError> {
        match std::mem::take(&mut self.is_whole) {
            true => Ok(()),
            false => Err(WriteError::Broken),
        }
    }

    /// Ends a call of the writer that went well.
    pub(crate) fn end(&mut self) {
        self.is_whole = true;
    }

    /// Charges a batch that is about to be encoded.
    pub(crate) fn charge_batch(&mut self, batch: &RecordBatch) -> Result<(), ChargeError> {
        let bytes = self.charge.bytes().saturating_add(batch_bytes(batch));
        self.charge.resize(bytes)
    }

    /// Corrects the charge after a batch to the `buffered` bytes. Returns whether the row group must be flushed.
    pub(crate) fn settle(&mut self, buffered: usize) -> bool {
        let buffered = buffered as u64;
        self.charge.resize(buffered).is_err() || flushes_early(buffered, room(&self.group))
    }

    /// Returns the bytes of a row group that is written.
    pub(crate) fn settle_flushed(&mut self) {
        // To no bytes, so nothing is refused.
        let _ = self.charge.resize(0);
    }
}

impl<W: Write + Send> ChargedWriter<ArrowWriter<W>> {
    /// Encodes a batch. Flushes the row group before it or after it by the rules above.
    ///
    /// # Errors
    /// [`WriteError::Refused`] if the batch does not fit although this writer has nothing buffered. The batch is not written, and the file is as it was: flush
    /// another writer ([`flush_largest`]) and try again, or `finish`. After any other error the file is broken.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        if let Err(refused) = self.charge_batch(batch) {
            if self.writer.in_progress_rows() == 0 {
                return Err(self.refused(refused));
            }
            self.flush()?;
            if let Err(refused) = self.charge_batch(batch) {
                return Err(self.refused(refused));
            }
        }
        self.begin()?;
        self.writer.write(batch)?;
        self.end();
        if self.settle(self.writer.memory_size()) {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the row group that is buffered, and returns its bytes.
    ///
    /// # Errors
    /// The sink's or the encoder's. The file is broken then.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.begin()?;
        self.writer.flush()?;
        self.end();
        self.settle_flushed();
        Ok(())
    }

    /// Writes what is buffered, and the footer, and flushes the sink.
    ///
    /// # Errors
    /// The sink's or the encoder's, or [`WriteError::Broken`] after an earlier one. The file has no whole footer then, except where the sink failed after
    /// it had taken all of the file.
    pub fn finish(mut self) -> Result<ParquetMetaData, WriteError> {
        self.begin()?;
        Ok(self.writer.finish()?)
    }
}

impl<W> ChargedWriter<W> {
    /// The error of a charge, or that of a broken file, which comes first.
    pub(crate) fn refused(&self, refused: ChargeError) -> WriteError {
        match self.is_whole {
            true => WriteError::Refused(refused),
            false => WriteError::Broken,
        }
    }
}

/// Flushes the writer that has most buffered. Returns its bytes; 0 if none has any. For a program with many open files whose batch was refused.
///
/// # Errors
/// As [`ChargedWriter::flush`]. The file of that writer is broken then.
pub fn flush_largest<'a, W: Write + Send + 'a>(
    writers: impl IntoIterator<Item = &'a mut ChargedWriter<ArrowWriter<W>>>,
) -> Result<u64, WriteError> {
    let writers = writers.into_iter().filter(|writer| writer.is_whole);
    let Some(largest) = writers.max_by_key(|writer| writer.buffered()) else {
        return Ok(0);
    };
    let bytes = largest.buffered();
    if bytes > 0 {
        largest.flush()?;
    }
    Ok(bytes)
}

/// Bytes that a group may charge until the nearest limit on the way to the root is reached. Stock counts as used.
fn room(group: &Group) -> u64 {
    let mut room = u64::MAX;
    let mut next = Some(group.clone());
    while let Some(group) = next {
        let max = group.limits().max;
        if max != u64::MAX {
            room = room.min(max.saturating_sub(group.reserved()));
        }
        next = group.parent();
    }
    room
}

/// Bytes of the rows of a batch, of its slices alone.
fn batch_bytes(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    let bytes = columns.map(|column| {
        // Arrow cannot tell for each type.
        let slice = column.to_data().get_slice_memory_size();
        slice.unwrap_or_else(|_| column.get_array_memory_size()) as u64
    });
    bytes.sum()
}

impl<W> fmt::Debug for ChargedWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargedWriter")
            .field("charge", &self.charge)
            .field("is_whole", &self.is_whole)
            .finish_non_exhaustive()
    }
}

/// Reason why a writer did not write.
#[cfg_attr(docsrs, doc(cfg(feature = "parquet")))]
#[non_exhaustive]
pub enum WriteError {
    /// The batch was refused, and this writer has nothing buffered. Nothing changed.
    Refused(ChargeError),
    /// The encoder or the sink failed. The file is broken.
    Parquet(ParquetError),
    /// An earlier call failed, panicked, or was dropped before it ended. The file cannot be completed.
    Broken,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Parquet(error) => error.fmt(f),
            Self::Broken => f.write_str(
                "the file cannot be completed: an earlier call failed, panicked or was dropped",
            ),
        }
    }
}

bursar::debug_as_message!(
    enum WriteError {
        Refused(error),
        Parquet(error),
        Broken,
    }
);

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Parquet(error) => Some(error),
            Self::Broken => None,
        }
    }
}

impl From<ParquetError> for WriteError {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
}
