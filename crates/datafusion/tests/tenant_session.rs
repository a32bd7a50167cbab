//! A tenant that may run statements stays in its group, and its spill files in their space.
#![cfg(feature = "sql")]

use std::collections::BTreeSet;
use std::sync::Arc;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_datafusion::{
    GroupPool, RefusalText, Resource, SpillSpace, TenantSession, TenantSqlError,
};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_functions_nested::arrays_zip::arrays_zip_udf;
use datafusion_functions_nested::range::{gen_series_udf, range_udf};
use datafusion_functions_nested::repeat::array_repeat_udf;
use datafusion_functions_nested::replace::{array_replace_all_udf, array_replace_n_udf};
use datafusion_functions_nested::resize::array_resize_udf;
use datafusion_functions_nested::string::array_to_string_udf;

const MIB: u64 = 1 << 20;

/// The runtime's options of DataFusion 55.2. An upgrade that adds one fails here: look whether it lifts a limit, and in which other
/// ways a statement reaches it.
const RUNTIME_OPTIONS: [&str; 8] = [
    "file_statistics_cache_limit",
    "list_files_cache_limit",
    "list_files_cache_ttl",
    "max_spill_merge_fan_in",
    "max_temp_directory_size",
    "memory_limit",
    "metadata_cache_limit",
    "temp_directory",
];

struct Scene {
    query: Group,
    /// Disk space of the tenant.
    disk: Group,
    context: SessionContext,
    session: TenantSession,
    _keep: (Memory, Memory),
}

fn scene(memory_max: u64, disk_max: u64) -> Scene {
    let memory = Memory::builder().build().unwrap();
    let tenant = memory.root().child("t", Limits::max(memory_max)).unwrap();
    let query = tenant.child("q", Limits::none()).unwrap();
    let pool = GroupPool::new(query.clone());
    let disks = Memory::builder().build().unwrap();
    let disk = disks.root().child("t", Limits::max(disk_max)).unwrap();
    let files = Arc::new(DiskManagerBuilder::default().build().unwrap());
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(pool.clone())
        .with_disk_manager_builder(SpillSpace::new(disk.clone(), files).into_builder())
        .build_arc()
        .unwrap();
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .with_sort_spill_reservation_bytes(1 << 20)
        .with_information_schema(true);
    let context = SessionContext::new_with_config_rt(config, runtime);
    Scene {
        query,
        disk,
        session: TenantSession::new(context.clone(), &pool),
        context,
        _keep: (memory, disks),
    }
}

impl Scene {
    async fn run(&self, sql: &str) -> Result<usize, TenantSqlError> {
        let batches = self.session.sql(sql).await?.collect().await?;
        Ok(batches.iter().map(|batch| batch.num_rows()).sum())
    }

