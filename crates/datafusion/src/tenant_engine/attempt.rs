//! One query, and its tries.

use std::borrow::Cow;
use std::sync::Arc;

use bursar::printable;
#[cfg(feature = "real-bytes")]
use bursar_arbiter::AdmitError;
use bursar_arbiter::{Ask, Grant, Seen, Stop};
use datafusion::dataframe::DataFrame;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::{SessionContext, SessionState};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;

use super::error::TenantEngineError;
use super::repeat::is_endless;
use super::settings::Tenant;
use super::shape;
use super::source_wait::wait_at_sources;
use super::yielder::{Yielder, stopped};
use crate::engine_version::{self, NEVER_REFUSED};
#[cfg(feature = "parquet")]
use crate::parquet_sink::charge_files;
use crate::pool::GroupPool;
use crate::refusal::REFUSED;
use crate::share::FairShare;
use crate::spill_space::SpillSpace;
use crate::tenant_session::on_stack;

/// Tries of a query, the last of which is alone.
const TRIES_MAX: u32 = 3;
/// A second try asks for so many times the bytes of the first, if these were a guess. A guess is a quarter of the tenant's memory unless
/// set, so this leaves others a quarter. Bursar's own choice, by `tpch overload`: with 2, q18 needed its third try.
const GUESS_FACTOR: u64 = 3;
/// A second try asks for one part in so many more than the first turned out to need. Bursar's own choice: it was refused before its peak.
const MARGIN: u64 = 4;
/// Fewest bytes that a query asks for, if its tenant may have so many.
const ASKED_MIN: u64 = 1 << 20;

/// A planned query.
pub(super) struct Query {
    pub(super) tenant: Tenant,
    /// Name of its group.
    name: String,
    /// All tries have this state, and with it the value of `now()`.
    state: SessionState,
    plan: LogicalPlan,
    shape: u64,
    may_repeat: bool,
}

/// A try that runs. In this order all goes: what DataFusion runs, its pool, and the grant that pays for it.
pub(super) struct Attempt {
    pub(super) stream: SendableRecordBatchStream,
    pub(super) pool: Arc<GroupPool>,
    pub(super) yielder: Arc<Yielder>,
    pub(super) grant: Grant,
    pub(super) turn: Turn,
    /// Bytes of its grant when it began.
    pub(super) granted: u64,
    is_endless: bool,
}

/// Place of a try among those of its query.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// From 1 on.
    pub(super) number: u32,
    /// With one partition, and alone in its tenant, if the query may run again at all.
    is_last: bool,
    /// It asks for what its query, or one of its shape, needed before.
    is_known: bool,
    /// Bytes that the query was estimated at, without a correction, if its shape was known.
    estimated: Option<u64>,
}

/// A try that was refused memory, or was stopped, and has ended.
pub(super) struct Refused {
    turn: Turn,
    granted: u64,
    /// Bytes that it would have had, if it had not been refused. It needs as many at least.
    needed: u64,
    width: u32,
    error: DataFusionError,
}

enum Failed {
    Refused(Refused),
    Other(TenantEngineError),
}

impl Query {
    pub(super) fn new(tenant: Tenant, name: String, frame: DataFrame) -> Self {
        let (state, plan) = frame.into_parts();
        Self {
            name,
            shape: shape::key(&tenant.group.path(), &plan),
            may_repeat: tenant.engine.repeat.allows(&plan),
            state,
            plan,
            tenant,
        }
    }

    /// Its group has another name for each try. Tasks of one that was refused may still be in its group of real bytes, which is found by name.
    fn ask(&self, number: u32) -> Ask {
        let name = match number {
            1 => self.name.clone(),
            _ => format!("{}-try-{number}", self.name),
        };
        let ask = Ask::new(&self.tenant.group, name)
            .score(self.tenant.score)
            .estimated();
        match self.tenant.engine.patience {
            Some(patience) => ask.patience(patience),
            None => ask,
        }
    }

    /// Asks for what queries of this shape took before. If that is more than there can be, the first try is the last one as well.
    pub(super) fn first_ask(&self) -> (Turn, Ask) {
        let first = Turn {
            number: 1,
            is_last: false,
            is_known: false,
            estimated: None,
        };
        if let LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Explain(_)
        | LogicalPlan::DescribeTable(_) = self.plan
        {
            return (first, self.ask(1).least(1, 0).wanted(1));
        }
        let partitions = self.state.config().target_partitions();
        let widest = u32::try_from(partitions).unwrap_or(u32::MAX).max(1);
        let ask = self.ask(1).width(1..=widest);
        let percent = self.tenant.engine.percent;
        let seen = self.tenant.engine.shapes().seen(self.shape, percent);
        let Some(seen) = seen else {
            return (first, ask);
        };
        let most = self.most();
        let known = Turn {
            is_known: true,
            ..first
        };
        if seen.peak > most && self.may_repeat {
            let last = Turn {
                is_last: true,
                ..known
            };
            return (last, self.last_ask(1, most));
        }
        let estimated = (self.tenant.engine.estimate)(seen.peak).max(ASKED_MIN);
        let Tenant { engine, group, .. } = &self.tenant;
        let peak = engine.corrected(group, estimated).min(most);
        let turn = Turn {
            estimated: Some(estimated),
            ..known
        };
        (turn, ask.like(Seen { peak, ..seen }))
    }

