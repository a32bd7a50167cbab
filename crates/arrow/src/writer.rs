//! Writers of Parquet whose buffered row group is charged.

use std::fmt;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{Array, GenericByteViewArray, OffsetSizeTrait, RecordBatch};
use bursar::{Charge, ChargeError, Group};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

/// Encoded size below which a row group is not flushed because the group is near its limit, bytes. Judgement: a column chunk costs about a hundred bytes of
/// the footer, and a reader seeks to each, so smaller row groups cost more than they free.
pub const ROW_GROUP_MIN: u64 = 64 << 10;

/// Whether a writer flushes its row group, which takes `buffered` bytes now and `encoded` bytes in the file, in a group that may charge `room` bytes more.
///
/// It does once it has as much as there is room, so the largest writers of a full group flush first. *n* writers of equal speed then have row groups of
/// about 1/*n* of the limit, and the group is used almost wholly. Row groups below [`ROW_GROUP_MIN`] stay, until a charge is refused.
pub fn flushes_early(buffered: u64, encoded: u64, room: u64) -> bool {
    encoded >= ROW_GROUP_MIN && buffered >= room
}

/// A writer of Parquet whose buffered row group is charged to a group.
///
/// `W` is an [`ArrowWriter`], or with the feature `async` an `AsyncArrowWriter`, that you made with your own options. A batch is charged by its size before
/// it is encoded, and by [`ArrowWriter::memory_size`] afterwards. `write` flushes the row group early, which returns its bytes,
///
/// * before a batch, when its charge is refused;
/// * after it, when encoding took more, and that is refused, or when [`flushes_early`] says so.
///
/// The bytes that encoding took more are charged whatever the limits say, because they are in use. So the group may exceed its limit until the
/// flush ends.
///
/// A row group takes about 40 KiB a column as soon as it has a row, because of its dictionaries. The charge for its first batch includes that, as
/// far as the writer knows it from the row groups before.
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
    opening: Opening,
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
            opening: Opening::default(),
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

    /// Returns the bytes of a row group that is written.
    pub(crate) fn settle_flushed(&mut self) {
        // To no bytes, so nothing is refused.
        let _ = self.charge.resize(0);
    }
}

/// State of a row group that is buffered. Not exported.
pub trait Buffers {
    fn rows(&self) -> usize;
    /// Its bytes now.
    fn memory(&self) -> u64;
    /// Its bytes in the file.
    fn encoded(&self) -> u64;
}

impl<W: Write + Send> Buffers for ArrowWriter<W> {
    fn rows(&self) -> usize {
        self.in_progress_rows()
    }
    fn memory(&self) -> u64 {
        self.memory_size() as u64
    }
    fn encoded(&self) -> u64 {
        self.in_progress_size() as u64
    }
}

impl<W: Buffers> ChargedWriter<W> {
    /// Charges a batch that is about to be encoded, and begins the call. Returns the bytes of the batch, if it opens a row group.
    pub(crate) fn begin_batch(&mut self, batch: &RecordBatch) -> Result<Option<u64>, WriteError> {
        let bytes = batch_bytes(batch);
        let opens = self.writer.rows() == 0;
        self.begin()?;
        let charged = self.charge.bytes() + self.opening.bytes(opens) + bytes;
        if let Err(refused) = self.charge.resize(charged) {
            self.end();
            return Err(WriteError::Refused(refused));
        }
        Ok(opens.then_some(bytes))
    }

    /// Ends the call, and corrects the charge. If encoding took more, and that is refused, it is charged whatever the limits say, because it is
    /// in use. Returns whether this happened.
    pub(crate) fn end_batch(&mut self, opened: Option<u64>) -> bool {
        self.end();
        let buffered = self.writer.memory();
        if let Some(bytes) = opened {
            self.opening.note(bytes, buffered);
        }
        let is_refused = self.charge.resize(buffered).is_err();
        if is_refused {
            self.charge.grow_nowait(buffered - self.charge.bytes());
        }
        is_refused
    }

    /// Whether `write` flushes the row group after a batch. `is_refused` is what [`Self::end_batch`] returned.
    pub(crate) fn must_flush(&self, is_refused: bool) -> bool {
        if is_refused {
            return true;
        }
        let (buffered, encoded) = (self.writer.memory(), self.writer.encoded());
        flushes_early(buffered, encoded, room(&self.group))
    }
}