    async fn forbidden(&self, sql: &str) -> String {
        match self.run(sql).await {
            Err(TenantSqlError::Forbidden { what }) => what,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// Checks the pool and the options of which a limit consists, as the session has them.
    fn assert_bound(&self, after: &str) {
        let runtime = self.context.runtime_env();
        assert!(
            runtime.memory_pool.to_string().starts_with("bursar(/t/q"),
            "{after}"
        );
        assert!(
            matches!(runtime.memory_pool.memory_limit(), MemoryLimit::Finite(bytes) if bytes as u64 == 64 * MIB),
            "{after}"
        );
        assert!(
            !runtime
                .disk_manager
                .temp_dir_paths()
                .iter()
                .any(|path| path.starts_with("/tmp/elsewhere")),
            "{after}"
        );
    }
}

fn usage(group: &Group) -> i64 {
    group.read(Freshness::Exact).unwrap().usage().value
}

#[tokio::test]
async fn no_option_lifts_a_limit() {
    let scene = scene(64 * MIB, 64 * MIB);
    let runtime = scene.context.runtime_env().config_entries();
    let found: BTreeSet<&str> = runtime
        .iter()
        .map(|entry| entry.key.strip_prefix("datafusion.runtime.").unwrap())
        .collect();
    assert_eq!(found, BTreeSet::from(RUNTIME_OPTIONS));
    for name in RUNTIME_OPTIONS {
        for key in [
            format!("datafusion.runtime.{name}"),
            format!("DATAFUSION.Runtime.{name}"),
            format!("\"datafusion\".\"runtime\".{name}"),
        ] {
            for value in ["'4G'", "'/tmp/elsewhere'", "0", "DEFAULT"] {
                let sql = format!("SET {key} = {value}");
                assert!(self_is_refused(scene.run(&sql).await), "{sql}");
                scene.assert_bound(&sql);
            }
            let sql = format!("RESET {key}");
            assert!(self_is_refused(scene.run(&sql).await), "{sql}");
            scene.assert_bound(&sql);
        }
    }
    // Every other option, with a value that it takes.
    let options = scene.context.copied_config().options().entries();
    assert!(options.len() > 100);
    for entry in options {
        let value = entry.value.unwrap_or_default().replace('\'', "");
        for sql in [
            format!("SET {} = '{value}'", entry.key),
            format!("RESET {}", entry.key),
        ] {
            match scene.run(&sql).await {
                Ok(_) | Err(TenantSqlError::Forbidden { .. } | TenantSqlError::DataFusion(_)) => {}
                Err(other) => panic!("{sql}: {other}"),
            }
            scene.assert_bound(&sql);
        }
    }
    // The limit is still there.
    let sort = "SELECT value FROM generate_series(1, 30000000) ORDER BY value DESC";
    let _ = scene.run(sort).await;
    assert!(scene.query.peak() <= 64 * MIB);
}

/// Refused by us, or no statement at all to DataFusion.
fn self_is_refused(outcome: Result<usize, TenantSqlError>) -> bool {
    matches!(
        outcome,
        Err(TenantSqlError::Forbidden { .. } | TenantSqlError::DataFusion(_))
    )
}

#[tokio::test]
async fn no_statement_leaves_the_group() {
    let scene = scene(64 * MIB, 64 * MIB);
    scene.run("SELECT 1").await.unwrap();
    let told = scene
        .forbidden("SET datafusion.runtime.memory_limit = '4G'")
        .await;
    assert_eq!(told, "SET datafusion.runtime.memory_limit");
    for sql in [
        "RESET datafusion.runtime.memory_limit",
        "SET datafusion.execution.batch_size = 1000000",
        "SET datafusion.execution.target_partitions = 1000",
        "CREATE TABLE kept AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE EXTERNAL TABLE passwords STORED AS CSV LOCATION '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/elsewhere/file.csv'",
        "EXPLAIN ANALYZE CREATE TABLE kept AS SELECT 1",
        "SET datafusion.sql_parser.recursion_limit = 100000000",
        "RESET datafusion.sql_parser.recursion_limit",
        "SET datafusion.sql_parser.collect_spans = true",
    ] {
        match scene.run(sql).await {
            Err(TenantSqlError::Forbidden { .. } | TenantSqlError::DataFusion(_)) => {}
            other => panic!("{sql}: {other:?}"),
        }
        scene.assert_bound(sql);
    }
    for sql in [
        "PREPARE p AS SET datafusion.runtime.memory_limit = '4G'",
        "EXECUTE p",
        "BEGIN; SET datafusion.runtime.memory_limit = '4G'",
    ] {
        assert!(scene.run(sql).await.is_err(), "{sql}");
        scene.assert_bound(sql);
    }
    scene
        .run("SET datafusion.sql_parser.dialect = 'postgres'")
        .await
        .unwrap();
    // A program may allow more, and never the runtime's options.
    let Scene {
        context,
        session,
        query,
        ..
    } = scene;
    let session = session
        .allow(SQLOptions::new())
        .may_set("datafusion.runtime.")
        .may_set("datafusion.execution.batch_size");
    let run = async |sql: &str| session.sql(sql).await.map(drop);
    run("CREATE TABLE kept AS SELECT 1").await.unwrap();
    run("SET datafusion.execution.batch_size = 1000")
        .await
        .unwrap();
    run("SET datafusion.execution.time_zone = '+02:00'")
        .await
        .unwrap();
    let escape = run("SET datafusion.runtime.memory_limit = '4G'").await;
    assert!(
        matches!(escape, Err(TenantSqlError::Forbidden { .. })),
        "{escape:?}"
    );
    assert!(
        context
            .runtime_env()
            .memory_pool
            .to_string()
            .contains("/t/q")
            && usage(&query) == 0
    );
}

#[tokio::test]
async fn refusals_are_sentences() {
    let scene = scene(64 * MIB, 64 * MIB);
    for (sql, what) in [
        ("CREATE TABLE x AS SELECT 1", "CREATE TABLE"),
        ("EXPLAIN CREATE VIEW x AS SELECT 1", "CREATE VIEW"),
        (
            "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/x'",
            "CREATE EXTERNAL TABLE",
        ),
        ("DROP TABLE x", "DROP TABLE"),
        ("CREATE SCHEMA x", "CREATE SCHEMA"),
        ("COPY (SELECT 1) TO '/x.csv'", "COPY"),
        ("PREPARE p AS SELECT 1", "PREPARE"),
        (
            "SET datafusion.execution.batch_size = 1",
            "SET datafusion.execution.batch_size",
        ),
    ] {
        let refused = scene.run(sql).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("a tenant may not use {what}"),
            "{sql}"
        );
    }
    let session = scene
        .session
        .allow(SQLOptions::new().with_allow_statements(false));
    let refused = session
        .sql("SET datafusion.execution.time_zone = 'UTC'")
        .await;
    assert_eq!(
        refused.err().unwrap().to_string(),
        "a tenant may not use SET"
    );
    let session = session.statement_bytes_max(30).depth_max(10);
    let refusal = async |sql: &str| session.sql(sql).await.err().unwrap().to_string();
    assert_eq!(
        refusal("SELECT 'more than thirty bytes'").await,
        "the statement has 31 bytes, and a tenant's may have at most 30"
    );
    let deep = refusal("SELECT 1+1+1+1+1+1+1+1+1+1+1").await;
    assert!(
        deep.starts_with("the statement nests more than 10 levels"),
        "{deep}"
    );
    // A type in a text is as deep.
    let session = session.statement_bytes_max(1_000);
    let kind = "List(".repeat(20) + "Int64" + &")".repeat(20);
    let text = format!("SELECT arrow_cast(NULL, '{kind}') IS NULL");
    let deep = session.sql(&text).await.err().unwrap().to_string();
    assert!(
        deep.starts_with("the statement nests more than 10 levels"),
        "{deep}"
    );
}

/// Literals of the longest statement that fits.
fn literals() -> String {
    let mut text = "PREPARE {} AS SELECT * FROM (VALUES (0)".to_owned();
    while text.len() < 65_000 {
        text += ",(1)";
    }
    text + ")"
}

#[tokio::test]
async fn a_prepared_statement_is_charged_until_it_is_deallocated() {
    let mut scene = scene(64 * MIB, 64 * MIB);
    scene.session = scene.session.prepared_max(3);
    let prepare = literals();
    let prepare = |name: &str| prepare.replace("{}", name);
    scene.run(&prepare("a")).await.unwrap();
    let one = usage(&scene.query);
    assert!(one > 8 << 20, "{one}");
    // Neither a name that is taken nor a statement that fails changes anything.
    let taken = scene.run("PREPARE a AS SELECT 1").await.unwrap_err();
    assert!(taken.to_string().contains("already exists"), "{taken}");
    let wrong = scene.run("PREPARE b (INT, INT) AS SELECT $1").await;
    assert!(wrong.is_err());
    assert!(scene.run("DEALLOCATE none").await.is_err());
    assert_eq!(usage(&scene.query), one);
    scene.run("PREPARE b AS SELECT 1").await.unwrap();
    scene.run("PREPARE c AS SELECT 1").await.unwrap();
    let many = scene.run("PREPARE d AS SELECT 1").await.unwrap_err();
    assert!(
        matches!(many, TenantSqlError::TooManyPrepared { max: 3 }),
        "{many}"
    );
    assert_eq!(scene.run("EXECUTE b").await.unwrap(), 1);
    for name in ["a", "b", "c"] {
        scene.run(&format!("DEALLOCATE {name}")).await.unwrap();
    }
    assert_eq!(usage(&scene.query), 0);
    // The group's limit holds for what is kept.
    scene.query.set_max(one as u64 + MIB);
    scene.run(&prepare("a")).await.unwrap();
    let full = scene.run(&prepare("b")).await.unwrap_err();
    assert!(full.to_string().contains("Resources exhausted"), "{full}");
    assert!(scene.run("EXECUTE b").await.is_err());
    drop(scene.session);
    assert_eq!(usage(&scene.query), 0);
}

/// Each reference gets a copy of the argument before anything is charged.
#[tokio::test]
async fn an_argument_of_execute_is_not_copied_without_bound() {
    let mut scene = scene(64 * MIB, 64 * MIB);
    scene.session = scene.session.prepared_max(3);
    for (name, references, is_refused) in [("few", 10, false), ("many", 2_000, true)] {
        let list = vec!["$1"; references].join(",");
        let text = format!("PREPARE {name} AS SELECT 'a' IN ({list})");
        scene.run(&text).await.unwrap();
        for argument in [
            "repeat('b', 100000)".to_owned(),
            format!("'{}'", "b".repeat(50_000)),
        ] {
            let ran = scene.run(&format!("EXECUTE {name}({argument})")).await;
            let is_too_large = matches!(ran, Err(TenantSqlError::ValueTooLarge { .. }));
            assert_eq!(is_too_large, is_refused, "{name} {argument:.20}");
        }
    }
    // The optimizer writes the first argument of each twice.
    let nested = (0..6).fold("$1".to_owned(), |inner, _| format!("coalesce({inner}, $2)"));
    let text = format!("PREPARE nested (TEXT, TEXT) AS SELECT {nested}");
    scene.run(&text).await.unwrap();
    for (length, is_refused) in [(1000, false), (50_000, true)] {
        let text = "b".repeat(length);
        let ran = scene.run(&format!("EXECUTE nested('{text}', NULL)")).await;
        let is_too_large = matches!(ran, Err(TenantSqlError::ValueTooLarge { .. }));
        assert_eq!(is_too_large, is_refused, "{ran:?}");
    }
}

impl Scene {
    /// Has a table of one text and one number, and the functions of lists.
    async fn with_functions(mut self) -> Self {
        for function in [
            range_udf(),
            gen_series_udf(),
            array_repeat_udf(),
            array_resize_udf(),
            array_to_string_udf(),
            array_replace_n_udf(),
            array_replace_all_udf(),
            arrays_zip_udf(),
        ] {
            self.context.register_udf(function.as_ref().clone());
        }
        let table = "CREATE TABLE t AS SELECT 'text' AS s, 7 AS n";
        self.context.sql(table).await.unwrap();
        let view = "CREATE VIEW v AS SELECT repeat(s, 30000000) AS s FROM t";
        self.context.sql(view).await.unwrap();
        self.session = self
            .session
            .allow(SQLOptions::new().with_allow_dml(false))
            .prepared_max(10);
        self
    }

