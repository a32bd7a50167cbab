//! A tree of groups with limits and statistics, for servers that run many tenants in one process.
//!
//! A [`Memory`] is one tree of [`Group`]s: tenants, queries, operators. Code charges bytes to a group before it uses them. A charge
//! counts at the group and at all groups above. A usual charge takes no lock and costs the same at any depth. A refusal names the
//! limit in the way and the groups that use the memory.
//!
//! ```text
//! /                 84.0 MiB of 1.00 GiB
//!   acme            60.0 MiB of 64.0 MiB      refuses: 60 + 8 > 64
//!     daily-report  48.0 MiB
//!     dashboard     12.0 MiB                  asks for 8 MiB more
//!   umbrella        24.0 MiB of 256 MiB       does not notice
//! ```
//!
//! ```
//! use bursar::{Limits, Memory};
//!
//! let memory = Memory::builder().max(1 << 30).build()?;       // usually one per process
//! let acme = memory.root().child("acme", Limits::max(64 << 20))?;
//! let report = acme.child("daily-report", Limits::none())?;
//! let dashboard = acme.child("dashboard", Limits::none())?;
//!
//! let tables = report.try_charge(48 << 20)?;                  // returned on drop
//! let tiles = dashboard.try_charge(12 << 20)?;
//! let refusal = dashboard.try_charge(8 << 20).unwrap_err();
//! assert_eq!(
//!     refusal.to_string(),
//!     "cannot charge 8.00 MiB to /acme/dashboard: /acme uses 60.0 MiB of 64.0 MiB; \
//!      largest below it: daily-report 48.0 MiB, dashboard 12.0 MiB",
//! );
//! println!("{memory}");                                       // a tree like the one above
//! drop((tables, tiles));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Three parts
//! * **Everyday**: the names at the root of this crate. [`Memory`], [`Group`], [`Charge`], [`Limits`] and [`Reading`] are most of them.
//! * **For builders of engines, pools and allocators**: [`Group::engine`] and the module [`engine`]. Charges that never wait, charges from
//!   stock, bytes by number, accounts.
//! * **Pages**: [`Group::alloc_pages`], [`Page`] and the module [`pages`]. Real memory, not only a count. The module [`housekeeping`] spreads
//!   their upkeep.
//!
//! # Where to look
//!
//! | to | use |
//! |---|---|
//! | make a tree | [`Memory::builder`], [`Group::child`], [`Limits`] |
//! | look up a group | [`Memory::find`] by its path, [`Group::find`] by its name, [`Group::children`] |
//! | charge | [`Group::try_charge`]; [`Group`] has a table of all charging functions |
//! | choose between reserving and counting | the second table of [`Group`] |
//! | charge by number, from stock, without waiting | [`Group::engine`] |
//! | wait for memory on an async runtime | [`Group::charge_async`], [`Builder::passing`] |
//! | hold, change, split, move, return a charge | [`Charge`] |
//! | handle a refusal | [`ChargeError`], [`LimitReached`] |
//! | see the tree at the moment of a refusal | `{:#}` of [`ChargeError`], [`LimitReached::report`], [`Memory::refusals`] |
//! | see the tree at a group's highest peak | [`Group::keep_peak`] |
//! | change limits while it runs | [`Group::set_max`], [`Group::set_limits`] |
//! | give memory back before a charge is refused | [`Group::add_reclaimer`] |
//! | slow down above a `high` | [`Group::take_debt`] |
//! | be told before a limit is reached | [`Group::on_pressure`], [`Group::pressure_changed`] |
//! | finish work when no memory is left | [`Group::emergency_reserve`] |
//! | count your own things | [`Statistic`], [`Counter`], [`Gauge`], [`Group::add`] |
//! | read usage and statistics | [`Group::read`], [`Freshness`], [`Reading`], [`Value`] |
//! | see or export a whole subtree | [`Memory::snapshot`], [`Group::snapshot`]; `println!("{memory}")` prints the tree |
//! | find bytes of groups that have ended | [`Memory::leftovers`], [`Builder::sample_call_sites`], [`Builder::panic_on_leftovers`] |
//! | have refusals and reclaim in the log | the feature `tracing`: events with the target `bursar`, at most ten a second of a kind |
//! | print bytes | [`Bytes`], [`Bytes::display_limit`], [`Bytes::display_value`] |
//! | find the biggest users | [`Group::top`], [`Group::top_leaves`], [`Group::choose_victim`], [`Group::choose_victims`] |
//! | count what happened at limits | [`Group::events`] |
//! | run the periodic upkeep | [`Builder::ticker`], [`Memory::tick`] |
//! | end a tenant | [`Group::close`], [`Group::emptied`] |
//! | follow the process's cgroup | [`Builder::max_from_cgroup`], [`Memory::drift`] |
//! | have real memory, not only a count | [`pages`], [`Group::alloc_pages`], [`Page`] |
//! | give each CPU's upkeep a time of its own | [`housekeeping`], [`Memory::housekeeping`] |
//!
//! Other crates build on this one: `bursar-alloc` counts what code really allocates, `bursar-tower` charges HTTP requests, and
//! `bursar-datafusion` is a memory pool of DataFusion. The directory `docs` of the repository has guides by task,
//! the guarantees, and limits in detail.
//!
//! # Usage and stock
//! Each CPU may hold *stock* of a group: up to 256 KiB for later charges, which already count against the limits. Limits are compared
//! with [`Group::reserved`], which includes stock. [`Reading::usage`] does not include it. Before a charge is refused, it takes back
//! the stock of all CPUs.
//!
//! # Not needed at first
//! Most types have a parameter `M: Machine`. It is [`Host`] except in simulations, so write `Group` and `Memory` without it.
//! [`Handle`] is the trait of [`Counter`] and [`Gauge`].
//!
//! # Features
//! * `call-sites`: [`Builder::sample_call_sites`] follows charges in release builds, too.
//! * `bytes`: [`Page`]s become `bytes::Bytes` without copying.
//! * `serde`: readings, snapshots, events and pressure can be serialized. [`Limits`] can be serialized and deserialized.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The READMEs and the guides that need no other crate: their examples are compiled and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    mod of_the_crate {}
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/limits.md")]
    mod limits {}
    #[doc = include_str!("../../../docs/pages.md")]
    mod pages {}
    #[doc = include_str!("../../../docs/guides/from-atomics.md")]
    mod from_atomics {}
    #[doc = include_str!("../../../docs/guides/measure.md")]
    mod measure {}
    #[doc = include_str!("../../../docs/guides/leftovers.md")]
    mod leftovers {}
    #[doc = include_str!("../../../docs/guides/refused.md")]
    mod refused {}
    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/guides/export.md")]
    mod export {}
}

