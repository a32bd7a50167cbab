//! DataFusion's caches of files: what they hold is charged, and goes when memory is needed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar::{Charge, Group, Registration};
use datafusion_common::{HashMap, Result, TableReference};
use datafusion_execution::cache::cache_manager::CacheManagerConfig;
use datafusion_execution::cache::default_cache::DefaultCache;
use datafusion_execution::cache::{Cache, CacheEntryInfo, CacheKey, CacheValue};

/// Makes the caches of a runtime charge their entries to a group: metadata of files (page indexes included), statistics, and listings.
///
/// They are DataFusion's own, with the limits and the time to live of `config`. An entry that the group refuses is not cached, and its query goes
/// on. If the group, or one above it, needs memory, entries go, those first that were not used for the longest time. One that a query still reads is
/// charged to nobody from then on. All sessions of a runtime
/// share its caches, so give them a group of their own rather than a tenant's. The bytes are those that DataFusion computes for an entry. A
/// cache that `config` already has stays as it is.
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_datafusion::charged_caches;
/// use datafusion_execution::cache::cache_manager::CacheManagerConfig;
/// use datafusion_execution::runtime_env::RuntimeEnvBuilder;
///
/// let memory = Memory::builder().max(8 << 30).build()?;
/// let group = memory.root().child("file-caches", Limits::max(256 << 20))?;
/// let caches = CacheManagerConfig::default().with_metadata_cache_limit(128 << 20);
/// let runtime = RuntimeEnvBuilder::new()
///     .with_cache_manager(charged_caches(&group, caches))
///     .build_arc()?;
/// # assert_eq!(runtime.cache_manager.get_metadata_cache_limit(), 128 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn charged_caches(group: &Group, mut config: CacheManagerConfig) -> CacheManagerConfig {
    let CacheManagerConfig {
        file_statistics_cache: statistics,
        file_statistics_cache_limit: statistics_max,
        list_files_cache: listings,
        list_files_cache_limit: listings_max,
        list_files_cache_ttl: listings_ttl,
        file_metadata_cache: metadata,
        metadata_cache_limit: metadata_max,
    } = &mut config;
    statistics.get_or_insert_with(|| {
        Arc::new(ChargedCache::new(
            group,
            "statistics",
            *statistics_max,
            None,
        ))
    });
    listings.get_or_insert_with(|| {
        Arc::new(ChargedCache::new(
            group,
            "listings",
            *listings_max,
            *listings_ttl,
        ))
    });
    metadata
        .get_or_insert_with(|| Arc::new(ChargedCache::new(group, "metadata", *metadata_max, None)));
    config
}

/// A cache of DataFusion with the charge for its entries.
struct ChargedCache<K: CacheKey, V: CacheValue> {
    entries: Arc<Entries<K, V>>,
    group: Group,
    _reclaimer: Registration,
}

struct Entries<K: CacheKey, V: CacheValue> {
    cache: DefaultCache<K, V>,
    /// Locked after a change of the cache, never while bytes are charged or returned: that may call for entries, on this thread.
    paid: Mutex<Paid>,
}

struct Paid {
    /// For all entries.
    charge: Charge,
    /// Bytes that the cache may hold. It has a lower limit for the moment in which it evicts.
    limit: usize,
}

impl<K: CacheKey + 'static, V: CacheValue + 'static> ChargedCache<K, V> {
    fn new(group: &Group, name: &str, limit: usize, ttl: Option<Duration>) -> Self {
        let charge = group.charge(0);
        let entries = Arc::new(Entries {
            cache: DefaultCache::new_with_ttl(limit, ttl).with_name(name),
            paid: Mutex::new(Paid { charge, limit }),
        });
        let evicted = entries.clone();
        Self {
            entries,
            group: group.clone(),
            _reclaimer: group.add_reclaimer(0, move |request| evicted.evict(request.target)),
        }
    }
}

