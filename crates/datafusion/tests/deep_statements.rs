//! No statement of a tenant ends the process, however deep it nests. Each kind of statement runs in a process of its own, on half the stack
//! that workers of tokio have. Random mixes run several to a process. `BURSAR_SEED` is the first seed of these.
#![cfg(feature = "sql")]

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bursar::{Limits, Memory};
use bursar_datafusion::{GroupPool, TenantSession, TenantSqlError};
use bursar_tpch::{QUERIES, Tables};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

const CHILD: &str = "BURSAR_TEST_DEEP_STATEMENT";
const STACK_BYTES: usize = 1 << 20;
const PROCESSES: u64 = 8;
const MIXES_A_PROCESS: u64 = 50;

/// Statements of one kind, by depth.
type Kind = (&'static str, fn(usize) -> String);

fn chain(first: &str, link: &str, depth: usize) -> String {
    first.to_owned() + &link.repeat(depth)
}

fn nest(open: &str, inner: &str, close: &str, depth: usize) -> String {
    open.repeat(depth) + inner + &close.repeat(depth)
}

fn select(expr: &str) -> String {
    format!("SELECT {expr} FROM (VALUES (1, 'x', true)) AS t (a, s, b)")
}

/// Common table expressions, of which each reads the one before it: `{}` stands for its name.
fn ctes(query: &str, depth: usize) -> String {
    let mut text = "WITH c0 AS (SELECT 1 AS x)".to_owned();
    for number in 1..=depth {
        let before = format!("c{}", number - 1);
        text += &format!(", c{number} AS ({})", query.replace("{}", &before));
    }
    text + &format!(" SELECT * FROM c{depth}")
}

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    ("terms", |n| format!("SELECT {}", chain("1", "+1", n))),
    ("terms of a column", |n| select(&chain("a", "+a", n))),
    ("parentheses", |n| format!("SELECT {}", nest("(", "1", ")", n))),
    ("terms in parentheses", |n| select(&nest("(a+", "1", ")", n))),
    ("minus", |n| select(&("- ".repeat(n) + "a"))),
    ("NOT", |n| select(&(chain("", "NOT ", n) + "b"))),
    ("OR", |n| select(&chain("a = 1", " OR a = 2", n))),
    ("AND in WHERE", |n| format!("{} WHERE {}", select("a"), chain("a > 0", " AND a > 0", n))),
    ("||", |n| select(&chain("s", "||s", n))),
    ("::", |n| select(&chain("a", "::int::text", n))),
    ("IS NULL", |n| select(&chain("a", " IS NULL", n))),
    ("BETWEEN", |n| select(&chain("b", " BETWEEN false AND true", n))),
    ("CASE in WHEN", |n| select(&nest("CASE WHEN ", "b", " THEN b ELSE NOT b END", n))),
    ("coalesce first", |n| select(&nest("coalesce(", "a", ", a)", n))),
    ("nvl2", |n| select(&nest("nvl2(", "a", ", a, a)", n))),
    ("nullif", |n| select(&nest("nullif(", "a", ", 2)", n))),
    ("CASE of CASE", |n| select(&nest("CASE ", "a", " WHEN 1 THEN 2 END", n))),
    ("IS DISTINCT FROM", |n| select(&chain("b", " IS DISTINCT FROM true", n))),
    ("LIKE", |n| select(&chain("s", " LIKE 'x'", n))),
    ("COLLATE", |n| select(&chain("s", " COLLATE x", n))),
    ("AT TIME ZONE", |n| select(&chain("s", " AT TIME ZONE 'UTC'", n))),
    ("CASE in CASE", |n| select(&nest("CASE WHEN b THEN ", "1", " ELSE 0 END", n))),
    ("CASE in ELSE", |n| select(&nest("CASE WHEN b THEN 1 ELSE ", "0", " END", n))),
    ("WHENs", |n| select(&(chain("CASE", " WHEN a = 2 THEN 3", n) + " END"))),
    ("CAST", |n| select(&nest("CAST(", "a", " AS int)", n))),
    ("functions", |n| select(&nest("abs(", "a", ")", n))),
    ("coalesce", |n| select(&nest("coalesce(a, ", "1", ")", n))),
    ("arrays", |n| format!("SELECT {}", nest("[", "1", "]", n))),
    ("ARRAY", |n| format!("SELECT {}", nest("ARRAY[", "1", "]", n))),
    ("structs", |n| select(&nest("named_struct('f', ", "a", ")", n))),
    ("braces", |n| format!("SELECT {}", nest("{'f': ", "1", "}", n))),
    ("subscripts", |n| select(&chain("s", "[1]", n))),
    ("types of arrays", |n| format!("SELECT CAST(1 AS {})", nest("ARRAY<", "INT", ">", n))),
    ("types of structs", |n| format!("SELECT CAST(1 AS {})", nest("STRUCT<a INT, b ", "INT", ">", n))),
    ("types with brackets", |n| format!("SELECT CAST(1 AS {})", chain("INT", "[]", n))),
    ("IN", |n| select(&format!("a IN ({})", chain("1", ", 1", n)))),
    ("IN in IN", |n| select(&nest("b IN (", "b", ")", n))),
    ("tuples", |n| select(&nest("(1, ", "1", ")", n))),
    ("lambdas", |n| select(&(chain("", "x -> ", n) + "x"))),
    ("rows", |n| format!("VALUES {}", chain("(1)", ", (1)", n))),
    ("columns", |n| {
        let column = |number: usize| format!(", a AS a{number}");
        select(&("a".to_owned() + &(1..=n).map(column).collect::<String>()))
    }),
    ("UNION ALL", |n| chain("SELECT 1", " UNION ALL SELECT 1", n)),
    ("UNION", |n| chain("SELECT 1", " UNION SELECT 1", n)),
    ("UNION ALL of two", |n| chain("SELECT 1, 2", " UNION ALL SELECT 1, 2", n)),
    ("INTERSECT", |n| chain("SELECT 1", " INTERSECT SELECT 1", n)),
    ("EXCEPT", |n| chain("SELECT 1", " EXCEPT SELECT 2", n)),
    ("UNION in parentheses", |n| nest("(SELECT 1 UNION ALL ", "SELECT 1", ")", n)),
    ("queries in parentheses", |n| nest("(", "SELECT 1", ")", n)),
    ("CTEs", |n| ctes("SELECT x + 1 AS x FROM {}", n)),
    ("CTEs with filters", |n| ctes("SELECT x FROM {} WHERE x > 0", n)),
    ("CTEs with groups", |n| ctes("SELECT sum(x) AS x FROM {} GROUP BY x", n)),
    ("CTEs with terms", |n| ctes("SELECT x + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 AS x FROM {}", n)),
    ("CTEs in CTEs", |n| nest("WITH c AS (", "SELECT 1", ") SELECT * FROM c", n)),
    ("CTEs that double", |n| ctes("SELECT l.x FROM {} l CROSS JOIN {} r", n)),
    ("CTEs whose columns double", |n| ctes("SELECT * FROM {} l, {} r", n)),
    ("recursive CTEs", |n| {
        let inner = "WITH RECURSIVE c AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM c WHERE x < 2";
        nest(
            &format!("SELECT * FROM ({inner} AND 1 IN ("),
            "SELECT 1",
            ")) SELECT * FROM c)",
            n,
        )
    }),
    ("CROSS JOIN", |n| chain("SELECT 1 FROM (SELECT 1)", " CROSS JOIN (SELECT 1)", n)),
    ("JOIN", |n| {
        let join = |number: usize| {
            format!(" JOIN (SELECT {number} AS x) t{number} ON t{number}.x = t0.x + {number}")
        };
        (1..=n).fold(
            "SELECT t0.x FROM (SELECT 0 AS x) t0".to_owned(),
            |text, number| text + &join(number),
        )
    }),
    ("LEFT JOIN", |n| {
        let join = |number: usize| {
            format!(" LEFT JOIN (SELECT {number} AS x) t{number} ON t{number}.x = t0.x")
        };
        (1..=n).fold(
            "SELECT t0.x FROM (SELECT 0 AS x) t0".to_owned(),
            |text, number| text + &join(number),
        )
    }),
    ("FROM", |n| chain("SELECT 1 FROM (SELECT 1)", ", (SELECT 1)", n)),
    ("joins in parentheses", |n| {
        let open = nest("(", "", "", n);
        format!(
            "SELECT 1 FROM {open}(SELECT 1){}",
            nest("", "", " CROSS JOIN (SELECT 1))", n)
        )
    }),
    ("subqueries", |n| nest("SELECT * FROM (", "SELECT 1", ")", n)),
    ("subqueries with filters", |n| nest("SELECT a FROM (", "SELECT 1 AS a", ") WHERE a > 0", n)),
    ("scalar subqueries", |n| nest("SELECT (", "SELECT 1", ")", n)),
    ("EXISTS", |n| nest("SELECT 1 WHERE EXISTS (", "SELECT 1", ")", n)),
    ("EXISTS after EXISTS", |n| format!("SELECT 1 WHERE {}", chain("true", " AND EXISTS (SELECT 1)", n))),
    ("IN of queries", |n| nest("SELECT 1 WHERE 1 IN (", "SELECT 1", ")", n)),
    ("LATERAL", |n| nest("SELECT * FROM (SELECT 1), LATERAL (", "SELECT 1", ")", n)),
    ("windows", |n| nest("SELECT sum(a) OVER (ORDER BY a) AS a FROM (", "SELECT 1 AS a", ")", n)),
    ("window of a window", |n| select(&nest("sum(", "a", ") OVER (ORDER BY a)", n))),
    ("pivots", |n| chain("SELECT * FROM t", " PIVOT (sum(a) FOR b IN (1))", n)),
    ("pipes", |n| chain("SELECT 1 AS a", " |> SELECT a + 1 AS a", n)),
    ("EXPLAIN", |n| nest("EXPLAIN ", "SELECT 1", "", n)),
    ("EXPLAIN with options", |n| nest("EXPLAIN (FORMAT tree) ", "SELECT 1", "", n)),
    ("EXPLAIN of terms", |n| format!("EXPLAIN VERBOSE SELECT {}", chain("1", "+1", n))),
    ("PREPARE", |n| nest("PREPARE p AS ", "SELECT 1", "", n)),
    ("comments", |n| format!("SELECT {}", nest("/*", "", "*/", n) + "1")),
    ("statements", |n| nest("SELECT 1;", "SELECT 1", "", n)),
    ("identifiers", |n| select(&chain("a", ".a", n))),
    ("brackets that do not close", |n| format!("SELECT {}", "(".repeat(n))),
    ("CAST that does not close", |n| format!("SELECT {}", "CAST(".repeat(n))),
    ("CASE that does not end", |n| format!("SELECT {}", "CASE WHEN true THEN ".repeat(n))),
    ("a long name", |n| select(&format!("a AS \"{}\"", "x".repeat(n)))),
    ("a long literal", |n| format!("SELECT '{}'", "x".repeat(n))),
];

