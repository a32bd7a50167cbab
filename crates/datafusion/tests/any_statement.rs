//! Statements of a grammar, made at random: none leaves its group, changes what it may not, or is answered otherwise than without a group.
//!
//! `BURSAR_SEED=7 BURSAR_STATEMENTS=100000 cargo test -p bursar-datafusion --test any_statement` runs others, and more of them.
#![cfg(feature = "sql")]

use std::collections::BTreeMap;
use std::env;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_datafusion::{GroupPool, RefusalText, TenantSession, TenantSqlError};
use bursar_rig::random::Random;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use futures::StreamExt;

const SEEDS: u64 = 20;
/// Statements of a seed, which share a session.
const STATEMENTS: u64 = 20;
const ROWS_MAX: usize = 10_000;
const PREPARED_MAX: usize = 2;
/// Beginnings of the options that a tenant may set.
const MAY_SET: [&str; 4] = [
    "datafusion.execution.time_zone",
    "datafusion.explain.",
    "datafusion.format.",
    "datafusion.sql_parser.",
];

/// Rules: what stands for `{name}`. A rule's first text ends soonest, and stands where the nesting is deep.
const GRAMMAR: &[(&str, &[&str])] = &[
    (
        "statement",
        &["{query}", "{query}", "{query}", "{query}", "{other}"],
    ),
    (
        "other",
        &[
            "SHOW {option}",
            "SET {option} = {value}",
            "SET {option} TO {value}",
            "RESET {option}",
            "SHOW ALL",
            "SHOW TABLES",
            "EXPLAIN {query}",
            "EXPLAIN ANALYZE {query}",
            "EXPLAIN VERBOSE {query}",
            "DESCRIBE {table}",
            "PREPARE p{digit} AS {query}",
            "EXECUTE p{digit}",
            "DEALLOCATE p{digit}",
            "CREATE TABLE n AS {query}",
            "CREATE OR REPLACE TABLE {table} AS {query}",
            "CREATE VIEW n AS {query}",
            "CREATE EXTERNAL TABLE n STORED AS CSV LOCATION '/etc/passwd'",
            "CREATE SCHEMA n",
            "CREATE DATABASE n",
            "CREATE FUNCTION f() RETURNS INT RETURN 1",
            "DROP TABLE {table}",
            "DROP VIEW {table}",
            "INSERT INTO {table} {query}",
            "INSERT INTO {table} VALUES ({int}, {int}, {text}, {bool})",
            "UPDATE {table} SET a = {int}",
            "DELETE FROM {table} WHERE {bool}",
            "TRUNCATE TABLE {table}",
            "COPY ({query}) TO '/tmp/elsewhere.csv' STORED AS CSV",
            "COPY {table} TO '/tmp/elsewhere'",
            "BEGIN",
            "COMMIT",
            "ROLLBACK",
            "USE n",
            "{query}; {other}",
        ],
    ),
    (
        "option",
        &[
            "datafusion.execution.time_zone",
            "datafusion.sql_parser.dialect",
            "datafusion.sql_parser.enable_ident_normalization",
            "datafusion.sql_parser.default_null_ordering",
            "datafusion.sql_parser.recursion_limit",
            "datafusion.execution.batch_size",
            "datafusion.execution.target_partitions",
            "datafusion.execution.sort_spill_reservation_bytes",
            "datafusion.runtime.memory_limit",
            "DATAFUSION.RUNTIME.TEMP_DIRECTORY",
            "\"datafusion\".\"runtime\".\"memory_limit\"",
            "datafusion.catalog.information_schema",
            "datafusion.format.null",
            "datafusion.explain.format",
            "datafusion.optimizer.max_passes",
            "variable",
        ],
    ),
    (
        "value",
        &[
            "1",
            "'1'",
            "'UTC'",
            "'postgres'",
            "'mysql'",
            "true",
            "DEFAULT",
            "'4G'",
            "'/tmp/elsewhere'",
            "'tree'",
            "NULL",
        ],
    ),
    (
        "query",
        &[
            "SELECT {int} AS a, {int} AS b, {text} AS s, {bool} AS t FROM {table} AS x",
            "SELECT a, b, s, t FROM ({query}) AS x",
            "SELECT x.a, x.b, x.s, x.t FROM {source} AS x WHERE {bool}",
            "SELECT DISTINCT x.a, x.b, x.s, x.t FROM {source} AS x",
            "SELECT x.a, count(*) AS b, max(x.s) AS s, bool_or(x.t) AS t FROM {source} AS x GROUP BY x.a",
            "SELECT x.a, sum(x.b) AS b, min(x.s) AS s, false AS t FROM {source} AS x WHERE {bool} GROUP BY x.a HAVING count(*) > {digit}",
            "SELECT count(DISTINCT x.s) AS a, sum(x.a) AS b, max(x.s) AS s, true AS t FROM {source} AS x",
            "SELECT x.a, y.b, x.s, y.t FROM {source} AS x {join} JOIN {source} AS y ON x.a = y.b",
            "SELECT x.a, y.b, x.s, x.t FROM {source} AS x {join} JOIN {source} AS y ON x.a = y.a AND x.b < y.b",
            "SELECT x.a, x.b, y.s, y.t FROM {table} AS x {join} JOIN {table} AS y ON x.a > y.a + 20",
            "SELECT x.a, y.a AS b, x.s, y.t FROM {table} AS x, {table} AS y WHERE x.b = y.b",
            "SELECT x.a, sum(x.b) OVER (PARTITION BY x.t ORDER BY x.a, x.b, x.s) AS b, x.s, x.t FROM {source} AS x",
            "SELECT x.a, row_number() OVER (ORDER BY x.a, x.b, x.s, x.t) AS b, x.s, x.t FROM {source} AS x",
            "SELECT x.a, x.b, x.s, x.t FROM {source} AS x ORDER BY x.a + {int}, x.s DESC NULLS LAST",
            "SELECT x.a, x.b, x.s, x.t FROM {source} AS x ORDER BY x.a, x.b, x.s, x.t LIMIT {digit} OFFSET {digit}",
            "({query}) UNION ALL ({query})",
            "({query}) UNION ({query})",
            "({query}) INTERSECT ({query})",
            "({query}) EXCEPT ({query})",
            "WITH c AS ({query}) SELECT x.a, y.b, x.s, y.t FROM c AS x JOIN c AS y ON x.a = y.a",
            "WITH RECURSIVE r(a, b, s, t) AS (SELECT 1, 2, 'r', true UNION ALL SELECT a + 1, b, s, t FROM r WHERE a < {digit}) SELECT a, b, s, t FROM r",
            "SELECT x.a, x.b, x.s, x.t FROM {source} AS x WHERE x.a IN (SELECT y.b FROM {table} AS y WHERE y.a < x.b)",
            "SELECT x.a, x.b, x.s, x.t FROM {source} AS x WHERE NOT EXISTS (SELECT 1 FROM {table} AS y WHERE y.a = x.b)",
            "SELECT x.a, (SELECT max(y.b) FROM {table} AS y WHERE y.a = x.a) AS b, x.s, x.t FROM {source} AS x",
            "SELECT v.a, v.b, v.s, v.t FROM (VALUES ({digit}, {digit}, 'v', true), ({digit}, NULL, NULL, false)) AS v (a, b, s, t)",
            "SELECT {wrong} AS a, 1 AS b, 's' AS s, true AS t FROM {table} AS x",
        ],
    ),
    ("source", &["{table}", "{table}", "({query})"]),
    ("table", &["small", "large", "empty"]),
    ("join", &["INNER", "LEFT", "RIGHT", "FULL"]),
    (
        "int",
        &[
            "{digit}",
            "x.a",
            "x.b",
            "({int} + {int})",
            "({int} * {digit})",
            "({int} % 7)",
            "-{int}",
            "length({text})",
            "coalesce({int}, {digit})",
            "CASE WHEN {bool} THEN {int} ELSE {int} END",
            "CAST({int} AS BIGINT)",
            "nullif({int}, {digit})",
            "({int} / {digit})",
            "TRY_CAST({text} AS BIGINT)",
        ],
    ),
    (
        "text",
        &[
            "x.s",
            "'word'",
            "'it''s \u{1F980} \u{202E}'",
            "upper({text})",
            "concat({text}, {text})",
            "({text} || {text})",
            "substr({text}, {digit}, {digit})",
            "repeat({text}, {digit})",
            "lpad({text}, {length}, 'p')",
            "repeat('x', {length})",
            "reverse({text})",
            "CAST({int} AS VARCHAR)",
            "CASE {int} WHEN {digit} THEN {text} ELSE {text} END",
        ],
    ),
    (
        "bool",
        &[
            "x.t",
            "true",
            "{int} < {int}",
            "{int} = {digit}",
            "{text} = {text}",
            "{text} LIKE '%o_d%'",
            "{int} BETWEEN {digit} AND {int}",
            "{int} IN ({digit}, {int})",
            "{text} IS NOT NULL",
            "({bool} AND {bool})",
            "({bool} OR {bool})",
            "NOT {bool}",
        ],
    ),
    (
        "length",
        &[
            "{digit}",
            "100",
            "70000",
            "1000000000",
            "-1",
            "9223372036854775807",
        ],
    ),
    ("digit", &["0", "1", "2", "3", "5", "9"]),
    (
        "wrong",
        &[
            "x.missing",
            "nothing(x.a)",
            "1 / 0",
            "CAST('x' AS INT)",
            "x.a + x.s + ARRAY[1]",
            "$1",
            "sum(sum(x.a))",
            "*",
            "x.a::DECIMAL(99)",
        ],
    ),
];