impl<W: Write + Send> ChargedWriter<ArrowWriter<W>> {
    /// Encodes a batch. If its charge is refused, the row group that is buffered is flushed, and the batch is tried once more. Afterwards the row group is
    /// flushed if [`flushes_early`] says so.
    ///
    /// # Errors
    /// [`WriteError::Refused`] if the batch does not fit, although nothing is buffered any more. It is not written, and may be tried again, or the file may be
    /// finished without it. After any other error the file is broken.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let is_refused = match self.encode(batch) {
            Err(WriteError::Refused(_)) if self.writer.rows() > 0 => {
                self.flush()?;
                self.encode(batch)?
            }
            outcome => outcome?,
        };
        match self.must_flush(is_refused) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Encodes a batch, but leaves it to the caller to flush when the group is full. For a program with many open files: this one may have little, and others
    /// much ([`flush_largest`]). If encoding takes more than was charged, this is charged whatever the limits say, and the next batch is refused.
    ///
    /// # Errors
    /// [`WriteError::Refused`] if the batch does not fit. Nothing changes then. After any other error the file is broken.
    pub fn try_write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        self.encode(batch)?;
        Ok(())
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<bool, WriteError> {
        let opened = self.begin_batch(batch)?;
        self.writer.write(batch)?;
        Ok(self.end_batch(opened))
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

/// Flushes the writer that has most buffered. Returns its bytes; 0 if none has any. For a program with many open files whose batch was refused:
///
/// ```
/// # use bursar_arrow::{ChargedWriter, WriteError, flush_largest};
/// # fn write<W: std::io::Write + Send>(writers: &mut [ChargedWriter<parquet::arrow::ArrowWriter<W>>], at: usize, batch: &arrow_array::RecordBatch) -> Result<(), WriteError> {
/// while let Err(error) = writers[at].try_write(batch) {
///     let is_refused = matches!(error, WriteError::Refused(_));
///     if !is_refused || flush_largest(&mut *writers)? == 0 {
///         return Err(error);
///     }
/// }
/// # Ok(())
/// # }
/// ```
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

/// Bytes that a row group takes beside its first batch: the least that a writer has seen, because after a large batch it would be too much for a
/// small one. For writers that charge in their own way.
#[cfg_attr(docsrs, doc(cfg(feature = "parquet")))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening(u64);

impl Opening {
    /// The bytes to charge beside a batch, which `opens` a row group or does not.
    pub fn bytes(self, opens: bool) -> u64 {
        if opens { self.0 } else { 0 }
    }

    /// Notes that a row group with its first batch, of `batch` bytes, takes `buffered` bytes.
    pub fn note(&mut self, batch: u64, buffered: u64) {
        let opening = buffered.saturating_sub(batch);
        self.0 = match self.0 {
            // None was seen yet, but for batches that took less than they were charged.
            0 => opening,
            least => least.min(opening),
        };
    }
}

/// Bytes of the rows of a batch. A writer charges them before it encodes the batch.
///
/// A slice counts its own rows alone. But the values of a dictionary, a list view or a run-end encoded array count whole.
pub fn batch_bytes(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    columns.map(|column| array_bytes(column) as u64).sum()
}

/// Bytes of the rows of an array. Arrow's own count takes the children of lists whole, and leaves out the texts of views.
fn array_bytes(array: &dyn Array) -> usize {
    let inner = if let Some(list) = array.as_list_opt::<i32>() {
        list_bytes(list.value_offsets(), list.values())
    } else if let Some(list) = array.as_list_opt::<i64>() {
        list_bytes(list.value_offsets(), list.values())
    } else if let Some(map) = array.as_map_opt() {
        list_bytes(map.value_offsets(), map.entries())
    } else if let Some(list) = array.as_fixed_size_list_opt() {
        array_bytes(list.values())
    } else if let Some(fields) = array.as_struct_opt() {
        let columns = fields.columns().iter();
        columns.map(|column| array_bytes(column)).sum()
    } else if let Some(dictionary) = array.as_any_dictionary_opt() {
        // The keys have the validity.
        return array_bytes(dictionary.keys()) + array_bytes(dictionary.values());
    } else if let Some(texts) = array.as_string_view_opt() {
        view_bytes(texts)
    } else if let Some(bytes) = array.as_binary_view_opt() {
        view_bytes(bytes)
    } else {
        // Arrow cannot tell for each type.
        let slice = array.to_data().get_slice_memory_size();
        return slice.unwrap_or_else(|_| array.get_array_memory_size());
    };
    inner + array.nulls().map_or(0, |nulls| nulls.len().div_ceil(8))
}

/// Bytes of views and of what they show. Several may show the same.
fn view_bytes<T: ByteViewType>(array: &GenericByteViewArray<T>) -> usize {
    let there: usize = array.data_buffers().iter().map(|buffer| buffer.len()).sum();
    size_of_val(&array.views()[..]) + array.total_buffer_bytes_used().min(there)
}

/// Bytes of the offsets of a list, and of the values between the first and the last.
fn list_bytes<O: OffsetSizeTrait>(offsets: &[O], values: &dyn Array) -> usize {
    let (first, last) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
    size_of_val(offsets) + array_bytes(&values.slice(first, last - first))
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
    /// The charge for the batch was refused. The batch is not written, and the file is as it was.
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
