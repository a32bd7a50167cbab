//! Groups and finished queries as tables, for SQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar::{Freshness, GroupSnapshot, Memory};
use bursar_arbiter::{Admissions, Arbiter};
use datafusion::arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use datafusion_common::{Result, ScalarValue, plan_err};

use crate::history::History;
use crate::report::QueryReport;

/// The groups and queries that a session may see.
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_datafusion::{History, View};
/// use datafusion::prelude::SessionContext;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::builder().build()?;
/// let acme = memory.root().child("acme", Limits::max(64 << 20))?;
/// let history = History::new(100);
/// let context = SessionContext::new();
/// View::new(&memory).history(&history).below("/acme").register(&context);
///
/// let charge = acme.try_charge(48 << 20)?;
/// let rows = context.sql("SELECT path, usage, max FROM bursar_memory()").await?.to_string().await?;
/// assert!(rows.contains("| /acme | 50331648 | 67108864 |"), "{rows}");
/// # drop(charge);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct View {
    memory: Memory,
    history: Option<History>,
    arbiter: Option<Arbiter>,
    below: String,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("below", &self.below)
            .finish_non_exhaustive()
    }
}

impl View {
    /// Makes a view of all groups.
    pub fn new(memory: &Memory) -> Self {
        Self {
            memory: memory.clone(),
            history: None,
            arbiter: None,
            below: "/".to_owned(),
        }
    }

    /// Adds the queries of a history: finished and running ones to `bursar_history()`, and the spills of running ones to `bursar_memory()`.
    pub fn history(mut self, history: &History) -> Self {
        self.history = Some(history.clone());
        self
    }

    /// Adds the grants and the waiting asks of an arbiter, in `bursar_admissions()`, and what it decided in shortages, in `bursar_decisions()`.
    pub fn arbiter(mut self, arbiter: &Arbiter) -> Self {
        self.arbiter = Some(arbiter.clone());
        self
    }

    /// Restricts the view to a group and those below it, for the session of a tenant.
    ///
    /// The path is compared name by name: `/a` does not open `/ab`. If the group is removed, the view is empty until a group of that
    /// name is made again; then it shows that one.
    pub fn below(mut self, path: impl Into<String>) -> Self {
        self.below = path.into();
        self
    }

    /// Registers the table functions `bursar_memory()`, `bursar_history()`, `bursar_admissions()` and `bursar_decisions()` with a session.
    ///
    /// All statements of the session see what this view has, and nothing else of the memory.
    ///
    /// `bursar_memory()` takes one optional argument, the age of the numbers: `'exact'` (the default), `'cached'`, or `'500ms'`. Each
    /// execution of a query takes one snapshot, so children and the group's own part add up.
    ///
    /// `bursar_admissions()` has a row for each grant, oldest first, then one for each ask that waits, in the order in which they come
    /// next, then one for each of the last 16 that were refused. `state` is `running`, `waiting` or `refused`, and `seconds` is the time since
    /// the grant, the ask or the refusal. Of a grant, `bytes` are what it may have; of a waiting ask, those without which it cannot run.
    /// `blocked_by` is the group whose limit is in its way, and `why` the reason of a refusal.
    ///
    /// `bursar_decisions()` has a row for each of the last 64 decisions in shortages ([`bursar_arbiter::Decision`]) about a query in view, oldest
    /// first. `decided` is `ask`, `stop` or `refuse`. `needed_by` is null if a limit was lowered. It and `missing` are null if
    /// that query is not in view.
    pub fn register(&self, context: &SessionContext) {
        let function = |table| {
            Arc::new(Function {
                view: self.clone(),
                table,
            })
        };
        context.register_udtf("bursar_memory", function(Table::Memory));
        context.register_udtf("bursar_history", function(Table::History));
        context.register_udtf("bursar_admissions", function(Table::Admissions));
        context.register_udtf("bursar_decisions", function(Table::Decisions));
    }

