//! The tenants: each has a group with a limit, a cache, and a group for each query while it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar::{
    Bytes, Charge, ChargeError, CreateError, Freshness, Group, Limits, Memory, RemoveError,
};
use tokio::time::timeout;

use crate::cache::Cache;

/// The longest time that a query waits for memory before it fails. Queries that hold memory and wait for more could
/// otherwise wait for each other without end.
const PATIENCE: Duration = Duration::from_millis(200);

/// The longest time that a removal waits for bytes that are still charged.
const LEAVE_PATIENCE: Duration = Duration::from_secs(60);

/// The reason for which a request failed.
#[derive(Debug)]
pub enum Failure {
    UnknownTenant(String),
    NotANumber(String),
    Create(CreateError),
    Close(RemoveError),
    /// A limit stands in the way; the text names it, its biggest users, and what is in use.
    Refused(ChargeError),
    /// The memory did not come in time; with the limit that was in the way.
    Late(ChargeError),
    /// The tenant is removed, but so many bytes were not back in time.
    Left(u64),
    /// The client closed its side of the connection while its query ran.
    Gone,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTenant(name) => {
                write!(f, "there is no tenant {}", bursar::printable(name))
            }
            Self::NotANumber(word) => {
                write!(
                    f,
                    "`{}` must be a whole number, at most 1000000",
                    bursar::printable(word)
                )
            }
            Self::Create(error) => error.fmt(f),
            Self::Close(error) => error.fmt(f),
            Self::Refused(error) => error.fmt(f),
            Self::Late(reason) => write!(f, "waited for {PATIENCE:?}: {reason}"),
            Self::Left(bytes) => write!(
                f,
                "the tenant is removed, but {} are still charged to it: its last query or value returns them",
                Bytes(*bytes)
            ),
            Self::Gone => f.write_str("the query ended early: the client closed its side"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        Self::Create(error)
    }
}

impl From<RemoveError> for Failure {
    fn from(error: RemoveError) -> Self {
        Self::Close(error)
    }
}

impl From<ChargeError> for Failure {
    fn from(error: ChargeError) -> Self {
        Self::Refused(error)
    }
}

/// A tenant that was admitted.
#[derive(Debug)]
pub struct Tenant {
    pub group: Group,
    pub cache: Cache,
    queries: AtomicU64,
}

/// All tenants of the server, by name.
#[derive(Debug)]
pub struct Tenants {
    memory: Memory,
    by_name: Mutex<BTreeMap<String, Arc<Tenant>>>,
    /// The longest time that [`Tenants::remove`] waits.
    pub leave_patience: Duration,
}

impl Tenants {
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            by_name: Mutex::default(),
            leave_patience: LEAVE_PATIENCE,
        }
    }

    /// Admits a tenant that may use `max` bytes.
    pub fn admit(&self, name: &str, max: u64) -> Result<(), Failure> {
        let group = self.memory.root().child(name, Limits::max(max))?;
        let cache = Cache::new(&group)?;
        let tenant = Tenant {
            group,
            cache,
            queries: AtomicU64::new(0),
        };
        self.by_name
            .lock()
            .unwrap()
            .insert(name.to_owned(), Arc::new(tenant));
        Ok(())
    }

    /// Changes a tenant's limit. A lower one holds from the return of this call on.
    pub fn limit(&self, name: &str, max: u64) -> Result<(), Failure> {
        self.find(name)?.group.set_max(max);
        Ok(())
    }

    /// Puts a value of `bytes` bytes into the tenant's cache.
    pub fn put(&self, name: &str, key: &str, bytes: usize) -> Result<(), Failure> {
        let tenant = self.find(name)?;
        let value = tenant.cache.make(key, bytes)?;
        Ok(tenant.cache.keep(key, value)?)
    }

    /// The length of a cached value, `None` if it was evicted or never put.
    pub fn get(&self, name: &str, key: &str) -> Result<Option<usize>, Failure> {
        let value = self.find(name)?.cache.get(key);
        Ok(value.map(|value| value.bytes.len()))
    }

    /// Reserves the `bytes` bytes that a query needs, in a group of its own. Dropping the charge ends the query.
    pub async fn start_query(&self, name: &str, bytes: u64) -> Result<Charge, Failure> {
        let tenant = self.find(name)?;
        let number = tenant.queries.fetch_add(1, Ordering::Relaxed);
        let query = tenant
            .group
            .child(format!("query-{number}"), Limits::none())?;
        let mut waiting = query.charge_async(bytes);
        match timeout(PATIENCE, &mut waiting).await {
            Ok(charged) => Ok(charged?),
            Err(_elapsed) => Err(Failure::Late(waiting.give_up())),
        }
    }

    /// Lets a tenant go: no new charges at once, the cache closed, then waits a while for the queries that still run.
    pub async fn remove(&self, name: &str) -> Result<(), Failure> {
        let tenant = self.by_name.lock().unwrap().remove(name);
        let tenant = tenant.ok_or_else(|| Failure::UnknownTenant(name.to_owned()))?;
        tenant.group.close()?;
        tenant.cache.close();
        match timeout(self.leave_patience, tenant.group.emptied()).await {
            Ok(()) => Ok(()),
            Err(_elapsed) => Err(Failure::Left(tenant.group.reserved())),
        }
    }

    /// The tree of all groups with usage and limits, from one flush.
    pub fn tree(&self) -> String {
        match self.memory.snapshot(Freshness::Exact) {
            Ok(snapshot) => snapshot.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// The tenant of that name.
    pub fn find(&self, name: &str) -> Result<Arc<Tenant>, Failure> {
        let by_name = self.by_name.lock().unwrap();
        let tenant = by_name.get(name).cloned();
        tenant.ok_or_else(|| Failure::UnknownTenant(name.to_owned()))
    }
}
