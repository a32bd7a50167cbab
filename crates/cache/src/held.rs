//! Entries with their charges, and caches that evict them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bursar::{Charge, ChargeError, Group, Registration};

/// A cached value with the charge for its bytes. A clone is another handle of the same entry. The bytes are returned when the last handle goes,
/// so an entry that was evicted is charged as long as a reader has it.
pub struct Held<V>(Arc<Entry<V>>);

struct Entry<V> {
    // Dropped first: its bytes are free before they are returned.
    value: V,
    charge: Charge,
}

impl<V> Held<V> {
    /// Charges `bytes` to the group, then makes the value. The charge may evict entries of any cache below a limit that is in the way, on this
    /// thread. So hold no lock of a cache.
    ///
    /// # Errors
    /// The refusal of [`Group::try_charge`]. `make` is not called then.
    pub fn charged(
        group: &Group,
        bytes: u64,
        make: impl FnOnce() -> V,
    ) -> Result<Self, ChargeError> {
        let charge = group.try_charge(bytes)?;
        let value = make();
        Ok(Self(Arc::new(Entry { value, charge })))
    }

    /// Makes an entry of a value whose bytes the caller charged.
    pub fn new(value: V, charge: Charge) -> Self {
        Self(Arc::new(Entry { value, charge }))
    }

    /// The bytes charged for the entry: its weight.
    pub fn bytes(held: &Self) -> u64 {
        held.0.charge.bytes()
    }

    /// Whether the bytes are returned when this handle goes.
    #[cfg(feature = "moka")]
    pub(crate) fn is_last(held: &Self) -> bool {
        Arc::strong_count(&held.0) == 1
    }
}

impl<V> Clone for Held<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V> Deref for Held<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.0.value
    }
}

impl<V: fmt::Debug> fmt::Debug for Held<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("value", &self.0.value)
            .field("bytes", &self.0.charge.bytes())
            .finish()
    }
}

/// A cache that can evict entries.
pub trait Evict: Send + Sync + 'static {
    /// Evicts entries of at least `bytes`, or all; returns the bytes that are free now. It runs on the thread that needs memory, so it must not wait
    /// for a lock that is held during a charge.
    fn evict(&self, bytes: u64) -> u64;
}

/// Makes `cache` a reclaimer of the group, of that order ([`Group::add_reclaimer`]), until the registration is dropped. The reclaimer owns `cache`,
/// so give it a clone of the handle.
pub fn evict_from(group: &Group, order: i32, cache: impl Evict) -> Registration {
    group.add_reclaimer(order, move |request| cache.evict(request.target))
}
