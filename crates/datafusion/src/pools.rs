//! Pools by the paths of their groups.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bursar::{CreateError, Group, Limits, printable};

use crate::builder::PoolBuilder;
use crate::pool::GroupPool;

/// The pools of running queries, by path. Cloning makes another handle of the same registry.
///
/// All tasks of a query find the same pool by the query's path. The registry keeps no pool: a pool and its group end with the last
/// task, stream and session that hold it.
///
/// The groups of tenants are the program's: it makes them before, with their limits, and keeps their handles. A path from a request
/// never makes one.
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_datafusion::{Pools, UnknownPath};
///
/// let memory = Memory::builder().build()?;
/// let tenant = memory.root().child("tenant-a", Limits::max(2 << 30))?;
/// let pools = Pools::below(memory.root());
/// let pool = pools.get_or_create("tenant-a/query-7")?;
/// assert_eq!(pool.group().path(), "/tenant-a/query-7");
/// assert!(matches!(pools.get_or_create("nobody/query-8"), Err(UnknownPath::NoGroup { .. })));
/// drop(pool);
/// assert!(tenant.find("query-7").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pools {
    root: Group,
    settings: Arc<Settings>,
    made: Arc<Mutex<Made>>,
}

type Settings = dyn Fn(PoolBuilder, &Group) -> Result<PoolBuilder, CreateError> + Send + Sync;

/// Pools by path, and the number of entries from which those of ended pools are looked for.
#[derive(Default)]
struct Made {
    by_path: BTreeMap<String, Weak<GroupPool>>,
    sweep_at: usize,
}

/// Fewer entries are not worth a look.
const SWEEP_MIN: usize = 64;

/// Error of [`Pools::get_or_create`]. Nothing was made.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownPath {
    /// The path is not two names or more with slashes between them.
    BadPath {
        /// The path.
        path: String,
    },
    /// There is no group for a name above the last.
    NoGroup {
        /// The path of the group that is missing.
        path: String,
    },
    /// The query's group cannot be made, or the settings refuse it.
    Create(CreateError),
}

impl fmt::Display for UnknownPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPath { path } => write!(
                f,
                "a query's path is a tenant's name, a slash and the query's name, not {}",
                printable(path)
            ),
            Self::NoGroup { path } => write!(f, "there is no group {}", printable(path)),
            Self::Create(error) => error.fmt(f),
        }
    }
}

bursar::debug_as_message!(enum UnknownPath { BadPath { path }, NoGroup { path }, Create(error) });

impl std::error::Error for UnknownPath {}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools")
            .field("root", &self.root)
            .field("running", &self.running().len())
            .finish_non_exhaustive()
    }
}

impl Pools {
    /// Makes a registry for the groups below `root`.
    pub fn below(root: Group) -> Self {
        Self {
            root,
            settings: Arc::new(|builder, _: &Group| Ok(builder)),
            made: Arc::default(),
        }
    }

    /// Sets how a pool is built for its query's group: with a history, a share, real bytes, operators that are never refused. The
    /// function must not use this registry. Its error refuses the query.
    pub fn settings(
        mut self,
        settings: impl Fn(PoolBuilder, &Group) -> Result<PoolBuilder, CreateError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.settings = Arc::new(settings);
        self
    }

    /// Returns the pool at a path such as `tenant-a/query-7`, and makes it with its group if there is none. A slash may stand before the
    /// first name. The groups of all names but the last must exist.
    ///
    /// # Errors
    /// [`UnknownPath`].
    pub fn get_or_create(&self, path: &str) -> Result<Arc<GroupPool>, UnknownPath> {
        let bad = || UnknownPath::BadPath {
            path: path.to_owned(),
        };
        let names = path.strip_prefix('/').unwrap_or(path);
        let (above, name) = names.rsplit_once('/').ok_or_else(bad)?;
        if names.split('/').any(str::is_empty) {
            return Err(bad());
        }
        let mut tenant = self.root.clone();
        for above in above.split('/') {
            let Some(found) = tenant.find(above) else {
                let at = tenant.path();
                return Err(UnknownPath::NoGroup {
                    path: format!("{}/{above}", at.trim_end_matches('/')),
                });
            };
            tenant = found;
        }
        let mut made = self.lock();
        if let Some(pool) = made.by_path.get(names).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        // A group of that name may be there: of a pool that ends at this moment, or made by the program.
        let group = loop {
            match tenant.child(name, Limits::none()) {
                Err(CreateError::Exists { .. }) => {
                    if let Some(found) = tenant.find(name) {
                        break found;
                    }
                }
                made => break made.map_err(UnknownPath::Create)?,
            }
        };
        let settings = (self.settings)(GroupPool::builder(group.clone()), &group);
        let pool = settings.map_err(UnknownPath::Create)?.build();
        made.put(names, &pool);
        Ok(pool)
    }

    /// The pools that have not ended, in the order of their paths.
    pub fn running(&self) -> Vec<Arc<GroupPool>> {
        let pools: Vec<Weak<GroupPool>> = self.lock().by_path.values().cloned().collect();
        // Without the lock: the last handle of a pool may be this one, and its end calls others.
        pools.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    fn put(&mut self, path: &str, pool: &Arc<GroupPool>) {
        if self.by_path.len() >= self.sweep_at {
            self.by_path.retain(|_, pool| pool.strong_count() > 0);
            self.sweep_at = (2 * self.by_path.len()).max(SWEEP_MIN);
        }
        self.by_path.insert(path.to_owned(), Arc::downgrade(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar::Memory;

    #[test]
    fn entries_of_ended_pools_go() {
        let memory = Memory::host().unwrap();
        let _tenant = memory.root().child("t", Limits::none()).unwrap();
        let pools = Pools::below(memory.root());
        let kept: Vec<_> = (0..10)
            .map(|at| pools.get_or_create(&format!("t/kept-{at}")).unwrap())
            .collect();
        for at in 0..1000 {
            pools.get_or_create(&format!("t/q-{at}")).unwrap();
            assert!(pools.lock().by_path.len() <= SWEEP_MIN);
        }
        assert_eq!(pools.running().len(), kept.len());
    }
}
