//! Settings of a pool.

use std::sync::Arc;

use bursar::{Group, Level};
use bursar_arbiter::Grant;

use crate::history::History;
use crate::names;
use crate::operators::Operators;
use crate::pool::{GroupPool, Settings};
use crate::share::FairShare;

/// Settings of a [`GroupPool`]; see [`GroupPool::builder`].
#[derive(Debug)]
#[must_use = "a builder makes nothing until it builds"]
pub struct PoolBuilder(Settings);

impl GroupPool {
    /// Makes the pool for a group, with a group for each operator below it.
    pub fn new(group: Group) -> Arc<Self> {
        Self::builder(group).build()
    }

    /// Returns the settings of a pool for a group.
    pub fn builder(group: Group) -> PoolBuilder {
        PoolBuilder(Settings {
            group,
            operators: Operators::default(),
            share: None,
            spill_from: Level::None,
            never_refused: Vec::new(),
            history: None,
            widener: None,
            enough: 0,
            tries: 1,
            #[cfg(feature = "real-bytes")]
            real: None,
        })
    }
}

impl PoolBuilder {
    /// Sets the groups below the query's; [`Operators::ByName`] unless set. An operator whose group cannot be created
    /// is charged to the query's own.
    ///
    /// An existing child with an operator's name becomes that operator's group. So an operator can have a limit of its
    /// own: create its group before the query starts, and keep the handle.
    pub fn operators(mut self, operators: Operators) -> Self {
        self.0.operators = operators;
        self
    }

    /// Sets the share that this pool's spillers take part in; none unless set. The pool's group must be the share's or
    /// below it, because the spillers' bytes count as part of that group's usage.
    pub fn share(mut self, share: &FairShare) -> Self {
        self.0.share = Some(share.clone());
        self
    }

    /// Asks consumers that can spill to do so from this level of pressure on, before a limit is reached. The default,
    /// [`Level::None`], asks no consumer.
    ///
    /// While the pressure ([`Group::on_pressure`]) of the query's group, or of one above it, is at that level or
    /// higher, a request of a consumer that can spill is refused. A refusal is the one way to make a consumer spill.
    /// Consumers that cannot spill get what the limits allow. So the usage at which the level is reached is a high
    /// watermark, and the usage at which it is left a low one. The memory's [`bursar::PressurePolicy`] sets both.
    ///
    /// A spiller is asked only if it holds enough: a quarter of an even share of the lowest limit among this pool's
    /// spillers, or 1 MiB if there is pressure without a limit. So the pressure of others does not make it spill each
    /// batch. It is asked only once until it has returned bytes: a spilling operator may need a little more memory, and
    /// DataFusion's sort gives up if that is refused.
    ///
    /// ```
    /// use bursar::{Level, Limits, Memory, PressurePolicy};
    /// use bursar_datafusion::GroupPool;
    ///
    /// // Level::High from 80 % of a limit on, until the usage is below 60 %.
    /// let watermarks = PressurePolicy::default().usage_percent([70, 80, 95]).release_percent(20);
    /// let memory = Memory::builder().pressure_policy(watermarks).build()?;
    /// let tenant = memory.root().child("tenant", Limits::max(1 << 30))?;
    /// let query = tenant.child("query", Limits::none())?;
    /// let pool = GroupPool::builder(query).spill_from(Level::High).build();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spill_from(mut self, level: Level) -> Self {
        self.0.spill_from = level;
        self
    }

    /// Names operators whose requests always succeed while the query's group exists; none unless set. Their names are
    /// those of their consumers, without brackets. Their bytes are counted. While they exceed a limit, all other
    /// requests are refused until the usage is back within.
    ///
    /// They count as consumers that cannot spill: a [`FairShare`] takes their bytes off the bytes that it divides.
    ///
    /// Use this for operators that reserve memory they hold already, and for which a refusal does more harm than bytes
    /// above the limit. In DataFusion 55.2 that is `RepartitionExec`. If it is refused while two of its inputs write to
    /// disk, its query may never end, under any pool
    /// ([apache/datafusion#24883](https://github.com/apache/datafusion/issues/24883)).
    pub fn never_refuse<N: Into<String>>(mut self, operators: impl IntoIterator<Item = N>) -> Self {
        let names = operators.into_iter();
        self.0.never_refused = names.map(|name| names::of_operator(&name.into())).collect();
        self
    }

    /// Sets the history that the pool's report goes to when the pool ends; none unless set.
    pub fn history(mut self, history: &History) -> Self {
        self.0.history = Some(history.clone());
        self
    }

    /// Lets requests make a grant larger that is too small for them, from memory that nobody waits for; none unless set. So a query
    /// grows before it spills while nobody waits, and spills first while somebody does. The pool's group must be the grant's, and so must
    /// that of its [`PoolBuilder::share`].
    pub fn grant(mut self, grant: &Grant) -> Self {
        self.0.widener = Some(grant.widener());
        self
    }

    /// Sets the bytes that the query is known to need. Up to them no share refuses, because there are as many for it: a share keeps bytes
    /// for spillers that may never ask for them.
    #[cfg(feature = "sql")]
    pub(crate) fn enough(mut self, bytes: u64) -> Self {
        self.0.enough = bytes;
        self
    }

    /// Sets which try of its query the pool is for.
    #[cfg(feature = "sql")]
    pub(crate) fn tries(mut self, tries: u32) -> Self {
        self.0.tries = tries;
        self
    }

    /// Counts the bytes that the query really takes, by a group with the same path in the twin tree. Run the query by
    /// [`GroupPool::in_query`] or [`GroupPool::stream_in_query`]. The reports have these bytes ([`crate::QueryReport::real`]).
    ///
    /// # Errors
    /// [`bursar::CreateError`] if the group cannot be made in the twin tree.
    #[cfg(feature = "real-bytes")]
    pub fn real_bytes(mut self, real: &crate::RealBytes) -> Result<Self, bursar::CreateError> {
        self.0.real = Some(crate::real::Real::new(real, &self.0.group)?);
        Ok(self)
    }

    /// Refuses requests while the heap holds more for the query's group, or for a group above it, than that group's limit. So an operator
    /// that reserves too little must spill, or it fails, before the process runs out of memory. Only requests are refused: an allocation
    /// never fails. The stock of CPUs counts as held, up to 256 KiB for each CPU and group.
    ///
    /// # Panics
    /// If [`PoolBuilder::real_bytes`] was not called before.
    #[cfg(feature = "real-bytes")]
    pub fn refuse_by_real_bytes(mut self) -> Self {
        let real = self.0.real.as_mut().expect("real_bytes was called before");
        real.close_gate(&self.0.group);
        self
    }

    /// Ends the query before a batch, if it has really held more than its limit by then; see [`GroupPool::check_real_peak`].
    #[cfg(all(feature = "real-bytes", feature = "sql"))]
    pub(crate) fn end_by_real_bytes(mut self) -> Self {
        let real = self.0.real.as_mut().expect("real_bytes was called before");
        real.ends_query = true;
        self
    }

    /// Makes the pool, and starts the query's time.
    ///
    /// # Panics
    /// If the group is neither that of the share ([`PoolBuilder::share`]) nor below it.
    pub fn build(self) -> Arc<GroupPool> {
        GroupPool::build(self.0)
    }
}
