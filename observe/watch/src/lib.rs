//! Observation of a running Linux kernel, without patches: when each CPU does its upkeep, how many pages move under the zone
//! lock, and who waits for statistics of memory cgroups.
//!
//! | module | content |
//! |---|---|
//! | [`tracefs`] | the kernel's tracing files: a private instance, its janitor, and what is missing |
//! | [`mod@format`], [`page`] | layout of events, and of pages of a trace buffer |
//! | [`event`] | the events that are used |
//! | [`analysis`] | from events to upkeep, bursts, waits and flushes |
//! | [`session`] | one observation from begin to end |
//! | [`foreign`] | files of `trace-cmd` and `perf`, with the same events |
//! | [`writer`] | programs that write files, and the command of each for an answer |
//! | [`seen`] | its result |
//! | [`recording`] | the result as a file |
//! | [`figures`], [`diagnosis`] | summaries and verdicts |
//! | [`changes`] | merged changes of the kernel, and whether this one has them |

#![forbid(unsafe_code)]

pub mod analysis;
pub mod changes;
pub mod diagnosis;
pub mod event;
pub mod figures;
pub mod foreign;
pub mod format;
mod merge;
pub mod page;
pub mod pressure;
pub mod probe;
pub mod process;
pub mod recording;
pub mod seen;
pub mod session;
mod shown;
pub mod symbols;
pub mod system;
pub mod tracefs;
pub mod writer;
