//! What a pool is like.

use std::sync::Arc;

use bursar::{Group, Level};

use crate::history::History;
use crate::names;
use crate::pool::GroupPool;
use crate::share::FairShare;

/// Which groups there are below a query's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operators {
    /// None: all consumers are charged to the query's group, and reports know no operators.
    Together,
    /// One for each operator, by the consumers' names without the partition in brackets: the partitions of an operator are
    /// together, and so are operators of one name.
    #[default]
    ByName,
    /// One for each consumer, called by its name and number, as `ExternalSorter[3]#1207`. They, and their entries in the pool,
    /// stay until the pool ends, so this is for pools of one query.
    Each,
}

/// How to make a [`GroupPool`]; see [`GroupPool::builder`].
#[derive(Debug)]
#[must_use = "a builder makes nothing until it builds"]
pub struct PoolBuilder {
    pub(crate) group: Group,
    pub(crate) operators: Operators,
    pub(crate) share: Option<FairShare>,
    pub(crate) spill_from: Level,
    pub(crate) never_refused: Vec<String>,
    pub(crate) history: Option<History>,
}

impl PoolBuilder {
    pub(crate) fn new(group: Group) -> Self {
        Self {
            group,
            operators: Operators::default(),
            share: None,
            spill_from: Level::None,
            never_refused: Vec::new(),
            history: None,
        }
    }

    /// Which groups there are below the query's; [`Operators::ByName`] unless set. An operator for which no group can be made is
    /// charged to the query's own.
    ///
    /// A child that has an operator's name already is taken for its group. So an operator can be given a limit of its own:
    /// make its group before the query starts, and keep the handle.
    pub fn operators(self, operators: Operators) -> Self {
        Self { operators, ..self }
    }

    /// The share that this pool's spillers take part in; none unless set. The pool's group must be the share's or below it: what
    /// the spillers hold is taken to be part of what that group uses.
    pub fn share(self, share: &FairShare) -> Self {
        let share = Some(share.clone());
        Self { share, ..self }
    }

    /// Asks consumers that can spill to do so from this level of pressure on, before a limit is reached;
    /// [`Level::None`], which is so unless set, asks nobody.
    ///
    /// While the pressure ([`Group::on_pressure`]) of the query's group, or of one above it, is at that level or higher, a
    /// request of a consumer that can spill is refused; that is the one way to make it spill. Consumers that cannot spill get what
    /// the limits allow. So the usage at which the level is reached is a high watermark, and the usage at which it is left a low
    /// one: both are the memory's [`bursar::PressurePolicy`].
    ///
    /// Only who holds enough is asked: a quarter of an even share of the lowest limit (or 1 MiB, if there is pressure without a
    /// limit) among this pool's spillers, so that the pressure of others does not make it spill each batch. And only once,
    /// until it has returned something: an operator that is about to spill may need a little to do so, and DataFusion's sort
    /// gives up if that is refused.
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
    pub fn spill_from(self, level: Level) -> Self {
        Self {
            spill_from: level,
            ..self
        }
    }

    /// Operators, by their consumers' names without brackets, whose requests always succeed while the query's group is there: what
    /// they have is counted, what it oversteps is over, and all others are refused until the usage is back within. None unless set.
    ///
    /// They count as consumers that cannot spill: a [`FairShare`] takes what they hold off what there is to share.
    ///
    /// For those that ask for what they hold already, and do worse when refused than when counted. In DataFusion 55.2 that is
    /// `RepartitionExec`: refused while two of its inputs write to disk, its query may wait for ever, under any pool
    /// ([apache/datafusion#24883](https://github.com/apache/datafusion/issues/24883)).
    ///
    /// ```
    /// # let tenant = bursar::Memory::host()?.root();
    /// # let query = tenant.child("query", bursar::Limits::none())?;
    /// let pool = bursar_datafusion::GroupPool::builder(query).never_refuse(["RepartitionExec"]).build();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn never_refuse<N: Into<String>>(self, operators: impl IntoIterator<Item = N>) -> Self {
        Self {
            never_refused: operators
                .into_iter()
                .map(|name| names::of_operator(&name.into()))
                .collect(),
            ..self
        }
    }

    /// Where the pool's report goes when it ends; nowhere unless set.
    pub fn history(self, history: &History) -> Self {
        let history = Some(history.clone());
        Self { history, ..self }
    }

    /// Makes the pool. The query's time begins.
    ///
    /// # Panics
    /// If the group is neither that of the share ([`PoolBuilder::share`]) nor below it.
    pub fn build(self) -> Arc<GroupPool> {
        GroupPool::build(self)
    }
}
