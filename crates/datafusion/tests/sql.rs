//! The tables `bursar_memory()` and `bursar_history()`, asked by sessions while queries of two tenants hold memory.
#![cfg(feature = "sql")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar::{Group, Level, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool, History, View};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

const MIB: usize = 1 << 20;

struct Scene {
    memory: Memory,
    tenants: Vec<Group>,
    history: History,
    pools: Vec<Arc<GroupPool>>,
    held: Vec<MemoryReservation>,
}

/// Two tenants, whose names are alike, with a query each: a sorter that has spilled, and a join.
fn scene() -> Scene {
    let memory = Memory::builder().build().unwrap();
    let history = History::new(10);
    let mut scene = Scene {
        tenants: Vec::new(),
        pools: Vec::new(),
        held: Vec::new(),
        history,
        memory,
    };
    for (name, mib) in [("a", 64), ("ab", 128)] {
        let limits = Limits::max((mib * MIB) as u64);
        let tenant = scene.memory.root().child(name, limits).unwrap();
        let query = tenant.child("query-1", Limits::none()).unwrap();
        let pool = GroupPool::builder(query).history(&scene.history).build();
        let shared: Arc<dyn MemoryPool> = pool.clone();
        let sorter = MemoryConsumer::new("ExternalSorter[0]")
            .with_can_spill(true)
            .register(&shared);
        let join = MemoryConsumer::new("HashJoinInput").register(&shared);
        join.try_grow(mib * MIB / 2).unwrap();
        sorter.try_grow(mib * MIB / 4).unwrap();
        sorter.try_grow(mib * MIB).unwrap_err();
        sorter.shrink(mib * MIB / 8);
        scene.held.extend([sorter, join]);
        scene.tenants.push(tenant);
        scene.pools.push(pool);
    }
    scene
}

fn session(view: &View) -> SessionContext {
    let context = SessionContext::new();
    view.register(&context);
    context
}

/// Rows as text, cells divided by a space.
async fn rows(context: &SessionContext, sql: &str) -> Vec<String> {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let mut rows = Vec::new();
    for batch in &batches {
        let columns = batch.columns().iter();
        let shown: Vec<_> = columns
            .map(|column| {
                datafusion::arrow::util::display::ArrayFormatter::try_new(
                    column,
                    &Default::default(),
                )
                .unwrap()
            })
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = shown
                .iter()
                .map(|column| column.value(row).to_string())
                .collect();
            rows.push(cells.join(" "));
        }
    }
    rows
}

