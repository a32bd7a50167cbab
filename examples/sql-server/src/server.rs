//! State that all connections share: the trees, the engine, the users, and the connections themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bursar::{Charge, ChargeError, Group, Limits, Memory};
use bursar_arbiter::Arbiter;
use bursar_datafusion::{
    History, PreparedQuery, RealBytes, Tenant, TenantEngine, TenantEngineError, View,
};
use datafusion::common::ParamValues;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::prelude::SessionContext;
use datafusion_postgres::pgwire::messages::startup::SecretKey;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use crate::users::{self, Settings, Users};

/// Memory pools to choose from.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Pool {
    /// A group for each user and query, with admission.
    Bursar,
    /// DataFusion's `GreedyMemoryPool`, one for all.
    Greedy,
    /// DataFusion's `FairSpillPool`, one for all.
    Fair,
}

/// A user, with its groups. Queries that run keep it.
pub struct User {
    pub settings: Settings,
    pub context: SessionContext,
    pub queries: Arc<Semaphore>,
    tenant: Tenant,
    group: Group,
    /// Keeps the group of spill space, and its limit.
    _disk: Group,
}

pub struct Server {
    pub memory: Memory,
    pub real: RealBytes,
    pub arbiter: Arbiter,
    /// The runtime that queries run on. A connection notices a cancel request even if all threads of this runtime are busy.
    pub queries: Handle,
    pub connections: AtomicUsize,
    pub connections_max: usize,
    /// Errors sent to clients, by user and SQLSTATE.
    pub errors: Mutex<BTreeMap<(String, String), u64>>,
    /// Key and waker of each session, by its number, for requests to cancel.
    pub sessions: Mutex<BTreeMap<i32, (SecretKey, Arc<Notify>)>>,
    /// The runtime of all queries, unless each has one of its own.
    plain: Option<Arc<RuntimeEnv>>,
    shared: SessionContext,
    disk: Memory,
    history: History,
    engine: TenantEngine,
    users: RwLock<BTreeMap<String, Arc<User>>>,
    users_file: PathBuf,
}

impl Server {
    /// Makes the trees, with `tree` bytes of memory and `spill` bytes of disk for all queries.
    pub fn new(
        pool: Pool,
        (tree, spill): (u64, u64),
        (shared, memory, real): (SessionContext, Memory, RealBytes),
        connections_max: usize,
        users_file: PathBuf,
        queries: Handle,
    ) -> Result<Self, String> {
        let disk = Memory::builder()
            .max(spill)
            .build()
            .map_err(|error| error.to_string())?;
        memory.root().set_max(tree);
        let arbiter = Arbiter::new(&memory, bursar_arbiter::Policy::default());
        let history = History::new(1000);
        let engine = TenantEngine::builder(&shared, &arbiter)
            .disk(&disk)
            .history(&history)
            .real_bytes(&real)
            .build();
        let size = usize::try_from(tree).unwrap_or(usize::MAX);
        let plain: Option<Arc<dyn MemoryPool>> = match pool {
            Pool::Bursar => None,
            Pool::Greedy => Some(Arc::new(GreedyMemoryPool::new(size))),
            Pool::Fair => Some(Arc::new(FairSpillPool::new(size))),
        };
        let runtime = |pool| {
            let shared = shared.runtime_env();
            RuntimeEnvBuilder::from_runtime_env(&shared)
                .with_memory_pool(pool)
                .build_arc()
        };
        let plain = plain
            .map(runtime)
            .transpose()
            .map_err(|error| error.to_string())?;
        let server = Self {
            memory,
            real,
            arbiter,
            queries,
            connections: AtomicUsize::new(0),
            connections_max,
            errors: Mutex::default(),
            sessions: Mutex::default(),
            plain,
            shared,
            disk,
            history,
            engine,
            users: RwLock::default(),
            users_file,
        };
        server.reload()?;
        Ok(server)
    }

    /// Reads the file of users. After a mistake the old users stay.
    pub fn reload(&self) -> Result<usize, String> {
        let settings = users::read(&self.users_file)?;
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let made = self.make(settings, &users)?;
        *users = made;
        Ok(users.len())
    }