    fn contains(&self, path: &str) -> bool {
        let names = |path| str::split(path, '/').filter(|name: &&str| !name.is_empty());
        let mut path = names(path);
        names(&self.below).all(|name| path.next() == Some(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Table {
    Memory,
    History,
    Admissions,
    Decisions,
}

/// A function that makes a table.
#[derive(Debug)]
struct Function {
    view: View,
    table: Table,
}

impl TableFunctionImpl for Function {
    fn call_with_args(
        &self,
        arguments: TableFunctionArgs<'_, '_>,
    ) -> Result<Arc<dyn TableProvider>> {
        let freshness = match (self.table, arguments.exprs()) {
            (_, []) => Freshness::Exact,
            (Table::Memory, [argument]) => freshness(argument)?,
            (Table::Memory, _) => {
                return plan_err!(
                    "bursar_memory takes one argument at most: the age of the numbers"
                );
            }
            (Table::History, _) => return plan_err!("bursar_history takes no argument"),
            (Table::Admissions, _) => return plan_err!("bursar_admissions takes no argument"),
            (Table::Decisions, _) => return plan_err!("bursar_decisions takes no argument"),
        };
        let rows = Rows {
            view: self.view.clone(),
            table: self.table,
            freshness,
            schema: self.table.schema(),
        };
        let table = StreamingTable::try_new(rows.schema.clone(), vec![Arc::new(rows)])?;
        Ok(Arc::new(table))
    }
}

fn freshness(argument: &Expr) -> Result<Freshness> {
    let text = match argument {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => text,
        other => {
            return plan_err!(
                "the age of the numbers is 'exact', 'cached' or a time such as '500ms', not {other}"
            );
        }
    };
    let milliseconds = || text.strip_suffix("ms")?.parse().ok();
    match (&text[..], milliseconds()) {
        ("exact", _) => Ok(Freshness::Exact),
        ("cached", _) => Ok(Freshness::Cached),
        (_, Some(milliseconds)) => Ok(Freshness::AtMost(Duration::from_millis(milliseconds))),
        _ => plan_err!(
            "the age of the numbers is 'exact', 'cached' or a time such as '500ms', not '{text}'"
        ),
    }
}

/// The rows of a table, made when a query is executed.
#[derive(Debug)]
struct Rows {
    view: View,
    table: Table,
    freshness: Freshness,
    schema: SchemaRef,
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let columns = match self.table {
            Table::Memory => memory_columns(&self.view, self.freshness),
            Table::History => history_columns(&self.view),
            Table::Admissions => admissions_columns(&self.view),
            Table::Decisions => decisions_columns(&self.view),
        };
        let batch = RecordBatch::try_new(self.schema.clone(), columns);
        let batch = batch.expect("each column has the type of its field and a value for each row");
        let stream = MemoryStream::try_new(vec![batch], self.schema.clone(), None);
        Box::pin(stream.expect("all columns are wanted"))
    }
}

impl Table {
    fn schema(self) -> SchemaRef {
        use DataType::{Boolean, Float64, Int64, Utf8};
        let fields: &[(&str, DataType, bool)] = match self {
            Self::Memory => &[
                ("path", Utf8, false),
                ("kind", Utf8, false),
                ("depth", Int64, false),
                ("usage", Int64, false),
                ("reserved", Int64, false),
                ("peak", Int64, false),
                ("max", Int64, true),
                ("high", Int64, true),
                ("pressure", Utf8, false),
                ("stalled_seconds", Float64, false),
                ("refused", Int64, false),
                ("overshot", Int64, false),
                ("spills", Int64, true),
                ("age_seconds", Float64, false),
            ],
            Self::History => &[
                ("path", Utf8, false),
                ("operator", Utf8, true),
                ("state", Utf8, false),
                ("tries", Int64, false),
                ("peak", Int64, false),
                ("real_peak", Int64, true),
                ("real_above_limit", Int64, true),
                ("refused", Int64, false),
                ("refused_by", Utf8, true),
                ("overshot", Int64, true),
                ("spills", Int64, false),
                ("consumers", Int64, true),
                ("can_spill", Boolean, true),
                ("elapsed_seconds", Float64, false),
                ("left_bytes", Int64, false),
            ],
            Self::Admissions => &[
                ("path", Utf8, false),
                ("state", Utf8, false),
                ("bytes", Int64, true),
                ("charged", Int64, true),
                ("width", Int64, true),
                ("seconds", Float64, false),
                ("waited_seconds", Float64, true),
                ("passed", Int64, true),
                ("is_kept_room", Boolean, true),
                ("blocked_by", Utf8, true),
                ("why", Utf8, true),
            ],
            Self::Decisions => &[
                ("number", Int64, false),
                ("decided", Utf8, false),
                ("path", Utf8, false),
                ("needed_by", Utf8, true),
                ("limited", Utf8, false),
                ("missing", Int64, true),
                ("charged", Int64, false),
                ("expected", Int64, false),
                ("said", Int64, true),
                ("seen", Int64, true),
                ("seconds", Float64, false),
            ],
        };
        let field = |(name, kind, is_nullable): &(&str, DataType, bool)| {
            Field::new(*name, kind.clone(), *is_nullable)
        };
        Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
    }
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

/// BIGINT: with the literals of SQL, which have that type, it makes whole numbers.
fn numbers(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Arc::new(
        values
            .map(|number| number.map(signed))
            .collect::<Int64Array>(),
    )
}

fn seconds(values: impl Iterator<Item = Duration>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(
        values.map(|time| time.as_secs_f64()),
    ))
}

/// A row for each group in view.
fn memory_columns(view: &View, freshness: Freshness) -> Vec<ArrayRef> {
    let group = view.memory.find(&view.below);
    // A policy that forbids the flush leaves the cached numbers, whose age is shown.
    let snapshot = group.and_then(|group| {
        let asked = group.snapshot(freshness);
        asked.or_else(|_| group.snapshot(Freshness::Cached)).ok()
    });
    let groups: Vec<&GroupSnapshot> = snapshot.iter().flatten().collect();
    let running = view
        .history
        .as_ref()
        .map_or_else(Vec::new, History::running);
    // By path: the spills of queries and operators.
    let mut known: Vec<(String, &str, u64)> = Vec::new();
    for query in &running {
        let operators = query.operators.iter();
        known.extend(operators.map(|one| {
            (
                format!("{}/{}", query.path, one.name),
                "operator",
                one.spills,
            )
        }));
        known.push((query.path.clone(), "query", query.spills));
    }
    known.sort();
    let known = |group: &GroupSnapshot| {
        let found = known.binary_search_by(|(path, ..)| path.cmp(&group.path));
        found.ok().map(|at| (known[at].1, known[at].2))
    };
    let kind = |group: &GroupSnapshot| match (known(group), &group.path[..]) {
        (Some((kind, _)), _) => kind,
        (None, "/") => "root",
        (None, _) => "group",
    };
    let limit = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let depth = |group: &GroupSnapshot| {
        group
            .path
            .split('/')
            .filter(|name| !name.is_empty())
            .count() as u64
    };
    let all = || groups.iter().copied();
    let pressure: Vec<String> = all()
        .map(|group| group.pressure.level.to_string())
        .collect();
    vec![
        texts(all().map(|group| Some(&group.path[..]))),
        texts(all().map(|group| Some(kind(group)))),
        numbers(all().map(|group| Some(depth(group)))),
        numbers(all().map(|group| Some(group.reading.usage_bytes()))),
        numbers(all().map(|group| Some(group.reserved))),
        numbers(all().map(|group| Some(group.peak))),
        numbers(all().map(|group| limit(group.limits.max))),
        numbers(all().map(|group| limit(group.limits.high))),
        texts(pressure.iter().map(|level| Some(&level[..]))),
        seconds(all().map(|group| group.pressure.stall.some.total)),
        numbers(all().map(|group| Some(group.events.refused))),
        numbers(all().map(|group| Some(group.events.overshot))),
        numbers(all().map(|group| known(group).map(|(_, spills)| spills))),
        seconds(all().map(|group| group.reading.age())),
    ]
}

/// Bytes that a query really took, and those of them above its limit; `None` if they were not counted.
fn real(query: &QueryReport) -> Option<(u64, u64)> {
    #[cfg(feature = "real-bytes")]
    let real = query.real.map(|real| (real.peak, real.above_limit));
    #[cfg(not(feature = "real-bytes"))]
    let (real, _) = (None, query);
    real
}

/// A row for each finished query in view, then for each that runs, and one for each of their operators.
fn history_columns(view: &View) -> Vec<ArrayRef> {
    let (mut finished, mut running) = (Vec::new(), Vec::new());
    if let Some(history) = &view.history {
        // In this order: a query that ends meanwhile is there twice, and not missing.
        (running, finished) = (history.running(), history.finished());
        running.retain(|query| {
            !finished
                .iter()
                .any(|ended| ended.path == query.path && ended.tries == query.tries)
        });
    }
    let finished = finished.iter().map(|query| (query, "finished"));
    let queries = finished.chain(running.iter().map(|query| (query, "running")));
    let in_view = queries.filter(|(query, _)| view.contains(&query.path));
    let rows: Vec<(&QueryReport, Option<_>, &str)> = in_view
        .flat_map(|(query, state)| {
            let operators = query.operators.iter();
            let operators = operators.map(move |operator| (query, Some(operator), state));
            std::iter::once((query, None, state)).chain(operators)
        })
        .collect();
    let states = || rows.iter().map(|(_, _, state)| Some(*state));
    let all = || rows.iter().map(|(query, operator, _)| (*query, *operator));
    let reals = || all().map(|(query, operator)| real(query).filter(|_| operator.is_none()));
    vec![
        texts(all().map(|(query, _)| Some(&query.path[..]))),
        texts(all().map(|(_, operator)| operator.map(|one| &one.name[..]))),
        texts(states()),
        numbers(all().map(|(query, _)| Some(u64::from(query.tries)))),
        numbers(all().map(|(query, operator)| Some(operator.map_or(query.peak, |one| one.peak)))),
        numbers(reals().map(|real| real.map(|(peak, _)| peak))),
        numbers(reals().map(|real| real.map(|(_, above)| above))),
        numbers(
            all().map(|(query, operator)| Some(operator.map_or(query.refused, |one| one.refused))),
        ),
        texts(all().map(|(query, operator)| match operator {
            None => query.refused_by.as_deref(),
            Some(_) => None,
        })),
        numbers(all().map(|(query, operator)| operator.is_none().then_some(query.overshot))),
        numbers(
            all().map(|(query, operator)| Some(operator.map_or(query.spills, |one| one.spills))),
        ),
        numbers(all().map(|(_, operator)| operator.map(|one| one.consumers))),
        Arc::new(
            all()
                .map(|(_, operator)| operator.map(|one| one.can_spill))
                .collect::<BooleanArray>(),
        ),
        seconds(all().map(|(query, _)| query.elapsed)),
        numbers(
            all()
                .map(|(query, operator)| Some(operator.map_or(query.reserved, |one| one.reserved))),
        ),
    ]
}

/// A row of `bursar_admissions()`.
#[derive(Default)]
struct Admission<'a> {
    path: String,
    state: &'static str,
    bytes: Option<u64>,
    charged: Option<u64>,
    width: Option<u64>,
    time: Duration,
    waited: Option<Duration>,
    passed: Option<u64>,
    is_kept_room: Option<bool>,
    blocked_by: Option<&'a str>,
    why: Option<String>,
}

/// A row for each grant, each waiting ask and each ask refused lately in view.
fn admissions_columns(view: &View) -> Vec<ArrayRef> {
    let arbiter = view.arbiter.as_ref();
    let admissions = arbiter.map_or_else(Admissions::default, Arbiter::admissions);
    let path_of = |group: &str, name: &str| format!("{}/{name}", group.trim_end_matches('/'));
    let granted = admissions.grants.iter().map(|grant| Admission {
        path: grant.path.clone(),
        state: "running",
        bytes: (grant.bytes != u64::MAX).then_some(grant.bytes),
        charged: Some(grant.charged),
        width: Some(u64::from(grant.width)),
        time: grant.age,
        waited: Some(grant.waited),
        ..Admission::default()
    });
    let waiting = admissions.waiting.iter().map(|ask| Admission {
        path: path_of(&ask.group, &ask.name),
        state: "waiting",
        bytes: Some(ask.least),
        time: ask.waited,
        waited: Some(ask.waited),
        passed: Some(u64::from(ask.passed)),
        is_kept_room: Some(ask.is_kept_room),
        blocked_by: Some(&ask.blocked_by),
        ..Admission::default()
    });
    let refused = admissions.refusals.iter().map(|ask| Admission {
        path: path_of(&ask.group, &ask.name),
        state: "refused",
        time: ask.age,
        why: Some(ask.why.to_string()),
        ..Admission::default()
    });
    let rows = granted
        .chain(waiting)
        .chain(refused)
        .filter(|row| view.contains(&row.path));
    let rows: Vec<Admission> = rows.collect();
    let all = || rows.iter();
    vec![
        texts(all().map(|row| Some(&row.path[..]))),
        texts(all().map(|row| Some(row.state))),
        numbers(all().map(|row| row.bytes)),
        numbers(all().map(|row| row.charged)),
        numbers(all().map(|row| row.width)),
        seconds(all().map(|row| row.time)),
        Arc::new(
            all()
                .map(|row| row.waited.map(|waited| waited.as_secs_f64()))
                .collect::<Float64Array>(),
        ),
        numbers(all().map(|row| row.passed)),
        Arc::new(all().map(|row| row.is_kept_room).collect::<BooleanArray>()),
        texts(all().map(|row| row.blocked_by)),
        texts(all().map(|row| row.why.as_deref())),
    ]
}

/// A row for each decision about a query in view.
fn decisions_columns(view: &View) -> Vec<ArrayRef> {
    let arbiter = view.arbiter.as_ref();
    let mut rows = arbiter.map_or_else(Vec::new, Arbiter::decisions);
    rows.retain(|row| view.contains(&row.query));
    let all = || rows.iter();
    // A lowered limit has no query, and that of another tenant is not in view.
    let in_view = |path: &str| !path.is_empty() && view.contains(path);
    vec![
        numbers(all().map(|row| Some(row.number))),
        texts(all().map(|row| Some(row.kind.name()))),
        texts(all().map(|row| Some(&row.query[..]))),
        texts(all().map(|row| Some(&row.needed_by[..]).filter(|path| in_view(path)))),
        texts(all().map(|row| Some(&row.limited[..]))),
        numbers(all().map(|row| {
            let may_see = row.needed_by.is_empty() || in_view(&row.needed_by);
            may_see.then_some(row.missing)
        })),
        numbers(all().map(|row| Some(row.charged))),
        numbers(all().map(|row| Some(row.expected))),
        numbers(all().map(|row| row.said)),
        numbers(all().map(|row| row.seen)),
        seconds(all().map(|row| row.age)),
    ]
}
