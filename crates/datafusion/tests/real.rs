//! Bytes that queries really take, by the program's allocator, beside those that they reserve.
#![cfg(feature = "real-bytes")]

use std::alloc::System;
use std::any::Any;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bursar::{Bytes, Freshness, Group, Limits, Memory};
use bursar_alloc::{Charged, GroupExt, current};
use bursar_arbiter::{Arbiter, Policy};
use bursar_datafusion::{
    FollowQuery, GroupPool, History, InstallError, RealBytes, RefusalText, TenantEngine, View,
};
use bursar_tpch::{Query, Tables, named, run};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::runtime::{JoinSetTracer, SpawnedTask};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

static REAL: LazyLock<RealBytes> = LazyLock::new(|| RealBytes::install().unwrap());

const MIB: u64 = 1 << 20;
const SCALE: f64 = 0.1;

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables::generate(SCALE, 1, |_| ()).unwrap());
static MEMORY: LazyLock<Memory> = LazyLock::new(|| Memory::builder().build().unwrap());

/// Bytes that stay for the process: caches of threads, tables of statics.
const KEPT_MAX: u64 = MIB / 2;

fn group(name: &str, max: u64) -> Group {
    MEMORY.root().child(name, Limits::max(max)).unwrap()
}

fn session(pool: &Arc<GroupPool>) -> SessionContext {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone());
    let config = SessionConfig::new().with_target_partitions(2);
    let session = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    TABLES.register(&session).unwrap();
    session
}

fn sql(query: &str) -> String {
    Query::sql(&named(query).unwrap(), SCALE)
}

fn usage(group: &Group) -> i64 {
    group.read(Freshness::Exact).unwrap().usage().value
}

fn pool(group: &Group) -> Arc<GroupPool> {
    let pool = GroupPool::builder(group.clone()).real_bytes(&REAL).unwrap();
    pool.build()
}

fn held(pool: &GroupPool) -> u64 {
    pool.report().real.unwrap().held
}

