//! Failures of a run.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;

use crate::task::TaskId;

/// Reason why a run ended before its tasks did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// A task panicked.
    Panic(String),
    /// The check between two steps panicked.
    Check(String),
    /// Tasks wait, and no task is left to wake them.
    Deadlock {
        /// Tasks that wait.
        waiting: VecDeque<TaskId>,
    },
    /// The tasks still run after the maximum number of steps.
    TooLong {
        /// Number of steps.
        steps: u64,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic(message) => write!(f, "a task panicked: {message}"),
            Self::Check(message) => write!(f, "between two steps: {message}"),
            Self::Deadlock { waiting } => {
                let names: Vec<_> = waiting.iter().map(ToString::to_string).collect();
                write!(f, "deadlock: tasks {} wait for ever", names.join(", "))
            }
            Self::TooLong { steps } => {
                write!(f, "no end after {steps} steps: a livelock, or a loop")
            }
        }
    }
}

impl std::error::Error for Failure {}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps a panic's message, for a failure that comes before the panic has unwound its task.
pub(crate) fn keep_last_panic(message: String) {
    LAST_PANIC.set(Some(message));
}

/// Message of the last panic, if it was kept.
pub(crate) fn take_last_panic() -> Option<String> {
    LAST_PANIC.take()
}

pub(crate) fn message_of(payload: &dyn Any) -> String {
    if let Some(message) = payload.downcast_ref::<String>() {
        return message.clone();
    }
    match payload.downcast_ref::<&str>() {
        Some(message) => (*message).to_owned(),
        None => "a panic without a message".to_owned(),
    }
}
