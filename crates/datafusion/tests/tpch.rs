//! DataFusion itself on groups: TPC-H's tables at scale 0.1, several tenants, and answers that must not depend on the pool.
//!
//! All 22 queries run in `tenants_at_once`; the tests of limits run two that spill.

#[path = "tpch/engine.rs"]
mod engine;

use std::sync::Arc;

use bursar_tpch::{Answer, QUERIES, Query, named};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use tokio::task::JoinSet;

use engine::{Engine, MIB, usage};

/// Enough for merging the order lines; sorting them without a limit takes six times as much.
const SORT: u64 = 64 * MIB;
/// A group for each order takes three times as much.
const AGGREGATE: u64 = 12 * MIB;
/// More than any query needs.
const ROOMY: u64 = 1024 * MIB;

fn query(name: &str) -> Query {
    named(name).unwrap()
}

/// With limits that make them spill.
fn spilling() -> [(Query, u64); 2] {
    [
        (query("lines_by_price"), SORT),
        (query("lines_per_order"), AGGREGATE),
    ]
}

/// Not with `assert_eq!`, which would print millions of rows.
fn assert_same(query: Query, answer: &Answer, expected: &Answer) {
    let name = query.name;
    assert!(
        answer == expected,
        "{name}: {answer:?}, expected {expected:?}"
    );
}