/// Texts that take the place of a part, or stand between two.
const NOISE: [&str; 20] = [
    "(", ")", "'", "\"", ";", "--", "/*", "*/", "$$", "\0", "\\", ",", "NULL", "::", "@", "SELECT",
    "\u{FEFF}", "1e999", "`", "x'0'",
];

/// Choices from a seed.
struct Choices(Random);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    fn statement(&mut self) -> String {
        let mut text = String::new();
        let levels = 2 + self.below(6);
        self.expand("{statement}", levels, &mut text);
        // A damaged recursion may have no end.
        while !text.contains("RECURSIVE") && self.below(8) == 0 {
            let mut parts: Vec<_> = text.split(' ').collect();
            let at = self.below(parts.len());
            match self.below(3) {
                0 => drop(parts.remove(at)),
                1 => parts[at] = NOISE[self.below(NOISE.len())],
                _ => parts.insert(at, NOISE[self.below(NOISE.len())]),
            }
            text = parts.join(" ");
        }
        text
    }

    fn expand(&mut self, mut template: &str, levels: usize, text: &mut String) {
        while let Some((before, rest)) = template.split_once('{') {
            let (name, after) = rest.split_once('}').unwrap();
            text.push_str(before);
            let (_, texts) = GRAMMAR.iter().find(|rule| rule.0 == name).unwrap();
            let chosen = match levels {
                0 => 0,
                _ => self.below(texts.len()),
            };
            self.expand(texts[chosen], levels.saturating_sub(1), text);
            template = after;
        }
        text.push_str(template);
    }
}

