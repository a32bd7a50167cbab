//! A tenant's cache: each value holds a charge, and the oldest values make room when the tenant's limit is reached.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bursar::{Charge, ChargeError, CreateError, Group, Limits, Registration};

/// A value and the charge for its bytes. The charge is returned when the last reader drops the value.
#[derive(Debug)]
pub struct Value {
    pub bytes: Vec<u8>,
    _charge: Charge,
}

type Values = Mutex<VecDeque<(String, Arc<Value>)>>;

/// The values of one tenant, oldest first.
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
        let values: Arc<Values> = Arc::default();
        let evicted_from = Arc::clone(&values);
        // Bursar calls this before it refuses a charge anywhere in the tenant: here, or in one of its queries.
        let reclaimer = group.add_reclaimer(0, move |request| {
            // The task that asks may hold any lock, so this one is only tried.
            let Ok(mut values) = evicted_from.try_lock() else {
                return 0;
            };
            let (mut freed, mut evicted) = (0, Vec::new());
            while freed < request.target
                && let Some((_, value)) = values.pop_front()
            {
                freed += value.bytes.len() as u64;
                evicted.push(value);
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

    /// Keeps a value of `bytes` bytes. Older values are evicted if the tenant has no room for it.
    pub fn put(&self, key: &str, bytes: usize) -> Result<(), ChargeError> {
        // The charge comes before the lock: the reclaimer needs the lock to make room.
        let charge = self.group.try_charge(bytes as u64)?;
        let value = Arc::new(Value {
            bytes: vec![b'.'; bytes],
            _charge: charge,
        });
        let replaced = {
            let mut values = self.values.lock().unwrap();
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
        let (_, value) = values.iter().find(|(have, _)| have == key)?;
        Some(Arc::clone(value))
    }

    /// Drops all values.
    pub fn clear(&self) {
        let values = std::mem::take(&mut *self.values.lock().unwrap());
        drop(values);
    }
}
