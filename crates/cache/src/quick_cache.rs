//! Eviction from `quick_cache`.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, Weighter};

use crate::held::{Evict, Held};

/// The weight of an entry: the bytes charged for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByCharge;

impl<K, V> Weighter<K, Held<V>> for ByCharge {
    fn weight(&self, _: &K, held: &Held<V>) -> u64 {
        Held::bytes(held)
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "quick_cache")))]
impl<K, V, B, L> Evict for Arc<Cache<K, Held<V>, ByCharge, B, L>>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    B: BuildHasher + Clone + Send + Sync + 'static,
    L: Lifecycle<K, Held<V>> + Clone + Send + Sync + 'static,
{
    /// Lowers the capacity for a moment. quick_cache then chooses the entries, with the same share of each of its shards. An entry that a reader has
    /// counts as evicted, and its bytes return later.
    fn evict(&self, bytes: u64) -> u64 {
        let (before, capacity) = (self.weight(), self.capacity());
        self.set_capacity(before.saturating_sub(bytes));
        self.set_capacity(capacity);
        before.saturating_sub(self.weight())
    }
}
