//! Arrow's pools: claimed buffers are charged to the query's group.

use arrow_buffer::{MemoryPool, MemoryReservation};
use bursar_arrow::ArrowPool;
use datafusion_execution::memory_pool::MemoryLimit;
use datafusion_execution::memory_pool::MemoryPool as _;

use crate::pool::GroupPool;

/// Serves [`Buffer::claim`](arrow_buffer::Buffer::claim) and similar calls. Reservations never fail, because Arrow
/// claims memory that is in use already. A reservation that exceeds a limit makes the next [`bursar::Group::try_charge`] below
/// that limit fail. Reservations are charged to the query's own group, not to an operator's, and keep it charged after
/// the end of the pool.
///
/// Arrow 59 reserves the bytes of a buffer that is claimed again before it returns those of the first claim. For that moment they count
/// twice ([apache/arrow-rs#10301](https://github.com/apache/arrow-rs/pull/10301)), so a peak may be too high by them.
impl MemoryPool for GroupPool {
    fn reserve(&self, size: usize) -> Box<dyn MemoryReservation> {
        ArrowPool(self.group().clone()).reserve(size)
    }

    /// Negative while the usage is above the limit.
    fn available(&self) -> isize {
        let available = self.capacity() as i128 - self.used() as i128;
        available.try_into().unwrap_or(if available < 0 {
            isize::MIN
        } else {
            isize::MAX
        })
    }

    fn used(&self) -> usize {
        self.reserved()
    }

    fn capacity(&self) -> usize {
        match self.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        }
    }
}
