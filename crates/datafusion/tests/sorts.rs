//! Whole sorts of DataFusion, under limits that change and limits that are shared.

use std::fmt;
use std::sync::{Arc, Mutex};

use bursar::{Group, Level, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool, PoolBuilder};
use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;

const MIB: u64 = 1 << 20;
const ROWS: i64 = 40_000;
const BATCH: usize = 1024;

/// Rows of 128 bytes, 5 MiB in all, in no order. A sort reserves twice as much.
fn table(partitions: usize) -> MemTable {
    let fields = vec![
        Field::new("s", DataType::Utf8, false),
        Field::new("n", DataType::Int64, false),
    ];
    let schema = Arc::new(Schema::new(fields));
    let mut parts = vec![Vec::new(); partitions];
    let numbers: Vec<i64> = (0..ROWS).collect();
    for (index, rows) in numbers.chunks(BATCH).enumerate() {
        let mixed = |n: &i64| (*n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let texts = rows.iter().map(|n| format!("{:0120}", mixed(n)));
        let texts = StringArray::from_iter_values(texts);
        let columns = vec![
            Arc::new(texts) as _,
            Arc::new(Int64Array::from(rows.to_vec())) as _,
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        parts[index % partitions].push(batch);
    }
    MemTable::try_new(schema, parts).unwrap()
}

/// Sorts the table; returns the number of rows, all in order.
async fn sort(table: &Arc<MemTable>, pool: Arc<dyn MemoryPool>) -> Result<usize> {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        .build_arc()?;
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(BATCH)
        .with_sort_spill_reservation_bytes(MIB as usize)
        .with_sort_in_place_threshold_bytes(100 << 10);
    let context = SessionContext::new_with_config_rt(config, runtime);
    context.register_table("t", table.clone())?;
    let query = context.sql("SELECT s, n FROM t ORDER BY s").await?;
    let mut stream = query.execute_stream().await?;
    let (mut rows, mut last) = (0, String::new());
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let texts = batch.column(0).as_any().downcast_ref::<StringArray>();
        for text in texts.unwrap().iter().flatten() {
            assert!(*last <= *text);
            last.replace_range(.., text);
        }
        rows += batch.num_rows();
    }
    Ok(rows)
}

/// A pool that lowers a limit after some number of calls, and then watches the usage.
struct Lowering {
    pool: Arc<GroupPool>,
    tenant: Group,
    max: u64,
    at: u64,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    calls: u64,
    /// Usage at the moment of the change.
    before: u64,
}

impl Lowering {
    fn note(&self) {
        let mut seen = self.seen.lock().unwrap();
        if seen.calls == self.at {
            self.tenant.set_max(self.max);
            seen.before = self.tenant.reserved();
        }
        if seen.calls >= self.at {
            let (now, most) = (self.tenant.reserved(), seen.before.max(self.max));
            assert!(now <= most, "{now} after {}, of {}", seen.before, self.max);
        }
        seen.calls += 1;
    }
}

impl MemoryPool for Lowering {
    fn name(&self) -> &str {
        "lowering"
    }
    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }
    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }
    fn grow(&self, reservation: &MemoryReservation, bytes: usize) {
        self.pool.grow(reservation, bytes);
        self.note();
    }
    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        self.pool.shrink(reservation, bytes);
        self.note();
    }
    fn try_grow(&self, reservation: &MemoryReservation, bytes: usize) -> Result<()> {
        let granted = self.pool.try_grow(reservation, bytes);
        self.note();
        granted
    }
    fn reserved(&self) -> usize {
        self.pool.reserved()
    }
    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

impl fmt::Debug for Lowering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl fmt::Display for Lowering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

fn tenant(max: u64) -> Group {
    let memory = Memory::builder().max(1 << 30).build().unwrap();
    let limits = Limits::max(max).high(max / 10 * 8);
    memory.root().child("tenant", limits).unwrap()
}

fn query(tenant: &Group) -> PoolBuilder {
    GroupPool::builder(tenant.child("query", Limits::none()).unwrap())
}

fn plain(builder: PoolBuilder, _: &FairShare) -> PoolBuilder {
    builder
}

fn sharing(builder: PoolBuilder, share: &FairShare) -> PoolBuilder {
    builder.share(share)
}

fn early(builder: PoolBuilder, _: &FairShare) -> PoolBuilder {
    builder.spill_from(Level::High)
}

/// Sorts under a limit of `max` MiB, which is lowered after `step` calls, after twice as many, and so on. Each sort ends, and its usage never
/// rises above the new limit, or above what it was.
async fn sorts_outlive(max: u64, step: u64, moments: u64) {
    let table = Arc::new(table(1));
    let kinds = [plain, sharing, early] as [fn(_, &FairShare) -> _; 3];
    let mut failed = Vec::new();
    for moment in 0..moments {
        let kind = kinds[moment as usize % 3];
        let (lower, at) = ([6, 4, 3, 5][moment as usize % 4], moment * step);
        let tenant = tenant(max * MIB);
        let share = FairShare::new(&tenant);
        let lowering = Arc::new(Lowering {
            pool: kind(query(&tenant), &share).build(),
            tenant: tenant.clone(),
            max: lower * MIB,
            at,
            seen: Mutex::default(),
        });
        match sort(&table, lowering.clone()).await {
            Ok(rows) => assert_eq!(rows, ROWS as usize),
            Err(error) => failed.push(format!("{max} to {lower} at {at}: {error}")),
        }
        let report = lowering.pool.report();
        assert_eq!((report.reserved, report.kept), (0, 0));
    }
    let count = failed.len();
    assert!(
        failed.is_empty(),
        "{count} of {moments} failed: {}",
        failed.join("\n\n")
    );
}

/// Under 10 MiB the sort spills, by some 270 calls.
#[tokio::test]
async fn a_sort_that_spills_outlives_a_lowered_limit() {
    sorts_outlive(10, 18, 15).await;
}

/// Under 16 MiB the sort has read its rows after 41 calls, and merges them in memory.
#[tokio::test]
async fn a_sort_in_memory_outlives_a_lowered_limit() {
    sorts_outlive(16, 6, 25).await;
}

/// Several threads sort rows before the merge asks for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_by_threads_outlives_a_lowered_limit() {
    sorts_outlive(16, 6, 25).await;
    sorts_outlive(10, 18, 15).await;
}

/// Two sorts of one query, one for each partition, and the merge of both share a limit. The query ends under any limit above the
/// smallest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sorts_share_any_limit() {
    let table = Arc::new(table(2));
    for limit in (10..=22).map(|half| half * MIB / 2) {
        for _ in 0..3 {
            let tenant = tenant(limit);
            let share = FairShare::new(&tenant);
            let sorted = sort(&table, query(&tenant).share(&share).build()).await;
            assert_eq!(
                sorted.unwrap_or_else(|error| panic!("{limit}: {error}")),
                ROWS as usize
            );
        }
    }
}