/// Rows as text, in the order of the text.
type Rows = Vec<String>;

fn rows(batches: &[RecordBatch]) -> Rows {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            let cells: Vec<_> = columns
                .iter()
                .map(|column| column.value(row).to_string())
                .collect();
            cells.join("|")
        }));
    }
    rows.sort();
    rows
}

/// Runs a plan to its end, or until it has too many rows.
async fn collect(frame: DataFrame) -> Result<Rows, DataFusionError> {
    let mut stream = frame.execute_stream().await?;
    let mut batches = Vec::new();
    let mut count = 0;
    while let Some(batch) = stream.next().await
        && count < ROWS_MAX
    {
        let batch = batch?;
        count += batch.num_rows();
        batches.push(batch);
    }
    Ok(rows(&batches))
}

async fn plain(context: &SessionContext, sql: &str) -> Result<Rows, DataFusionError> {
    collect(context.sql(sql).await?).await
}

async fn add_tables(context: &SessionContext) {
    const COLUMNS: &str =
        "n % 50 AS a, n * 7 % 100 AS b, 's' || CAST(n % 30 AS VARCHAR) AS s, n % 3 = 0 AS t";
    for (name, count) in [("empty", 0), ("small", 20), ("large", 200)] {
        let values: Vec<_> = (0..count.max(1)).map(|n| format!("({n})")).collect();
        let sql = format!(
            "CREATE TABLE {name} AS SELECT {COLUMNS} FROM (VALUES {}) AS v (n) WHERE n < {count} \
             UNION ALL SELECT NULL, n, NULL, NULL FROM (VALUES {}) AS v (n) WHERE n < {}",
            values.join(", "),
            values.join(", "),
            count / 10
        );
        context.sql(&sql).await.unwrap().collect().await.unwrap();
    }
}

