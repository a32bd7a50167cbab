//! The tables, in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// Rows of a batch, as DataFusion's operators have by default.
const BATCH_ROWS: usize = 8192;

/// Scales that are accepted: below the least the small tables are empty.
const SCALES: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

type Batches = std::result::Result<Vec<RecordBatch>, ArrowError>;

/// A table's name, its columns, and the function that makes one of its parts at a scale. Parts are counted from 1.
struct Maker {
    name: &'static str,
    schema: fn() -> SchemaRef,
    part: fn(f64, i32, i32) -> Batches,
    /// Whether the table grows with the scale; the others are one part.
    grows: bool,
}

macro_rules! maker {
    ($name:literal, $arrow:ident, $generator:ident, $grows:literal) => {
        Maker {
            name: $name,
            schema: $arrow::schema_ref,
            part: |scale, part, parts| {
                $arrow::new($generator::new(scale, part, parts))
                    .with_batch_size(BATCH_ROWS)
                    .collect()
            },
            grows: $grows,
        }
    };
}

/// The largest first, so that no thread begins it last.
const MAKERS: [Maker; 8] = [
    maker!("lineitem", LineItemArrow, LineItemGenerator, true),
    maker!("orders", OrderArrow, OrderGenerator, true),
    maker!("partsupp", PartSuppArrow, PartSuppGenerator, true),
    maker!("customer", CustomerArrow, CustomerGenerator, true),
    maker!("part", PartArrow, PartGenerator, true),
    maker!("supplier", SupplierArrow, SupplierGenerator, true),
    maker!("nation", NationArrow, NationGenerator, false),
    maker!("region", RegionArrow, RegionGenerator, false),
];

/// All eight tables of one scale. Cloning shares the rows.
#[derive(Clone, Debug)]
pub struct Tables {
    scale: f64,
    tables: Vec<Table>,
}

#[derive(Clone, Debug)]
struct Table {
    name: &'static str,
    provider: Arc<MemTable>,
    rows: usize,
    bytes: usize,
}

/// Reason why tables were not generated.
#[derive(Debug)]
#[non_exhaustive]
pub enum GenerateError {
    /// A scale below 0.001 or above 1000, or none at all.
    Scale(f64),
    /// No parts, or more than 1024.
    Parts(usize),
    /// Arrow refused the generated columns.
    Arrow(ArrowError),
    /// DataFusion refused the batches.
    DataFusion(Box<datafusion::error::DataFusionError>),
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale(scale) => {
                let (least, most) = (SCALES.start(), SCALES.end());
                write!(f, "the scale {scale} is not between {least} and {most}")
            }
            Self::Parts(parts) => write!(f, "{parts} parts are not between 1 and 1024"),
            Self::Arrow(error) => write!(f, "cannot generate the tables: {error}"),
            Self::DataFusion(error) => write!(f, "cannot make tables of the rows: {error}"),
        }
    }
}

impl std::error::Error for GenerateError {}

impl Tables {
    /// Generates the tables of `scale` in `parts` parts, on at most `parts` threads. At scale 1 `lineitem` has about
    /// six million rows, and all tables together take about 1.5 GiB. Any thread calls `progress` with the share that is
    /// done, from 0 to 1.
    ///
    /// The rows depend on the scale only, not on the number of parts.
    ///
    /// # Errors
    /// [`GenerateError`], see there.
    ///
    /// # Panics
    /// If `progress` does.
    pub fn generate(
        scale: f64,
        parts: usize,
        progress: impl Fn(f64) + Sync,
    ) -> std::result::Result<Self, GenerateError> {
        if !SCALES.contains(&scale) {
            return Err(GenerateError::Scale(scale));
        }
        let Some(parts_i32) = i32::try_from(parts)
            .ok()
            .filter(|parts| (1..=1024).contains(parts))
        else {
            return Err(GenerateError::Parts(parts));
        };
        // Small pieces, so that progress is seen and the threads end together.
        let pieces = parts_i32 * pieces_per_part(scale);
        let jobs: Vec<(usize, i32, i32)> = MAKERS
            .iter()
            .enumerate()
            .flat_map(|(maker, table)| {
                let pieces = if table.grows { pieces } else { 1 };
                (1..=pieces).map(move |piece| (maker, piece, pieces))
            })
            .collect();
        let made = make_all(scale, parts, &jobs, &progress)?;

        let mut piece = made.into_iter();
        let mut tables = Vec::new();
        for (index, maker) in MAKERS.iter().enumerate() {
            let count = jobs.iter().filter(|(maker, ..)| *maker == index).count();
            let pieces: Vec<Vec<RecordBatch>> = piece.by_ref().take(count).collect();
            tables.push(table(maker, pieces, parts)?);
        }
        Ok(Self { scale, tables })
    }