    fn make(
        &self,
        settings: Users,
        old: &BTreeMap<String, Arc<User>>,
    ) -> Result<BTreeMap<String, Arc<User>>, String> {
        let mut users = BTreeMap::new();
        for (name, settings) in settings {
            let group = group(&self.memory, &name)?;
            group.set_limits(Limits::max(settings.max).min(settings.min));
            let disk = group_of_disk(&self.disk, &name, settings.spill)?;
            let tenant = self
                .engine
                .tenant(&name)
                .map_err(|error| error.to_string())?;
            // Queries that run keep their places, unless the number of places has changed.
            let queries = match old.get(&name) {
                Some(old) if old.settings.queries == settings.queries => old.queries.clone(),
                _ => Arc::new(Semaphore::new(settings.queries as usize)),
            };
            let sees = sees(&name, settings.admin);
            let mut state = SessionStateBuilder::new_from_existing(self.shared.state());
            if let Some(runtime) = &self.plain {
                state = state.with_runtime_env(runtime.clone());
            }
            let context = SessionContext::new_with_state(state.build());
            let view = View::new(&self.memory)
                .history(&self.history)
                .arbiter(&self.arbiter);
            view.below(sees).register(&context);
            let tenant = tenant.score(settings.score);
            let user = User {
                settings,
                context,
                queries,
                tenant,
                group,
                _disk: disk,
            };
            users.insert(name, Arc::new(user));
        }
        Ok(users)
    }

    /// The user of this name, as the file of users has it now.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.get(name).cloned()
    }

    /// Begins to run a prepared statement.
    pub async fn execute(
        &self,
        user: &User,
        prepared: &PreparedQuery,
        values: ParamValues,
    ) -> Result<SendableRecordBatchStream, TenantEngineError> {
        if self.plain.is_none() {
            let stream = user
                .tenant
                .execute(Some(&user.context), prepared, values)
                .await?;
            return Ok(stream.into());
        }
        let plan = prepared
            .plan()
            .clone()
            .replace_params_with_values(&values)?;
        let frame = DataFrame::new(user.context.state(), plan);
        Ok(frame.execute_stream().await?)
    }

    pub fn count_error(&self, user: &str, code: &str) {
        let mut errors = lock(&self.errors);
        *errors
            .entry((user.to_owned(), code.to_owned()))
            .or_default() += 1;
    }
}

impl User {
    /// Plans a statement.
    pub async fn prepare(&self, text: &str) -> Result<PreparedQuery, TenantEngineError> {
        self.tenant.prepare(Some(&self.context), text).await
    }

    /// Charges what a connection keeps for the user.
    pub fn charge(&self, bytes: u64) -> Result<Charge, ChargeError> {
        self.group.try_charge(bytes)
    }

    /// The path below which the user sees groups.
    pub fn sees(&self) -> String {
        sees(&self.group.name(), self.settings.admin)
    }
}

fn sees(name: &str, is_admin: bool) -> String {
    match is_admin {
        true => "/".to_owned(),
        false => format!("/{name}"),
    }
}

/// A user's group. A query of a user that was removed may have it still.
fn group(memory: &Memory, name: &str) -> Result<Group, String> {
    loop {
        match memory.root().find(name) {
            Some(found) => return Ok(found),
            None => match memory.root().child(name, Limits::none()) {
                Err(bursar::CreateError::Exists { .. }) => {}
                made => return made.map_err(|error| error.to_string()),
            },
        }
    }
}

fn group_of_disk(disk: &Memory, name: &str, max: u64) -> Result<Group, String> {
    let group = group(disk, name)?;
    group.set_max(max);
    Ok(group)
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a connection while it lives.
pub struct Counted(Arc<Server>);

impl Counted {
    /// Also returns how many there are.
    pub fn new(server: &Arc<Server>) -> (Self, usize) {
        // Relaxed: only a number.
        let count = server.connections.fetch_add(1, Relaxed) + 1;
        (Self(server.clone()), count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// DataFusion's errors at the start, as text.
pub fn told(error: DataFusionError) -> String {
    error.strip_backtrace()
}
