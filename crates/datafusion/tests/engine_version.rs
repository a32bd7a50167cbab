//! Behaviour of DataFusion 55.2 that `src/engine_version.rs` and the guide are about, shown in the engine itself. A test that fails
//! with another version says what to change.

use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bursar::{Limits, Memory};
use bursar_datafusion::{GroupPool, PoolBuilder, RefusalText};
use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManager, DiskManagerMode};
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionStateBuilder, SpillFile, SpillWriter, TempFileFactory};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::{SpillManager, spill_pool};
use datafusion::prelude::{SessionConfig, SessionContext, col};
use futures::{FutureExt, Stream, StreamExt, stream};

const KIB: usize = 1 << 10;
/// Rows of a number and a text, in no order.
const ROWS: &str = "(SELECT (value * 7919) % 20011 AS n, 'guest number ' || value AS s \
    FROM generate_series(1, 20000))";

/// A call of a pool.
#[derive(Clone, Debug)]
struct Call {
    consumer: String,
    kind: Kind,
    /// Bytes of the reservation before the call.
    size: usize,
    /// Bytes of the consumer after it.
    held: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Registered { can_spill: bool },
    Granted,
    Refused,
    Returned,
}

/// A pool that notes its calls.
#[derive(Debug)]
struct Noting {
    pool: GreedyMemoryPool,
    calls: Mutex<Vec<Call>>,
    /// Begin of the names of consumers that are refused once each, when they hold bytes.
    refused_once: Option<&'static str>,
}

impl Noting {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            pool: GreedyMemoryPool::new(bytes),
            calls: Mutex::default(),
            refused_once: None,
        })
    }

    /// One with memory for all, which refuses these consumers once each.
    fn refusing(consumer: &'static str) -> Arc<Self> {
        Arc::new(Self {
            pool: GreedyMemoryPool::new(usize::MAX),
            calls: Mutex::default(),
            refused_once: Some(consumer),
        })
    }

    fn is_to_refuse(&self, reservation: &MemoryReservation) -> bool {
        let name = reservation.consumer().name();
        let was_refused = || {
            let calls = self.calls(name);
            calls.iter().any(|call| call.kind == Kind::Refused)
        };
        let is_meant = self
            .refused_once
            .is_some_and(|begin| name.starts_with(begin));
        is_meant && reservation.size() > 0 && !was_refused()
    }

    fn note(&self, consumer: &MemoryConsumer, kind: Kind, size: usize, change: isize) {
        let mut calls = self.calls.lock().unwrap();
        let consumer = consumer.name().to_owned();
        let before = calls.iter().rfind(|call| call.consumer == consumer);
        let held = before.map_or(0, |call| call.held);
        calls.push(Call {
            consumer,
            kind,
            size,
            held: held.strict_add_signed(change),
        });
    }

    /// Calls of the consumers whose names begin so.
    fn calls(&self, name: &str) -> Vec<Call> {
        let mut calls = self.calls.lock().unwrap().clone();
        calls.retain(|call| call.consumer.starts_with(name));
        calls
    }
}

impl MemoryPool for Noting {
    fn name(&self) -> &str {
        "noting"
    }
    fn register(&self, consumer: &MemoryConsumer) {
        let can_spill = consumer.can_spill();
        self.note(consumer, Kind::Registered { can_spill }, 0, 0);
    }
    fn grow(&self, reservation: &MemoryReservation, bytes: usize) {
        self.pool.grow(reservation, bytes);
        let (consumer, size) = (reservation.consumer(), reservation.size());
        self.note(consumer, Kind::Granted, size, bytes as isize);
    }
    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        self.pool.shrink(reservation, bytes);
        let (consumer, size) = (reservation.consumer(), reservation.size() + bytes);
        self.note(consumer, Kind::Returned, size, -(bytes as isize));
    }
    fn try_grow(&self, reservation: &MemoryReservation, bytes: usize) -> Result<()> {
        let granted = match self.is_to_refuse(reservation) {
            true => Err(DataFusionError::ResourcesExhausted("once".to_owned())),
            false => self.pool.try_grow(reservation, bytes),
        };
        let (kind, change) = match granted {
            Ok(()) => (Kind::Granted, bytes as isize),
            Err(_) => (Kind::Refused, 0),
        };
        self.note(reservation.consumer(), kind, reservation.size(), change);
        granted
    }
    fn reserved(&self) -> usize {
        self.pool.reserved()
    }
}

impl fmt::Display for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

/// A session of one partition.
fn session(pool: Arc<dyn MemoryPool>) -> SessionContext {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(128)
        .with_sort_in_place_threshold_bytes(1)
        .with_sort_spill_reservation_bytes(64 * KIB);
    SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap())
}

