//! Eviction from `quick_cache`.

use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::held::{Evict, Held};

/// The weight of an entry is what is charged for it. As a lifecycle, it lets evicted entries go when no lock of the cache is held: their bytes
/// return then, which may run code of the program. `clear` and `retain` of quick_cache still let entries go with a lock held.
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
    /// Lowers the capacity for a moment. quick_cache then chooses the entries: no shard has more than its part of what is left. From the first time on
    /// it no longer knows which keys it evicted, so one that comes back is new to it. An entry that a reader has counts as evicted, and its bytes return
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

/// Evictions that are under way in a cache.
struct Evictions {
    /// The cache, by its address. Each eviction has a handle, so no other cache can get the address.
    cache: usize,
    count: usize,
    /// Locked while the capacity is read or given back, which may wait for a lock of the cache: evictions of others do not wait.
    low: Arc<Mutex<Low>>,
}

/// The capacity of a cache before its first eviction, while evictions keep it low. The last of them to end gives it back: any other has read a low one.
#[derive(Default)]
struct Low {
    capacity: u64,
    count: usize,
}

static EVICTIONS: Mutex<Vec<Evictions>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No change is seen by half.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An eviction under way, until dropped: an entry may panic when it goes.
struct Lowered<F: Fn(u64)> {
    cache: usize,
    low: Arc<Mutex<Low>>,
    restore: F,
}

impl<F: Fn(u64)> Lowered<F> {
    fn new(cache: usize, capacity: impl FnOnce() -> u64, restore: F) -> Self {
        let low = {
            let mut all = locked(&EVICTIONS);
            let own = match all.iter().position(|one| one.cache == cache) {
                Some(at) => at,
                None => {
                    let low = Arc::default();
                    let count = 0;
                    all.push(Evictions { cache, count, low });
                    all.len() - 1
                }
            };
            all[own].count += 1;
            all[own].low.clone()
        };
        {
            let mut low = locked(&low);
            if low.count == 0 {
                low.capacity = capacity();
            }
            low.count += 1;
        }
        Self {
            cache,
            low,
            restore,
        }
    }
}

impl<F: Fn(u64)> Drop for Lowered<F> {
    fn drop(&mut self) {
        {
            let mut low = locked(&self.low);
            low.count -= 1;
            if low.count == 0 {
                // With the lock: the next eviction reads the capacity after this.
                (self.restore)(low.capacity);
            }
        }
        let mut all = locked(&EVICTIONS);
        let own = all.iter().position(|one| one.cache == self.cache);
        let own = own.expect("an eviction is in the list until its end");
        all[own].count -= 1;
        if all[own].count == 0 {
            all.swap_remove(own);
        }
    }
}
