//! The operators of a query: the group that each is charged to, and the figures that are kept after its end.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use bursar::{Bytes, CreateError, Group, Limits, printable};

use crate::chain;
use crate::names;
use crate::report::OperatorReport;

/// Groups below a query's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operators {
    /// No groups: all consumers are charged to the query's group, and reports have no operators.
    Together,
    /// One group for each operator, by the consumers' names without the partition in brackets. The partitions of an
    /// operator share a group, and so do operators of one name.
    #[default]
    ByName,
    /// One group for each consumer, with its name and number, such as `ExternalSorter[3]#1207`. Groups and entries stay
    /// until the pool ends, so this is for pools of one query.
    Each,
}

/// One operator of a query, with all its partitions; or the query itself, for consumers without an operator's group.
#[derive(Debug)]
pub(crate) struct Operator {
    name: String,
    group: Group,
    /// Whether the pool created the group, so that the pool may remove it.
    is_made_here: bool,
    /// Consumers ever registered.
    consumers: AtomicU64,
    can_spill: AtomicBool,
    refused: AtomicU64,
    spills: AtomicU64,
    /// Bytes that were requested and not charged, because the request was too large; until they are returned.
    uncharged: AtomicU64,
}

// Relaxed, in all of this: statistics, each by itself; others say.
impl Operator {
    pub(crate) fn new(name: String, group: Group, is_made_here: bool) -> Self {
        Self {
            name,
            group,
            is_made_here,
            consumers: AtomicU64::new(0),
            can_spill: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            spills: AtomicU64::new(0),
            uncharged: AtomicU64::new(0),
        }
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Name; empty for the query's own.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_made_here(&self) -> bool {
        self.is_made_here
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_spill(&self) {
        self.spills.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that `bytes` of a request were not charged. Returns true if there were no such bytes before.
    pub(crate) fn cut(&self, bytes: u64) -> bool {
        // Relaxed, here and below: a sum, and the task that takes it from or to 0 knows by the value found.
        self.uncharged.fetch_add(bytes, Ordering::Relaxed) == 0
    }

    /// Returns how many of the returned bytes were charged, and whether all remaining bytes are charged. Uncharged
    /// bytes are returned first, by any consumer of the operator, so the group is never returned more than it was
    /// charged.
    pub(crate) fn charged_of(&self, bytes: u64) -> (u64, bool) {
        let update = |rest: u64| (rest > 0).then(|| rest.saturating_sub(bytes));
        let found = self
            .uncharged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        let uncharged = found.unwrap_or(0);
        let are_last = (1..=bytes).contains(&uncharged);
        (bytes.saturating_sub(uncharged), are_last)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn spills(&self) -> u64 {
        self.spills.load(Ordering::Relaxed)
    }

    fn count_consumer(&self, can_spill: bool) {
        self.consumers.fetch_add(1, Ordering::Relaxed);
        if can_spill {
            self.can_spill.store(true, Ordering::Relaxed);
        }
    }

    /// Reports the operator. The query's usage must just have been read.
    pub(crate) fn report(&self) -> OperatorReport {
        OperatorReport {
            name: self.name.clone(),
            consumers: self.consumers.load(Ordering::Relaxed),
            can_spill: self.can_spill.load(Ordering::Relaxed),
            reserved: chain::usage_below(&self.group),
            peak: self.group.peak(),
            refused: self.refused(),
            spills: self.spills(),
        }
    }
}

/// A consumer between its registration and its end, as refusals name it.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) id: usize,
    pub(crate) name: Arc<str>,
    pub(crate) can_spill: bool,
    pub(crate) operator: Arc<Operator>,
    /// Time of its registration, by the pool's clock.
    pub(crate) since_ns: u64,
    /// The thread that registered it.
    pub(crate) by: ThreadId,
    /// Bytes held, if known: of the consumer that asks, and of those that take part in a share. Counting the others'
    /// bytes would slow down each request.
    pub(crate) held: Option<u64>,
}

impl Live {
    /// Returns whether it belongs to an operator.
    pub(crate) fn is_of(&self, operator: &OperatorReport) -> bool {
        *self.operator.name() == *operator.name
    }

    /// Returns whether the operator's line already says all that is known of this consumer, if it is the only one.
    pub(crate) fn is_called(&self, operator: &OperatorReport) -> bool {
        *self.name == *operator.name || self.label() == operator.name
    }

    /// Orders consumers by size, the biggest known first, then by age, the oldest first.
    pub(crate) fn order(&self) -> (Reverse<Option<u64>>, usize) {
        (Reverse(self.held), self.id)
    }

    /// The name and the number.
    pub(crate) fn label(&self) -> String {
        format!("{}#{}", self.name, self.id)
    }
}

/// Shows the name, the number and, if known, the bytes held.
impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // DataFusion puts names of columns into it, which a tenant chooses.
        printable(&self.label()).fmt(f)?;
        match self.held {
            Some(held) => write!(f, " {}", Bytes(held)),
            None => Ok(()),
        }
    }
}

