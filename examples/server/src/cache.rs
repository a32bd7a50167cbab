//! A tenant's cache: each value holds a charge, and the oldest values make room when the tenant's limit is reached.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bursar::{Charge, ChargeError, CreateError, Group, Limits, Registration};

/// A value and the charge for it. The charge is returned when the last reader drops the value.
#[derive(Debug)]
pub struct Value {
    pub bytes: Vec<u8>,
    charge: Charge,
}

type Entry = (String, Arc<Value>);

/// Bytes of an entry without its key and its value: its place in the queue, and the value's own fields with the two counts of
/// its `Arc`. The queue doubles when it is full, so it may have two places for each entry.
pub const ENTRY_BYTES: usize = 2 * size_of::<Entry>() + size_of::<Value>() + 2 * size_of::<usize>();

/// Oldest first. `None` once the tenant leaves.
type Values = Mutex<Option<VecDeque<Entry>>>;

/// The values of one tenant.
#[derive(Debug)]
pub struct Cache {
    group: Group,
    values: Arc<Values>,
    _reclaimer: Registration,
}

impl Cache {
    /// An empty cache in a group of its own below `tenant`.
    pub fn new(tenant: &Group) -> Result<Self, CreateError> {
        let group = tenant.child("cache", Limits::none())?;
        let values: Arc<Values> = Arc::new(Mutex::new(Some(VecDeque::new())));
        let evicted_from = Arc::clone(&values);
        // Bursar calls this before it refuses a charge anywhere in the tenant: here, or in one of its queries.
        let reclaimer = group.add_reclaimer(0, move |request| {
            // The task that asks may hold any lock, so this one is only tried.
            let Ok(mut values) = evicted_from.try_lock() else {
                return 0;
            };
            let (mut freed, mut evicted) = (0, Vec::new());
            while freed < request.target
                && let Some((key, value)) = values.as_mut().and_then(VecDeque::pop_front)
            {
                freed += value.charge.bytes();
                evicted.push((key, value));
            }
            // The places of the queue are charged with its entries.
            if let Some(values) = values.as_mut() {
                values.shrink_to(2 * values.len());
            }
            drop(values); // The lock goes first: a returned charge may wake tasks that take it.
            drop(evicted);
            freed
        });
        Ok(Self {
            group,
            values,
            _reclaimer: reclaimer,
        })
    }

    /// Makes a value of `bytes` bytes and charges it with its key and its entry. Older values are evicted if the tenant has no
    /// room for it.
    pub fn make(&self, key: &str, bytes: usize) -> Result<Arc<Value>, ChargeError> {
        let charge = self
            .group
            .try_charge((key.len() + bytes + ENTRY_BYTES) as u64)?;
        Ok(Arc::new(Value {
            bytes: vec![b'.'; bytes],
            charge,
        }))
    }

    /// Keeps a value that [`Cache::make`] made before, without the lock: the reclaimer needs the lock to make room. Drops the
    /// value if the tenant has left since then.
    pub fn keep(&self, key: &str, value: Arc<Value>) -> Result<(), ChargeError> {
        let replaced = {
            let mut values = self.values.lock().unwrap();
            // The cache is cleared once only, so a later value must not come in.
            let Some(values) = values.as_mut() else {
                let group = self.group.path().into();
                return Err(ChargeError::Removed { group });
            };
            let at = values.iter().position(|(have, _)| have == key);
            let replaced = at.and_then(|at| values.remove(at));
            values.push_back((key.to_owned(), value));
            replaced
        };
        drop(replaced);
        Ok(())
    }

    /// The value of `key`, if it is still there.
    pub fn get(&self, key: &str) -> Option<Arc<Value>> {
        let values = self.values.lock().unwrap();
        let (_, value) = values.as_ref()?.iter().find(|(have, _)| have == key)?;
        Some(Arc::clone(value))
    }

    /// Drops all values, and those that come later.
    pub fn close(&self) {
        let values = self.values.lock().unwrap().take();
        drop(values);
    }
}
