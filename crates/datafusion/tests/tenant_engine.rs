//! Queries of tenants wait for their turn, run again if memory was too little, and give all back.
#![cfg(feature = "sql")]

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use bursar::{Freshness, Group, Limits, Memory};
use bursar_arbiter::{Admit, AdmitError, Arbiter, Ask, Grant, Policy};
use bursar_datafusion::{
    FairShare, GroupPool, History, RefusalText, Repeat, Tenant, TenantEngine, TenantEngineBuilder,
    TenantEngineError, TenantSqlError, TenantStream, View,
};
use datafusion::arrow::array::{
    Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{FutureExt, StreamExt};
use tokio::sync::Semaphore;

const MIB: u64 = 1 << 20;
/// Limit of the tenant.
const MAX: u64 = 16 * MIB;
/// Bytes granted to a query whose shape is not known.
const SHARE: u64 = MAX / 4;
const ROWS: i64 = 30_000;
const PARTITIONS: usize = 2;

struct Scene {
    memory: Memory,
    group: Group,
    arbiter: Arbiter,
    context: SessionContext,
    history: History,
}

/// A tenant `t`, and a table `t` of `ROWS` different numbers, each with a text of 100 bytes: about 4 MiB.
fn scene(max: u64) -> Scene {
    let memory = Memory::builder().build().unwrap();
    let config = SessionConfig::new()
        .with_target_partitions(PARTITIONS)
        .with_batch_size(1024)
        .with_sort_spill_reservation_bytes(256 << 10);
    let context = SessionContext::new_with_config(config);
    let fields = vec![
        Field::new("k", DataType::Int64, false),
        Field::new("s", DataType::Utf8, false),
    ];
    let schema = Arc::new(Schema::new(fields));
    let batches = (0..ROWS).step_by(1000).map(|from| {
        let keys: Vec<i64> = (from..from + 1000).map(|at| at * 7919 % ROWS).collect();
        let texts = keys.iter().map(|key| format!("{key:0>100}"));
        let texts = StringArray::from_iter_values(texts);
        RecordBatch::try_new(
            schema.clone(),
            vec![Arc::new(Int64Array::from(keys)), Arc::new(texts)],
        )
        .unwrap()
    });
    let table = MemTable::try_new(schema.clone(), vec![batches.collect()]).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    Scene {
        group: memory.root().child("t", Limits::max(max)).unwrap(),
        arbiter: Arbiter::new(&memory, Policy::default()),
        context,
        history: History::new(100),
        memory,
    }
}

impl Scene {
    fn builder(&self) -> TenantEngineBuilder {
        TenantEngine::builder(&self.context, &self.arbiter).history(&self.history)
    }

    fn tenant(&self) -> Tenant {
        self.builder().build().tenant("t").unwrap()
    }

    /// From now on no grant of the tenant becomes larger for a request that can spill: another grant has a part, and somebody waits for more than
    /// the rest.
    fn crowd(&self) -> (Grant, Admit) {
        let other = Ask::new(&self.group, "other")
            .least(4 * MIB, 0)
            .wanted(4 * MIB);
        let other = self.arbiter.try_admit(other).unwrap();
        let waits = Ask::new(&self.group, "waits")
            .least(MAX - MIB, 0)
            .wanted(MAX - MIB);
        let mut waits = self.arbiter.admit(waits);
        assert!((&mut waits).now_or_never().is_none());
        (other, waits)
    }

    /// All that a crowd leaves beside one part of the tenant's memory.
    fn rest(&self) -> Grant {
        let rest = Ask::new(&self.group, "rest").least(MAX - 4 * MIB - SHARE, 0);
        self.arbiter.try_admit(rest).unwrap()
    }

    /// Waits for a query whose first try is refused for want of the rest, and which then gets it.
    async fn refused_for<F: Future>(&self, rest: impl Into<Option<Grant>>, query: F) -> F::Output {
        let mut query = Box::pin(query);
        let has_refused = || !self.history.finished().is_empty();
        match until(&mut query, has_refused).await {
            Some(output) => output,
            None => {
                drop(rest.into());
                query.await
            }
        }
    }

    /// All bytes come back.
    async fn assert_all_is_given_back(&self) {
        let admissions = self.arbiter.admissions();
        assert!(
            admissions.grants.is_empty() && admissions.waiting.is_empty(),
            "{admissions:?}"
        );
        self.group.close().unwrap();
        self.group.emptied().await;
        let root = self.memory.root().read(Freshness::Exact).unwrap();
        assert_eq!(root.usage_bytes(), 0);
    }
}

fn rows(batches: &[RecordBatch]) -> i64 {
    batches.iter().map(|batch| batch.num_rows() as i64).sum()
}

async fn collect(tenant: &Tenant, sql: &str) -> Vec<RecordBatch> {
    let stream = tenant.sql(None, sql).await.unwrap();
    stream.collect().await.unwrap()
}

/// A source that reserves memory before each of its two batches, and counts its readers.
#[derive(Debug)]
struct Hungry {
    schema: SchemaRef,
    /// Bytes.
    first: u64,
    second: u64,
    /// Bytes that each reader reserves more than the one before, at first; at most 9 MiB.
    step: u64,
    /// Whether nothing comes after the two batches, not even an end.
    is_endless: bool,
    /// Whether the first reader leaves 1 MiB, and what it left.
    leaves: AtomicBool,
    left: Mutex<Option<MemoryReservation>>,
    readers: AtomicUsize,
    first_read: OnceLock<SystemTime>,
}

impl Hungry {
    fn new(first: u64, second: u64, step: u64, is_endless: bool) -> Arc<Self> {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        Arc::new(Self {
            schema,
            first,
            second,
            step,
            is_endless,
            leaves: AtomicBool::new(false),
            left: Mutex::new(None),
            readers: AtomicUsize::new(0),
            first_read: OnceLock::new(),
        })
    }

    /// Registers it as `hungry`.
    fn register_in(self: &Arc<Self>, scene: &Scene, is_infinite: bool) {
        let table = StreamingTable::try_new(self.schema.clone(), vec![self.clone()]).unwrap();
        let table = table.with_infinite_table(is_infinite);
        scene
            .context
            .register_table("hungry", Arc::new(table))
            .unwrap();
    }

    fn register(scene: &Scene, first: u64, second: u64, step: u64) -> Arc<Self> {
        let hungry = Self::new(first, second, step, false);
        hungry.register_in(scene, false);
        hungry
    }

    fn readers(&self) -> usize {
        self.readers.load(Ordering::SeqCst)
    }
}

impl PartitionStream for Hungry {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        #[allow(clippy::disallowed_methods, reason = "compared with SQL's `now()`")]
        let now = SystemTime::now;
        self.first_read.get_or_init(now);
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) as u64;
        let first = self.first + (readers * self.step).min(9 * MIB);
        let reservation = MemoryConsumer::new("Hungry").register(context.memory_pool());
        if readers == 0 && self.leaves.load(Ordering::SeqCst) {
            let left = MemoryConsumer::new("Left").register(context.memory_pool());
            left.try_grow(MIB as usize).unwrap();
            *self.left.lock().unwrap() = Some(left);
        }
        let schema = self.schema.clone();
        let sizes = futures::stream::iter([first, self.second]);
        let sizes = match self.is_endless {
            true => sizes.chain(futures::stream::pending()).boxed(),
            false => sizes.boxed(),
        };
        let batches = sizes.map(move |bytes| {
            reservation.try_grow(bytes as usize)?;
            let column = Arc::new(Int64Array::from(vec![bytes as i64]));
            Ok(RecordBatch::try_new(schema.clone(), vec![column])?)
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

/// Polls a future until it is ready, or until something happens, with the other tasks of the runtime.
async fn until<F: Future>(future: F, has_happened: impl Fn() -> bool) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    loop {
        if let Some(output) = (&mut future).now_or_never() {
            return Some(output);
        }
        if has_happened() {
            return None;
        }
        tokio::task::yield_now().await;
    }
}

fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_queries_of_one_tenant_all_end() {
    let scene = scene(4 * MIB);
    let tenant = scene.tenant();
    let queries = (0..6).map(|_| {
        let tenant = tenant.clone();
        tokio::spawn(async move { rows(&collect(&tenant, "SELECT * FROM t ORDER BY k").await) })
    });
    for query in queries.collect::<Vec<_>>() {
        assert_eq!(query.await.unwrap(), ROWS);
    }
    // It cannot spill, and takes more than the share of a query: some run again.
    let queries = (0..6).map(|_| {
        let tenant = tenant.clone();
        let join = "SELECT count(*) FROM (SELECT k, s FROM t WHERE k < 7500) a JOIN t b ON a.k = b.k AND a.s = b.s";
        tokio::spawn(async move { collect(&tenant, join).await })
    });
    for query in queries.collect::<Vec<_>>() {
        let batches = query.await.unwrap();
        let count = batches[0]
            .column(0)
            .as_any()
            .downcast_ref::<Int64Array>()
            .unwrap();
        assert_eq!(count.value(0), 7_500);
    }
    scene.assert_all_is_given_back().await;
}

#[test]
fn queries_with_grants_of_different_sizes_each_have_their_own_share() {
    let scene = scene(9 * MIB);
    let ask = |name: &str, bytes| Ask::new(&scene.group, name).least(bytes, 0).wanted(bytes);
    let small = scene.arbiter.try_admit(ask("small", MIB)).unwrap();
    let large = scene.arbiter.try_admit(ask("large", 8 * MIB)).unwrap();
    let spiller = |grant: &Grant| {
        let share = FairShare::new(grant.group());
        let builder = GroupPool::builder(grant.group().clone());
        let pool: Arc<dyn MemoryPool> = builder.share(&share).grant(grant).build();
        let consumer = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true);
        consumer.register(&pool)
    };
    let (of_small, of_large) = (spiller(&small), spiller(&large));
    assert!(of_small.try_grow((MIB / 2) as usize).is_ok());
    assert!(of_large.try_grow((4 * MIB) as usize).is_ok());
    assert!(of_small.try_grow(MIB as usize).is_err());
    assert!(of_large.try_grow((3 * MIB) as usize).is_ok());
    assert!(of_small.try_grow((MIB / 4) as usize).is_ok());
    assert_eq!((small.bytes(), large.bytes()), (MIB, 8 * MIB));
}

#[test]
fn a_grant_grows_before_a_spill_unless_somebody_waits() {
    let scene = scene(MAX);
    let grant = Ask::new(&scene.group, "q").least(MIB, 0).wanted(MIB);
    let grant = scene.arbiter.try_admit(grant).unwrap();
    let share = FairShare::new(grant.group());
    let builder = GroupPool::builder(grant.group().clone());
    let pool: Arc<dyn MemoryPool> = builder.share(&share).grant(&grant).build();
    let spiller = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true);
    let spiller = spiller.register(&pool);
    let other = MemoryConsumer::new("HashJoinInput").register(&pool);
    spiller.try_grow((2 * MIB) as usize).unwrap();
    other.try_grow((2 * MIB) as usize).unwrap();
    assert!(grant.bytes() >= 4 * MIB);
    let crowd = scene.crowd();
    let before = grant.bytes();
    assert!(spiller.try_grow((4 * MIB) as usize).is_err());
    assert_eq!(grant.bytes(), before);
    // It cannot spill, so a refusal would end its query.
    other.try_grow((4 * MIB) as usize).unwrap();
    assert!(grant.bytes() > before);
    drop(crowd);
    spiller.try_grow((2 * MIB) as usize).unwrap();
}