    /// Notes what the query took in its last try.
    pub(super) fn record(&self, attempt: &Attempt) {
        let Tenant { engine, group, .. } = &self.tenant;
        let peak = attempt.pool.peak();
        engine
            .shapes()
            .record(self.shape, peak, attempt.grant.width());
        if let Some(estimated) = attempt.turn.estimated {
            engine.record_estimate(group, estimated, peak);
        }
    }

    /// Asks again after a refusal: for a quarter more than it turned out to need, or than it had; for three times as much if that was a guess.
    fn next_ask(&self, refused: &Refused) -> (Turn, Ask) {
        let most = self.most();
        let number = refused.turn.number + 1;
        let is_last = number >= TRIES_MAX || refused.needed >= most;
        let ask = match is_last {
            true => self.last_ask(number, most),
            false => {
                let least = match refused.turn.is_known {
                    true => refused.granted,
                    false => refused.granted.saturating_mul(GUESS_FACTOR),
                };
                let needed = refused.needed.max(refused.granted);
                let asked = needed.saturating_add(needed / MARGIN).max(least);
                let ask = self.ask(number).least(asked.min(most), 0);
                ask.width(1..=refused.width)
            }
        };
        let turn = Turn {
            number,
            is_last,
            is_known: true,
            estimated: refused.turn.estimated,
        };
        (turn, ask)
    }

    /// Asks for all that there can be, with one partition, which needs the least memory. With less, a query that fits alone might fail.
    fn last_ask(&self, number: u32, most: u64) -> Ask {
        self.ask(number).least(most, 0).alone()
    }

    /// The most bytes that it can have. A query that asked for more than that would wait without end.
    fn most(&self) -> u64 {
        let arbiter = &self.tenant.engine.arbiter;
        arbiter.most(&self.tenant.group).max(1)
    }

    /// Waits until it is admitted, and begins to run. If it is refused memory by then, runs again.
    pub(super) async fn begin(
        self: Arc<Self>,
        mut turn: Turn,
        mut ask: Ask,
    ) -> std::result::Result<Attempt, TenantEngineError> {
        loop {
            match self.attempt(turn, ask).await {
                Ok(attempt) => return Ok(attempt),
                Err(Failed::Other(error)) => return Err(error),
                Err(Failed::Refused(refused)) => {
                    if turn.is_last || !self.may_repeat {
                        return Err(refused.error.into());
                    }
                    (turn, ask) = self.next_ask(&refused);
                }
            }
        }
    }

    /// Begins the next try. Bytes that the refused one left count until they return, so its ask may wait for them.
    pub(super) async fn again(self: Arc<Self>, refused: Refused) -> Result<Attempt> {
        let (turn, ask) = self.next_ask(&refused);
        let begun = self.begin(turn, ask).await;
        begun.map_err(|error| match error {
            TenantEngineError::DataFusion(error) => error,
            other => refused
                .error
                .context(format!("the query cannot run again: {other}")),
        })
    }

    async fn attempt(&self, turn: Turn, ask: Ask) -> std::result::Result<Attempt, Failed> {
        let admitted = self.tenant.engine.arbiter.admit(ask).await;
        let grant =
            admitted.map_err(|error| Failed::Other(TenantEngineError::NotAdmitted(error)))?;
        let share = FairShare::new(grant.group());
        let mut builder = GroupPool::builder(grant.group().clone())
            .share(&share)
            .grant(&grant)
            .never_refuse(NEVER_REFUSED)
            .tries(turn.number);
        if turn.is_known {
            builder = builder.enough(grant.bytes());
        }
        if let Some(history) = &self.tenant.engine.history {
            builder = builder.history(history);
        }
        #[cfg(feature = "real-bytes")]
        if let Some(real) = &self.tenant.engine.real {
            let counted = builder.real_bytes(real).map_err(AdmitError::Create);
            let counted = counted.map_err(TenantEngineError::NotAdmitted);
            builder = counted.map_err(Failed::Other)?.refuse_by_real_bytes();
            if self.tenant.engine.ends_by_real_bytes {
                builder = builder.end_by_real_bytes();
            }
        }
        let pool = builder.build();
        let granted = grant.bytes();
        // It cannot run again, so a refusal would end it.
        if turn.is_last || !self.may_repeat {
            grant.grow_first().expect("nobody can stop it yet");
        }
        let may_spill = self.state.runtime_env().disk_manager.tmp_files_enabled();
        let yielder = Arc::new(Yielder::new(&grant, &pool, may_spill));
        let executed = self.execute(&pool, &yielder, &grant);
        #[cfg(feature = "real-bytes")]
        let executed = pool.in_query(executed);
        match executed.await {
            Ok((stream, is_endless)) => Ok(Attempt {
                stream,
                pool,
                yielder,
                grant,
                turn,
                granted,
                is_endless,
            }),
            Err(error) => Err(match self.refusal(&pool, &grant, turn, error) {
                Ok(refused) => Failed::Refused(refused),
                Err(error) => Failed::Other(error.into()),
            }),
        }
    }