// The layers, each using only those before it; the layer test of `bursar-check` checks that.
mod room;

mod apart;
mod arena;
mod gate;
mod tree;

mod bytes;
mod outline;

mod limit;

mod zones;

pub mod housekeeping;

mod react;

mod group;

mod account;
mod charge;
mod consumers;
mod futures;
mod registration;
mod reserve;
mod snapshot;

mod memory;

pub mod diagnosis;
pub mod pages;

pub mod engine;

// The calls of a group, on top of all that they return.
mod group_charge;
mod group_read;

/// Pages given up for an address, and claimed back by it. For allocators.
#[doc(hidden)]
pub mod raw {
    pub use crate::pages::error::ClaimError;
    pub use crate::pages::raw::Claim;
}

#[cfg(feature = "serde")]
mod serial;

#[doc(hidden)]
pub use bursar_machine::debug_as_message;
pub use bursar_machine::host::{CgroupError, ResidentError, StartError, Ticker};
pub use bursar_machine::{Host, Machine};
pub use bytes::Bytes;
pub use charge::{Charge, MoveError, SplitError};
pub use consumers::{By, Consumer, Protection, Victim};
pub use futures::{ChargeAsync, Emptied};
pub use group::Group;
pub use limit::{Events, Limits};
pub use memory::{Builder, Drift, Memory, MemoryError};
pub use pages::error::AllocPagesError;
pub use pages::page::Page;
pub use pages::request::PageRequest;
pub use react::{
    ChargeError, Debt, HighPolicy, Level, LimitReached, Pressure, PressurePolicy, Reason,
    ReclaimRequest, Recursive, RemoveError, Stall, StallShare,
};
pub use registration::Registration;
pub use reserve::{EmergencyReserve, Exhausted, Taken};
pub use snapshot::{GroupSnapshot, Snapshot};
pub use tree::{
    Counter, CreateError, FlushCounts, FlushPolicy, Freshness, Gauge, Handle, NAME_MAX, NotFresh,
    Reading, Statistic, Value, printable,
};