impl<K: CacheKey, V: CacheValue> Entries<K, V> {
    fn lock(&self) -> MutexGuard<'_, Paid> {
        // Nothing panics while it is locked.
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Corrects the charge after a change, and returns the bytes of entries that are gone. `paid_ahead` is for an entry that has come.
    fn settle(&self, paid_ahead: Option<Charge>) {
        let rest = self.settle_locked(&mut self.lock(), paid_ahead);
        // Without the lock.
        drop(rest);
    }

    fn settle_locked(&self, paid: &mut Paid, paid_ahead: Option<Charge>) -> Option<Charge> {
        if let Some(ahead) = paid_ahead {
            paid.charge.merge(ahead).expect("both are of one group");
        }
        let used = self.cache.memory_used() as u64;
        let charged = paid.charge.bytes();
        match charged.checked_sub(used) {
            Some(rest) => Some(paid.charge.split(rest).expect("it has that many")),
            // Another thread has put an entry in, and will settle with what it paid.
            None => {
                paid.charge.grow_nowait(used - charged);
                None
            }
        }
    }

    /// Evicts entries of at least so many bytes, or all; returns the bytes.
    fn evict(&self, bytes: u64) -> u64 {
        let mut paid = self.lock();
        let used = self.cache.memory_used();
        let target = used.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.cache.update_cache_limit(target);
        self.cache.update_cache_limit(paid.limit);
        let rest = self.settle_locked(&mut paid, None);
        drop(paid);
        rest.map_or(0, |rest| rest.bytes())
    }
}

impl<K: CacheKey + 'static, V: CacheValue + 'static> Cache<K, V> for ChargedCache<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let value = self.entries.cache.get(key);
        if value.is_none() {
            // Perhaps its time was over.
            self.entries.settle(None);
        }
        value
    }

    fn put(&self, key: &K, value: V) -> Option<V> {
        let bytes = key.size() + value.size();
        // One that is too large for the cache needs no memory of others.
        let fits = bytes <= self.cache_limit();
        // First, because it may evict other entries.
        let charge = fits.then(|| self.group.try_charge(bytes as u64));
        let Some(Ok(charge)) = charge else {
            // An entry under this key is out of date.
            return self.remove(key);
        };
        let old = self.entries.cache.put(key, value);
        self.entries.settle(Some(charge));
        old
    }

    fn remove(&self, key: &K) -> Option<V> {
        let removed = self.entries.cache.remove(key);
        self.entries.settle(None);
        removed
    }

    fn contains_key(&self, key: &K) -> bool {
        let contains = self.entries.cache.contains_key(key);
        if !contains {
            // As in `get`.
            self.entries.settle(None);
        }
        contains
    }

    fn len(&self) -> usize {
        self.entries.cache.len()
    }

    fn clear(&self) {
        self.entries.cache.clear();
        self.entries.settle(None);
    }

    fn name(&self) -> String {
        self.entries.cache.name()
    }

    fn cache_limit(&self) -> usize {
        self.entries.lock().limit
    }

    fn update_cache_limit(&self, limit: usize) {
        let mut paid = self.entries.lock();
        // As for the runtime of each query.
        if paid.limit == limit {
            return;
        }
        paid.limit = limit;
        self.entries.cache.update_cache_limit(limit);
        let rest = self.entries.settle_locked(&mut paid, None);
        drop(paid);
        drop(rest);
    }

    fn cache_ttl(&self) -> Option<Duration> {
        self.entries.cache.cache_ttl()
    }

    fn update_cache_ttl(&self, ttl: Option<Duration>) {
        self.entries.cache.update_cache_ttl(ttl);
    }

    fn drop_table_entries(&self, table: &TableReference) -> Result<()> {
        let dropped = self.entries.cache.drop_table_entries(table);
        self.entries.settle(None);
        dropped
    }

    fn list_entries(&self) -> HashMap<K, CacheEntryInfo<V>> {
        self.entries.cache.list_entries()
    }
}