async fn rows(session: &SessionContext, sql: &str) -> Result<usize> {
    let batches = session.sql(sql).await?.collect().await?;
    Ok(batches.iter().map(RecordBatch::num_rows).sum())
}

/// apache/datafusion#24740.
#[tokio::test]
async fn a_sort_returns_the_bytes_of_its_merge_before_it_spills() {
    let pool = Noting::new(512 * KIB);
    let sql = format!("SELECT * FROM {ROWS} ORDER BY s");
    assert_eq!(rows(&session(pool.clone()), &sql).await.unwrap(), 20_000);
    let calls = pool.calls("ExternalSorter");
    let refused = |call: &Call| call.kind == Kind::Refused && call.held > 0;
    let refused = calls.iter().position(refused).unwrap();
    let next = &calls[refused + 1];
    assert!(
        next.consumer == "ExternalSorterMerge[0]" && (next.kind, next.held) == (Kind::Returned, 0),
        "a sort that spills keeps the bytes of its merge: let sort.rs keep none, see `of_sorted_rows`; {next:?}"
    );
}

#[tokio::test]
async fn an_aggregate_needs_bytes_beside_those_for_its_files() {
    let pool = Noting::new(512 * KIB);
    let sql = format!("SELECT s, count(*) FROM {ROWS} GROUP BY s");
    assert_eq!(rows(&session(pool.clone()), &sql).await.unwrap(), 20_000);
    let calls = pool.calls("SingleHashAggregateStream");
    assert!(calls.iter().any(|call| call.kind == Kind::Refused));
    let mut held = 0;
    let is_beside = calls.iter().any(|call| {
        let before = mem::replace(&mut held, call.held);
        call.kind == Kind::Granted && call.size == 0 && before > 0
    });
    assert!(
        is_beside,
        "an aggregate has one reservation: remove `aggregate_in_share` and `is_aggregate`, and look at `may_be_asked`"
    );
}

/// apache/datafusion#17334.
#[tokio::test]
async fn an_ordered_aggregate_says_that_it_can_spill_and_ends_its_query() {
    let pool = Noting::refusing("OrderedFinalAggregateStream");
    let session = session(pool.clone());
    for (name, value) in [
        ("optimizer.prefer_existing_sort", "true"),
        ("execution.target_partitions", "2"),
    ] {
        let sql = format!("SET datafusion.{name} = {value}");
        session.sql(&sql).await.unwrap();
    }
    let schema = Schema::new(vec![Field::new("k", DataType::Utf8, false)]);
    let schema = Arc::new(schema);
    let batch = |number: usize| {
        let keys = (0..1000).map(|row| format!("{:08}{}", number * 1000 + row, "x".repeat(100)));
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(keys));
        RecordBatch::try_new(schema.clone(), vec![keys]).unwrap()
    };
    let part = || (0..20).map(batch).collect();
    let table = MemTable::try_new(schema.clone(), vec![part(), part()]).unwrap();
    let table = table.with_sort_order(vec![vec![col("k").sort(true, false)]]);
    session.register_table("t", Arc::new(table)).unwrap();
    let result = rows(&session, "SELECT k, count(*) FROM t GROUP BY k").await;
    let calls = pool.calls("OrderedFinalAggregateStream");
    let says = Kind::Registered { can_spill: true };
    assert!(
        result.is_err() && calls.iter().any(|call| call.kind == says),
        "an ordered aggregate spills, or says that it cannot: simplify `spills`; {result:?}"
    );
}

/// apache/datafusion#25250.
#[tokio::test]
async fn a_sort_merge_join_says_that_it_cannot_spill() {
    let pool = Noting::new(64 << 20);
    let session = session(pool.clone());
    for (name, value) in [
        ("optimizer.prefer_hash_join", "false"),
        ("execution.target_partitions", "2"),
    ] {
        let sql = format!("SET datafusion.{name} = {value}");
        session.sql(&sql).await.unwrap();
    }
    let sql = format!("SELECT a.n FROM {ROWS} AS a JOIN {ROWS} AS b ON a.s = b.s");
    assert_eq!(rows(&session, &sql).await.unwrap(), 20_000);
    let says = Kind::Registered { can_spill: false };
    assert!(
        pool.calls("SMJStream").iter().any(|call| call.kind == says),
        "a sort-merge join says that it can spill: remove this test and the last paragraph of engine_version.rs"
    );
}

