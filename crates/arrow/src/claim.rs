//! Arrow buffers that somebody else made, claimed for a group.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use arrow_array::{Array, RecordBatch, RecordBatchReader};
use arrow_buffer::{Buffer, MemoryPool, MemoryReservation};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, SchemaRef};
use bursar::{Charge, ChargeError, Group};

/// A group as Arrow's [`MemoryPool`], for code of Arrow that claims buffers by itself.
///
/// Reservations never fail, because the memory is in use already. One that exceeds a limit makes the next [`Group::try_charge`] below that limit fail.
/// To have it refused instead, use [`Claim`].
#[cfg_attr(docsrs, doc(cfg(feature = "claim")))]
#[derive(Clone, Debug)]
pub struct ArrowPool(pub Group);

impl MemoryPool for ArrowPool {
    fn reserve(&self, size: usize) -> Box<dyn MemoryReservation> {
        Box::new(Claimed(self.0.charge(size as u64)))
    }

    /// Bytes until the group's own limit is reached. Negative above it.
    fn available(&self) -> isize {
        let available = self.capacity() as i128 - self.used() as i128;
        let extreme = if available < 0 {
            isize::MIN
        } else {
            isize::MAX
        };
        available.try_into().unwrap_or(extreme)
    }

    fn used(&self) -> usize {
        usize::try_from(self.0.reserved()).unwrap_or(usize::MAX)
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.0.limits().max).unwrap_or(usize::MAX)
    }
}

/// Bytes of a buffer.
#[derive(Debug)]
struct Claimed(Charge);

impl MemoryReservation for Claimed {
    fn size(&self) -> usize {
        usize::try_from(self.0.bytes()).unwrap_or(usize::MAX)
    }

    fn resize(&mut self, new_size: usize) {
        let (size, new_size) = (self.0.bytes(), new_size as u64);
        if new_size > size {
            self.0.grow_nowait(new_size - size);
        } else {
            // To fewer bytes, so nothing is refused.
            let _ = self.0.resize(new_size);
        }
    }
}

/// Charges the buffers of something to a group, until the last clone or slice of each buffer is dropped.
///
/// This is for memory that came from elsewhere: imported through the C data interface, read from Arrow IPC, or mapped. Each buffer is charged by its
/// capacity, once, however many arrays share it. The charge is the buffer's reservation in Arrow's sense, so another claim of the buffer, by any pool,
/// replaces it. While the new charge is made the old one is still there, so both count for that moment.
///
/// The memory may outlive the charge. All buffers of one import through the C data interface share one owner, which frees them together. So a column
/// that is kept keeps the memory of all columns, but the charges of the dropped columns are returned.
///
/// ```
/// # use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int64Array};
/// use bursar::{Freshness, Limits, Memory};
/// use bursar_arrow::Claim;
///
/// let memory = Memory::host()?;
/// let group = memory.root().child("imports", Limits::max(1 << 20))?;
/// let array: ArrayRef = Arc::new(Int64Array::from(vec![7; 1000]));        // or from `arrow_array::ffi::from_ffi`
/// array.try_claim(&group)?;
/// assert_eq!(group.read(Freshness::Exact)?.usage_bytes(), 8000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "claim")))]
pub trait Claim {
    /// Charges all buffers, or none. Returns the bytes charged.
    ///
    /// # Errors
    /// The refusal of [`Group::try_charge`]. Earlier reservations of the buffers stay.
    fn try_claim(&self, group: &Group) -> Result<u64, ChargeError>;
}

impl Claim for Buffer {
    fn try_claim(&self, group: &Group) -> Result<u64, ChargeError> {
        claim([self.clone()], group)
    }
}

impl Claim for ArrayData {
    fn try_claim(&self, group: &Group) -> Result<u64, ChargeError> {
        let mut buffers = Vec::new();
        collect(self, &mut buffers);
        claim(buffers, group)
    }
}

/// Of an `ArrayRef` as well. A concrete array has `to_data()`.
impl Claim for dyn Array + '_ {
    fn try_claim(&self, group: &Group) -> Result<u64, ChargeError> {
        self.to_data().try_claim(group)
    }
}

impl Claim for RecordBatch {
    fn try_claim(&self, group: &Group) -> Result<u64, ChargeError> {
        let mut buffers = Vec::new();
        for column in self.columns() {
            collect(&column.to_data(), &mut buffers);
        }
        claim(buffers, group)
    }
}

/// Adds the buffers of an array and of those inside.
fn collect(data: &ArrayData, buffers: &mut Vec<Buffer>) {
    buffers.extend(data.nulls().map(|nulls| nulls.buffer().clone()));
    buffers.extend(data.buffers().iter().cloned());
    for child in data.child_data() {
        collect(child, buffers);
    }
}

fn claim(buffers: impl IntoIterator<Item = Buffer>, group: &Group) -> Result<u64, ChargeError> {
    // By the start of its region, which all slices of a buffer share. Empty regions share one as well.
    let regions = buffers.into_iter().filter(|buffer| buffer.capacity() > 0);
    let regions: BTreeMap<_, _> = regions.map(|buffer| (buffer.data_ptr(), buffer)).collect();
    let bytes = regions.values().map(|buffer| buffer.capacity() as u64);
    let bytes = bytes.sum();
    let prepaid = Prepaid {
        charge: Mutex::new(group.try_charge(bytes)?),
        group,
    };
    for buffer in regions.values() {
        buffer.claim(&prepaid);
    }
    Ok(bytes)
}

/// A pool whose bytes are charged already.
#[derive(Debug)]
struct Prepaid<'a> {
    charge: Mutex<Charge>,
    group: &'a Group,
}

impl MemoryPool for Prepaid<'_> {
    fn reserve(&self, size: usize) -> Box<dyn MemoryReservation> {
        let mut charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
        let part = charge.split(size as u64);
        // A buffer has the capacity that was charged for it, because it is shared and so cannot grow.
        Box::new(Claimed(
            part.unwrap_or_else(|_| self.group.charge(size as u64)),
        ))
    }

    fn available(&self) -> isize {
        isize::MAX
    }

    fn used(&self) -> usize {
        0
    }

    fn capacity(&self) -> usize {
        usize::MAX
    }
}

/// A reader whose batches are claimed for a group as they come: [`Claim`] for each.
///
/// It is for readers that hand over memory of others or allocate without asking: `ArrowArrayStreamReader` of the C stream interface, `StreamReader` and
/// `FileReader` of Arrow IPC, `ParquetRecordBatchReader`. A batch is there before it is charged, so one batch is in memory uncharged for a moment.
#[cfg_attr(docsrs, doc(cfg(feature = "claim")))]
pub struct ClaimedReader<R> {
    reader: R,
    group: Group,
}

impl<R> ClaimedReader<R> {
    /// Charges the batches of `reader` to `group`.
    pub fn new(reader: R, group: &Group) -> Self {
        Self {
            reader,
            group: group.clone(),
        }
    }
}

/// A refusal is [`ArrowError::ExternalError`] with the [`ChargeError`]. Its batch is lost: the reader has moved on.
impl<R: Iterator<Item = Result<RecordBatch, ArrowError>>> Iterator for ClaimedReader<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.reader.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let claimed = batch.try_claim(&self.group);
        let refused = |error| ArrowError::ExternalError(Box::new(error));
        Some(claimed.map(|_| batch).map_err(refused))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.reader.size_hint()
    }
}

impl<R: RecordBatchReader> RecordBatchReader for ClaimedReader<R> {
    fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }
}

impl<R> fmt::Debug for ClaimedReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedReader")
            .field("group", &self.group.path())
            .finish_non_exhaustive()
    }
}