/// Type of a nested expression, which has columns `a`, `s` and `b`, or a query of one number `a`.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Int,
    Text,
    Bool,
    /// A query.
    Rows,
}
use What::{Bool, Int, Rows, Text};

/// Texts around an expression or query, and what it is then.
#[rustfmt::skip]
const AROUND: &[(What, &str, &str, What)] = &[
    (Int, "(", ")", Int),
    (Int, "(a + ", ")", Int),
    (Int, "- ", "", Int),
    (Int, "1 + ", "", Int),
    (Int, "", " * a", Int),
    (Int, "CASE ", " WHEN 1 THEN 2 END", Int),
    (Int, "CASE WHEN b THEN ", " ELSE 0 END", Int),
    (Int, "CAST(", " AS int)", Int),
    (Int, "abs(", ")", Int),
    (Int, "coalesce(", ", a)", Int),
    (Int, "coalesce(a, ", ")", Int),
    (Int, "nvl2(", ", a, a)", Int),
    (Int, "nullif(", ", 2)", Int),
    (Int, "[", "][1]", Int),
    (Int, "named_struct('f', ", ")['f']", Int),
    (Int, "sum(", ") OVER (ORDER BY a)", Int),
    (Int, "INTERVAL ", "", Int),
    (Int, "f(x -> ", ")", Int),
    (Int, "{'f': ", "}", Int),
    (Int, "", " BETWEEN 1 AND a", Bool),
    (Int, "", " IS NULL", Bool),
    (Int, "a IN (", ", 7)", Bool),
    (Int, "(1, 2) = (1, ", ")", Bool),
    (Int, "TRY_CAST(", " AS text)", Text),
    (Int, "", "::text", Text),
    (Text, "s || ", "", Text),
    (Text, "(", " || 'x')", Text),
    (Text, "upper(", ")", Text),
    (Text, "", " LIKE 'x'", Bool),
    (Text, "", " = 'x' OR b", Bool),
    (Text, "", "::int", Int),
    (Text, "CASE ", " WHEN 'x' THEN 2 END", Int),
    (Bool, "NOT ", "", Bool),
    (Bool, "NOT (", ")", Bool),
    (Bool, "b AND ", " OR b", Bool),
    (Bool, "", " IS DISTINCT FROM true", Bool),
    (Bool, "CASE WHEN ", " THEN b ELSE NOT b END", Bool),
    (Bool, "b IN (", ")", Bool),
    (Bool, "CASE WHEN ", " THEN 1 ELSE a END", Int),
    (Bool, "CAST(", " AS text)", Text),
    (Int, "SELECT ", " AS a", Rows),
    (Int, "SELECT ", " AS a FROM (VALUES (1, 'x', true)) AS t (a, s, b)", Rows),
    (Bool, "SELECT a FROM (VALUES (1, 'x', true)) AS t (a, s, b) WHERE ", "", Rows),
    (Text, "SELECT 1 AS a FROM (VALUES (1, 'x', true)) AS t (a, s, b) GROUP BY ", "", Rows),
    (Int, "SELECT a FROM (VALUES (1, 'x', true)) AS t (a, s, b) ORDER BY ", " LIMIT 3", Rows),
    (Rows, "(", ")", Int),
    (Rows, "EXISTS (", ")", Bool),
    (Rows, "a IN (", ")", Bool),
    (Rows, "a > ALL (", ")", Bool),
    (Rows, "(", ")", Rows),
    (Rows, "", " UNION ALL SELECT 1", Rows),
    (Rows, "(SELECT 1 AS a INTERSECT ", ")", Rows),
    (Rows, "SELECT * FROM (", ")", Rows),
    (Rows, "SELECT a FROM (", ") WHERE a > 0", Rows),
    (Rows, "SELECT t.a FROM (", ") AS t, (SELECT 1 AS c) AS u", Rows),
    (Rows, "SELECT u.a FROM (SELECT 1) AS t, LATERAL (", ") AS u", Rows),
    (Rows, "SELECT 1 AS a FROM ((SELECT 1 AS c) AS t LEFT JOIN (", ") AS u ON true)", Rows),
    (Rows, "WITH c AS (", ") SELECT a FROM c", Rows),
    (Rows, "WITH c AS (", ") SELECT l.a FROM c AS l CROSS JOIN c AS r", Rows),
    (Rows, "SELECT count(*) AS a FROM (", ")", Rows),
    (Rows, "SELECT sum(a) OVER (ORDER BY a) AS a FROM (", ")", Rows),
    (Rows, "EXPLAIN ", "", Rows),
];