fn config() -> SessionConfig {
    SessionConfig::new()
        .with_target_partitions(1)
        .with_sort_spill_reservation_bytes(16 << 10)
        .with_information_schema(true)
}

/// A tenant's session in a group.
struct Tenant {
    context: SessionContext,
    session: TenantSession,
    query: Group,
    options: BTreeMap<String, Option<String>>,
    tables: Rows,
    _memory: Memory,
}

impl Tenant {
    async fn new(max: u64) -> Self {
        let memory = Memory::builder().build().unwrap();
        let tenant = memory.root().child("t", Limits::max(max)).unwrap();
        let query = tenant.child("q", Limits::none()).unwrap();
        let pool = GroupPool::new(query.clone());
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone());
        let context = SessionContext::new_with_config_rt(config(), runtime.build_arc().unwrap());
        add_tables(&context).await;
        let session = TenantSession::new(context.clone(), &pool).prepared_max(PREPARED_MAX);
        let mut tenant = Self {
            context,
            session,
            query,
            options: BTreeMap::new(),
            tables: Vec::new(),
            _memory: memory,
        };
        tenant.options = tenant.options();
        tenant.tables = tenant.tables().await;
        tenant
    }

    async fn run(&self, sql: &str) -> Result<Rows, TenantSqlError> {
        Ok(collect(self.session.sql(sql).await?).await?)
    }

    /// Options that a tenant may not set, those of the runtime among them.
    fn options(&self) -> BTreeMap<String, Option<String>> {
        let config = self.context.copied_config();
        let options = config.options().entries().into_iter();
        options
            .chain(self.context.runtime_env().config_entries())
            .map(|mut entry| {
                // The directory has a name once something was spilled.
                if entry.key == "datafusion.runtime.temp_directory" {
                    let elsewhere = entry.value.filter(|path| path.contains("elsewhere"));
                    entry.value = elsewhere;
                }
                (entry.key, entry.value)
            })
            .filter(|(key, _)| {
                let may_set = MAY_SET.iter().any(|name| key.starts_with(name));
                !may_set || key.ends_with("recursion_limit")
            })
            .collect()
    }

    /// Names and contents of all tables.
    async fn tables(&self) -> Rows {
        let mut found = Vec::new();
        for catalog in self.context.catalog_names() {
            let provider = self.context.catalog(&catalog).unwrap();
            for schema in provider.schema_names() {
                for table in provider.schema(&schema).unwrap().table_names() {
                    let mut line = format!("{catalog}.{schema}.{table}");
                    if schema == "public" {
                        let frame = self.context.table(table.as_str()).await.unwrap();
                        line += &format!(" {:?}", rows(&frame.collect().await.unwrap()));
                    }
                    found.push(line);
                }
            }
        }
        found.sort();
        found
    }

    async fn assert_as_before(&self, after: &str) {
        let pool = &self.context.runtime_env().memory_pool;
        assert!(
            pool.to_string().starts_with("bursar(/t/q"),
            "{after}: {pool}"
        );
        let mut changed = self.options();
        changed.retain(|key, value| self.options.get(key) != Some(value));
        assert!(changed.is_empty(), "{after}: {changed:?}");
        assert_eq!(self.tables().await, self.tables, "{after}");
    }

    /// Bytes that the tenant is charged.
    fn usage(&self) -> i64 {
        let report = self.query.read(Freshness::Exact).unwrap();
        report.usage().value
    }
}

