//! Queries under limits that are too small for them: under a group, and under DataFusion's own pools with as many bytes.
//!
//! The subjects are those of DataFusion's own tests of memory limits. The tables, the queries and the limits are ours. Each row runs
//! under four pools: `GreedyMemoryPool` and a `GroupPool` alone, which both grant what is free; `FairSpillPool` and a `GroupPool` with a
//! `FairShare`, which both divide the limit. A query that DataFusion's pool lets pass must pass under the group beside it, or
//! [`PASS_ELSEWHERE`] says why not. After each run the group has 0 bytes.
//!
//! Not here: sinks of Parquet files, whose feature these tests do not build, and `COPY`, which needs it. Limits of disk space are in
//! `tenant_session.rs`.

use std::sync::Arc;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool};
use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::{MemTable, TableProvider};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::logical_expr::col;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const BATCH: usize = 128;

/// The table `t` of a scenario: so many rows, in so many partitions.
#[derive(Clone, Copy, Debug)]
enum Table {
    /// In no order.
    Visits(i64, usize),
    /// In one partition, from a stream without an end.
    Endless(i64),
    /// By floor and guest.
    Sorted(i64, usize),
}

/// Visits of guests: `room` has 16 values, `floor` grows each 256 nights, and `guest` is a text of 60 bytes.
fn visits(numbers: impl Iterator<Item = i64>) -> Vec<RecordBatch> {
    let fields = vec![
        Field::new("night", DataType::Int64, false),
        Field::new("room", DataType::Int64, false),
        Field::new("floor", DataType::Int64, false),
        Field::new("guest", DataType::Utf8, false),
    ];
    let schema = Arc::new(Schema::new(fields));
    let numbers: Vec<i64> = numbers.collect();
    let batch = |nights: &[i64]| {
        let guests = nights.iter().map(|night| format!("guest {night:054}"));
        let floors = nights.iter().map(|night| night / 256);
        let rooms = nights.iter().map(|night| night % 16);
        let columns = vec![
            Arc::new(Int64Array::from(nights.to_vec())) as _,
            Arc::new(Int64Array::from_iter_values(rooms)) as _,
            Arc::new(Int64Array::from_iter_values(floors)) as _,
            Arc::new(StringArray::from_iter_values(guests)) as _,
        ];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    };
    numbers.chunks(BATCH).map(batch).collect()
}

/// Each number below `rows` once, in no order.
fn mixed(rows: i64) -> impl Iterator<Item = i64> {
    // Prime to all numbers of rows here.
    (0..rows).map(move |n| (n * 7_919 + 13) % rows)
}

#[derive(Debug)]
struct Endless(Vec<RecordBatch>);

impl PartitionStream for Endless {
    fn schema(&self) -> &SchemaRef {
        self.0[0].schema_ref()
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = stream::iter(self.0.clone().into_iter().map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(
            self.schema().clone(),
            batches,
        ))
    }
}

impl Table {
    fn provider(self) -> Arc<dyn TableProvider> {
        match self {
            Self::Visits(rows, partitions) => {
                let mut parts = vec![Vec::new(); partitions];
                for (index, batch) in visits(mixed(rows)).into_iter().enumerate() {
                    parts[index % partitions].push(batch);
                }
                let schema = parts[0][0].schema();
                Arc::new(MemTable::try_new(schema, parts).unwrap())
            }
            Self::Endless(rows) => {
                let batches = visits(0..rows);
                let schema = batches[0].schema();
                let order = vec![col("night").sort(true, false)];
                let table = StreamingTable::try_new(schema, vec![Arc::new(Endless(batches))]);
                Arc::new(
                    table
                        .unwrap()
                        .with_infinite_table(true)
                        .with_sort_order(order),
                )
            }
            Self::Sorted(rows, partitions) => {
                let step = partitions as i64;
                let part = |first| visits((first..rows).step_by(partitions));
                let parts: Vec<_> = (0..step).map(part).collect();
                let order = vec![vec![
                    col("floor").sort(true, false),
                    col("guest").sort(true, false),
                ]];
                let table = MemTable::try_new(parts[0][0].schema(), parts).unwrap();
                Arc::new(table.with_sort_order(order))
            }
        }
    }
}