/// Nests productions inside each other, each some times: half of the statements in bounds or a little beyond. A few lose their end.
fn mix(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut below = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let firsts = [
        (Int, "a"),
        (Int, "1"),
        (Int, "NULL"),
        (Text, "s"),
        (Bool, "b"),
    ];
    let (mut what, first) = firsts[below(firsts.len())];
    let mut text = first.to_owned();
    let depth = [4, 12, 30, 60, 150, 600][below(6)];
    let times = [1, 1, 3, 30][below(4)];
    let mut left = 1 + below(depth);
    while left > 0 {
        let (from, open, close, to) = AROUND[below(AROUND.len())];
        if from == what {
            let times = match to == from {
                true => 1 + below(times).min(left - 1),
                false => 1,
            };
            text = nest(open, &text, close, times);
            what = to;
            left -= times;
        }
    }
    if what != Rows {
        text = select(&text);
    }
    if below(5) == 0 {
        text.truncate(text.floor_char_boundary(below(text.len())));
    }
    text
}

/// End of a statement on a worker.
enum End {
    Ran,
    Refused,
}

fn session(memory: &Memory) -> (SessionContext, TenantSession) {
    let tenant = memory.root().child("t", Limits::max(256 << 20)).unwrap();
    let pool = GroupPool::new(tenant.child("q", Limits::none()).unwrap());
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(pool.clone())
        .build_arc()
        .unwrap();
    let config = SessionConfig::new().with_target_partitions(4);
    let context = SessionContext::new_with_config_rt(config, runtime);
    (context.clone(), TenantSession::new(context, &pool))
}

