//! Cost of a `ChargedStore`: scans of Parquet through it and through the plain store, in pairs.
//!
//! `cargo run --release -p bursar-arrow --features async,object_store --example scan`

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bursar::{Freshness, Limits, Memory};
use bursar_arrow::{ChargedStore, OnRefusal};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;

const ROWS: usize = 2_000_000;
const ROUNDS: usize = 101;

/// CPU time of all threads so far, seconds. Other programs do not change it much, unlike the time on the clock.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A file with 20 row groups, of numbers and texts.
fn file() -> Result<Vec<u8>, Box<dyn Error>> {
    let scattered = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    let numbers: Int64Array = (0..ROWS).map(|row| scattered(row) as i64).collect();
    let others: Int64Array = (0..ROWS).map(|row| row as i64).collect();
    let texts = StringArray::from_iter_values(
        (0..ROWS).map(|row| format!("{:x}", scattered(row) % 100_000)),
    );
    let columns: [(&str, ArrayRef); 3] = [
        ("number", Arc::new(numbers)),
        ("text", Arc::new(texts)),
        ("other", Arc::new(others)),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROWS / 20));
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build()))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// An object as a scan of DataFusion reads it.
struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
}

impl AsyncFileReader for Object {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        let got = self.store.get_range(&self.path, range);
        got.map_err(|error| ParquetError::External(Box::new(error)))
            .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        let got = async move { self.store.get_ranges(&self.path, &ranges).await };
        got.map_err(|error| ParquetError::External(Box::new(error)))
            .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let size = self.size;
        ParquetMetaDataReader::new()
            .load_and_finish(self, size)
            .map_ok(Arc::new)
            .boxed()
    }
}

/// Reads two columns of three. Returns the CPU seconds.
async fn parquet(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<f64, Box<dyn Error>> {
    let began = cpu_seconds();
    let object = Object {
        store: store.clone(),
        path: path.clone(),
        size: store.head(path).await?.size,
    };
    let builder = ParquetRecordBatchStreamBuilder::new(object).await?;
    let columns = ProjectionMask::leaves(builder.parquet_schema(), [0, 2]);
    let mut stream = builder
        .with_projection(columns)
        .with_batch_size(8192)
        .build()?;
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await? {
        rows += batch.num_rows();
    }
    assert_eq!(rows, ROWS);
    Ok(cpu_seconds() - began)
}

/// Reads the file as a stream of pieces, and nothing else, as a scan of CSV does. Returns the CPU seconds.
async fn stream(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<f64, Box<dyn Error>> {
    let began = cpu_seconds();
    let mut stream = store.get(path).await?.into_stream();
    let mut sum = 0;
    while let Some(piece) = stream.try_next().await? {
        sum += piece.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }
    assert!(sum > 0);
    Ok(cpu_seconds() - began)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let memory = Memory::builder().max(1 << 30).build()?;
    let group = memory.root().child("tenant", Limits::max(1 << 29))?;
    let directory = std::env::temp_dir().join(format!("bursar-scan-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let local = LocalFileSystem::new_with_prefix(&directory)?;
    let path = Path::from("file.parquet");
    let file = file()?;
    println!(
        "{ROUNDS} pairs; a file of {:.1} MB\n",
        file.len() as f64 / 1e6
    );
    println!("| store | scan | plain, CPU ms | charged / plain | quartiles |");
    println!("|---|---|---|---|---|");
    let stores: [(&str, Arc<dyn ObjectStore>); 2] = [
        ("memory", Arc::new(InMemory::new())),
        ("files", Arc::new(local)),
    ];
    for (shown, plain) in stores {
        plain.put(&path, file.clone().into()).await?;
        let charged: Arc<dyn ObjectStore> =
            Arc::new(ChargedStore::new(plain.clone(), &group, OnRefusal::Fail));
        for scan in ["parquet", "stream"] {
            let run = async |store| match scan {
                "parquet" => parquet(store, &path).await,
                _ => stream(store, &path).await,
            };
            let (mut times, mut ratios) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                // Each is first in every second pair.
                let (one, two) = match round % 2 {
                    0 => (run(&plain).await?, run(&charged).await?),
                    _ => {
                        let charged = run(&charged).await?;
                        (run(&plain).await?, charged)
                    }
                };
                times.push(one * 1e3);
                ratios.push(two / one);
            }
            times.sort_by(f64::total_cmp);
            ratios.sort_by(f64::total_cmp);
            let at = |quarter: usize| ratios[(ROUNDS - 1) * quarter / 4];
            println!(
                "| {shown} | {scan} | {:.1} | {:.3} | {:.3} to {:.3} |",
                times[ROUNDS / 2],
                at(2),
                at(1),
                at(3)
            );
            let left = group.read(Freshness::Exact)?.usage_bytes();
            assert_eq!(left, 0, "all is returned");
        }
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
