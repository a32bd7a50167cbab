//! Standard output, whose reader may go away, and tables.

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;

use bursar::Bytes;
use bursar_conditions::Conditions;
use comfy_table::{CellAlignment, Table, presets};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Reason for which a run ended early.
#[derive(Debug)]
pub enum Stopped {
    /// Standard output has no reader any more.
    NoReader,
    /// A signal asked for the end.
    Interrupted,
    /// An error.
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Writes a part of the document.
pub fn write(text: &str) -> Result<(), Stopped> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Stopped::NoReader,
        _ => Stopped::Failed(error.into()),
    })
}

/// The head of a document: where it was measured, and the tables.
pub fn head(
    f: &mut fmt::Formatter<'_>,
    conditions: &Conditions,
    scale: f64,
    (rows, bytes): (usize, usize),
    partitions: usize,
) -> fmt::Result {
    let bytes = Bytes(bytes as u64);
    writeln!(
        f,
        "{conditions}\ntables: TPC-H at scale {scale}, {rows} rows, {bytes} in memory, {partitions} partitions"
    )
}

/// A table without lines. The columns of numbers are to the right.
pub fn table<T: Into<String>>(header: impl IntoIterator<Item = T>, numbers: Range<usize>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.into_iter().map(Into::into).collect::<Vec<String>>());
    for column in table
        .column_iter_mut()
        .skip(numbers.start)
        .take(numbers.len())
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