/// Waits until tasks that end by themselves have let go.
async fn settles(is_settled: impl Fn() -> bool) {
    while !is_settled() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_has_reserved_and_held() {
    // It has a group for each order. A sort would hold little: it reserves twice the bytes of the tables' own batches.
    let pool = pool(&group("report", u64::MAX));
    let session = session(&pool);
    let sql = sql("lines_per_order");
    let run = async { run(&session, &sql, drop).await.map(drop) };
    pool.in_query(run).await.unwrap();
    let report = pool.report();
    let real = report.real.unwrap();
    assert!(report.peak > 16 * MIB, "{report}");
    // About what it reserved.
    let ratio = real.peak as f64 / report.peak as f64;
    assert!((0.5..2.0).contains(&ratio), "{ratio}: {report}");
    assert!(
        report.to_string().contains(&format!(", really {real}")),
        "{report}"
    );
    drop(session);
    settles(|| held(&pool) < KEPT_MAX).await;
    assert_eq!(usage(pool.group()), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_and_blocking_closures_are_in_the_query_that_spawned_them() {
    let pool = pool(&group("spawned", u64::MAX));
    let big = || vec![7_u8; 8 << 20];
    let [one, two] = pool
        .in_query(async move {
            let task = SpawnedTask::spawn(async move {
                // One more level down.
                SpawnedTask::spawn_blocking(big).join().await.unwrap()
            });
            let block = SpawnedTask::spawn_blocking(big);
            [task.join().await.unwrap(), block.join().await.unwrap()]
        })
        .await;
    assert!(held(&pool) >= 16 << 20);
    drop(one);
    assert!((8 << 20..16 << 20).contains(&held(&pool)));
    drop(two);
    settles(|| held(&pool) < KEPT_MAX).await;
    // Tasks of nobody stay so.
    let free = SpawnedTask::spawn(async { (current(), vec![7_u8; 8 << 20]) })
        .join()
        .await
        .unwrap();
    assert!(free.0.is_none() && held(&pool) < KEPT_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_dropped_at_any_moment_leaves_nothing() {
    for batches in 0..6 {
        let pool = pool(&group(&format!("dropped-{batches}"), u64::MAX));
        let session = session(&pool);
        let sql = sql("q18");
        let plan = pool
            .in_query(async { session.sql(&sql).await?.create_physical_plan().await })
            .await
            .unwrap();
        let make = || execute_stream(plan.clone(), session.task_ctx());
        let mut stream = pool.stream_in_query(make).unwrap();
        assert_eq!(stream.schema(), plan.schema());
        for _ in 0..batches {
            // Not all queries have so many batches; then it is at its end.
            tokio::select! {
                _ = stream.next() => {}
                () = tokio::task::yield_now() => {}
            }
        }
        drop((stream, plan, session));
        settles(|| usage(pool.group()) == 0 && held(&pool) < KEPT_MAX).await;
        let path = pool.group().path();
        drop(pool);
        let left = REAL
            .memory()
            .leftovers()
            .into_iter()
            .filter(|left| left.path.starts_with(&path));
        assert!(left.map(|left| left.bytes).sum::<u64>() < KEPT_MAX);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_in_its_query() {
    let pool = pool(&group("streamed", u64::MAX));
    let session = session(&pool);
    // Planned outside: all that is counted comes from the stream.
    let plan = session.sql(&sql("q18")).await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let make = || execute_stream(plan, session.task_ctx());
    let stream = pool.stream_in_query(make).unwrap();
    let batches: Vec<_> = stream.map(Result::unwrap).collect().await;
    assert!(!batches.is_empty());
    let report = pool.report();
    assert!(report.real.unwrap().peak > report.peak / 2, "{report}");
}

#[test]
fn real_bytes_above_a_limit_refuse_requests() {
    let tenant = group("gate", 8 * MIB);
    let query = tenant.child("query", Limits::none()).unwrap();
    let builder = GroupPool::builder(query.clone()).never_refuse(["RepartitionExec"]);
    let pool = builder
        .real_bytes(&REAL)
        .unwrap()
        .refuse_by_real_bytes()
        .build();
    let shared: Arc<dyn MemoryPool> = pool.clone();
    let [sort, join, repartition] =
        ["ExternalSorter", "HashJoinInput", "RepartitionExec"].map(|name| {
            let consumer = MemoryConsumer::new(name).with_can_spill(name == "ExternalSorter");
            consumer.register(&shared)
        });
    sort.try_grow(4096).unwrap();
    // The query reserves 4 KiB, and takes 10 MiB: too much for the tenant.
    let taken = pool.real_group().unwrap().scope(|| vec![7_u8; 10 << 20]);
    for consumer in [&sort, &join] {
        let error = consumer.try_grow(1).unwrap_err().to_string();
        let said = "the heap holds 10.";
        assert!(
            error.contains(said) && error.contains(" for /gate, whose limit is 8.00 MiB"),
            "{error}"
        );
    }
    repartition.try_grow(1).unwrap();
    tenant.set_max(64 * MIB);
    join.try_grow(1).unwrap();
    tenant.set_max(8 * MIB);
    sort.try_grow(1).unwrap_err();
    drop(taken);
    sort.try_grow(1).unwrap();
    assert_eq!(pool.report().refused, 3);
    // Without the gate they are only shown.
    let open = self::pool(&query);
    let taken = open.real_group().unwrap().scope(|| vec![7_u8; 10 << 20]);
    let shared: Arc<dyn MemoryPool> = open.clone();
    MemoryConsumer::new("Sort")
        .register(&shared)
        .try_grow(1)
        .unwrap();
    drop(taken);
}

#[test]
fn bytes_above_a_limit_are_reported_and_counted() {
    let tenant = group("above", 8 * MIB);
    let query = tenant.child("query", Limits::none()).unwrap();
    let history = History::new(1);
    let pool = || {
        let builder = GroupPool::builder(query.clone()).history(&history);
        builder.real_bytes(&REAL).unwrap().build()
    };
    let much = pool();
    assert_eq!(much.real_above_limit(), 0);
    // Nothing is reserved, and nothing is held any more.
    drop(much.real_group().unwrap().scope(|| vec![7_u8; 10 << 20]));
    let report = much.report();
    let above = report.real.unwrap().above_limit;
    assert!((2 * MIB..3 * MIB).contains(&above), "{report}");
    assert_eq!(much.real_above_limit(), above);
    let text = format!(", held {} above its limit", Bytes(above));
    assert!(report.to_string().contains(&text), "{report}");
    tenant.set_max(16 * MIB);
    assert_eq!(much.real_above_limit(), 0);
    assert!(!much.report().to_string().contains("above its limit"));
    tenant.set_max(8 * MIB);
    drop(much);
    assert_eq!(history.finished()[0].real.unwrap().above_limit, above);
    // The group in the twin tree begins anew. The count stays when the report is gone.
    drop(pool());
    assert_eq!(history.finished()[0].real.unwrap().above_limit, 0);
    assert_eq!(history.above_limit(), 1);
    assert_eq!(usage(&query), 0);
}

#[test]
fn a_process_has_one_tracer() {
    LazyLock::force(&REAL);
    let again = RealBytes::install().map(drop);
    assert_eq!(again, Err(InstallError::TracerInstalled));
    let text = again.unwrap_err().to_string();
    assert!(text.contains("FollowQuery::around"), "{text}");
}

type Erased = Box<dyn Any + Send>;
type Boxed = Pin<Box<dyn Future<Output = Erased> + Send>>;

/// A tracer of somebody else's, which counts.
#[derive(Default)]
struct Counting(AtomicUsize);

impl JoinSetTracer for Counting {
    fn trace_future(&self, future: Boxed) -> Boxed {
        self.0.fetch_add(1, Ordering::Relaxed);
        future
    }
    fn trace_block(
        &self,
        block: Box<dyn FnOnce() -> Erased + Send>,
    ) -> Box<dyn FnOnce() -> Erased + Send> {
        self.0.fetch_add(1, Ordering::Relaxed);
        block
    }
}

#[tokio::test]
async fn another_tracer_goes_on() {
    let counting: &'static Counting = Box::leak(Box::default());
    let both = FollowQuery::around(counting);
    let query = group("traced", u64::MAX);
    let (future, block) = query.scope(|| {
        let future = both.trace_future(Box::pin(async { Box::new(current()) as Erased }));
        (
            future,
            both.trace_block(Box::new(|| Box::new(current()) as Erased)),
        )
    });
    let of = |erased: Erased| erased.downcast::<Option<Group>>().unwrap();
    assert_eq!(*of(future.await), Some(query.clone()));
    assert_eq!(*of(block()), Some(query));
    assert_eq!(counting.0.load(Ordering::Relaxed), 2);
}

/// A source that takes memory and then reserves one byte.
#[derive(Debug)]
struct Hoarder {
    row: RecordBatch,
    takes: usize,
}

impl PartitionStream for Hoarder {
    fn schema(&self) -> &SchemaRef {
        self.row.schema_ref()
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (row, takes) = (self.row.clone(), self.takes);
        let consumer = MemoryConsumer::new("Hoarder").register(context.memory_pool());
        let rows = futures::stream::once(async move {
            let taken = vec![7_u8; takes];
            consumer.try_grow(1)?;
            drop(taken);
            Ok(row)
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema().clone(), rows))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_counts_real_bytes_and_refuses_by_them() {
    let tenant = group("engine", 32 * MIB);
    let context = SessionContext::new();
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let row = RecordBatch::try_from_iter([("k", one)]).unwrap();
    for (name, takes) in [("some", 16 << 20), ("much", 48 << 20)] {
        let source = Arc::new(Hoarder {
            row: row.clone(),
            takes,
        });
        let table = StreamingTable::try_new(row.schema(), vec![source]).unwrap();
        context.register_table(name, Arc::new(table)).unwrap();
    }
    let arbiter = Arbiter::new(&MEMORY, Policy::default());
    let builder = TenantEngine::builder(&context, &arbiter).real_bytes(&REAL);
    let engine = builder.build().tenant("engine").unwrap();
    // Its grant becomes larger. The next one of its shape is granted what it took, and an eighth.
    for granted in [8 * MIB..9 * MIB, 16 * MIB..20 * MIB] {
        let stream = engine.sql(None, "SELECT * FROM some").await.unwrap();
        let bytes = stream.admitted().bytes;
        assert!(granted.contains(&bytes), "{bytes}");
        assert_eq!(stream.collect().await.unwrap()[0].num_rows(), 1);
    }
    let stream = engine.sql(None, "SELECT * FROM much").await.unwrap();
    let error = stream.collect().await.unwrap_err();
    let text = RefusalText::of(&error).unwrap();
    assert!(text.message.contains("the heap holds 48."), "{text:?}");
    assert!(text.detail.contains("The tree around /engine"), "{text:?}");
    let twin = || REAL.memory().root().find("engine");
    settles(|| twin().is_none_or(|twin| usage(&twin) < KEPT_MAX as i64)).await;
    assert_eq!(usage(&tenant), 0);
}

/// Calls of a function that takes 48 MiB for each batch, reserves nothing, and has returned it when the next batch begins.
static BATCHES: AtomicUsize = AtomicUsize::new(0);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_ends_a_query_whose_function_takes_too_much() {
    let [small, large] = [32, 256].map(|mib| group(&format!("ends-{mib}"), mib * MIB));
    // No repartition reads ahead.
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config(config);
    context.register_udf(create_udf(
        "hoard",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|args: &[ColumnarValue]| {
            BATCHES.fetch_add(1, Ordering::Relaxed);
            drop(vec![7_u8; 48 << 20]);
            Ok(args[0].clone())
        }),
    ));
    let arbiter = Arbiter::new(&MEMORY, Policy::default());
    let history = History::new(10);
    let engine = || {
        let builder = TenantEngine::builder(&context, &arbiter).history(&history);
        builder.real_bytes(&REAL)
    };
    let sql = "SELECT max(hoard(value)) FROM range(0, 40000)";
    let run = async |engine: &TenantEngine, tenant: &str| {
        BATCHES.store(0, Ordering::Relaxed);
        let tenant = engine.tenant(tenant).unwrap();
        let rows = tenant.sql(None, sql).await.unwrap().collect().await;
        (rows.map(drop), BATCHES.load(Ordering::Relaxed))
    };
    // Nothing is refused unless that is set, and the history says it.
    let (outcome, batches) = run(&engine().build(), "ends-32").await;
    outcome.unwrap();
    assert_eq!((batches, history.above_limit()), (5, 1));
    let view = View::new(&MEMORY).history(&history);
    let shown = SessionContext::new();
    view.register(&shown);
    let above =
        "SELECT 1 FROM bursar_history() WHERE operator IS NULL AND real_above_limit > 15000000";
    assert_eq!(shown.sql(above).await.unwrap().count().await.unwrap(), 1);
    let ending = engine().end_by_real_bytes().build();
    // Of two tries each has one batch.
    let (outcome, batches) = run(&ending, "ends-32").await;
    let text = RefusalText::of(&outcome.unwrap_err()).unwrap();
    assert!(
        text.message
            .starts_with("cannot reserve the next batch of /ends-32/query-")
            && text.message.contains(": the query held 48.")
            && text
                .message
                .ends_with(" of the heap, and its limit is 32.0 MiB"),
        "{text:?}"
    );
    assert!(
        text.detail.starts_with("The tree around /ends-32/query-"),
        "{text:?}"
    );
    assert!(
        text.hint.starts_with("Raise the limit of /ends-32,"),
        "{text:?}"
    );
    assert_eq!(batches, 2);
    let last = history.finished().pop().unwrap();
    assert_eq!((last.tries, last.refused), (2, 1));
    assert!(
        last.refused_by
            .unwrap()
            .starts_with("real bytes of /ends-32/query-")
    );
    // A grant of a quarter, 64 MiB, is enough.
    let (outcome, batches) = run(&ending, "ends-256").await;
    outcome.unwrap();
    assert_eq!(batches, 5);
    // One of 32 MiB becomes larger.
    large.set_max(128 * MIB);
    let fresh = engine().end_by_real_bytes().build();
    let (outcome, batches) = run(&fresh, "ends-256").await;
    outcome.unwrap();
    assert_eq!(batches, 5);
    for tenant in [small, large] {
        settles(|| usage(&tenant) == 0).await;
    }
}

/// A join of two tables by another condition than equality. It copies its build side, of which it has reserved one copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_ends_a_join_that_copies_its_build_side() {
    let tenant = group("copies", 24 * MIB);
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config(config);
    let arbiter = Arbiter::new(&MEMORY, Policy::default());
    let engine = || TenantEngine::builder(&context, &arbiter).real_bytes(&REAL);
    let sql = "SELECT count(big.s) FROM (SELECT value AS v, repeat('x', 32) AS s FROM range(1, 400000)) AS big \
               JOIN (SELECT 2147483647 AS v) AS small ON big.v > small.v";
    let run = async |engine: TenantEngine| {
        let tenant = engine.tenant("copies").unwrap();
        tenant.sql(None, sql).await.unwrap().collect().await
    };
    run(engine().build()).await.unwrap();
    let error = run(engine().end_by_real_bytes().build()).await.unwrap_err();
    let text = RefusalText::of(&error).unwrap();
    assert!(
        text.message
            .starts_with("cannot reserve the next batch of /copies/query-"),
        "{text:?}"
    );
    settles(|| usage(&tenant) == 0).await;
}