    /// The state of all tries, for a number of partitions. Most tries have the session's, and it has all functions: to copy it and build another for
    /// each try took a fifth of the time of a look-up of one row.
    fn state_of(&self, partitions: usize) -> Cow<'_, SessionState> {
        if self.state.config().target_partitions() == partitions {
            return Cow::Borrowed(&self.state);
        }
        let mut state = self.state.clone();
        let config = state.config().clone();
        *state.config_mut() = config.with_target_partitions(partitions);
        Cow::Owned(state)
    }

    /// Plans the query for its width, and executes the plan. Returns also whether it has a source that never ends.
    async fn execute(
        &self,
        pool: &Arc<GroupPool>,
        yielder: &Arc<Yielder>,
        grant: &Grant,
    ) -> Result<(SendableRecordBatchStream, bool)> {
        let shared = self.state.runtime_env();
        let mut runtime =
            RuntimeEnvBuilder::from_runtime_env(shared).with_memory_pool(pool.clone());
        if let Some(disk) = &self.tenant.disk {
            let space = SpillSpace::new(disk.clone(), shared.disk_manager.clone());
            runtime = runtime.with_disk_manager_builder(space.into_builder());
        }
        let runtime = runtime.build_arc()?;
        let state = self.state_of(grant.width() as usize);
        let stack = self.tenant.engine.rules.planning_stack_bytes;
        let pool = pool.clone();
        on_stack(stack, async move {
            let (state, plan) = match &self.plan {
                // It may run a query of its own, with the state's runtime.
                plan @ LogicalPlan::Ddl(_) => {
                    let config = state.config().clone();
                    let state = SessionStateBuilder::new_from_existing(state.into_owned())
                        // Another one would take the place of that with the tables, in the list that all share.
                        .with_config(config.with_create_default_catalog_and_schema(false))
                        .with_runtime_env(runtime.clone())
                        .build();
                    let context = SessionContext::new_with_state(state);
                    let frame = context.execute_logical_plan(plan.clone()).await?;
                    let (state, plan) = frame.into_parts();
                    (Cow::Owned(state), Cow::Owned(plan))
                }
                plan => (state, Cow::Borrowed(plan)),
            };
            let physical = state.create_physical_plan(&plan).await?;
            #[cfg(feature = "parquet")]
            let physical = charge_files(physical)?;
            let is_endless = is_endless(&physical);
            if is_endless {
                // It cannot run again, either.
                grant.grow_first().expect("nobody can stop it yet");
            }
            pool.keep_rows(&physical);
            grant.attach(yielder.clone());
            let physical = wait_at_sources(physical, yielder);
            let context = TaskContext::from(&*state).with_runtime(runtime);
            let stream = || execute_stream(physical, Arc::new(context));
            #[cfg(feature = "real-bytes")]
            let stream = || pool.stream_in_query(stream);
            Ok((stream()?, is_endless))
        })
        .await
    }
}

impl Attempt {
    /// Ends a try that was told to stop. Only one that can run again is told so.
    pub(super) fn stopped(self, stop: &Stop) -> Refused {
        Refused {
            // It did not guess too little.
            turn: Turn {
                is_known: true,
                ..self.turn
            },
            granted: self.granted,
            needed: self.pool.peak(),
            width: self.grant.width(),
            error: stopped(stop),
        }
    }

    /// Ends the try. Tells whether its query can run again after this error; otherwise returns the error.
    pub(super) fn refused(self, query: &Query, error: DataFusionError) -> Result<Refused> {
        if let Some(stop) = self.yielder.stopped() {
            // Whatever its tasks say.
            return Ok(self.stopped(&stop));
        }
        let refused = query.refusal(&self.pool, &self.grant, self.turn, error)?;
        match query.may_repeat && !self.is_endless && !self.turn.is_last {
            true => Ok(refused),
            false => Err(refused.error),
        }
    }
}

impl Query {
    /// Looks whether an error is the pool's refusal. Then queries of this shape ask for more from now on.
    pub(super) fn refusal(
        &self,
        pool: &GroupPool,
        grant: &Grant,
        turn: Turn,
        error: DataFusionError,
    ) -> Result<Refused> {
        let needed = match engine_version::exhausted(error.find_root()) {
            // The disk's limit has the same error, and no pool's text.
            Some(text)
                if text.contains(REFUSED)
                    && text.contains(&printable(&pool.group().path()).to_string()) =>
            {
                pool.needed()
            }
            _ => None,
        };
        let Some(needed) = needed else {
            return Err(error);
        };
        let width = grant.width();
        self.tenant
            .engine
            .shapes()
            .record(self.shape, needed, width);
        Ok(Refused {
            turn,
            granted: grant.bytes(),
            needed,
            width,
            error,
        })
    }
}