async fn refused(context: &SessionContext, sql: &str) -> String {
    match context.sql(sql).await {
        Ok(_) => panic!("{sql} is granted"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn groups_are_rows() {
    let scene = scene();
    let context = session(&View::new(&scene.memory).history(&scene.history));
    let sql = "SELECT path, kind, depth, usage / 1048576, max / 1048576, refused, spills FROM bursar_memory() ORDER BY path";
    assert_eq!(
        rows(&context, sql).await,
        [
            "/ root 0 120  2 ",
            "/a group 1 40 64 1 ",
            "/a/query-1 query 2 40  0 1",
            "/a/query-1/ExternalSorter operator 3 8  0 1",
            "/a/query-1/HashJoinInput operator 3 32  0 0",
            "/ab group 1 80 128 1 ",
            "/ab/query-1 query 2 80  0 1",
            "/ab/query-1/ExternalSorter operator 3 16  0 1",
            "/ab/query-1/HashJoinInput operator 3 64  0 0",
        ]
    );
    let one = "SELECT usage FROM bursar_memory('cached') WHERE path LIKE '/ab/%' AND kind = 'query' LIMIT 1";
    assert_eq!(rows(&context, one).await.len(), 1);
    assert_eq!(
        rows(&context, "SELECT count(*) FROM bursar_memory('500ms')").await,
        ["9"]
    );
}

/// A query is prepared once and executed twice: each execution looks anew.
#[tokio::test]
async fn each_execution_looks_anew() {
    let mut scene = scene();
    let context = session(&View::new(&scene.memory));
    context
        .sql("CREATE VIEW held AS SELECT sum(usage) AS bytes FROM bursar_memory() WHERE depth = 0")
        .await
        .unwrap();
    assert_eq!(
        rows(&context, "SELECT bytes / 1048576 FROM held").await,
        ["120"]
    );
    scene.held.clear();
    assert_eq!(rows(&context, "SELECT bytes FROM held").await, ["0"]);
}

#[tokio::test]
async fn a_tenant_sees_its_own_groups_whatever_it_asks() {
    let mut scene = scene();
    let context = session(&View::new(&scene.memory).history(&scene.history).below("/a"));
    for sql in [
        "SELECT path FROM bursar_memory()",
        "SELECT path FROM bursar_memory('cached') WHERE path = '/ab' OR true",
        "SELECT x.path FROM bursar_memory() x LEFT JOIN bursar_memory() y ON y.path LIKE '/ab%'",
        "SELECT path FROM bursar_memory() UNION ALL SELECT path FROM bursar_history()",
    ] {
        let paths = rows(&context, sql).await;
        assert!(
            !paths.is_empty()
                && paths
                    .iter()
                    .all(|path| path == "/a" || path.starts_with("/a/")),
            "{sql}: {paths:?}"
        );
    }
    scene.held.clear();
    scene.pools.clear();
    assert_eq!(
        rows(&context, "SELECT DISTINCT path FROM bursar_history()").await,
        ["/a/query-1"]
    );
    let plan = rows(
        &context,
        "EXPLAIN SELECT * FROM bursar_memory() WHERE path = '/ab'",
    )
    .await
    .join("\n");
    assert!(!plan.contains("query-1"), "{plan}");
    // Its group ends: there is nothing to see, and no other group's rows.
    scene.tenants.remove(0).close().unwrap();
    assert!(
        rows(&context, "SELECT path FROM bursar_memory()")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn finished_queries_are_rows() {
    let mut scene = scene();
    let context = session(&View::new(&scene.memory).history(&scene.history));
    let states = "SELECT path, state, tries, real_peak, real_above_limit FROM bursar_history() WHERE operator IS NULL";
    assert_eq!(
        rows(&context, states).await,
        ["/a/query-1 running 1  ", "/ab/query-1 running 1  "]
    );
    assert_eq!(scene.history.running().len(), 2);
    scene.held.clear();
    scene.pools.clear();
    assert!(scene.history.running().is_empty());
    assert_eq!(
        rows(&context, states).await,
        ["/a/query-1 finished 1  ", "/ab/query-1 finished 1  "]
    );
    let sql = "SELECT path, operator, refused, refused_by, spills, consumers, can_spill, left_bytes, elapsed_seconds > 0 \
               FROM bursar_history() ORDER BY path, operator NULLS FIRST";
    assert_eq!(
        rows(&context, sql).await,
        [
            "/a/query-1  1 /a 1   0 true",
            "/a/query-1 ExternalSorter 1  1 1 true 0 true",
            "/a/query-1 HashJoinInput 0  0 1 false 0 true",
            "/ab/query-1  1 /ab 1   0 true",
            "/ab/query-1 ExternalSorter 1  1 1 true 0 true",
            "/ab/query-1 HashJoinInput 0  0 1 false 0 true",
        ]
    );
}

/// The limit that refused is named, also if it was a share or pressure.
#[tokio::test]
async fn a_share_and_pressure_are_named() {
    let scene = scene();
    let history = History::new(10);
    let tenant = scene.memory.root().child("small", Limits::max(8 << 20));
    let tenant = tenant.unwrap();
    let share = FairShare::new(&tenant);
    for name in ["sort", "early"] {
        let query = tenant.child(name, Limits::none()).unwrap();
        let builder = GroupPool::builder(query).history(&history);
        let pool: Arc<dyn MemoryPool> = match name {
            "sort" => builder.share(&share).build(),
            _ => builder.spill_from(Level::Low).build(),
        };
        let sorters = [0, 1].map(|partition| {
            let consumer = MemoryConsumer::new(format!("ExternalSorter[{partition}]"));
            consumer.with_can_spill(true).register(&pool)
        });
        // Half of it is the other's. Then pressure goes on from here, and asks.
        while sorters[0].try_grow(MIB).is_ok() {}
    }
    let context = session(&View::new(&scene.memory).history(&history));
    let sql = "SELECT path, refused, refused_by FROM bursar_history() WHERE refused > 0 AND operator IS NULL";
    assert_eq!(
        rows(&context, sql).await,
        [
            "/small/sort 1 share of /small",
            "/small/early 1 pressure of /small"
        ]
    );
}

#[tokio::test]
async fn wrong_arguments_are_told() {
    let scene = scene();
    let context = session(&View::new(&scene.memory));
    for (call, said) in [
        (
            "bursar_memory('soon')",
            "'exact', 'cached' or a time such as '500ms', not 'soon'",
        ),
        (
            "bursar_memory(7)",
            "'exact', 'cached' or a time such as '500ms', not Int64(7)",
        ),
        (
            "bursar_memory('exact', 'exact')",
            "takes one argument at most",
        ),
        ("bursar_history('exact')", "takes no argument"),
    ] {
        let error = refused(&context, &format!("SELECT * FROM {call}")).await;
        assert!(error.contains(said), "{error}");
    }
}

/// Hostile names, and groups that come and go while they are listed: children never add up to more than their parent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_may_come_and_go_meanwhile() {
    let memory = Memory::builder().build().unwrap();
    let top = memory
        .root()
        .child("it's \"quoted\"\n\u{202e}", Limits::none())
        .unwrap();
    let context = session(&View::new(&memory).below(top.path()));
    let done = Arc::new(AtomicBool::new(false));
    let worker = {
        let (top, done) = (top.clone(), done.clone());
        std::thread::spawn(move || {
            // Relaxed: it only ends the loop.
            while !done.load(Ordering::Relaxed) {
                let groups: Vec<Group> = (0..8)
                    .map(|number| top.child(format!("{number}"), Limits::none()).unwrap())
                    .collect();
                let _charges: Vec<_> = groups
                    .iter()
                    .map(|group| group.try_charge(300_000).unwrap())
                    .collect();
            }
        })
    };
    for _ in 0..30 {
        let batches = context
            .sql("SELECT usage, depth FROM bursar_memory()")
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        let usage: Vec<i64> = batches
            .iter()
            .flat_map(|batch| {
                batch
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .values()
                    .to_vec()
            })
            .collect();
        assert!(
            batches
                .iter()
                .all(|batch| batch.column(0).null_count() == 0)
        );
        assert!(usage[1..].iter().sum::<i64>() <= usage[0], "{usage:?}");
    }
    done.store(true, Ordering::Relaxed);
    worker.join().unwrap();
}
