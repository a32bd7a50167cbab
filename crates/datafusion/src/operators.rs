//! The operators of a query: what each is charged to, and what is known of it when it is gone.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::{CreateError, Group, Limits};

use crate::builder::Operators;
use crate::chain;
use crate::names;
use crate::report::OperatorReport;

/// One operator of a query, all its partitions, or the query itself for what belongs to no operator.
#[derive(Debug)]
pub(crate) struct Operator {
    name: String,
    group: Group,
    /// Consumers that were ever registered.
    consumers: AtomicU64,
    can_spill: AtomicBool,
    refused: AtomicU64,
    spills: AtomicU64,
}

// Relaxed, in all of this: statistics, each by itself.
impl Operator {
    pub(crate) fn new(name: String, group: Group) -> Self {
        Self {
            name,
            group,
            consumers: AtomicU64::new(0),
            can_spill: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            spills: AtomicU64::new(0),
        }
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_spill(&self) {
        self.spills.fetch_add(1, Ordering::Relaxed);
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

    pub(crate) fn report(&self) -> OperatorReport {
        OperatorReport {
            name: self.name.clone(),
            consumers: self.consumers.load(Ordering::Relaxed),
            can_spill: self.can_spill.load(Ordering::Relaxed),
            reserved: chain::usage(&self.group),
            peak: self.group.peak(),
            refused: self.refused(),
            spills: self.spills(),
        }
    }
}

/// The operators of one query.
#[derive(Debug)]
pub(crate) struct Registry {
    kind: Operators,
    /// The query's own: for what belongs to no operator's group.
    own: Arc<Operator>,
    /// By first registration. Those that are gone stay.
    operators: Mutex<Vec<Arc<Operator>>>,
    /// No more groups are made. Written and read under the lock.
    is_closed: AtomicBool,
}

/// Registration, one at a time.
pub(crate) struct Registering<'a> {
    registry: &'a Registry,
    operators: MutexGuard<'a, Vec<Arc<Operator>>>,
}

impl Registry {
    pub(crate) fn new(kind: Operators, query: Group) -> Self {
        Self {
            kind,
            own: Arc::new(Operator::new(String::new(), query)),
            operators: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn own(&self) -> &Arc<Operator> {
        &self.own
    }

    /// Takes the lock of registration.
    pub(crate) fn lock(&self) -> Registering<'_> {
        // Nothing under the lock is left half done by a panic.
        let operators = self.operators.lock();
        Registering {
            registry: self,
            operators: operators.unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Makes no more groups from now on, and returns the operators that there are.
    pub(crate) fn close(&self) -> Vec<Arc<Operator>> {
        let registering = self.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        registering.operators.clone()
    }

    /// The operators with groups of their own, by first registration.
    pub(crate) fn all(&self) -> Vec<Arc<Operator>> {
        self.lock().operators.clone()
    }
}

impl Registering<'_> {
    /// What a new consumer is charged to. If there can be no group for it, that is the query's own.
    pub(crate) fn operator_of(&mut self, name: &str, id: usize, can_spill: bool) -> Arc<Operator> {
        let operator = match self.registry.kind {
            Operators::Together => Arc::clone(&self.registry.own),
            Operators::ByName => self.named(names::of_operator(name)),
            // Nobody has that name yet.
            Operators::Each => self.made(names::of_consumer(name, id)),
        };
        operator.count_consumer(can_spill);
        operator
    }

    fn named(&mut self, name: String) -> Arc<Operator> {
        let known = self.operators.iter().find(|known| known.name == name);
        if let Some(known) = known {
            return Arc::clone(known);
        }
        self.made(name)
    }

    fn made(&mut self, name: String) -> Arc<Operator> {
        if self.registry.is_closed.load(Ordering::Relaxed) {
            return Arc::clone(&self.registry.own);
        }
        let query = self.registry.own.group();
        let group = match query.child(&name, Limits::none()) {
            // A child that somebody made before, to limit this operator; or of another pool of the same group.
            Err(CreateError::Exists { .. }) => query.find(&name),
            made => made.ok(),
        };
        let Some(group) = group else {
            return Arc::clone(&self.registry.own);
        };
        let operator = Arc::new(Operator::new(name, group));
        self.operators.push(Arc::clone(&operator));
        operator
    }
}