#[tokio::test]
async fn a_stream_that_is_dropped_half_way_gives_all_back() {
    let scene = scene(MAX);
    let tenant = scene.tenant();
    let mut stream = tenant
        .sql(None, "SELECT * FROM t ORDER BY k")
        .await
        .unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    assert_eq!(scene.arbiter.admissions().grants.len(), 1);
    assert!(stream.report().unwrap().peak > 0);
    drop(stream);
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_query_that_is_cancelled_in_the_queue_leaves_it() {
    let scene = scene(MAX);
    let tenant = scene.tenant();
    let all = scene
        .arbiter
        .try_admit(Ask::new(&scene.group, "all").alone())
        .unwrap();
    let mut waits = Box::pin(tenant.sql(None, "SELECT * FROM t"));
    assert!((&mut waits).now_or_never().is_none());
    assert_eq!(scene.arbiter.admissions().waiting.len(), 1);
    drop(waits);
    assert!(scene.arbiter.admissions().waiting.is_empty());
    drop(all);
    assert_eq!(rows(&collect(&tenant, "SELECT * FROM t").await), ROWS);
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_tenant_that_is_removed_ends_its_queue() {
    let scene = scene(MAX);
    let tenant = scene.tenant();
    let charge = scene.group.try_charge(MAX).unwrap();
    let mut waits = Box::pin(tenant.sql(None, "SELECT * FROM t"));
    assert!((&mut waits).now_or_never().is_none());
    scene.group.remove().unwrap();
    scene.arbiter.tick();
    let error = waits.await.unwrap_err();
    assert!(
        matches!(
            error,
            TenantEngineError::NotAdmitted(AdmitError::Removed { .. })
        ),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "the query was not admitted: the group /t was removed"
    );
    drop(charge);
}

#[tokio::test]
async fn a_function_that_panics_gives_all_back() {
    let scene = scene(MAX);
    let panics = |_: &[ColumnarValue]| -> Result<ColumnarValue> { panic!("on purpose") };
    let types = vec![DataType::Int64];
    let function = create_udf(
        "panics",
        types,
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(panics),
    );
    scene.context.register_udf(function);
    let tenant = scene.tenant();
    for sql in [
        "SELECT panics(k) FROM t",
        "SELECT panics(k) FROM t ORDER BY s",
    ] {
        let stream = tenant.sql(None, sql).await.unwrap();
        let outcome = AssertUnwindSafe(stream.collect()).catch_unwind().await;
        assert!(!matches!(outcome, Ok(Ok(_))), "{sql}");
    }
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_refused_query_runs_again() {
    let scene = scene(MAX);
    Hungry::register(&scene, FOR_A_SECOND_TRY, MIB, 0);
    let engine = scene.builder().repeat(Repeat::Always).build();
    let tenant = engine.tenant("t").unwrap();
    let (crowd, rest) = (scene.crowd(), scene.rest());
    let mut stream = tenant.sql(None, "SELECT * FROM hungry").await.unwrap();
    assert_eq!(
        (stream.admitted().tries, stream.admitted().bytes),
        (1, SHARE)
    );
    let first = scene.refused_for(rest, stream.next()).await;
    let mut found = first.unwrap().unwrap().num_rows();
    while let Some(batch) = stream.next().await {
        found += batch.unwrap().num_rows();
    }
    let admitted = stream.admitted();
    assert_eq!((found, admitted.tries), (2, 2));
    assert!(admitted.bytes >= 2 * SHARE, "{admitted:?}");
    drop((stream, crowd));
    let tries: Vec<u32> = scene
        .history
        .finished()
        .iter()
        .map(|query| query.tries)
        .collect();
    assert_eq!(tries, [1, 2]);
    scene.assert_all_is_given_back().await;
}

/// DataFusion 55.2 loses or repeats rows without a partner when such a join spills.
#[tokio::test]
async fn outer_joins_by_other_conditions_have_all_rows_or_fail() {
    for (join, expected) in [("FULL", 6000), ("LEFT", 5000), ("RIGHT", 1000)] {
        let sql = format!(
            "SELECT a.value FROM generate_series(1, 5000) AS a {join} JOIN generate_series(1, 1000) AS b ON a.value + b.value < 0"
        );
        for max in [4 << 10, MAX] {
            let scene = scene(max);
            let engine = scene.builder().repeat(Repeat::Always).build();
            let tenant = engine.tenant("t").unwrap();
            let outcome = match tenant.sql(None, &sql).await {
                Ok(stream) => stream.collect().await,
                Err(error) => panic!("{join}, {max}: {error}"),
            };
            match outcome {
                Ok(batches) => assert_eq!(rows(&batches), expected, "{join}, {max}"),
                Err(error) => {
                    let text = RefusalText::of(&error).unwrap();
                    assert!(
                        max < MAX && text.message.contains("for NestedLoopJoinLoad"),
                        "{join}: {text:?}"
                    );
                }
            }
            let tries = scene.history.finished();
            let refused: u64 = tries.iter().map(|query| query.refused).sum();
            assert_eq!(refused > 0, max < MAX, "{join}, {max}");
            scene.assert_all_is_given_back().await;
        }
    }
}

#[tokio::test]
async fn the_last_try_is_alone() {
    let scene = scene(MAX);
    // It is granted 4, 12 and 16 MiB, and reserves 5, 13 and 14.
    let hungry = Hungry::register(&scene, SHARE + MIB, MIB, 8 * MIB);
    let engine = scene.builder().repeat(Repeat::Always).build();
    let tenant = engine.tenant("t").unwrap();
    let ((other, waits), rest) = (scene.crowd(), scene.rest());
    let mut stream = tenant.sql(None, "SELECT * FROM hungry").await.unwrap();
    {
        let mut next = Box::pin(stream.next());
        let tries = || scene.history.finished().len();
        assert!(until(&mut next, || tries() == 1).await.is_none());
        drop(rest);
        assert!(until(&mut next, || tries() == 2).await.is_none());
        assert_eq!(hungry.readers(), 2);
        drop(waits);
        assert!((&mut next).now_or_never().is_none());
        drop(other);
        assert!(next.await.unwrap().is_ok());
    }
    let admitted = stream.admitted();
    assert_eq!(
        (admitted.tries, admitted.bytes, admitted.width),
        (3, MAX, 1)
    );
    let beside = Ask::new(&scene.group, "beside").least(1, 0);
    let mut beside = scene.arbiter.admit(beside);
    assert!((&mut beside).now_or_never().is_none());
    // It keeps its grant, even while others wait.
    scene.arbiter.tick();
    assert_eq!(scene.arbiter.admissions().grants[0].bytes, MAX);
    drop(beside);
    assert_eq!(rows(&stream.collect().await.unwrap()), 1);
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_shape_that_needs_more_than_there_can_be_is_not_tried_in_vain() {
    let scene = scene(MAX);
    let hungry = Hungry::register(&scene, MAX + MIB, 0, 0);
    let engine = scene.builder().repeat(Repeat::Always).build();
    let tenant = engine.tenant("t").unwrap();
    // The first one turns out to need too much, and runs once more, alone. The second one is alone at once.
    for readers in [2, 3] {
        let stream = tenant.sql(None, "SELECT * FROM hungry").await.unwrap();
        assert!(is_exhausted(&stream.collect().await.unwrap_err()));
        assert_eq!(hungry.readers(), readers);
    }
    scene.assert_all_is_given_back().await;
}

/// Its table keeps them, as a cache may do.
#[tokio::test]
async fn a_try_waits_for_bytes_that_the_one_before_left_as_long_as_for_any() {
    for is_patient in [true, false] {
        let scene = scene(MAX);
        let hungry = Hungry::register(&scene, MAX, MIB, 0);
        hungry.leaves.store(true, Ordering::SeqCst);
        let mut builder = scene.builder().repeat(Repeat::Always);
        if !is_patient {
            builder = builder.patience(Duration::from_nanos(1));
        }
        let tenant = builder.build().tenant("t").unwrap();
        let stream = tenant.sql(None, "SELECT * FROM hungry").await.unwrap();
        let mut rows = Box::pin(stream.collect());
        assert!((&mut rows).now_or_never().is_none());
        scene.arbiter.tick();
        if is_patient {
            assert!((&mut rows).now_or_never().is_none());
            drop(hungry.left.lock().unwrap().take());
        }
        let error = rows.await.unwrap_err();
        assert!(is_exhausted(&error), "{error}");
        assert_eq!(hungry.readers(), if is_patient { 2 } else { 1 }, "{error}");
        drop(hungry.left.lock().unwrap().take());
        scene.assert_all_is_given_back().await;
    }
}

#[tokio::test]
async fn the_last_try_waits_for_all_that_there_can_be() {
    let scene = scene(MAX);
    let hungry = Hungry::register(&scene, MAX + MIB, 0, 0);
    let engine = scene.builder().repeat(Repeat::Always).build();
    let tenant = engine.tenant("t").unwrap();
    let sql = "SELECT * FROM hungry";
    let first = tenant.sql(None, sql).await.unwrap();
    assert!(is_exhausted(&first.collect().await.unwrap_err()));
    // Bytes that are in the way, but not in the tenant.
    scene.memory.set_max(MAX);
    let beside = scene.memory.root().child("beside", Limits::none()).unwrap();
    let held = Ask::new(&beside, "held").least(8 * MIB, 0);
    let held = scene.arbiter.try_admit(held).unwrap();
    let mut second = Box::pin(tenant.sql(None, sql));
    assert!((&mut second).now_or_never().is_none());
    drop(held);
    assert_eq!(second.await.unwrap().admitted().bytes, MAX);
    assert_eq!(hungry.readers(), 3);
    scene.assert_all_is_given_back().await;
}

/// A join of twice as many rows as `t` has. Its build side alone takes half of the tenant's memory.
const JOIN: &str = "WITH u AS (SELECT k, s FROM t UNION ALL SELECT k + 100000, s FROM t)
    SELECT a.k, b.s FROM u a JOIN u b ON a.k = b.k AND a.s = b.s";
const JOINED: i64 = 2 * ROWS;

/// A join that waits for memory which another grant has.
async fn waiting_join(scene: &Scene) -> (TenantStream, Grant) {
    let rest = Ask::new(&scene.group, "rest").least(MAX - SHARE, 0);
    let rest = scene.arbiter.try_admit(rest).unwrap();
    let mut stream = scene.tenant().sql(None, JOIN).await.unwrap();
    let waits = || scene.arbiter.counts().growth_waits > 0;
    assert!(until(stream.next(), waits).await.is_none());
    (stream, rest)
}

async fn count(stream: &mut TenantStream) -> i64 {
    let mut found = 0;
    while let Some(batch) = stream.next().await {
        found += batch.unwrap().num_rows() as i64;
    }
    found
}

#[tokio::test]
async fn a_query_waits_at_its_sources_for_memory_that_others_have() {
    let scene = scene(MAX);
    let (mut stream, rest) = waiting_join(&scene).await;
    // It has no more than there is, and goes on when the other ends.
    assert!(scene.group.reserved() <= SHARE);
    assert!(scene.history.finished().is_empty());
    drop(rest);
    let found = count(&mut stream).await;
    assert_eq!((found, stream.admitted().tries), (JOINED, 1));
    drop(stream);
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_query_that_waits_at_its_sources_can_be_cancelled() {
    let scene = scene(MAX);
    drop(waiting_join(&scene).await);
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_query_that_never_ends_is_not_stopped_for_others() {
    for (is_infinite, stopped) in [(true, 0), (false, 1)] {
        let mut scene = scene(MAX);
        let mut policy = Policy::default();
        policy.yielding.stop_after = Duration::ZERO;
        scene.arbiter = Arbiter::new(&scene.memory, policy);
        let hungry = Hungry::new(MAX - SHARE, 0, 0, true);
        hungry.register_in(&scene, is_infinite);
        let engine = scene.builder().repeat(Repeat::Always).build();
        let tenant = engine.tenant("t").unwrap();
        let sql = "SELECT * FROM hungry WHERE n < 0";
        let mut endless = tenant.sql(None, sql).await.unwrap();
        let has_all = || scene.group.reserved() >= MAX - SHARE;
        assert!(until(endless.next(), has_all).await.is_none());
        // It comes first in the order.
        let mut join = tenant.score(9).sql(None, JOIN).await.unwrap();
        let waits = || scene.arbiter.counts().growth_waits > 0;
        assert!(until(join.next(), waits).await.is_none());
        scene.arbiter.tick();
        assert_eq!(scene.arbiter.counts().stopped, stopped);
    }
}

/// A query works on its first row while its client waits for it. It is idle only until the client asks.
#[tokio::test]
async fn a_query_that_works_on_its_first_row_is_not_idle() {
    let mut scene = scene(MAX);
    let mut policy = Policy::default();
    policy.idle_after = Duration::ZERO;
    scene.arbiter = Arbiter::new(&scene.memory, policy);
    let hungry = Hungry::new(MIB, 0, 0, true);
    hungry.register_in(&scene, true);
    let sql = "SELECT * FROM hungry WHERE n < 0";
    let mut stream = scene.tenant().sql(None, sql).await.unwrap();
    let works = || scene.group.reserved() >= MIB;
    assert!(until(stream.next(), works).await.is_none());
    let bytes = || scene.arbiter.admissions().grants[0].bytes;
    let granted = bytes();
    let waits = Ask::new(&scene.group, "waits").least(MAX, 0);
    let mut waits = scene.arbiter.admit(waits);
    assert!((&mut waits).now_or_never().is_none());
    scene.arbiter.tick();
    assert_eq!(bytes(), granted);
}

#[tokio::test]
async fn of_two_queries_that_wait_for_each_other_one_is_stopped_and_runs_again() {
    let scene = scene(MAX);
    // Both are half done when the memory is used up. Each holds what the other needs.
    let tenants = [0, 1].map(|score| scene.tenant().score(score));
    let mut queries = Vec::new();
    for tenant in &tenants {
        queries.push(tenant.sql(None, JOIN).await.unwrap());
    }
    let ends = queries.into_iter().map(|mut query| async move {
        let found = count(&mut query).await;
        (found, query.admitted().tries)
    });
    let ends = futures::future::join_all(ends).await;
    assert_eq!(ends, [(JOINED, 2), (JOINED, 1)]);
    let counts = scene.arbiter.counts();
    assert_eq!((counts.stopped, counts.growth_refused), (1, 0));
    let context = SessionContext::new();
    let view = View::new(&scene.memory).arbiter(&scene.arbiter);
    view.below("/t").register(&context);
    let sql = "SELECT decided, path, needed_by, limited, seen > 0 AS gave FROM bursar_decisions()";
    let shown = context.sql(sql).await.unwrap().to_string().await.unwrap();
    let [decision] = &scene.arbiter.decisions()[..] else {
        panic!("{shown}");
    };
    let (query, needed_by) = (&decision.query, &decision.needed_by);
    let row = format!("| stop | {query} | {needed_by} | /t | true |");
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(&row), "{shown}");
    scene.assert_all_is_given_back().await;
}

/// A source of rows that waits for permission before all but the first of so many parts.
#[derive(Debug)]
struct Parts {
    batches: Vec<RecordBatch>,
    is_first_read: Arc<AtomicBool>,
    may_go_on: Arc<Semaphore>,
}

impl PartitionStream for Parts {
    fn schema(&self) -> &SchemaRef {
        self.batches[0].schema_ref()
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (first, second) = self.batches.split_at(self.batches.len() / PARTS);
        let (second, may_go_on) = (second.to_vec(), self.may_go_on.clone());
        let is_first_read = self.is_first_read.clone();
        let second = async move {
            is_first_read.store(true, Ordering::SeqCst);
            let _ = may_go_on.acquire().await.unwrap();
            futures::stream::iter(second)
        };
        let first = futures::stream::iter(first.to_vec());
        let batches = first.chain(futures::stream::once(second).flatten());
        let schema = self.schema().clone();
        Box::pin(RecordBatchStreamAdapter::new(schema, batches.map(Ok)))
    }
}

const PARTS: usize = 6;

#[tokio::test]
async fn a_sort_spills_for_a_query_that_waits() {
    let mut scene = scene(MAX);
    let mut policy = Policy::default();
    policy.yielding.ask_after = Duration::ZERO;
    policy.yielding.stop_after = Duration::MAX;
    scene.arbiter = Arbiter::new(&scene.memory, policy);
    let tenant = scene.tenant();
    let parts = Arc::new(Parts {
        batches: collect(&tenant, &["SELECT k, s FROM t"; PARTS].join(" UNION ALL ")).await,
        is_first_read: Arc::default(),
        may_go_on: Arc::new(Semaphore::new(0)),
    });
    let table = StreamingTable::try_new(parts.schema().clone(), vec![parts.clone()]).unwrap();
    scene
        .context
        .register_table("parts", Arc::new(table))
        .unwrap();
    let engine = scene.builder().repeat(Repeat::Always).build();
    let tenant = engine.tenant("t").unwrap();
    let sort = "SELECT k, s FROM parts ORDER BY s DESC";
    let mut sort = tenant.sql(None, sort).await.unwrap();
    let has_first = || parts.is_first_read.load(Ordering::SeqCst);
    assert!(until(sort.next(), has_first).await.is_none());
    // It comes first in the order.
    let mut join = tenant.score(9).sql(None, JOIN).await.unwrap();
    let waits = || scene.arbiter.counts().growth_waits > 0;
    assert!(until(join.next(), waits).await.is_none());
    assert_eq!(scene.arbiter.counts().asked, 1);
    parts.may_go_on.add_permits(1);
    let ends = tokio::join!(count(&mut sort), count(&mut join));
    assert_eq!(ends, (PARTS as i64 * ROWS, JOINED));
    assert_eq!(sort.admitted().tries, 1);
    let decisions = scene.arbiter.decisions();
    assert!(decisions[0].seen > Some(MIB), "{decisions:?}");
    assert_eq!(scene.arbiter.counts().stopped, 0);
    drop((sort, join));
    scene.assert_all_is_given_back().await;
}

/// More than a query has that grows only while nobody waits.
const FOR_A_SECOND_TRY: u64 = SHARE + MIB;
/// More than a query ever has beside the other grant of a crowd.
const TOO_MUCH: u64 = MAX - 3 * MIB;

/// Runs a statement that is refused at its first try.
async fn refused(repeat: Repeat, sql: &str, bytes: u64) -> (usize, Result<i64>) {
    let scene = scene(MAX);
    let hungry = Hungry::register(&scene, bytes, MIB, 0);
    let may_all = SQLOptions::new();
    let engine = scene.builder().repeat(repeat).allow(may_all).build();
    let tenant = engine.tenant("t").unwrap();
    let _crowd = scene.crowd();
    let rest = (repeat == Repeat::Always).then(|| scene.rest());
    let run = async {
        let stream = tenant.sql(None, sql).await;
        let stream = stream.map_err(|error| match error {
            TenantEngineError::DataFusion(error) => error,
            other => panic!("{sql}: {other}"),
        })?;
        Ok(rows(&stream.collect().await?))
    };
    let outcome = scene.refused_for(rest, run).await;
    (hungry.readers(), outcome)
}

#[tokio::test]
async fn a_source_that_can_be_read_once_is_read_once() {
    for repeat in [Repeat::Auto, Repeat::Never] {
        let (readers, outcome) = refused(repeat, "SELECT * FROM hungry", TOO_MUCH).await;
        assert_eq!(readers, 1);
        assert!(is_exhausted(&outcome.unwrap_err()));
    }
    let sql = "SELECT * FROM hungry";
    let (readers, outcome) = refused(Repeat::Always, sql, FOR_A_SECOND_TRY).await;
    assert_eq!((readers, outcome.unwrap()), (2, 2));
    // A query that cannot run again grows even while others wait.
    let (readers, outcome) = refused(Repeat::Auto, sql, FOR_A_SECOND_TRY).await;
    assert_eq!((readers, outcome.unwrap()), (1, 2));
}

#[tokio::test]
async fn statements_with_effects_run_once() {
    let file = std::env::temp_dir().join(format!("bursar-once-{}.csv", std::process::id()));
    let copy = format!(
        "COPY (SELECT * FROM hungry) TO '{}' STORED AS CSV",
        file.display()
    );
    for sql in [
        "EXPLAIN ANALYZE SELECT * FROM hungry",
        "INSERT INTO t SELECT n, 's' FROM hungry",
        "CREATE TABLE u AS SELECT * FROM hungry",
        &copy,
    ] {
        let (readers, outcome) = refused(Repeat::Always, sql, TOO_MUCH).await;
        assert_eq!(readers, 1, "{sql}");
        assert!(is_exhausted(&outcome.unwrap_err()), "{sql}");
    }
    let _ = std::fs::remove_file(file);
}

#[tokio::test]
async fn a_query_that_has_delivered_rows_fails_unless_they_are_held() {
    for hold in [0, 64 << 10] {
        let scene = scene(MAX);
        // Together half a MiB more than the tenant has beside the other grant.
        let hungry = Hungry::register(&scene, MIB, MAX - 4 * MIB - MIB / 2, 0);
        let builder = scene.builder().repeat(Repeat::Always).hold_first(hold);
        let tenant = builder.build().tenant("t").unwrap();
        let mut crowd = Some(scene.crowd());
        let mut stream = tenant.sql(None, "SELECT * FROM hungry").await.unwrap();
        let first = {
            let mut next = Box::pin(stream.next());
            match (&mut next).now_or_never() {
                Some(first) => first,
                // It waits for what it needs.
                None => {
                    crowd = None;
                    next.await
                }
            }
        };
        assert_eq!(first.unwrap().unwrap().num_rows(), 1);
        assert_eq!(crowd.is_none(), hold > 0);
        match (hold, stream.next().await.unwrap()) {
            (0, Err(error)) => assert!(is_exhausted(&error)),
            (1.., Ok(batch)) => assert_eq!(batch.num_rows(), 1),
            (_, other) => panic!("{other:?}"),
        }
        assert!(stream.next().await.is_none());
        assert_eq!(hungry.readers(), 1 + usize::from(hold > 0));
        drop((stream, crowd));
        scene.assert_all_is_given_back().await;
    }
}

#[tokio::test]
async fn a_query_that_has_delivered_rows_grows_before_others_are_admitted() {
    let scene = scene(MAX);
    let hungry = Hungry::register(&scene, MIB, SHARE, 0);
    let engine = scene.builder().repeat(Repeat::Always).build();
    let tenant = engine.tenant("t").unwrap();
    let _crowd = scene.crowd();
    assert_eq!(rows(&collect(&tenant, "SELECT * FROM hungry").await), 2);
    assert_eq!(hungry.readers(), 1);
}

#[tokio::test]
async fn now_keeps_its_value() {
    let scene = scene(MAX);
    let hungry = Hungry::register(&scene, SHARE + MIB, MIB, 0);
    let engine = scene.builder().repeat(Repeat::Always).build();
    let tenant = engine.tenant("t").unwrap();
    let (_crowd, rest) = (scene.crowd(), scene.rest());
    let stream = tenant.sql(None, "SELECT now() FROM hungry").await.unwrap();
    let batches = scene.refused_for(rest, stream.collect()).await.unwrap();
    assert_eq!(hungry.readers(), 2);
    let now = batches[0].column(0).as_any();
    let now = now
        .downcast_ref::<TimestampNanosecondArray>()
        .unwrap()
        .value(0);
    let first_read = hungry
        .first_read
        .get()
        .unwrap()
        .duration_since(SystemTime::UNIX_EPOCH);
    assert!(i128::from(now) <= first_read.unwrap().as_nanos() as i128);
}

#[tokio::test]
async fn volatile_functions_of_the_program_run_once() {
    for (volatility, tries) in [(Volatility::Volatile, 1), (Volatility::Immutable, 2)] {
        // The join never fits.
        let scene = scene(MAX / 4);
        let same = |arguments: &[ColumnarValue]| Ok(arguments[0].clone());
        let types = vec![DataType::Int64];
        // It takes the place of DataFusion's function.
        let function = create_udf("random", types, DataType::Int64, volatility, Arc::new(same));
        scene.context.register_udf(function);
        let tenant = scene.tenant();
        let join = "SELECT random(a.k), b.s FROM t a JOIN t b ON a.k = b.k AND a.s = b.s";
        let stream = tenant.sql(None, join).await.unwrap();
        assert!(is_exhausted(&stream.collect().await.unwrap_err()));
        // Its tasks end by themselves.
        let has_ended = || scene.history.finished().len() >= tries as usize;
        until(std::future::pending::<()>(), has_ended).await;
        assert_eq!(scene.history.finished().last().unwrap().tries, tries);
    }
}

const LOADS: [&str; 4] = [
    "SELECT * FROM t ORDER BY s",
    "SELECT s, count(*), max(k) FROM t GROUP BY s",
    "SELECT a.k, b.s FROM t a JOIN t b ON a.k = b.k AND a.s = b.s",
    "SELECT * FROM t WHERE k % 2 = 1 ORDER BY k DESC LIMIT 10000",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_estimates_fail_no_query() {
    let tiny = |bytes: u64| bytes / 100;
    let huge = |bytes: u64| bytes * 100;
    for estimate in [tiny, huge] {
        let scene = scene(MAX);
        let engine = scene.builder().estimate(estimate).build();
        let tenant = engine.tenant("t").unwrap();
        for _ in 0..2 {
            for sql in LOADS {
                assert!(rows(&collect(&tenant, sql).await) >= 10_000, "{sql}");
            }
        }
        let at_once = LOADS.iter().flat_map(|sql| [*sql, *sql]).map(|sql| {
            let tenant = tenant.clone();
            tokio::spawn(async move {
                let mut stream = tenant.sql(None, sql).await.unwrap();
                let mut delivered = 0;
                while let Some(batch) = stream.next().await {
                    match batch {
                        Ok(batch) => delivered += batch.num_rows() as i64,
                        // It cannot run again when the client has rows.
                        Err(error) => {
                            assert!(is_exhausted(&error) && delivered > 0, "{sql}: {error}");
                            return;
                        }
                    }
                }
                assert!(delivered >= 10_000, "{sql}");
            })
        });
        for query in at_once.collect::<Vec<_>>() {
            query.await.unwrap();
        }
        scene.assert_all_is_given_back().await;
    }
}

#[tokio::test]
async fn a_query_asks_for_what_its_shape_took() {
    let scene = scene(MAX);
    let of = |engine: TenantEngineBuilder| engine.build().tenant("t").unwrap();
    let (tenant, unlearned) = (of(scene.builder()), of(scene.builder().shapes_max(0)));
    let run = |tenant: &Tenant, sql: String| {
        let (tenant, history) = (tenant.clone(), scene.history.clone());
        async move {
            let stream = tenant.sql(None, &sql).await.unwrap();
            let bytes = stream.admitted().bytes;
            stream.collect().await.unwrap();
            (bytes, history.finished().last().unwrap().peak)
        }
    };
    let sql = |least: i64| {
        format!("SELECT a.k, b.s FROM t a JOIN t b ON a.k = b.k AND a.s = b.s WHERE a.k >= {least}")
    };
    let (first, peak) = run(&tenant, sql(0)).await;
    assert_eq!(first, SHARE);
    assert!(
        peak > SHARE * 9 / 8,
        "the load is too small for this test: {peak}"
    );
    // Another literal is the same shape.
    let (second, _) = run(&tenant, sql(1)).await;
    assert!(
        second >= peak && second <= peak * 5 / 4,
        "{second} for a peak of {peak}"
    );
    let (other, _) = run(&tenant, "SELECT k FROM t".to_owned()).await;
    assert_eq!(other, SHARE);
    for _ in 0..2 {
        assert_eq!(run(&unlearned, sql(0)).await.0, SHARE);
    }
}

/// A grant of what a shape took has no bytes to spare. A share would keep some for spillers that never ask for them.
#[tokio::test]
async fn a_query_of_a_known_shape_runs_in_what_it_took() {
    let scene = scene(MAX);
    let tenant = scene.tenant();
    let sql = "SELECT k, count(*), max(s) FROM t WHERE k < 2000 GROUP BY k ORDER BY k";
    collect(&tenant, sql).await;
    let took = scene.history.finished().pop().unwrap();
    let spillers = took.operators.iter().filter(|operator| operator.can_spill);
    assert!(spillers.count() >= 2 && took.refused == 0, "{took:?}");
    let _crowd = scene.crowd();
    let stream = tenant.sql(None, sql).await.unwrap();
    let granted = stream.admitted().bytes;
    assert!(granted >= took.peak && granted <= took.peak * 5 / 4);
    assert_eq!(rows(&stream.collect().await.unwrap()), 2_000);
    let again = scene.history.finished().pop().unwrap();
    assert_eq!((again.tries, again.refused), (1, 0), "{again:?}");
}

#[tokio::test]
async fn sql_shows_grants_waiters_and_refusals_to_those_who_may_see_them() {
    let scene = scene(MAX);
    let (_other, _waits) = scene.crowd();
    let stranger = scene.memory.root().child("tt", Limits::none()).unwrap();
    let ask = Ask::new(&stranger, "hidden").least(MIB, 0);
    let _hidden = scene.arbiter.try_admit(ask).unwrap();
    let tenant = scene.memory.root().find("t").unwrap();
    let never = Ask::new(&tenant, "never").least(2 * MAX, 0);
    scene.arbiter.try_admit(never).unwrap_err();
    let view = View::new(&scene.memory).arbiter(&scene.arbiter);
    let shown = |view: View, sql: &'static str| async move {
        let context = SessionContext::new();
        view.register(&context);
        let frame = context.sql(sql).await.unwrap();
        let text = frame.to_string().await.unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| /"));
        rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let sql = "SELECT path, state, bytes, charged, width, passed, is_kept_room, blocked_by FROM bursar_admissions()";
    let own = [
        "| /t/other | running | 4194304 | 0 | 1 | | | |",
        "| /t/waits | waiting | 15728640 | | | 0 | false | /t |",
        "| /t/never | refused | | | | | | |",
    ];
    assert_eq!(shown(view.clone().below("/t"), sql).await, own);
    let paths = shown(view.clone(), "SELECT path FROM bursar_admissions()").await;
    let all = [
        "| /t/other |",
        "| /tt/hidden |",
        "| /t/waits |",
        "| /t/never |",
    ];
    assert_eq!(paths, all);
    let why = "SELECT path, why LIKE 'the query needs at least%' FROM bursar_admissions() WHERE state = 'refused'";
    assert_eq!(shown(view, why).await, ["| /t/never | true |"]);
    let nobody = View::new(&scene.memory);
    assert_eq!(shown(nobody, sql).await, [""; 0]);
}

#[tokio::test]
async fn statements_are_checked_and_change_no_session_of_others() {
    let scene = scene(MAX);
    let tenant = scene.tenant();
    let forbidden =
        async |context: Option<&SessionContext>, sql: &str| match tenant.sql(context, sql).await {
            Err(TenantEngineError::Statement(TenantSqlError::Forbidden { what })) => what,
            other => panic!("{sql}: {other:?}"),
        };
    forbidden(None, "SET datafusion.runtime.memory_limit = '64G'").await;
    forbidden(None, "SET datafusion.execution.time_zone = '+01:00'").await;
    forbidden(None, "CREATE TABLE u AS SELECT 1").await;
    let own = SessionContext::new_with_state(scene.context.state());
    assert_eq!(
        forbidden(Some(&own), "PREPARE p AS SELECT 1").await,
        "PREPARE"
    );
    let zone = |context: &SessionContext| {
        context
            .copied_config()
            .options()
            .execution
            .time_zone
            .clone()
    };
    let set = || tenant.sql(Some(&own), "SET datafusion.execution.time_zone = '+01:00'");
    let all = Ask::new(&scene.group, "all").least(MAX, 0);
    let all = scene.arbiter.try_admit(all).unwrap();
    // It waits, and its client gives up.
    assert!(
        until(set(), || !scene.arbiter.admissions().waiting.is_empty())
            .await
            .is_none()
    );
    assert_eq!(zone(&own), zone(&scene.context));
    drop(all);
    assert!(set().await.unwrap().collect().await.unwrap().is_empty());
    assert_ne!(zone(&own), zone(&scene.context));
    let Err(error) = scene.builder().build().tenant("../t") else {
        panic!("there is none");
    };
    assert!(
        error
            .to_string()
            .starts_with("there is no group for the tenant ../t: make it")
    );
}

#[tokio::test]
async fn a_prepared_statement_runs_with_parameters_and_is_paid_for() {
    let scene = scene(MAX);
    let tenant = scene.tenant();
    let usage = || scene.group.read(Freshness::Exact).unwrap().usage_bytes();
    let text = "SELECT k, $2 AS said FROM t WHERE k < $1 ORDER BY k";
    let prepared = tenant.prepare(None, text).await.unwrap();
    assert_eq!(prepared.parameters(), [Some(DataType::Int64), None]);
    assert_eq!(prepared.schema().fields().len(), 2);
    // A node and its expressions, for each of a scan, a filter, a projection and a sort.
    assert!((4 * 512..64 << 10).contains(&usage()), "{}", usage());
    let values = |below| {
        let said = ScalarValue::from("so");
        ParamValues::from(vec![ScalarValue::Int64(Some(below)), said])
    };
    for below in [3, 5] {
        let stream = tenant.execute(None, &prepared, values(below)).await;
        assert_eq!(rows(&stream.unwrap().collect().await.unwrap()), below);
    }
    let too_few = ParamValues::from(vec![ScalarValue::Int64(Some(3))]);
    tenant.execute(None, &prepared, too_few).await.unwrap_err();
    // Its rows are those of a query without parameters, so it has the same shape.
    drop(prepared);
    assert_eq!(usage(), 0);
    for sql in [
        "SET datafusion.execution.time_zone = '+01:00'",
        "PREPARE p AS SELECT 1",
        "CREATE TABLE u AS SELECT 1",
    ] {
        let error = tenant.prepare(None, sql).await.unwrap_err();
        let is_forbidden = matches!(
            error,
            TenantEngineError::Statement(TenantSqlError::Forbidden { .. })
        );
        assert!(is_forbidden, "{sql}: {error}");
    }
    for sql in ["SELECT $0", "SELECT $name", "SELECT $70000"] {
        let error = tenant.prepare(None, sql).await.unwrap_err().to_string();
        assert!(
            error.contains("$1 to $65535") || error.contains("laceholder"),
            "{sql}: {error}"
        );
    }
    scene.group.set_max(1000);
    let Err(TenantEngineError::DataFusion(error)) = tenant.prepare(None, text).await else {
        panic!("there is no memory for it");
    };
    let refusal = RefusalText::of(&error).unwrap();
    assert!(
        refusal
            .message
            .starts_with("cannot reserve the plan of a prepared statement: "),
        "{refusal:?}"
    );
    scene.assert_all_is_given_back().await;
}

/// Each reference gets a copy of the value before anything is charged.
#[tokio::test]
async fn a_parameter_is_not_copied_without_bound() {
    let scene = scene(MAX);
    let tenant = scene.tenant();
    for (references, is_refused) in [(1, false), (10, false), (2_000, true)] {
        let list = vec!["$1"; references].join(",");
        let text = format!("SELECT k FROM t WHERE 'a' IN ({list})");
        let prepared = tenant.prepare(None, &text).await.unwrap();
        let long = ScalarValue::from("b".repeat(100_000));
        let ran = tenant.execute(None, &prepared, ParamValues::from(vec![long]));
        let is_too_large = matches!(
            ran.await,
            Err(TenantEngineError::Statement(
                TenantSqlError::ValueTooLarge { .. }
            ))
        );
        assert_eq!(is_too_large, is_refused, "{references}");
    }
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_refused_plan_shows_a_tenant_nothing_of_others() {
    let scene = scene(MAX);
    let other = scene.memory.root().child("other", Limits::none()).unwrap();
    let held = other.charge(MIB);
    scene.memory.root().set_max(MIB);
    let prepared = scene.tenant().prepare(None, "SELECT k FROM t").await;
    let Err(TenantEngineError::DataFusion(error)) = prepared else {
        panic!("there is no memory for it");
    };
    let refusal = RefusalText::of(&error).unwrap();
    assert!(refusal.detail.contains("The tree around /:"), "{refusal:?}");
    assert!(refusal.detail.contains("other"), "{refusal:?}");
    let seen = refusal.within("/t");
    assert!(!format!("{seen:?}").contains("other"), "{seen:?}");
    assert_eq!(
        seen.hint,
        "Raise the limit of /, or prepare fewer statements at a time"
    );
    drop(held);
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn values_of_an_engine_have_a_bound() {
    let scene = scene(MAX);
    let engine = scene.builder().value_bytes_max(100).build();
    let tenant = engine.tenant("t").unwrap();
    let own = SessionContext::new();
    own.sql("PREPARE p AS SELECT repeat('x', $1)")
        .await
        .unwrap();
    let prepared = tenant
        .prepare(None, "SELECT repeat('x', $1)")
        .await
        .unwrap();
    let length = |length| ParamValues::from(vec![ScalarValue::Int64(Some(length))]);
    let rows_of = async |stream: std::result::Result<TenantStream, _>| {
        rows(&stream.unwrap().collect().await.unwrap())
    };
    let stream = tenant.sql(None, "SELECT repeat('x', 100)").await;
    assert_eq!(rows_of(stream).await, 1);
    let stream = tenant.sql(Some(&own), "EXECUTE p(100)").await;
    assert_eq!(rows_of(stream).await, 1);
    let stream = tenant.execute(None, &prepared, length(100)).await;
    assert_eq!(rows_of(stream).await, 1);
    for refused in [
        tenant.sql(None, "SELECT repeat('x', 101)").await,
        tenant.sql(Some(&own), "EXECUTE p(101)").await,
        tenant.execute(None, &prepared, length(101)).await,
    ] {
        let is_too_large = matches!(
            refused,
            Err(TenantEngineError::Statement(
                TenantSqlError::ValueTooLarge {
                    bytes: 101,
                    max: 100,
                    ..
                }
            ))
        );
        assert!(is_too_large, "{refused:?}");
    }
    drop(prepared);
    scene.assert_all_is_given_back().await;
}