/// An error that is about memory and names the group at fault.
fn assert_exhausted(error: &DataFusionError, path: &str) {
    let root = error.find_root();
    let is_exhausted = matches!(root, DataFusionError::ResourcesExhausted(_));
    assert!(is_exhausted && root.to_string().contains(path), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_spills_answers_the_same() {
    let engine = Engine::get();
    for (query, limit) in spilling() {
        let name = query.name;
        let tenant = engine.tenant(name, limit);
        let (expected, spilled) = engine.answer(query, engine.unlimited()).await.unwrap();
        assert_eq!(spilled.files, 0, "{name}");

        let fair = Arc::new(FairSpillPool::new(limit as usize));
        let (answer, spilled) = engine.answer(query, fair).await.unwrap();
        assert!(
            spilled.files > 0,
            "{name} did not spill under FairSpillPool"
        );
        assert_same(query, &answer, &expected);

        let (answer, spilled) = tenant.query(query).await.unwrap();
        assert!(spilled.files > 0, "{name} did not spill on a group");
        assert_same(query, &answer, &expected);
        let finished = tenant.history.finished();
        let report = finished.iter().find(|report| report.path.ends_with(name));
        let report = report.unwrap();
        assert!(report.spills > 0 && report.operators.iter().any(|operator| operator.spills > 0));
        assert!(report.peak > limit / 4, "{report}");
        assert_eq!(usage(&tenant.group), 0);
    }
}

/// Each tenant runs its queries at the same time as the others; one has no room for a single one of its joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_at_once() {
    let engine = Engine::get();
    let mut expected = Vec::new();
    for query in QUERIES {
        let (answer, _) = engine.answer(query, engine.unlimited()).await.unwrap();
        expected.push((query, answer));
    }
    let roomy = ["acme", "umbrella"].map(|name| engine.tenant(name, ROOMY));
    let tiny = engine.tenant("tiny", MIB);
    let mut running = JoinSet::new();
    for tenant in roomy.clone() {
        let expected = expected.clone();
        running.spawn(async move {
            for (query, expected) in expected {
                let outcome = tenant.query(query).await;
                let (answer, _) = outcome.unwrap_or_else(|error| panic!("{}: {error}", query.name));
                assert_same(query, &answer, &expected);
            }
        });
    }
    let starved = tiny.clone();
    let q6 = expected[5].1.clone();
    running.spawn(async move {
        for name in ["q5", "q9", "q18", "q21"] {
            let error = starved.query(query(name)).await.unwrap_err();
            assert_exhausted(&error, "/tiny");
        }
        // A query that needs less than there is still runs.
        let (answer, _) = starved.query(query("q6")).await.unwrap();
        assert_same(query("q6"), &answer, &q6);
    });
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }

    for tenant in roomy.iter().chain([&tiny]) {
        let group = &tenant.group;
        assert_eq!(usage(group), 0, "{group}");
        assert!(group.children().is_empty() && group.peak() > 0, "{group}");
        assert!(
            tenant
                .history
                .finished()
                .iter()
                .all(|query| query.reserved == 0)
        );
    }
    let finished = roomy[0].history.finished();
    assert_eq!(finished.len(), QUERIES.len());
    let q9 = finished
        .iter()
        .find(|query| query.path == "/acme/q9")
        .unwrap();
    assert!(
        q9.peak > MIB && q9.refused == 0 && !q9.operators.is_empty(),
        "{q9}"
    );
    let refused = tiny
        .history
        .finished()
        .into_iter()
        .map(|query| query.refused > 0);
    assert_eq!(refused.collect::<Vec<_>>(), [true, true, true, true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_too_low_says_so() {
    let tenant = Engine::get().tenant("low", 64 << 10);
    let by_price = query("lines_by_price");
    let error = tenant.query(by_price).await.unwrap_err();
    assert_exhausted(&error, "/low");
    assert!(error.to_string().contains("64.0 KiB"), "{error}");
    assert_eq!(usage(&tenant.group), 0);

    tenant.query(query("q6")).await.unwrap();
    tenant.group.set_max(SORT);
    let (_, spilled) = tenant.query(by_price).await.unwrap();
    assert!(spilled.files > 0);
    assert_eq!(usage(&tenant.group), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_dropped_half_way_returns_all() {
    let engine = Engine::get();
    for (query, limit) in spilling() {
        let tenant = engine.tenant(&format!("dropped-{limit}"), limit);
        let pool = tenant.pool(query);
        let group = pool.group().clone();
        let session = engine.session(query, pool.clone());
        let frame = session.sql(&query.sql(engine.scale())).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let mut stream = execute_stream(plan.clone(), session.task_ctx()).unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        assert!(usage(&group) > 0, "something is held while rows come");
        drop((stream, plan, session));
        // Tasks that a query spawned return their bytes when the runtime drops them, which it does soon.
        while usage(&group) > 0 {
            tokio::task::yield_now().await;
        }
        // Something of a query that spilled may hold the pool for longer, without a byte; its groups go now.
        pool.remove().unwrap();
        assert!(tenant.group.children().is_empty());
        assert_eq!(usage(&tenant.group), 0);
    }
}

/// A lowered limit makes queries that run spill; raised again, it lets the next ones be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_changes_while_queries_run() {
    let tenant = Engine::get().tenant("live", ROOMY);
    let [by_price, per_order] = ["lines_by_price", "lines_per_order"].map(query);
    let (expected, spilled) = tenant.query(by_price).await.unwrap();
    assert_eq!(spilled.files, 0, "{ROOMY} bytes are enough");

    let sorting = tenant.clone();
    let running = tokio::spawn(async move { sorting.query(by_price).await });
    while usage(&tenant.group) < 2 * SORT as i64 {
        assert!(!running.is_finished(), "the sort never held that much");
        tokio::task::yield_now().await;
    }
    tenant.group.set_max(SORT);
    // It spills, or it has all rows and merges them in memory.
    let (answer, _) = running.await.unwrap().unwrap();
    assert_same(by_price, &answer, &expected);
    assert_eq!(usage(&tenant.group), 0);
    tenant.group.set_max(AGGREGATE);
    let (_, spilled) = tenant.query(per_order).await.unwrap();
    assert!(spilled.files > 0, "the lowered limit is in force");

    tenant.group.set_max(ROOMY);
    let (answer, spilled) = tenant.query(by_price).await.unwrap();
    assert_eq!(spilled.files, 0);
    assert_same(by_price, &answer, &expected);
    assert_eq!(usage(&tenant.group), 0);
}
