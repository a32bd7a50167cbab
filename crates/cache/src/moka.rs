//! Eviction from `moka`.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moka::sync::Cache;

use crate::held::{Evict, Held};

/// A place in a cache of moka for an entry. It is emptied when moka removes it.
///
/// moka drops a removed value later, when no thread can still be reading it, and keeps up to 64 of them for each thread. Without the place their bytes
/// would stay charged, and a full cache would look empty. So give the cache a listener that empties places:
///
/// ```
/// use bursar_cache::{Held, Place};
/// use moka::sync::Cache;
///
/// let cache: Cache<u64, Place<Vec<u8>>> = Cache::builder()
///     .eviction_listener(|_, place: Place<_>, _| place.empty())
///     .build();
/// # let group = bursar::Memory::host()?.root();
/// cache.insert(7, Place::from(Held::charged(&group, 100, || vec![0; 100])?));
/// let entry: Option<Held<Vec<u8>>> = cache.get(&7).and_then(|place| place.get());
/// # assert_eq!(entry.unwrap().len(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "moka")))]
pub struct Place<V>(Arc<Mutex<Option<Held<V>>>>);

impl<V> Place<V> {
    /// The entry; `None` if moka has removed it meanwhile, which is a miss.
    pub fn get(&self) -> Option<Held<V>> {
        self.lock().clone()
    }

    /// Lets the entry go. Its bytes are returned when no reader has it.
    pub fn empty(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Held<V>> {
        // The caller drops it without the lock: its end may run code of the program.
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held<V>>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> From<Held<V>> for Place<V> {
    fn from(held: Held<V>) -> Self {
        Self(Arc::new(Mutex::new(Some(held))))
    }
}

impl<V> Clone for Place<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: fmt::Debug> fmt::Debug for Place<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&*self.lock()).finish()
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "moka")))]
impl<K, V, S> Evict for Cache<K, Place<V>, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Removes entries in the order of moka's iterator. An entry that a reader has counts as 0.
    fn evict(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        for (key, place) in self {
            if freed >= bytes {
                break;
            }
            // Only one caller gets the entry, so its bytes count once. The listener finds the place empty.
            if let Some(held) = place.take() {
                if Held::is_last(&held) {
                    freed += Held::bytes(&held);
                }
                drop(held);
                self.invalidate(&*key);
            }
        }
        freed
    }
}