async fn run(session: &TenantSession, text: &str) -> End {
    let outcome = match session.sql(text).await {
        Ok(frame) => frame
            .collect()
            .await
            .map(drop)
            .map_err(TenantSqlError::from),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => End::Ran,
        Err(error) => {
            let told = error.to_string();
            println!("    {}", told.chars().take(200).collect::<String>());
            match error {
                TenantSqlError::DataFusion(_) => End::Ran,
                _ => End::Refused,
            }
        }
    }
}

#[tokio::test]
async fn usual_statements_are_not_refused() {
    let memory = Memory::builder().build().unwrap();
    let (context, session) = session(&memory);
    let usual = [
        ("OR", 80),
        ("AND in WHERE", 80),
        ("UNION ALL", 80),
        ("LEFT JOIN", 20),
        ("CTEs", 15),
        ("functions", 30),
        ("CASE in ELSE", 30),
        ("WHENs", 200),
        ("subqueries", 10),
        ("EXISTS", 3),
        ("IN", 5_000),
        ("rows", 5_000),
        ("columns", 1_000),
    ];
    for (name, depth) in usual {
        let (_, statement) = KINDS.iter().find(|kind| kind.0 == name).unwrap();
        let refused = session.sql(&statement(depth)).await.err();
        assert!(refused.is_none(), "{name}, depth {depth}: {refused:?}");
    }
    let tables = Tables::generate(0.01, 1, |_| ()).unwrap();
    tables.register(&context).unwrap();
    for query in QUERIES {
        let refused = session.sql(&query.sql(tables.scale())).await.err();
        assert!(refused.is_none(), "{}: {refused:?}", query.name);
    }
}