#[tokio::test]
async fn a_sort_merge_join_without_a_disk_hides_its_refusal() {
    let (_memory, builder) = group_pool(16 * KIB);
    let disk = DiskManager::builder().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(builder.build())
        .with_disk_manager_builder(disk);
    // Without sorts, which would be refused first.
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(
            SessionConfig::new()
                .with_target_partitions(2)
                .set_bool("datafusion.optimizer.prefer_hash_join", false),
        )
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_physical_optimizer_rules(Vec::new());
    let session = SessionContext::new_with_state(state.build());
    let sql = format!("SELECT a.n FROM {ROWS} AS a JOIN {ROWS} AS b ON a.s = b.s");
    let error = rows(&session, &sql).await.unwrap_err();
    let text = RefusalText::of(&error).unwrap();
    assert!(
        text.message.starts_with("cannot reserve ") && !text.hint.contains("disabled"),
        "{text:?}"
    );
    assert!(
        !matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)),
        "the refusal is not hidden: let `exhausted` look for `ResourcesExhausted` alone"
    );
}

fn group_pool(max: usize) -> (Memory, PoolBuilder) {
    let memory = Memory::builder().build().unwrap();
    let group = memory.root().child("query", Limits::max(max as u64));
    (memory, GroupPool::builder(group.unwrap()))
}

/// apache/datafusion#22626.
#[tokio::test]
async fn a_session_that_sets_the_limit_leaves_its_pool() {
    let (_memory, builder) = group_pool(512 * KIB);
    let session = session(builder.build());
    let set = "SET datafusion.runtime.memory_limit = '64G'";
    session.sql(set).await.unwrap();
    assert!(
        !session.runtime_env().memory_pool.is::<GroupPool>(),
        "`SET` keeps the pool: test here that it lowers the group's limit and never lifts it"
    );
}

/// apache/datafusion#24745.
#[tokio::test]
async fn a_refused_loop_join_loses_rows_without_a_partner() {
    let sql = "SELECT a.value, b.value FROM generate_series(1, 5000) AS a \
        FULL JOIN generate_series(1, 1000) AS b ON a.value + b.value < 0";
    let (_memory, builder) = group_pool(16 * KIB);
    let refused = rows(&session(builder.build()), sql).await.unwrap();
    assert_ne!(
        refused, 6000,
        "no rows are lost: remove this test, and what docs/guides/datafusion.md says of it"
    );
    let (_memory, builder) = group_pool(16 * KIB);
    let pool = builder.never_refuse(["NestedLoopJoinLoad"]).build();
    assert_eq!(rows(&session(pool), sql).await.unwrap(), 6000);
}

type Meanwhile = Box<dyn FnOnce() + Send>;

/// Spill files in memory. The first write runs `meanwhile`.
#[derive(Clone, Default)]
struct Files {
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl TempFileFactory for Files {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        let bytes = Arc::default();
        let meanwhile = self.meanwhile.clone();
        Ok(Arc::new(Self { meanwhile, bytes }))
    }
}

impl SpillFile for Files {
    fn size(&self) -> Option<u64> {
        None
    }
    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let bytes = Bytes::from(self.bytes.lock().unwrap().clone());
        Ok(Box::pin(stream::iter([Ok(bytes)])))
    }
    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Write for Files {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        self.bytes.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Files {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// apache/datafusion#24883. Two inputs of a repartition write at the same time, so there are two files. The output then waits at the first
/// one, although there are rows in the other.
#[tokio::test]
async fn a_repartition_does_not_read_the_second_of_two_files() {
    let session = SessionContext::new();
    let batches = session.sql("SELECT 1 AS n").await.unwrap().collect().await;
    let batch = batches.unwrap().remove(0);

    let files = Files::default();
    let disk = DiskManager::builder().with_temp_file_factory(Arc::new(files.clone()));
    let runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
    let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
    let spills = SpillManager::new(runtime.build_arc().unwrap(), metrics, batch.schema());
    let (one, mut output) = spill_pool::mpsc_channel(1 << 20, Arc::new(spills));
    let two = Arc::new(one.new_sink());
    let (input, second) = (two.clone(), batch.clone());
    let push_second = move || input.push_batch(&second).unwrap();
    *files.meanwhile.lock().unwrap() = Some(Box::new(push_second));
    one.push_batch(&batch).unwrap();

    assert!(output.next().now_or_never().flatten().is_some());
    assert!(
        output.next().now_or_never().is_none(),
        "a repartition reads all its files: make `NEVER_REFUSED` empty, and take `never_refuse` out of docs and examples"
    );
    // The end of its inputs helps, for which a repartition may wait.
    drop((one, two));
    assert!(output.next().now_or_never().flatten().is_some());
}