/// The operators of one query.
#[derive(Debug)]
pub(crate) struct Registry {
    kind: Operators,
    /// The query's own, for consumers without an operator's group.
    own: Arc<Operator>,
    registered: Mutex<Registered>,
}

#[derive(Debug, Default)]
struct Registered {
    /// By first registration. Operators whose consumers are gone stay.
    operators: Vec<Arc<Operator>>,
    /// Consumers that are registered now, by number.
    live: BTreeMap<usize, Live>,
    /// Whether no more groups are created.
    is_closed: bool,
}

/// Registration, one at a time.
pub(crate) struct Registering<'a> {
    registry: &'a Registry,
    registered: MutexGuard<'a, Registered>,
}

impl Registry {
    pub(crate) fn new(kind: Operators, query: Group) -> Self {
        Self {
            kind,
            own: Arc::new(Operator::new(String::new(), query, false)),
            registered: Mutex::default(),
        }
    }

    pub(crate) fn own(&self) -> &Arc<Operator> {
        &self.own
    }

    /// Takes the lock of registration.
    pub(crate) fn lock(&self) -> Registering<'_> {
        // Nothing under the lock is left half done by a panic.
        let registered = self.registered.lock();
        Registering {
            registry: self,
            registered: registered.unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Stops creating groups, and returns the operators.
    pub(crate) fn close(&self) -> Vec<Arc<Operator>> {
        let mut registering = self.lock();
        registering.registered.is_closed = true;
        registering.registered.operators.clone()
    }

    /// Returns the operators with groups of their own, by first registration.
    pub(crate) fn all(&self) -> Vec<Arc<Operator>> {
        self.lock().registered.operators.clone()
    }
}

impl Registering<'_> {
    /// Registers a consumer, and returns the operator that it is charged to: the query's own if no group can be created
    /// for it.
    pub(crate) fn operator_of(
        &mut self,
        name: &str,
        id: usize,
        can_spill: bool,
        now_ns: u64,
    ) -> Arc<Operator> {
        let operator = match self.registry.kind {
            Operators::Together => Arc::clone(&self.registry.own),
            Operators::ByName => self.named(names::of_operator(name)),
            // Nobody has that name yet.
            Operators::Each => self.made(names::of_consumer(name, id)),
        };
        operator.count_consumer(can_spill);
        let live = Live {
            id,
            name: name.into(),
            can_spill,
            operator: Arc::clone(&operator),
            since_ns: now_ns,
            by: thread::current().id(),
            held: None,
        };
        self.registered.live.insert(id, live);
        operator
    }

    /// Forgets a consumer.
    pub(crate) fn forget(&mut self, id: usize) {
        self.registered.live.remove(&id);
    }

    /// Returns the consumers that are registered now, the oldest first.
    pub(crate) fn live(&self) -> impl DoubleEndedIterator<Item = &Live> {
        self.registered.live.values()
    }

    fn named(&mut self, name: String) -> Arc<Operator> {
        let known = self
            .registered
            .operators
            .iter()
            .find(|known| known.name == name);
        if let Some(known) = known {
            return Arc::clone(known);
        }
        self.made(name)
    }

    fn made(&mut self, name: String) -> Arc<Operator> {
        if self.registered.is_closed {
            return Arc::clone(&self.registry.own);
        }
        let query = self.registry.own.group();
        let group = match query.child(&name, Limits::none()) {
            // A child that was created before, to limit this operator; or one of another pool of the same group.
            Err(CreateError::Exists { .. }) => query.find(&name).map(|group| (group, false)),
            made => made.ok().map(|group| (group, true)),
        };
        let Some((group, is_made_here)) = group else {
            return Arc::clone(&self.registry.own);
        };
        let operator = Arc::new(Operator::new(name, group, is_made_here));
        self.registered.operators.push(Arc::clone(&operator));
        operator
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar::Memory;

    #[test]
    fn who_comes_after_the_end_is_the_querys() {
        let memory = Memory::host().unwrap();
        let query = memory.root().child("query", Limits::none()).unwrap();
        let registry = Registry::new(Operators::ByName, query.clone());
        let sort = registry.lock().operator_of("Sort[0]", 0, true, 0);
        let closed = registry.close();
        assert!(Arc::ptr_eq(&closed[0], &sort));
        let again = registry.lock().operator_of("Sort[1]", 1, true, 0);
        assert!(Arc::ptr_eq(&again, &sort));
        let late = registry.lock().operator_of("Join", 2, false, 0);
        assert!(Arc::ptr_eq(&late, registry.own()));
        assert_eq!(query.children().len(), 1);
    }
}
