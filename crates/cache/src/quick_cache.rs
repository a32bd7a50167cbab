//! Eviction from `quick_cache`.

use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::held::{Evict, Held};

/// The weight of an entry is what is charged for it. As a lifecycle, it lets evicted entries go when no lock of the cache is held: their bytes
/// return then, which may run code of the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByCharge;

impl ByCharge {
    /// A cache whose entries Bursar evicts. Tell it about as many `entries` as will fit: a cache for many more has shards that are too small, and
    /// loses most of them when it evicts one.
    pub fn cache<K: Hash + Eq, V>(
        entries: usize,
    ) -> Arc<Cache<K, Held<V>, Self, DefaultHashBuilder, Self>> {
        let hashes = DefaultHashBuilder::default();
        Arc::new(Cache::with(entries, u64::MAX, Self, hashes, Self))
    }
}

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

/// With a lifecycle of your own: it must not let entries go before the request's end, as quick_cache's does with the third and later ones. A
/// callback of their group that uses the cache would never return.
#[cfg_attr(docsrs, doc(cfg(feature = "quick_cache")))]
impl<K, V, B, L> Evict for Arc<Cache<K, Held<V>, ByCharge, B, L>>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    B: BuildHasher + Clone + Send + Sync + 'static,
    L: Lifecycle<K, Held<V>> + Clone + Send + Sync + 'static,
{
    /// Lowers the capacity for a moment. quick_cache then chooses the entries: no shard has more than its part of what is left. It forgets which
    /// entries it evicted before, so it takes some that come back for new ones. An entry that a reader has counts as evicted, and its bytes return
    /// later. A capacity that the program sets meanwhile is lost.
    fn evict(&self, bytes: u64) -> u64 {
        let restore = |capacity| self.set_capacity(capacity);
        let lowered = Lowered::new(Arc::as_ptr(self).addr(), || self.capacity(), restore);
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

/// A cache whose capacity is low for evictions. The last of them to end gives the capacity back: any other has read a low one.
struct Eviction {
    /// The cache, by its address. Each eviction has a handle, so no other cache can get the address.
    cache: usize,
    /// Its capacity before the first eviction.
    capacity: u64,
    /// Evictions under way.
    count: usize,
}

static EVICTIONS: Mutex<Vec<Eviction>> = Mutex::new(Vec::new());

fn evictions() -> MutexGuard<'static, Vec<Eviction>> {
    // No change of the list is seen by half.
    EVICTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An eviction under way, until dropped: an entry may panic when it goes.
struct Lowered<F: Fn(u64)> {
    cache: usize,
    restore: F,
}

impl<F: Fn(u64)> Lowered<F> {
    fn new(cache: usize, capacity: impl FnOnce() -> u64, restore: F) -> Self {
        let mut evictions = evictions();
        match evictions.iter_mut().find(|one| one.cache == cache) {
            Some(eviction) => eviction.count += 1,
            None => evictions.push(Eviction {
                cache,
                capacity: capacity(),
                count: 1,
            }),
        }
        Self { cache, restore }
    }
}

impl<F: Fn(u64)> Drop for Lowered<F> {
    fn drop(&mut self) {
        let mut evictions = evictions();
        let own = evictions.iter().position(|one| one.cache == self.cache);
        let own = own.expect("an eviction is in the list until its end");
        evictions[own].count -= 1;
        if evictions[own].count == 0 {
            // With the lock: the next eviction reads the capacity after this.
            (self.restore)(evictions.swap_remove(own).capacity);
        }
    }
}