/// The end of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All its rows came, and it wrote no file.
    Passes,
    /// All its rows came, and it wrote files.
    Spills,
    /// This consumer was refused, and the query failed.
    Refused(&'static str),
    /// As `Spills`, or as `Refused`: the time of the disk decides.
    SpillsOrRefused(&'static str),
}
use End::{Passes, Refused, Spills, SpillsOrRefused};

/// A query, and its end under each pool.
struct Scenario {
    name: &'static str,
    table: Table,
    sql: &'static str,
    /// An operator that the plan must have, as far as it is shown. Files are counted that operators of its name wrote.
    operator: &'static str,
    partitions: usize,
    settings: &'static [(&'static str, &'static str)],
    may_spill: bool,
    /// Without its optimizer, DataFusion puts neither sorts nor repartitions into a plan.
    is_optimized: bool,
    limit: usize,
    /// Under the pools in the order of [`POOLS`].
    ends: [End; 4],
}

/// Values of most scenarios.
const USUAL: Scenario = Scenario {
    name: "",
    table: Table::Visits(4000, 1),
    sql: "",
    operator: "",
    partitions: 1,
    settings: &[],
    may_spill: true,
    is_optimized: true,
    limit: 0,
    ends: [Passes; 4],
};

type Settings = &'static [(&'static str, &'static str)];
const RESERVATION: &str = "datafusion.execution.sort_spill_reservation_bytes";
const RESERVE_NOTHING: Settings = &[(RESERVATION, "0")];
const RESERVE_LITTLE: Settings = &[(RESERVATION, "1024")];
const RESERVE_MUCH: Settings = &[(RESERVATION, "49152")];
const RESERVE_A_THIRD: Settings = &[(RESERVATION, "87000")];
const MERGE: Settings = &[("datafusion.optimizer.prefer_hash_join", "false")];
const PARTITIONED: Settings = &[
    (
        "datafusion.optimizer.hash_join_single_partition_threshold",
        "0",
    ),
    (
        "datafusion.optimizer.hash_join_single_partition_threshold_rows",
        "0",
    ),
];
const PIECEWISE: Settings = &[
    ("datafusion.optimizer.enable_piecewise_merge_join", "true"),
    (RESERVATION, "0"),
];

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "aggregate of all rows",
        sql: "SELECT median(night) FROM t",
        operator: "AggregateExec: mode=Single, gby=[]",
        limit: 2 * KIB,
        ends: [Refused("for AggregateStream[0]"); 4],
        ..USUAL
    },
    Scenario {
        name: "groups by a number",
        sql: "SELECT night, count(*) FROM t GROUP BY night",
        operator: "AggregateExec",
        may_spill: false,
        limit: 2 * KIB,
        ends: [Refused("DiskManager"); 4],
        ..USUAL
    },
    Scenario {
        name: "groups by texts",
        sql: "SELECT guest, room, count(*), sum(night) FROM t GROUP BY guest, room",
        operator: "AggregateExec",
        may_spill: false,
        limit: 8 * KIB,
        ends: [Refused("DiskManager"); 4],
        ..USUAL
    },
    Scenario {
        name: "groups that spill",
        table: Table::Visits(20_000, 1),
        sql: "SELECT guest, count(*) FROM t GROUP BY guest",
        operator: "AggregateExec",
        limit: MIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "distinct counts that spill",
        table: Table::Visits(20_000, 1),
        sql: "SELECT room, count(DISTINCT guest) FROM t GROUP BY room",
        operator: "AggregateExec",
        limit: MIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "groups of ordered rows",
        table: Table::Sorted(20_000, 1),
        sql: "SELECT floor, room, count(*) FROM t GROUP BY floor, room",
        operator: "AggregateExec: mode=Single, gby=[floor@1 as floor, room@0 as room], aggr=[count(Int64(1))], ordering_mode=PartiallySorted",
        may_spill: false,
        limit: 64 * KIB,
        ..USUAL
    },
    Scenario {
        name: "groups of two partitions",
        table: Table::Visits(20_000, 1),
        sql: "SELECT guest, count(*) FROM t GROUP BY guest",
        operator: "AggregateExec: mode=FinalPartitioned",
        partitions: 2,
        limit: 2 * MIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "groups of a stream",
        table: Table::Endless(4000),
        sql: "SELECT night, count(*) FROM t GROUP BY night",
        operator: "AggregateExec",
        limit: 64 * KIB,
        ..USUAL
    },
    Scenario {
        name: "hash join",
        sql: "SELECT a.* FROM t a JOIN t b ON a.night = b.night",
        operator: "HashJoinExec: mode=CollectLeft",
        limit: 16 * KIB,
        ends: [Refused("for HashJoinInput"); 4],
        ..USUAL
    },
    Scenario {
        name: "hash join that fits",
        sql: "SELECT a.* FROM t a JOIN t b ON a.night = b.night",
        operator: "HashJoinExec: mode=CollectLeft",
        limit: 512 * KIB,
        ..USUAL
    },
    Scenario {
        name: "hash join of two partitions",
        sql: "SELECT a.* FROM t a JOIN t b ON a.night = b.night",
        operator: "HashJoinExec: mode=Partitioned",
        partitions: 2,
        settings: PARTITIONED,
        limit: 64 * KIB,
        ends: [Refused("for HashJoinInput["); 4],
        ..USUAL
    },
    Scenario {
        name: "nested loop join",
        table: Table::Visits(1000, 1),
        sql: "SELECT a.night FROM t a JOIN t b ON a.night > b.night AND a.room < b.floor - 2",
        operator: "NestedLoopJoinExec",
        may_spill: false,
        limit: 8 * KIB,
        ends: [Refused("for NestedLoopJoinLoad[0]"); 4],
        ..USUAL
    },
    Scenario {
        name: "nested loop join that spills",
        table: Table::Visits(1000, 1),
        sql: "SELECT a.night FROM t a JOIN t b ON a.night > b.night AND a.room < b.floor - 2",
        operator: "NestedLoopJoinExec",
        limit: 8 * KIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "cross join",
        table: Table::Visits(500, 1),
        sql: "SELECT a.night, b.guest FROM t a CROSS JOIN t b",
        operator: "CrossJoinExec",
        limit: 2 * KIB,
        ends: [Refused("for CrossJoinExec"); 4],
        ..USUAL
    },
    Scenario {
        name: "piecewise merge join",
        table: Table::Visits(500, 1),
        sql: "SELECT a.night FROM t a JOIN t b ON a.night < b.night",
        operator: "PiecewiseMergeJoin",
        settings: PIECEWISE,
        limit: 8 * KIB,
        ends: [Refused("for PiecewiseMergeJoinInput"); 4],
        ..USUAL
    },
    Scenario {
        name: "sort-merge join, no disk",
        table: Table::Sorted(1024, 1),
        sql: "SELECT a.guest, b.guest FROM t a JOIN t b ON a.floor = b.floor",
        operator: "SortMergeJoinExec",
        partitions: 2,
        settings: MERGE,
        may_spill: false,
        is_optimized: false,
        limit: 16 * KIB,
        ends: [Refused("for SMJStream[0]"); 4],
    },
    Scenario {
        name: "sort-merge join that spills",
        table: Table::Sorted(1024, 1),
        sql: "SELECT a.guest, b.guest FROM t a JOIN t b ON a.floor = b.floor",
        operator: "SortMergeJoinExec",
        partitions: 2,
        settings: MERGE,
        is_optimized: false,
        limit: 16 * KIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "sorts below a sort-merge join",
        table: Table::Visits(20_000, 1),
        sql: "SELECT a.night FROM t a JOIN t b ON a.guest = b.guest",
        operator: "SortExec",
        partitions: 2,
        settings: MERGE,
        limit: MIB,
        // Each sort may take what the other needs to merge. The time of the disk decides.
        ends: [
            SpillsOrRefused("for ExternalSorter"),
            SpillsOrRefused("for ExternalSorter"),
            Refused("for ExternalSorter"),
            Spills,
        ],
        ..USUAL
    },
    Scenario {
        name: "symmetric hash join",
        table: Table::Endless(4000),
        sql: "SELECT a.night FROM t a JOIN t b ON a.guest = b.guest",
        operator: "SymmetricHashJoinExec",
        limit: 64 * KIB,
        ends: [Refused("for SymmetricHashJoinStream[0]"); 4],
        ..USUAL
    },
    Scenario {
        name: "sort, no disk",
        table: Table::Visits(20_000, 1),
        sql: "SELECT * FROM t ORDER BY guest",
        operator: "SortExec",
        may_spill: false,
        limit: 512 * KIB,
        ends: [Refused("DiskManager is disabled"); 4],
        ..USUAL
    },
    Scenario {
        name: "sort that spills",
        table: Table::Visits(20_000, 1),
        sql: "SELECT * FROM t ORDER BY guest",
        operator: "SortExec",
        limit: 512 * KIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "spill reservation larger than the limit",
        sql: "SELECT * FROM t ORDER BY room, guest || guest || guest || guest DESC",
        operator: "SortExec",
        limit: 32 * KIB,
        ends: [Refused("for ExternalSorterMerge[0]"); 4],
        ..USUAL
    },
    Scenario {
        name: "spill reservation too small",
        sql: "SELECT * FROM t ORDER BY room, guest || guest || guest || guest DESC",
        operator: "SortExec",
        settings: RESERVE_LITTLE,
        limit: 48 * KIB,
        ends: [Refused("for ExternalSorterMerge[0]"); 4],
        ..USUAL
    },
    Scenario {
        name: "spill reservation enough",
        sql: "SELECT * FROM t ORDER BY room, guest || guest || guest || guest DESC",
        operator: "SortExec",
        settings: RESERVE_MUCH,
        limit: 96 * KIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "no spill reservation, four partitions",
        table: Table::Visits(20_000, 4),
        sql: "SELECT * FROM t ORDER BY guest",
        operator: "SortExec",
        partitions: 4,
        settings: RESERVE_NOTHING,
        limit: 2 * MIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "sorts of four partitions",
        table: Table::Visits(20_000, 4),
        sql: "SELECT * FROM t ORDER BY guest",
        operator: "SortExec",
        partitions: 4,
        limit: 2 * MIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "sort of text views",
        table: Table::Visits(20_000, 1),
        sql: "SELECT arrow_cast(guest, 'Utf8View') AS guest, night FROM t ORDER BY night",
        operator: "SortExec",
        limit: 512 * KIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "sort of a union, nullable in part",
        table: Table::Visits(20_000, 1),
        sql: "SELECT guest, night FROM t UNION ALL SELECT guest, nullif(night, 1) FROM t ORDER BY guest",
        operator: "SortExec",
        limit: MIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "sort whose last rows fill the limit",
        sql: "SELECT value FROM generate_series(1, 150000) ORDER BY value DESC",
        operator: "SortExec",
        settings: RESERVE_A_THIRD,
        limit: 256 * KIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "merge of ordered partitions",
        table: Table::Sorted(4000, 2),
        sql: "SELECT * FROM t ORDER BY floor, guest LIMIT 10",
        operator: "SortPreservingMergeExec",
        partitions: 2,
        limit: 16 * KIB,
        ends: [Refused("for SortPreservingMergeExec[0]"); 4],
        ..USUAL
    },
    Scenario {
        name: "merge of ordered partitions that fits",
        table: Table::Sorted(4000, 2),
        sql: "SELECT * FROM t ORDER BY floor, guest LIMIT 10",
        operator: "SortPreservingMergeExec",
        partitions: 2,
        limit: 256 * KIB,
        ..USUAL
    },
    Scenario {
        name: "top rows",
        sql: "SELECT * FROM t ORDER BY room, guest LIMIT 1000",
        operator: "SortExec: TopK",
        limit: 64 * KIB,
        ends: [Refused("for TopK[0]"); 4],
        ..USUAL
    },
    Scenario {
        name: "top rows that fit",
        sql: "SELECT * FROM t ORDER BY room, guest LIMIT 10",
        operator: "SortExec: TopK",
        limit: 256 * KIB,
        ..USUAL
    },
    Scenario {
        name: "window, no disk",
        table: Table::Visits(20_000, 1),
        sql: "SELECT night, row_number() OVER (PARTITION BY room ORDER BY guest) FROM t",
        operator: "SortExec",
        may_spill: false,
        limit: 512 * KIB,
        ends: [Refused("DiskManager is disabled"); 4],
        ..USUAL
    },
    Scenario {
        name: "window whose sort spills",
        table: Table::Visits(20_000, 1),
        sql: "SELECT night, row_number() OVER (PARTITION BY room ORDER BY guest) FROM t",
        operator: "SortExec",
        limit: 512 * KIB,
        ends: [Spills; 4],
        ..USUAL
    },
    Scenario {
        name: "repartition, no disk",
        table: Table::Visits(20_000, 1),
        sql: "SELECT guest, count(*) FROM t GROUP BY guest",
        operator: "RepartitionExec",
        partitions: 2,
        may_spill: false,
        limit: 64 * KIB,
        ends: [Refused("DiskManager"); 4],
        ..USUAL
    },
    Scenario {
        name: "repartition that spills",
        table: Table::Visits(20_000, 1),
        sql: "SELECT night, row_number() OVER (PARTITION BY guest ORDER BY night) FROM t",
        operator: "RepartitionExec",
        partitions: 2,
        limit: 512 * KIB,
        // While a sort waits for its disk, the repartition may take what the sort needs next.
        ends: [
            SpillsOrRefused("for ExternalSorter"),
            SpillsOrRefused("for ExternalSorter"),
            Passes,
            Passes,
        ],
        ..USUAL
    },
    Scenario {
        name: "recursive query",
        table: Table::Visits(1000, 1),
        sql: "WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT n.id + 1 FROM n JOIN t ON t.night < 20 AND n.id < 3) SELECT * FROM n",
        operator: "RecursiveQueryExec",
        limit: 2 * KIB,
        ends: [Refused("for RecursiveQuery"); 4],
        ..USUAL
    },
];

