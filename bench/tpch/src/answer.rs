//! Answers that can be compared.

use std::fmt;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// The rows of an answer as text, sorted: two answers with the same rows are equal, in any order and any batches.
///
/// All sums of TPC-H are decimals, so no row depends on the order in which it was summed.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    rows: Vec<String>,
}

impl Answer {
    /// Makes the answer of some batches.
    ///
    /// # Errors
    /// Arrow's, for columns that it cannot show.
    pub fn of(batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let options = FormatOptions::default().with_null("NULL");
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch
                .columns()
                .iter()
                .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
                .collect::<Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let cells = columns.iter().map(|column| column.value(row).to_string());
                rows.push(cells.collect::<Vec<_>>().join("|"));
            }
        }
        rows.sort_unstable();
        Ok(Self { rows })
    }

    /// The rows, sorted, their columns separated by `|`.
    pub fn rows(&self) -> &[String] {
        &self.rows
    }
}

/// Shows the number of rows and the first few, because an answer may have millions.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = &self.rows[..self.rows.len().min(5)];
        write!(f, "{} rows, first {first:#?}", self.rows.len())
    }
}
