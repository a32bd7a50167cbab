//! The engine of `bursar-lab explore`: the protocols, and others to compare with, under many schedules of a machine without time.
//!
//! | part | file |
//! |---|---|
//! | the subjects: protocols of all kinds | `subject.rs` |
//! | threads that explore, and which failure is the first | `campaign.rs` |
//! | the document | `document.rs` |
//! | the ledger of all schedules that were ever explored | `ledger.rs` |
//!
//! The tool adds its command line and the forms of its documents.

mod campaign;
mod document;
mod ledger;
mod subject;

pub use campaign::{Campaign, InAProcess, Told};
pub use document::{Document, Failed, Result};
pub use ledger::{Ledger, Row};
pub use subject::{Group, Target, targets};
