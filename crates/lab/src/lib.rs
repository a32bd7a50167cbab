//! The lab: experiments that ask what a rule costs and what its readers get, over any machine.
//!
//! An experiment is a file (`experiments/*.toml`): parameters, variants, what a mailing-list thread published, and what
//! counts as reproduced, all written before any run. This crate holds the loads, the measures, and the threads' policies
//! on the substrate of their time; it knows no clock, no thread and no file of its own.
//!
//! Layers, bottom-up: [`random`], [`measure`]; [`published`]; [`experiment`], [`document`]; [`memcg_flush`]; [`Plan`].

#![forbid(unsafe_code)]

pub mod document;
pub mod experiment;
pub mod measure;
pub mod memcg_flush;
pub mod published;
pub mod random;
mod run;

pub use run::{Error, Plan, names};
