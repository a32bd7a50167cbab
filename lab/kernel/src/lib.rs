//! Policies that threads of the kernel's mailing lists published, on the substrate of their time.
//!
//! | thread | module |
//! |---|---|
//! | flushes of statistics (memcg, September 2023) | [`stats`] |
//! | times of per-CPU upkeep (vmstat, April 2026) | [`upkeep`] |
//! | page lists ("batch page freeing", September 2025) | [`pages`] |
//!
//! [`charge`] is the kernel's charging, for experiments that judge one of these policies by it.

#![forbid(unsafe_code)]

pub mod charge;
pub mod pages;
pub mod stats;
pub mod upkeep;

/// A value on cache lines of its own (two, because x86 fetches them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);