    /// Plans a statement that is refused. If it is not, no value is made.
    async fn too_large(&self, sql: &str) -> (String, u64) {
        match self.session.sql(sql).await.map(drop) {
            Err(TenantSqlError::ValueTooLarge {
                function, bytes, ..
            }) => (function, bytes),
            other => panic!("{sql}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn texts_and_lists_with_long_parts_count_by_these() {
    let scene = scene(64 * MIB, 64 * MIB).with_functions().await;
    for (sql, function) in [
        (
            "SELECT array_to_string(range(10000), repeat(',', 2000))",
            "array_to_string",
        ),
        (
            "SELECT list_join(array_repeat(NULL, 10000), ',', repeat('y', 2000))",
            "array_to_string",
        ),
        (
            "SELECT array_join(array_repeat(n, 10000), repeat(',', 2000), NULL) FROM t",
            "array_to_string",
        ),
        // Lists that are null, numbers that are long as texts, elements that are replaced or filled up.
        (
            "SELECT array_to_string(array_repeat(arrow_cast(NULL, 'List(Int64)'), 10000), ',', repeat('y', 2000))",
            "array_to_string",
        ),
        (
            "SELECT array_to_string(array_repeat(1e-300, 60000), ',')",
            "array_to_string",
        ),
        (
            "SELECT array_replace_all(array_repeat('a', 10000), 'a', repeat('y', 2000))",
            "array_replace_all",
        ),
        (
            "SELECT list_replace_n(array_repeat('a', 10000), 'a', repeat('y', 2000), 10000)",
            "array_replace_n",
        ),
        (
            "SELECT arrays_zip(range(700000), range(1), range(1))",
            "arrays_zip",
        ),
        (
            "SELECT concat_ws(repeat('x', 4000000), '', '', '', '')",
            "concat_ws",
        ),
        // Texts that are not constant, with parts that are.
        (
            "SELECT replace(CAST(n AS VARCHAR) || repeat('a', 10000), 'a', repeat('y', 2000)) FROM t",
            "replace",
        ),
        (
            "SELECT repeat(upper(repeat(s, 10000)), 2000) FROM t",
            "repeat",
        ),
        (
            "SELECT repeat(CASE WHEN n > 1 THEN concat(s, repeat('a', 10000)) ELSE coalesce(s, 'x') END, 2000) FROM t",
            "repeat",
        ),
    ] {
        assert_eq!(scene.too_large(sql).await.0, function, "{sql}");
    }
    // The size of each argument is found once: otherwise this would take hours.
    let nested = (0..28).fold("array_repeat(n, 2)".to_owned(), |inner, _| {
        format!("array_replace_all({inner}, 1, 2)")
    });
    let ran = scene.run(&format!("SELECT {nested} FROM t")).await;
    ran.unwrap();
    for sql in [
        "SELECT regexp_replace(repeat('x', 5000), 'x', repeat('y', 4000))",
        "SELECT regexp_replace(repeat('x', 500), 'x', repeat('y', 4000), 'g')",
        "SELECT array_to_string(range(1000), ', '), concat_ws(', ', s, s), replace(s, 't', 'tt') FROM t",
        "SELECT arrays_zip(range(2), range(1)), array_replace_all(range(2), 1, 3)",
    ] {
        let ran = scene.run(sql).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[tokio::test]
async fn a_value_that_a_statement_makes_has_a_bound() {
    let scene = scene(64 * MIB, 64 * MIB).with_functions().await;
    let endless = u64::MAX;
    for (sql, function, bytes) in [
        ("SELECT repeat('xy', 10000000)", "repeat", 20_000_000),
        (
            "SELECT length(repeat('xy', 10000000)) FROM t",
            "repeat",
            20_000_000,
        ),
        ("SELECT repeat(s, 20000000) FROM t", "repeat", 20_000_000),
        (
            "SELECT repeat('xyz', 9223372036854775807)",
            "repeat",
            endless,
        ),
        ("SELECT repeat('xy', 1000 * 10000)", "repeat", 20_000_000),
        (
            "SELECT repeat(upper('xy'), CAST('10000000' AS INT))",
            "repeat",
            20_000_000,
        ),
        (
            "SELECT repeat(CAST(12 AS VARCHAR), 10000000)",
            "repeat",
            20_000_000,
        ),
        ("SELECT lpad('x', 5000000)", "lpad", 20_000_000),
        ("SELECT rpad(s, 5000000, 'y') FROM t", "rpad", 20_000_000),
        (
            "SELECT lpad(s, 9223372036854775807) FROM t",
            "lpad",
            endless,
        ),
        ("SELECT range(3000000)", "range", 24_000_008),
        ("SELECT range(1, 3000000)", "range", 24_000_000),
        ("SELECT range(0, -6000000, -2)", "range", 24_000_008),
        (
            "SELECT generate_series(1, 6000000, 2)",
            "generate_series",
            24_000_000,
        ),
        (
            "SELECT range(-9223372036854775808, 9223372036854775807)",
            "range",
            endless,
        ),
        ("SELECT unnest(range(3000000))", "range", 24_000_008),
        (
            "SELECT range(TIMESTAMP '2020-01-01', TIMESTAMP '2020-02-04', INTERVAL '1 second')",
            "range",
            23_500_808,
        ),
        (
            "SELECT range(DATE '2020-01-01', DATE '2021-01-01', INTERVAL '1 month -28 days')",
            "range",
            endless,
        ),
        (
            "SELECT array_repeat(1, 3000000)",
            "array_repeat",
            24_000_000,
        ),
        (
            "SELECT list_repeat(n, 3000000) FROM t",
            "array_repeat",
            24_000_000,
        ),
        (
            "SELECT array_repeat(NULL, 9223372036854775807)",
            "array_repeat",
            endless,
        ),
        (
            "SELECT array_resize(range(1), 3000000)",
            "array_resize",
            24_000_016,
        ),
        (
            "SELECT list_resize(range(n), 3000000, NULL) FROM t",
            "array_resize",
            24_000_000,
        ),
        // Types of a fixed length.
        (
            "SELECT CAST(NULL AS BIGINT[2147483647])",
            "CAST",
            17_179_869_176,
        ),
        (
            "SELECT TRY_CAST(NULL AS BIGINT[1000000][1000000]) FROM t",
            "CAST",
            8_000_000_000_000,
        ),
        (
            "SELECT arrow_typeof(arrow_cast(NULL, 'FixedSizeBinary(2147483647)'))",
            "arrow_cast",
            2_147_483_647,
        ),
        (
            "SELECT arrow_try_cast(n, 'FixedSizeList(3000000, Int64)') FROM t",
            "arrow_try_cast",
            24_000_000,
        ),
        (
            "SELECT arrow_cast(NULL, 'FixedSizeList(1000000, Struct(\"a\": Int64, \"b\": Int64, \"c\": Int64))')",
            "arrow_cast",
            24_000_000,
        ),
        (
            "SELECT CAST(array_repeat(NULL, 1000) AS BIGINT[1000][])",
            "CAST",
            endless,
        ),
        (
            "SELECT array_resize(array_repeat(arrow_cast(NULL, 'FixedSizeBinary(1000)'), 1), 20000)",
            "array_resize",
            20_001_064,
        ),
        (
            "PREPARE p (BIGINT[3000000]) AS SELECT $1",
            "a parameter",
            24_000_000,
        ),
        // As long as the product of two.
        (
            "SELECT replace(repeat('x', 10000), 'x', repeat('y', 2000))",
            "replace",
            20_022_000,
        ),
        (
            "SELECT replace(repeat(s, 10000), s, repeat('y', 2000)) FROM t",
            "replace",
            20_022_000,
        ),
        (
            "SELECT regexp_replace(repeat('x', 10000), '', repeat('y', 2000), 'g')",
            "regexp_replace",
            30_024_000,
        ),
        // Inside each other, and beside each other.
        (
            "SELECT repeat(repeat('x', 1000000), 1000000)",
            "repeat",
            1_000_001_000_000,
        ),
        (
            "SELECT repeat(repeat(s, 1000), 20000) FROM t",
            "repeat",
            20_001_000,
        ),
        (
            "SELECT lpad('x', length(repeat('x', 5000000)))",
            "lpad",
            25_000_000,
        ),
        (
            "SELECT repeat('x', 10000000), repeat('y', 10000000)",
            "repeat",
            20_000_000,
        ),
        // Wherever they are.
        (
            "SELECT 1 FROM t WHERE s = repeat('x', 20000000)",
            "repeat",
            20_000_000,
        ),
        (
            "SELECT (SELECT max(repeat(s, 20000000)) FROM t)",
            "repeat",
            20_000_000,
        ),
        (
            "SELECT 1 FROM t WHERE EXISTS (SELECT repeat(u.s, 20000000) FROM t u WHERE u.n = t.n)",
            "repeat",
            20_000_000,
        ),
        (
            "WITH c AS (SELECT repeat('x', 20000000)) SELECT 1 FROM c",
            "repeat",
            20_000_000,
        ),
        ("VALUES (repeat('x', 20000000))", "repeat", 20_000_000),
        (
            "SELECT 1 FROM t ORDER BY repeat(s, 20000000)",
            "repeat",
            20_000_000,
        ),
        ("EXPLAIN SELECT repeat('x', 20000000)", "repeat", 20_000_000),
        ("SELECT count(*) FROM v", "repeat", 30_000_000),
        (
            "CREATE VIEW w AS SELECT repeat('x', 20000000)",
            "repeat",
            20_000_000,
        ),
        (
            "CREATE TABLE w AS SELECT repeat('x', 20000000)",
            "repeat",
            20_000_000,
        ),
        (
            "PREPARE p AS SELECT repeat('x', 20000000)",
            "repeat",
            20_000_000,
        ),
    ] {
        let (name, found) = scene.too_large(sql).await;
        assert_eq!((&name[..], found), (function, bytes), "{sql}");
    }
    let seconds = "SELECT repeat('x', CAST(date_part('epoch', now()) AS BIGINT))";
    assert!(scene.too_large(seconds).await.1 > 1_500_000_000);
    let sql = "SELECT repeat('xy', 10000000)";
    let refused = scene.session.sql(sql).await.map(drop);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "with repeat, the statement makes values of 19.1 MiB, and a tenant's may make 16.0 MiB at most: ask for \
         shorter values"
    );
    assert_eq!(usage(&scene.query), 0);
}

#[tokio::test]
async fn shorter_values_and_other_lengths_are_not_refused() {
    let scene = scene(64 * MIB, 64 * MIB).with_functions().await;
    for sql in [
        "SELECT repeat('x', 16777216)",
        "SELECT repeat('x', -9223372036854775808)",
        "SELECT repeat('', 1000000000)",
        "SELECT repeat(NULL, 1000000000)",
        "SELECT repeat('x', NULL)",
        "SELECT lpad(CAST(NULL AS VARCHAR), 1000000000)",
        "SELECT lpad('x', -1), rpad('x', 4000000, 'y')",
        "SELECT lpad('x', 5, NULL)",
        "SELECT range(2000000)",
        "SELECT range(1000000000, 0), range(0, 1000000000, -1), range(NULL)",
        "SELECT range(5, 5), generate_series(9223372036854775807, 9223372036854775807)",
        "SELECT generate_series(DATE '1900-01-01', DATE '2100-01-01', INTERVAL '1 day')",
        "SELECT range(TIMESTAMP '2020-01-01', NULL, INTERVAL '1 second')",
        "SELECT array_repeat(1, -1)",
        "SELECT array_resize(range(5), 1000), array_resize(range(5), NULL)",
        "SELECT arrow_cast(1, 'Int32'), CAST(NULL AS BIGINT[5]) AS a, CAST(NULL AS BIGINT[]) AS b",
        // Lengths of columns.
        "SELECT repeat('x', n), lpad(s, n), range(n) FROM t",
        "SELECT repeat('x', (SELECT max(n) FROM t))",
        // A table, which makes batches.
        "SELECT count(*) FROM range(0, 5000000)",
    ] {
        scene
            .run(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    // DataFusion's own refusals stay.
    for sql in [
        "SELECT range(1, 2, 0)",
        "SELECT repeat('x')",
        "SELECT repeat('x', 18446744073709551615)",
    ] {
        let refused = scene.run(sql).await.unwrap_err();
        assert!(
            matches!(refused, TenantSqlError::DataFusion(_)),
            "{sql}: {refused}"
        );
    }
    let session = scene.session.value_bytes_max(10);
    session.sql("SELECT repeat('x', 10)").await.unwrap();
    let refused = session.sql("SELECT repeat('x', 11)").await.map(drop);
    assert!(
        matches!(
            refused,
            Err(TenantSqlError::ValueTooLarge {
                bytes: 11,
                max: 10,
                ..
            })
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_length_of_a_parameter_is_bounded_when_it_is_known() {
    let scene = scene(64 * MIB, 64 * MIB).with_functions().await;
    scene
        .run("PREPARE p AS SELECT length(repeat('x', $1))")
        .await
        .unwrap();
    scene
        .run("PREPARE q (BIGINT) AS SELECT length(repeat('x', $1))")
        .await
        .unwrap();
    for name in ["p", "q"] {
        scene.run(&format!("EXECUTE {name}(10)")).await.unwrap();
        let (function, bytes) = scene.too_large(&format!("EXECUTE {name}(20000000)")).await;
        assert_eq!((&function[..], bytes), ("repeat", 20_000_000));
        // Evaluated to find the parameter.
        let parameter = format!("EXECUTE {name}(length(repeat('x', 30000000)))");
        assert_eq!(scene.too_large(&parameter).await.1, 30_000_000);
    }
}

#[tokio::test]
async fn an_argument_of_a_table_function_makes_no_value() {
    let scene = scene(64 * MIB, 64 * MIB).with_functions().await;
    for sql in [
        "SELECT * FROM range(0, length(repeat('x', 20)))",
        "SELECT * FROM t, LATERAL generate_series(0, 1 + length(\"repeat\"('x', 20)))",
        "SELECT (SELECT count(*) FROM range(length(Repeat('x', 20))))",
    ] {
        let what = scene.forbidden(sql).await;
        assert_eq!(what, "repeat in an argument of a table function", "{sql}");
    }
    for sql in [
        "SELECT * FROM range(0, NULL::BIGINT[2147483647])",
        "SELECT * FROM range(0, CAST(NULL AS BIGINT[2147483647][]))",
    ] {
        let what = scene.forbidden(sql).await;
        assert_eq!(what, "a cast to a list in an argument of a table function");
    }
    let what = scene
        .forbidden("SELECT * FROM range(0, arrow_cast(1, 'Int64'))")
        .await;
    assert_eq!(what, "arrow_cast in an argument of a table function");
    let sql = "SELECT * FROM range(0, cardinality(list_repeat(1, 20)))";
    assert!(scene.forbidden(sql).await.starts_with("list_repeat in"));
    assert_eq!(
        scene
            .run("SELECT * FROM range(0, 1 + length('xy'))")
            .await
            .unwrap(),
        3
    );
}

#[tokio::test]
async fn a_runtime_changed_behind_it_is_noticed() {
    let scene = scene(64 * MIB, 64 * MIB);
    // Code of the program with the same context.
    scene
        .context
        .sql("SET datafusion.runtime.memory_limit = '4G'")
        .await
        .unwrap();
    for sql in ["SELECT 1", "SHOW datafusion.execution.batch_size"] {
        let refused = scene.run(sql).await;
        assert!(
            matches!(refused, Err(TenantSqlError::RuntimeChanged)),
            "{refused:?}"
        );
    }
}

#[test]
#[should_panic(expected = "the session's pool is")]
fn a_session_of_another_pool_is_none() {
    let memory = Memory::builder().build().unwrap();
    let pool = GroupPool::new(memory.root().child("q", Limits::none()).unwrap());
    let _ = TenantSession::new(SessionContext::new(), &pool);
}

/// It sorts 64 MB of numbers in 16 MiB, so it spills.
const SORT: &str = "SELECT value FROM generate_series(1, 8000000) ORDER BY value DESC";

#[tokio::test]
async fn spill_files_are_charged_to_their_space() {
    let scene = scene(16 * MIB, 1 << 30);
    assert_eq!(scene.run(SORT).await.unwrap(), 8_000_000);
    let peak = scene.disk.peak();
    assert!((32 * MIB..256 * MIB).contains(&peak), "{peak}");
    assert_eq!((usage(&scene.disk), usage(&scene.query)), (0, 0));
}

#[tokio::test]
async fn a_full_space_fails_the_query_alone() {
    let scene = scene(16 * MIB, 8 * MIB);
    let TenantSqlError::DataFusion(error) = scene.run(SORT).await.unwrap_err() else {
        panic!("it is DataFusion's");
    };
    let text = RefusalText::of(&error).unwrap();
    assert_eq!(text.resource, Resource::SpillSpace);
    assert!(
        text.message
            .starts_with("no disk space for a spill file: cannot charge")
            && text.message.contains(" to /t: "),
        "{text:?}"
    );
    assert!(text.detail.starts_with("The tree around /t:\n"), "{text:?}");
    assert!(text.hint.contains("disk space of /t"), "{text:?}");
    assert_eq!(text.clone().within("/other").detail, "");
    assert!(scene.disk.peak() <= 8 * MIB);
    assert_eq!((usage(&scene.disk), usage(&scene.query)), (0, 0));
    // Room that is given while it runs counts at once.
    scene.disk.set_max(1 << 30);
    assert_eq!(scene.run(SORT).await.unwrap(), 8_000_000);
}
