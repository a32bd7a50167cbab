//! The text code that Bursar's tools share: tables that fit a terminal, numbers with units, documents as text or a page. Options,
//! exit codes and files that are written whole are here too. It knows nothing of Bursar.
//!
//! Standard output holds the document that was asked for and nothing else; progress and remarks go to standard error.

#![forbid(unsafe_code)]

pub mod bars;
pub mod escape;
pub mod failure;
pub mod format;
pub mod grid;
pub mod help;
pub mod interruption;
pub mod markup;
pub mod options;
pub mod output;
pub mod page;
pub mod place;
pub mod progress;
pub mod shell;
pub mod system;
pub mod units;
pub mod width;
