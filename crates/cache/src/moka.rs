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
pub struct Place<V>(Arc<Mutex<Content<V>>>);

struct Content<V> {
    held: Option<Held<V>>,
    /// Whether an eviction is about to remove the entry.
    is_claimed: bool,
}

impl<V> Place<V> {
    /// The entry; `None` if moka has removed it meanwhile, which is a miss.
    pub fn get(&self) -> Option<Held<V>> {
        self.lock().held.clone()
    }

    /// Lets the entry go. Its bytes are returned when no reader has it.
    pub fn empty(&self) {
        // The entry is dropped without the lock: its end may run code of the program.
        let held = self.lock().held.take();
        drop(held);
    }

    /// The entry, for the one eviction that may remove it. `None` if another has claimed it, or it is gone.
    fn claim(&self) -> Option<Held<V>> {
        let mut content = self.lock();
        match std::mem::replace(&mut content.is_claimed, true) {
            false => content.held.clone(),
            true => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content<V>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> From<Held<V>> for Place<V> {
    fn from(held: Held<V>) -> Self {
        Self(Arc::new(Mutex::new(Content {
            held: Some(held),
            is_claimed: false,
        })))
    }
}

impl<V> Clone for Place<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: fmt::Debug> fmt::Debug for Place<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.lock().held).finish()
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "moka")))]
impl<K, V, S> Evict for Cache<K, Place<V>, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Removes entries in the order of moka's iterator. An entry that a reader has counts as 0. If another thread replaces an entry while it is
    /// removed, the new entry may be removed instead, and the next reader misses it.
    fn evict(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        for (key, place) in self {
            if freed >= bytes {
                break;
            }
            // Only one caller claims the entry, so its bytes count once.
            let Some(held) = place.claim() else {
                continue;
            };
            // The place is full until moka has removed it. A thread that found it empty would insert the key anew, and this call would
            // remove the new entry.
            self.invalidate(&*key);
            place.empty();
            if Held::is_last(&held) {
                freed += Held::bytes(&held);
            }
            // `held` is dropped here, without a lock: its end may run code of the program.
        }
        freed
    }
}
