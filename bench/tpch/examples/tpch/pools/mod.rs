//! Whole queries under a group as the pool, and under DataFusion's own.
//!
//! | file | content |
//! |---|---|
//! | `options.rs` | the command line |
//! | `contender.rs` | the pools, and how one query is run and timed on one |
//! | `rounds.rs` | the order of turns, and their times |
//! | `interval.rs` | means, and how sure they are |
//! | `document.rs` | the printed text |

mod contender;
mod document;
mod interval;
pub mod options;
pub mod rounds;

use bursar_conditions::Conditions;
use bursar_tpch::Tables;

use crate::output::{self, Failure, Stopped};
use document::Document;
use options::Format;
pub use options::Options;

pub fn compare(options: &Options) -> Result<(), Stopped> {
    let queries = options.queries()?;
    let partitions = options.partitions.count();
    let bar = rounds::bar("tables", 1000);
    let tables = Tables::generate(options.scale, partitions, |share| {
        bar.set_position((share * 1000.0) as u64);
    })?;
    bar.finish_and_clear();

    let engine = options.partitions.runtime()?;
    let runs = options
        .memory
        .iter()
        .map(|memory| rounds::run(&engine, &tables, &queries, *memory, options))
        .collect::<Result<_, Failure>>()?;
    let document = Document::new(Conditions::here(), options, partitions, &tables, runs);
    output::write(&match options.format {
        Format::Table => document.to_string(),
        Format::Json => serde_json::to_string_pretty(&document)? + "\n",
    })
}