/// Runs statements of a kind up to the longest, and the deepest that is not refused.
async fn climb((name, statement): Kind) {
    let memory = Memory::builder().build().unwrap();
    let (_, session) = session(&memory);
    let at = async |depth: usize| {
        println!("{name}, depth {depth}");
        run(&session, &statement(depth)).await
    };
    let (mut deepest, mut refused) = (0, usize::MAX);
    for depth in [1, 10, 30, 100, 300, 1_000, 5_000, 20_000, 100_000] {
        match at(depth).await {
            End::Ran => deepest = depth,
            End::Refused => refused = refused.min(depth),
        }
    }
    // Near enough is enough for wide statements.
    while refused != usize::MAX && deepest + deepest / 20 + 1 < refused {
        let middle = usize::midpoint(deepest, refused);
        match at(middle).await {
            End::Ran => deepest = middle,
            End::Refused => refused = middle,
        }
    }
    println!("{name}: all run to depth {deepest}");
}

fn on_worker(future: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_stack_size(STACK_BYTES)
        .build()
        .unwrap();
    runtime.block_on(runtime.spawn(future)).unwrap();
}

/// Runs the mixes of some seeds.
async fn run_mixes(seeds: std::ops::Range<u64>) {
    let memory = Memory::builder().build().unwrap();
    let (_, session) = session(&memory);
    let (mut ran, mut refused) = (0, 0);
    for seed in seeds {
        let text = mix(seed);
        println!("BURSAR_SEED={seed}, {} bytes", text.len());
        match run(&session, &text).await {
            End::Ran => ran += 1,
            End::Refused => refused += 1,
        }
    }
    println!("mixes: {ran} ran, {refused} were refused");
}

/// Runs a test of this program once for each part, in a process of its own, which gets the part's name. The last line of a process that
/// begins with `label` tells how far it came.
fn in_processes(test: &str, parts: &[String], label: impl Fn(&str) -> String + Sync) {
    let next = AtomicUsize::new(0);
    let failures = thread::scope(|scope| {
        let work = || {
            let mut failures = Vec::new();
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let output = Command::new(env::current_exe().unwrap())
                    .args(["--exact", test, "--nocapture"])
                    .env(CHILD, part)
                    .output()
                    .unwrap();
                let told = String::from_utf8_lossy(&output.stdout);
                let label = label(part);
                let last = told.lines().rfind(|line| line.starts_with(&label));
                println!("{}", last.unwrap_or_default());
                if !output.status.success() {
                    let error = String::from_utf8_lossy(&output.stderr);
                    let last = last.unwrap_or(part);
                    failures.push(format!("{last}: {}: {error}", output.status));
                }
            }
            failures
        };
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn no_deep_statement_ends_the_process() {
    if let Ok(name) = env::var(CHILD) {
        let kind = *KINDS.iter().find(|kind| kind.0 == name).unwrap();
        return on_worker(climb(kind));
    }
    let names: Vec<_> = KINDS.iter().map(|kind| kind.0.to_owned()).collect();
    in_processes("no_deep_statement_ends_the_process", &names, str::to_owned);
}

#[test]
fn no_mix_ends_the_process() {
    if let Ok(first) = env::var(CHILD) {
        let first: u64 = first.parse().unwrap();
        return on_worker(run_mixes(first..first + MIXES_A_PROCESS));
    }
    let first = env::var("BURSAR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let firsts: Vec<_> = (0..PROCESSES)
        .map(|process| (first + process * MIXES_A_PROCESS).to_string())
        .collect();
    in_processes("no_mix_ends_the_process", &firsts, |_| {
        "BURSAR_SEED=".to_owned()
    });
}
