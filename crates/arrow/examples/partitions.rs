//! 200 files that are open at once, one for each tenant, as "write by partition" has them: the memory that they hold, and the size of the files.
//!
//! `cargo run --release -p bursar-arrow --features parquet --example partitions`

use std::error::Error;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bursar::{Bytes, Freshness, Group, Limits, Memory};
use bursar_arrow::{ChargedWriter, WriteError, flush_largest};
use parquet::arrow::ArrowWriter;

const FILES: usize = 200;
const ROWS: usize = 4_000_000;
/// Rows of a file in a batch.
const BATCH: usize = 500;

/// Order in which the rows of the partitions arrive.
#[derive(Clone, Copy)]
enum Order {
    /// A batch for each file in turn.
    Mixed,
    /// One file after the other, as from sorted input. All stay open.
    Sorted,
}

/// Events of a shop: a number that counts up, one of a few words, and a text.
fn batch(first: usize) -> Result<RecordBatch, Box<dyn Error>> {
    const KINDS: [&str; 4] = ["view", "cart", "order", "return"];
    let rows = first..first + BATCH;
    // Scattered, so that texts and amounts do not repeat soon.
    let scattered = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    let ids: Int64Array = rows.clone().map(|row| row as i64).collect();
    let kinds =
        StringArray::from_iter_values(rows.clone().map(|row| KINDS[scattered(row) as usize % 4]));
    let amounts: Int64Array = rows
        .clone()
        .map(|row| (scattered(row) % 100_000) as i64)
        .collect();
    let texts = StringArray::from_iter_values(
        rows.map(|row| format!("customer {:x}", scattered(row) % 1_000_000)),
    );
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(ids)),
        ("kind", Arc::new(kinds)),
        ("amount", Arc::new(amounts)),
        ("text", Arc::new(texts)),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

struct Outcome {
    bytes: u64,
    row_groups: usize,
    refused: u64,
    peak: u64,
}

fn write(group: &Group, order: Order) -> Result<Outcome, Box<dyn Error>> {
    let schema = batch(0)?.schema();
    let mut files: Vec<Vec<u8>> = vec![Vec::new(); FILES];
    let writers = files.iter_mut().map(|file| {
        let writer = ArrowWriter::try_new(file, schema.clone(), None)?;
        Ok(ChargedWriter::new(writer, group))
    });
    let mut writers = writers.collect::<Result<Vec<_>, WriteError>>()?;
    let batches = ROWS / BATCH;
    let mut refused = 0;
    for at in 0..batches {
        let file = match order {
            Order::Mixed => at % FILES,
            Order::Sorted => at * FILES / batches,
        };
        let batch = batch(at * BATCH)?;
        while let Err(error) = writers[file].try_write(&batch) {
            refused += 1;
            let is_refused = matches!(error, WriteError::Refused(_));
            if !is_refused || flush_largest(&mut writers)? == 0 {
                return Err(error.into());
            }
        }
    }
    let peak = group.peak();
    let mut row_groups = 0;
    for writer in writers {
        row_groups += writer.finish()?.num_row_groups();
    }
    let bytes = files.iter().map(|file| file.len() as u64).sum();
    Ok(Outcome {
        bytes,
        row_groups,
        refused,
        peak,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let memory = Memory::host()?;
    println!("{FILES} files, {ROWS} rows\n");
    println!("| rows arrive | limit | peak | row groups | refused | files | x |");
    println!("|---|---|---|---|---|---|---|");
    for (order, shown) in [(Order::Mixed, "mixed"), (Order::Sorted, "sorted")] {
        let mut whole = None;
        for mib in [u64::MAX, 64, 32, 16, 8] {
            let max = mib.saturating_mul(1 << 20);
            let group = memory.root().child("partitions", Limits::max(max))?;
            let Outcome {
                bytes,
                row_groups,
                refused,
                peak,
            } = write(&group, order)?;
            let whole = *whole.get_or_insert(bytes);
            let ratio = bytes as f64 / whole as f64;
            let limit = if mib == u64::MAX {
                "none".to_owned()
            } else {
                Bytes(max).to_string()
            };
            println!(
                "| {shown} | {limit} | {} | {row_groups} | {refused} | {} | {ratio:.3} |",
                Bytes(peak),
                Bytes(bytes)
            );
            let left = group.read(Freshness::Exact)?.usage_bytes();
            assert_eq!(left, 0, "all is returned");
            group.remove()?;
        }
    }
    Ok(())
}