#[derive(Clone, Copy, Debug)]
enum Pool {
    Unlimited,
    Greedy,
    Group,
    Fair,
    Share,
}

const POOLS: [Pool; 4] = [Pool::Greedy, Pool::Group, Pool::Fair, Pool::Share];

/// Outcome of a run.
struct Run {
    rows: Result<usize>,
    spilled: usize,
    plan: String,
}

impl Scenario {
    fn run(&self, pool: Pool) -> Run {
        let memory = Memory::builder().build().unwrap();
        let limits = Limits::max(self.limit as u64);
        let tenant = memory.root().child("tenant", limits).unwrap();
        let builder = || GroupPool::builder(tenant.child("query", Limits::none()).unwrap());
        let memory_pool: Arc<dyn MemoryPool> = match pool {
            Pool::Unlimited => Arc::new(UnboundedMemoryPool::default()),
            Pool::Greedy => Arc::new(GreedyMemoryPool::new(self.limit)),
            Pool::Fair => Arc::new(FairSpillPool::new(self.limit)),
            Pool::Group => builder().build(),
            Pool::Share => builder().share(&FairShare::new(&tenant)).build(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let run = runtime.block_on(self.query(memory_pool));
        // Ends all tasks of the query.
        drop(runtime);
        assert_eq!(usage(&tenant), 0, "{} under {pool:?}", self.name);
        run
    }

    async fn query(&self, pool: Arc<dyn MemoryPool>) -> Run {
        let mode = match self.may_spill {
            true => DiskManagerMode::OsTmpDirectory,
            false => DiskManagerMode::Disabled,
        };
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(pool)
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
            .build_arc()
            .unwrap();
        let mut config = SessionConfig::new()
            .with_target_partitions(self.partitions)
            .with_batch_size(BATCH)
            .with_sort_in_place_threshold_bytes(1)
            .with_sort_spill_reservation_bytes(64 * KIB);
        for (key, value) in self.settings {
            config = config.set_str(key, value);
        }
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features();
        if !self.is_optimized {
            state = state.with_physical_optimizer_rules(Vec::new());
        }
        let context = SessionContext::new_with_state(state.build());
        context.register_table("t", self.table.provider()).unwrap();
        let frame = context.sql(self.sql).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let rows = collect(plan.clone(), context.task_ctx()).await;
        Run {
            rows: rows.map(|batches| batches.iter().map(RecordBatch::num_rows).sum()),
            spilled: spilled(&plan, self.operator),
            plan: displayable(plan.as_ref()).indent(false).to_string(),
        }
    }
}

/// Files that the operators of a plan with that name wrote. A shown operator begins with its name.
fn spilled(plan: &Arc<dyn ExecutionPlan>, operator: &str) -> usize {
    let is_named = operator.split(':').next() == Some(plan.name());
    let own = plan.metrics().filter(|_| is_named);
    let own = own.and_then(|metrics| metrics.spill_count());
    let below = plan.children().into_iter();
    let below: usize = below.map(|child| spilled(child, operator)).sum();
    own.unwrap_or(0) + below
}

fn usage(group: &Group) -> i64 {
    group.read(Freshness::Exact).unwrap().usage().value
}

/// Scenarios that pass under a pool of DataFusion's, and not under the group beside it, with the reason.
const PASS_ELSEWHERE: &[(&str, &str)] = &[];

/// Compares a run with its expected end; returns what was found instead. A refusal is a part of the error's text.
fn check(run: &Run, rows: usize, expected: End) -> std::result::Result<(), String> {
    let is_as_expected = match (&run.rows, expected) {
        (Ok(found), Passes) => *found == rows && run.spilled == 0,
        (Ok(found), Spills | SpillsOrRefused(_)) => *found == rows && run.spilled > 0,
        (Err(error), Refused(text) | SpillsOrRefused(text)) => error.to_string().contains(text),
        _ => false,
    };
    match is_as_expected {
        true => Ok(()),
        false => Err(format!("{:?}, {} files", run.rows, run.spilled)),
    }
}

#[test]
fn queries_end_under_groups_as_under_datafusions_pools() {
    let mut wrong = Vec::new();
    for scenario in SCENARIOS {
        let name = scenario.name;
        let all = scenario.run(Pool::Unlimited);
        let rows = all.rows.unwrap();
        assert!(all.plan.contains(scenario.operator), "{name}: {}", all.plan);
        let mut passed = Vec::new();
        for (pool, expected) in POOLS.into_iter().zip(scenario.ends) {
            let run = scenario.run(pool);
            // A run that may be refused at any time compares as one that passes.
            passed.push(run.rows.is_ok() || matches!(expected, SpillsOrRefused(_)));
            if let Err(found) = check(&run, rows, expected) {
                wrong.push(format!(
                    "{name}, {pool:?}: {expected:?} with {rows} rows, but {found}"
                ));
            }
        }
        let [greedy, group, fair, share] = passed[..] else {
            unreachable!("there are four pools");
        };
        let is_listed = PASS_ELSEWHERE.iter().any(|(listed, _)| *listed == name);
        if is_listed != (greedy && !group || fair && !share) {
            wrong.push(format!("{name}: PASS_ELSEWHERE is wrong"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Aggregates of two partitions read their files at the same time. Each needs bytes for its groups as well.
#[test]
fn aggregates_that_spilled_share_any_limit() {
    let groups = |limit| Scenario {
        name: "groups under any limit",
        table: Table::Visits(20_000, 1),
        sql: "SELECT guest, count(*) FROM t GROUP BY guest",
        partitions: 2,
        limit,
        ..USUAL
    };
    for limit in (384..=544).step_by(32).map(|kib| kib * KIB) {
        let run = groups(limit).run(Pool::Share);
        let rows = run.rows.unwrap_or_else(|error| panic!("{limit}: {error}"));
        assert_eq!(rows, 20_000, "{limit}");
    }
}