    /// The names of the tables.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.tables.iter().map(|table| table.name)
    }

    /// The scale.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Rows of all tables.
    pub fn rows(&self) -> usize {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Bytes of the buffers of all tables. No pool is charged for them.
    pub fn bytes(&self) -> usize {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    /// Makes the tables known to a session.
    ///
    /// # Errors
    /// DataFusion's, such as a table of that name that is there already.
    pub fn register(&self, session: &SessionContext) -> Result<()> {
        for table in &self.tables {
            session.register_table(table.name, table.provider.clone())?;
        }
        Ok(())
    }
}

/// About 60,000 order lines a piece, at most.
fn pieces_per_part(scale: f64) -> i32 {
    // Truncation is meant: the scale is between 0.001 and 1000.
    (scale * 50.0).ceil() as i32
}

fn make_all(
    scale: f64,
    threads: usize,
    jobs: &[(usize, i32, i32)],
    progress: &(impl Fn(f64) + Sync),
) -> std::result::Result<Vec<Vec<RecordBatch>>, GenerateError> {
    // Relaxed: only numbers are handed over by these; what is made is handed over by joining.
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut made = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(maker, piece, pieces)) = jobs.get(number) else {
                return made;
            };
            let batches = (MAKERS[maker].part)(scale, piece, pieces);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(done as f64 / jobs.len() as f64);
            made.push((number, batches));
        }
    };
    let mut made = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut made = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(theirs) => made.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        made
    });
    made.sort_by_key(|(number, _)| *number);
    made.into_iter()
        .map(|(_, batches)| batches.map_err(GenerateError::Arrow))
        .collect()
}

/// Neighbouring pieces become one part.
fn table(
    maker: &Maker,
    pieces: Vec<Vec<RecordBatch>>,
    parts: usize,
) -> std::result::Result<Table, GenerateError> {
    let per_part = pieces.len().div_ceil(parts);
    let parts: Vec<Vec<RecordBatch>> = pieces.chunks(per_part).map(<[_]>::concat).collect();
    let batches = || parts.iter().flatten();
    let rows = batches().map(RecordBatch::num_rows).sum();
    let bytes = batches().map(RecordBatch::get_array_memory_size).sum();
    let provider = MemTable::try_new((maker.schema)(), parts)
        .map_err(|error| GenerateError::DataFusion(Box::new(error)))?;
    Ok(Table {
        name: maker.name,
        provider: Arc::new(provider),
        rows,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_do_not_depend_on_the_parts() {
        let one = Tables::generate(0.01, 1, |_| ()).unwrap();
        let three = Tables::generate(0.01, 3, |_| ()).unwrap();
        // By the specification: 10,000 x scale suppliers, 200,000 parts, 800,000 of both, 150,000 customers with ten orders
        // each, and 25 nations in 5 regions.
        assert_eq!(
            one.rows() - one.tables[0].rows,
            100 + 2000 + 8000 + 1500 + 15000 + 30
        );
        assert_eq!(
            one.tables[0].rows, 60_175,
            "the generator's count at this scale"
        );
        for (one, three) in one.tables.iter().zip(&three.tables) {
            assert_eq!((one.name, one.rows), (three.name, three.rows));
        }
        assert!(one.bytes() > 4 << 20);
    }

    #[test]
    fn what_makes_no_tables_says_so() {
        let refused = |scale, parts| {
            Tables::generate(scale, parts, |_| ())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(refused(0.0, 1), "the scale 0 is not between 0.001 and 1000");
        assert_eq!(
            refused(f64::NAN, 1),
            "the scale NaN is not between 0.001 and 1000"
        );
        assert_eq!(refused(0.01, 0), "0 parts are not between 1 and 1024");
    }

    #[test]
    fn progress_ends() {
        let calls = AtomicUsize::new(0);
        Tables::generate(0.01, 2, |share| {
            assert!((0.0..=1.0).contains(&share));
            calls.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(calls.into_inner(), 6 * 2 + 2);
    }
}
