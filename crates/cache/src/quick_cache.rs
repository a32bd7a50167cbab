//! Eviction from `quick_cache`.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::held::{Evict, Held};

/// A cache of quick_cache whose entries Bursar evicts. It has all methods of [`Cache`].
///
/// Evicted entries go when no lock of the cache is held, because the return of their bytes may run code of the program. `clear` and `retain` of
/// quick_cache still let entries go with a lock held.
#[cfg_attr(docsrs, doc(cfg(feature = "quick_cache")))]
pub struct QuickCache<K, V, B = DefaultHashBuilder> {
    cache: Cache<K, Held<V>, ByCharge, B, ByCharge>,
    low: Mutex<Low>,
}

/// The capacity before the first of the evictions that are under way and keep it low. The last of them to end gives it back: any other has read a
/// low one.
#[derive(Default)]
struct Low {
    capacity: u64,
    evictions: usize,
}

impl<K: Hash + Eq, V> QuickCache<K, V> {
    /// A cache for about as many `entries` as will fit. One for many more has shards that are too small, and loses most entries when it evicts one.
    pub fn new(entries: usize) -> Self {
        let hashes = DefaultHashBuilder::default();
        Cache::with(entries, u64::MAX, ByCharge, hashes, ByCharge).into()
    }
}

/// For options of quick_cache.
impl<K, V, B> From<Cache<K, Held<V>, ByCharge, B, ByCharge>> for QuickCache<K, V, B> {
    fn from(cache: Cache<K, Held<V>, ByCharge, B, ByCharge>) -> Self {
        let low = Mutex::default();
        Self { cache, low }
    }
}

impl<K, V, B> Deref for QuickCache<K, V, B> {
    type Target = Cache<K, Held<V>, ByCharge, B, ByCharge>;

    fn deref(&self) -> &Self::Target {
        &self.cache
    }
}

impl<K, V, B> fmt::Debug for QuickCache<K, V, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuickCache").field(&self.cache).finish()
    }
}

/// The weight of an entry is what is charged for it, and evicted entries go at the end of a request, without a lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByCharge;

impl<K, V> Weighter<K, Held<V>> for ByCharge {
    fn weight(&self, _: &K, held: &Held<V>) -> u64 {
        Held::bytes(held)
    }
}

impl<K, V> Lifecycle<K, Held<V>> for ByCharge {
    type RequestState = Vec<(K, Held<V>)>;

    fn on_evict(&self, evicted: &mut Self::RequestState, key: K, held: Held<V>) {
        evicted.push((key, held));
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "quick_cache")))]
impl<K, V, B> Evict for Arc<QuickCache<K, V, B>>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    B: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Lowers the capacity for a moment. quick_cache then chooses the entries: no shard has more than its part of what is left. From the first time on
    /// it no longer knows which keys it evicted, so one that comes back is new to it. An entry that a reader has counts as evicted, and its bytes return
    /// later. A capacity that the program sets meanwhile is lost.
    fn evict(&self, bytes: u64) -> u64 {
        let restore = |capacity| self.set_capacity(capacity);
        let lowered = Lowered::new(&self.low, || self.capacity(), restore);
        let before = self.weight();
        // The part of a shard is rounded up.
        let rounded = self.num_shards() as u64 - 1;
        self.set_capacity(before.saturating_sub(bytes.saturating_add(rounded)));
        // Before the capacity is back: until then no other thread can fill the room.
        let freed = before.saturating_sub(self.weight());
        drop(lowered);
        freed
    }
}

/// An eviction under way, until dropped: an entry may panic when it goes.
struct Lowered<'a, F: Fn(u64)> {
    low: &'a Mutex<Low>,
    restore: F,
}

impl<'a, F: Fn(u64)> Lowered<'a, F> {
    fn new(low: &'a Mutex<Low>, capacity: impl FnOnce() -> u64, restore: F) -> Self {
        let mut locked = lock(low);
        if locked.evictions == 0 {
            locked.capacity = capacity();
        }
        locked.evictions += 1;
        Self { low, restore }
    }
}

impl<F: Fn(u64)> Drop for Lowered<'_, F> {
    fn drop(&mut self) {
        let mut locked = lock(self.low);
        locked.evictions -= 1;
        if locked.evictions == 0 {
            // With the lock: the next eviction reads the capacity after this.
            (self.restore)(locked.capacity);
        }
    }
}

fn lock(low: &Mutex<Low>) -> MutexGuard<'_, Low> {
    // No change is seen by half.
    low.lock().unwrap_or_else(PoisonError::into_inner)
}
