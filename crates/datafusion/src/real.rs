//! The bytes that a query really takes from the heap, beside those that it reserves.
//!
//! Reservations are estimates: an operator reserves what it knows of, and allocates what it needs. With the program's allocator
//! [`bursar_alloc::Charged`], each allocation is charged to the group that its thread is in. Here a thread is in the query's group of a
//! second tree, the twin, while it works for the query.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bursar::{Bytes, CreateError, Group, Memory, MemoryError, printable};
use bursar_alloc::{GroupExt, InGroupExt, Twin, current};
use datafusion_common_runtime::{JoinSetTracer, set_join_set_tracer};

use crate::chain::{self, Chain};

/// The twin tree of a process: real bytes by the paths of the groups that reserve. Cloning makes another handle of the same tree.
///
/// ```no_run
/// use std::alloc::System;
/// use bursar_alloc::Charged;
/// use bursar_datafusion::{GroupPool, RealBytes};
///
/// #[global_allocator]
/// static HEAP: Charged<System> = Charged::new(System);
///
/// # async fn run(query: bursar::Group, plan: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let real = RealBytes::install()?;                                   // once, when the process starts
/// let pool = GroupPool::builder(query).real_bytes(&real)?.build();
/// // A session with this pool makes the plan and runs it:
/// pool.in_query(plan).await;
/// println!("{}", pool.report());                                      // reserved, and held
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RealBytes {
    twin: Twin,
}

/// Error of [`RealBytes::install`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallError {
    /// The process has a tracer of DataFusion's tasks already. Install [`FollowQuery::around`] that tracer in its place.
    TracerInstalled,
    /// The twin tree cannot be made.
    Memory(MemoryError),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TracerInstalled => f.write_str(
                "the process has a tracer of DataFusion's tasks already: install FollowQuery::around(that tracer) in its place, and make the \
                 tree by RealBytes::new",
            ),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

bursar::debug_as_message!(
    enum InstallError {
        TracerInstalled,
        Memory(error),
    }
);

impl std::error::Error for InstallError {}

impl RealBytes {
    /// Makes the twin tree, and sees to it that each task and each blocking closure that DataFusion spawns is in the group of the task
    /// that spawned it, for the whole process. Call it once.
    ///
    /// # Errors
    /// [`InstallError`].
    pub fn install() -> std::result::Result<Self, InstallError> {
        let real = Self::new().map_err(InstallError::Memory)?;
        set_join_set_tracer(&FollowQuery { inner: None })
            .map_err(|_| InstallError::TracerInstalled)?;
        Ok(real)
    }

    /// Makes the twin tree alone, for a process that installs [`FollowQuery::around`] a tracer of its own.
    ///
    /// # Errors
    /// [`MemoryError`], see there.
    pub fn new() -> std::result::Result<Self, MemoryError> {
        Twin::new().map(|twin| Self { twin })
    }

    /// The twin tree, for snapshots, limits and leftovers.
    pub fn memory(&self) -> &Memory {
        self.twin.memory()
    }
}

/// A tracer of DataFusion's tasks that keeps each in the group of the task that spawned it.
pub struct FollowQuery {
    inner: Option<&'static dyn JoinSetTracer>,
}

impl fmt::Debug for FollowQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowQuery").finish_non_exhaustive()
    }
}

impl FollowQuery {
    /// Makes a tracer that does what `inner` does, too. It lives until the process ends, as DataFusion asks for.
    ///
    /// ```
    /// # use bursar_datafusion::FollowQuery;
    /// # use datafusion_common_runtime::{JoinSetTracer, set_join_set_tracer};
    /// # fn install(spans: &'static dyn JoinSetTracer) -> Result<(), Box<dyn std::error::Error>> {
    /// set_join_set_tracer(FollowQuery::around(spans))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn around(inner: &'static dyn JoinSetTracer) -> &'static Self {
        Box::leak(Box::new(Self { inner: Some(inner) }))
    }
}

type Erased = Box<dyn Any + Send>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl JoinSetTracer for FollowQuery {
    fn trace_future(&self, future: BoxFuture<Erased>) -> BoxFuture<Erased> {
        let future = match self.inner {
            Some(inner) => inner.trace_future(future),
            None => future,
        };
        match current() {
            Some(group) => Box::pin(future.in_group(&group)),
            None => future,
        }
    }

    fn trace_block(
        &self,
        block: Box<dyn FnOnce() -> Erased + Send>,
    ) -> Box<dyn FnOnce() -> Erased + Send> {
        let block = match self.inner {
            Some(inner) => inner.trace_block(block),
            None => block,
        };
        match current() {
            Some(group) => Box::new(move || group.scope(block)),
            None => block,
        }
    }
}

/// Bytes that a query really takes; see [`crate::QueryReport::real`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RealReport {
    /// Bytes that its allocations take now, as the allocator rounds them.
    pub held: u64,
    /// The most that they took at one time. Includes stock: up to 256 KiB for each CPU.
    pub peak: u64,
    /// The part of the peak above the query's limit: the lowest `max` of its group and of those above, as it is now or was at the end. Not 0
    /// if an operator or a function took what it did not reserve, or reserved too late to be refused.
    pub above_limit: u64,
}

impl fmt::Display for RealReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held {}, peak {}", Bytes(self.held), Bytes(self.peak))?;
        if self.above_limit > 0 {
            write!(f, ", held {} above its limit", Bytes(self.above_limit))?;
        }
        Ok(())
    }
}

/// A query's group in the twin tree.
#[derive(Debug)]
pub(crate) struct Real {
    pub(crate) group: Group,
    /// Groups with the same paths: those that reserve with their limits, and those that take. Empty if real bytes refuse nothing.
    gate: Vec<(Group, Group)>,
    /// Whether they end the query above its limit.
    #[cfg(feature = "sql")]
    pub(crate) ends_query: bool,
}

impl Real {
    pub(crate) fn new(real: &RealBytes, group: &Group) -> std::result::Result<Self, CreateError> {
        Ok(Self {
            group: real.twin.of(group)?,
            gate: Vec::new(),
            #[cfg(feature = "sql")]
            ends_query: false,
        })
    }

    /// Lets real bytes above a limit refuse requests.
    pub(crate) fn close_gate(&mut self, group: &Group) {
        let (limits, takers) = (Chain::of(group), Chain::of(&self.group));
        let pairs = limits.groups().iter().cloned();
        self.gate = pairs.zip(takers.groups().iter().cloned()).collect();
    }

    /// Returns a group whose real bytes are above its limit, with these bytes and the limit.
    #[inline]
    pub(crate) fn over(&self) -> Option<(&Group, u64, u64)> {
        self.gate.iter().find_map(|(group, taker)| {
            let (held, max) = (taker.reserved(), group.limits().max);
            (held > max).then_some((group, held, max))
        })
    }

    pub(crate) fn report(&self, max: u64) -> RealReport {
        let peak = self.group.peak();
        RealReport {
            held: chain::usage(&self.group),
            peak,
            above_limit: peak.saturating_sub(max),
        }
    }
}

/// The text of a refusal.
pub(crate) fn write_over(text: &mut String, group: &str, held: u64, max: u64) -> std::fmt::Result {
    use std::fmt::Write;
    write!(
        text,
        "the heap holds {} for {}, whose limit is {}",
        Bytes(held),
        printable(group),
        Bytes(max)
    )
}
