//! `bursar-lab compare`: a result before a change and one after it.
//!
//! | part | file |
//! |---|---|
//! | pairs of documents and variants | `compared.rs` |
//! | the document, for people | `text.rs` |
//!
//! `bursar_experiments::compare::rule` decides which figures are clearly better or worse.

mod compared;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bursar_experiments::compare::comparable;
use clap::Args as ClapArgs;

use self::compared::Compared;
use crate::format;
use crate::result_file::{self, Source};
use bursar_term::failure::{EXPECTATION_FAILED, Failure};
use bursar_term::options::Global;
use bursar_term::output::{self, Output};

pub const EXAMPLES: &str = "\
Examples:
  bursar-lab run memcg-flush --seeds 20 -o before.json    then change and build
  bursar-lab run memcg-flush --seeds 20 -o after.json
  bursar-lab compare before.json after.json
  bursar-lab compare before.json after.json -o changes.json

Two results are compared where experiment, machine, cost model and parameters
are the same, except for the seed.

A figure is clearly better or worse if it is so in 95 % of the seeds of both
results. At least 8 seeds are needed. If B has other seeds than A, 95 % of all
pairs of a seed of A and one of B decide. Shares are compared, and p50, p99 and
mean of distributions.

By chance one figure in 256 is clearly worse with 8 seeds, and one in 50,000
with 20. There are many figures, so take 20 seeds. Counts of events are sums
over all seeds, and metrics without a better side are only shown.

Exit codes:
  0  nothing is clearly worse
  1  something is
  2  no results, or nothing in common";

#[derive(Debug, ClapArgs)]
pub struct Compare {
    /// File that `bursar-lab run -f json` wrote, before the change
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// File that `bursar-lab run -f json` wrote, after the change
    #[arg(value_name = "B")]
    pub b: PathBuf,
}

/// Reads, compares and writes.
pub fn compare(compare: &Compare, global: &Global) -> Result<ExitCode, Failure> {
    let is_json = global.is_json()?;
    output::refuse_to_replace([&compare.a, &compare.b], global.output.as_deref())?;
    let a = read(&compare.a)?;
    let b = read(&compare.b)?;
    let compared = Compared::new(&a, &b)?;
    let output = Output::open(global)?;
    let people = |form| text::text(&compared, form, global.verbose);
    let text = match is_json {
        true => format::json(&compared)?,
        false => people(output.terminal()),
    };
    output.write(&text, people)?;
    Ok(match compared.worse {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(EXPECTATION_FAILED),
    })
}

/// The documents of a file, one for each experiment and point.
fn read(path: &Path) -> Result<Source, Failure> {
    let source = result_file::read(path)?;
    for (place, document) in source.documents.iter().enumerate() {
        let mut before = source.documents[..place].iter();
        if before.any(|other| comparable(document, other)) {
            return Err(Failure::usage(format!(
                "{}: has one experiment with the same machine and parameters twice",
                source.name
            )));
        }
    }
    Ok(source)
}