#[derive(Default, Debug)]
struct Tally {
    equal: u64,
    /// Answered with too many rows to compare.
    long: u64,
    /// Failed with and without a group.
    wrong: u64,
    /// Refused because of the tenant's rules.
    refused: u64,
    /// Refused because of memory.
    short: u64,
    other: u64,
}

/// Runs the statements of one seed in a group that is large or small, and without a group.
async fn compare(seed: u64, max: u64, tally: &mut Tally) {
    let mut choices = Choices(Random::new(seed));
    let tenant = Tenant::new(max).await;
    let alone = SessionContext::new_with_config(config());
    add_tables(&alone).await;
    for number in 0..STATEMENTS {
        let sql = choices.statement();
        let place = format!("BURSAR_SEED={seed}, statement {number}, {max} bytes: {sql}");
        // Shown if the process ends.
        println!("{place}");
        let found = tenant.run(&sql).await;
        tenant.assert_as_before(&place).await;
        // A prepared statement stays charged until it is deallocated.
        let left = tenant.usage();
        if left > 0 {
            for name in 0..10 {
                let _ = tenant.run(&format!("DEALLOCATE p{name}")).await;
            }
        }
        assert!(left >= 0 && tenant.usage() == 0, "{place}: {left}");
        let word = sql
            .trim_start_matches(['(', ' '])
            .split(' ')
            .next()
            .unwrap_or_default();
        let is_query = ["SELECT", "WITH", "VALUES"].contains(&word);
        match found {
            Ok(rows) if is_query && rows.len() >= ROWS_MAX => tally.long += 1,
            Ok(rows) if is_query => {
                let expected = plain(&alone, &sql).await;
                assert_eq!(
                    rows,
                    expected.unwrap_or_else(|error| panic!("{place}: {error}")),
                    "{place}"
                );
                tally.equal += 1;
            }
            Ok(_) => {
                // An option that the tenant may set, so that the next statements are read alike.
                if ["SET", "RESET"].contains(&word) {
                    plain(&alone, &sql).await.unwrap();
                }
                tally.other += 1;
            }
            Err(TenantSqlError::DataFusion(error)) => {
                let root = error.find_root();
                if RefusalText::of(root).is_some() {
                    assert!(max < 1 << 20, "{place}: {error}");
                    tally.short += 1;
                } else {
                    if is_query {
                        let alone = plain(&alone, &sql).await;
                        assert!(alone.is_err(), "{place}: fails only in a group: {error}");
                    }
                    tally.wrong += 1;
                }
            }
            Err(error) => {
                assert!(!matches!(error, TenantSqlError::RuntimeChanged), "{place}");
                tally.refused += 1;
            }
        }
    }
}

#[tokio::test]
async fn any_statement_is_answered_as_without_a_group_or_refused() {
    let first = env::var("BURSAR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let seeds = env::var("BURSAR_STATEMENTS").map_or(SEEDS, |statements| {
        statements.parse::<u64>().unwrap().div_ceil(STATEMENTS)
    });
    let (mut large, mut small) = (Tally::default(), Tally::default());
    for seed in first..first + seeds {
        compare(seed, 64 << 20, &mut large).await;
        compare(seed, 48 << 10, &mut small).await;
    }
    println!("64 MiB: {large:?}\n48 KiB: {small:?}");
    // The grammar reaches each end.
    for tally in [&large, &small] {
        assert!(
            tally.equal > seeds && tally.wrong > 0 && tally.refused > 0 && tally.other > 0,
            "{tally:?}"
        );
    }
    assert!(small.short > 0, "{small:?}");
}
