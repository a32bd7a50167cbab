//! The lab: experiments that measure the cost of a rule and the results that its readers get, on any machine.
//!
//! An experiment is a file (`experiments/*.toml`): parameters, variants, the figures that a mailing-list thread
//! published, and the criteria for a reproduced figure, all written before any run. This crate holds the loads, the
//! measures. The threads' policies are in [`bursar_kernel`]. It uses no clock, no thread and no file of its
//! own.
//!
//! Layers, bottom-up: [`measure`]; [`metrics`]; [`machine_info`], [`verdict`], [`document`], [`compare`];
//! [`experiment`] with [`draws`], [`settings`]; [`workload`]; [`page_allocators`]; [`memcg_flush`],
//! [`vmstat_spread`], [`pcp_batch_free`], [`memcg_stock`], [`arbitration`]; all experiments; [`Plan`]; [`describe`].

#![forbid(unsafe_code)]

mod all_experiments;
pub mod arbitration;
pub mod compare;
pub mod describe;
pub mod document;
pub mod draws;
pub mod experiment;
pub mod machine_info;
pub mod measure;
pub mod memcg_flush;
pub mod memcg_stock;
pub mod metrics;
pub mod name_list;
mod one_line;
pub mod page_allocators;
pub mod pcp_batch_free;
mod plan;
pub mod settings;
pub mod verdict;
pub mod vmstat_spread;
pub mod workload;

pub use bursar_rig::random;
pub use plan::{Error, Job, Plan, Request, experiment_named, names};
