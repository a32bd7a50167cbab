//! The answer to each request.

use std::fmt::Write;
use std::sync::Arc;

use bursar::diagnosis::Leftover;
use bursar::{Freshness, Group, LimitReached, Memory, NotFresh};
use bursar_arbiter::Arbiter;
use bursar_prometheus::{Collector, openmetrics};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::admissions::Document as Admitted;
use crate::decisions::Document as Decided;
use crate::files;
use crate::request::{Refusal, Request, Status, decode, quoted};
use crate::response::Response;
use crate::tree::{self, Program, SCHEMA, Tree};

const INDEX: &str = "\
GET /v1/tree                        the groups as JSON; parameters:
      freshness=cached|exact|500ms  how old the numbers may be (default: cached)
      path=/tenant                  this group and those below it (default: /)
      depth=2                       this many levels below it (default: all)
GET /v1/refusals                    the last refusals as JSON, each with the tree of its moment
GET /v1/leftovers                   groups that have ended with bytes charged as JSON, the biggest first
GET /metrics                        OpenMetrics, for Prometheus
GET /v1/groups/                     files and children of the root, a line each
GET /v1/groups/tenant/              files and children of /tenant; names are percent-encoded
GET /v1/groups/tenant/memory.max    a file, as in cgroup v2
";

/// Lines more, if the program gave an arbiter.
const INDEX_OF_ARBITER: &str = "\
GET /v1/admissions                  grants, waiters and counts of the program's arbiter as JSON
GET /v1/decisions                   its last decisions in shortages as JSON: who was asked, stopped or refused, and for whom
";

/// All but these characters are encoded in names: they mean nothing in a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The memory that is shown.
#[derive(Debug)]
pub(crate) struct Routes {
    memory: Memory,
    arbiter: Option<Arbiter>,
    program: Program,
    metrics: Arc<Collector>,
}

impl Routes {
    /// Routes to a memory. Metrics are of all groups down to 2 levels.
    pub(crate) fn new(memory: Memory, arbiter: Option<Arbiter>, program: Program) -> Self {
        let metrics = Collector::new(&memory);
        let metrics = match &arbiter {
            Some(arbiter) => metrics.arbiter(arbiter),
            None => metrics,
        };
        Self {
            metrics: Arc::new(metrics),
            memory,
            arbiter,
            program,
        }
    }

    /// Shows an arbiter as well.
    pub(crate) fn with_arbiter(self, arbiter: &Arbiter) -> Self {
        Self::new(self.memory, Some(arbiter.clone()), self.program)
    }

    /// Answers a request.
    pub(crate) fn answer(&self, request: &Request) -> Response {
        self.route(request).unwrap_or_else(Response::from)
    }

    fn route(&self, request: &Request) -> Result<Response, Refusal> {
        if let Some(below) = request.path.strip_prefix("/v1/groups/") {
            no_parameters(request)?;
            return self.group(below);
        }
        match (request.path.as_str(), &self.arbiter) {
            ("/", arbiter) => {
                no_parameters(request)?;
                let more = arbiter.as_ref().map_or("", |_| INDEX_OF_ARBITER);
                Ok(Response::text(format!("{INDEX}{more}")))
            }
            ("/v1/tree", _) => self.tree(request),
            ("/v1/refusals", _) => {
                no_parameters(request)?;
                Ok(Response::json(refusals(&self.memory)))
            }
            ("/v1/leftovers", _) => {
                no_parameters(request)?;
                Ok(Response::json(leftovers(&self.memory)))
            }
            ("/v1/admissions", Some(arbiter)) => {
                no_parameters(request)?;
                Ok(Response::json(line(&Admitted::new(&arbiter.admissions()))))
            }
            ("/v1/decisions", Some(arbiter)) => {
                no_parameters(request)?;
                Ok(Response::json(line(&Decided::new(&arbiter.decisions()))))
            }
            ("/metrics", _) => {
                no_parameters(request)?;
                Ok(Response::openmetrics(openmetrics(&self.metrics)))
            }
            (other, _) => Err(Refusal::new(
                Status::NotFound,
                format!("there is no {}; GET / lists all requests", quoted(other)),
            )),
        }
    }

    fn tree(&self, request: &Request) -> Result<Response, Refusal> {
        let mut freshness = (Freshness::Cached, "cached");
        let mut group = None;
        let mut depth = usize::MAX;
        for (key, value) in &request.query {
            match key.as_str() {
                "freshness" => freshness = (tree::freshness(value)?, value),
                "path" => {
                    let found = self.memory.find(value);
                    group = Some(found.ok_or_else(|| no_group(value))?);
                }
                "depth" => {
                    depth = value.parse().map_err(|_| {
                        Refusal::new(
                            Status::BadRequest,
                            format!("depth is a number of levels, not {}", quoted(value)),
                        )
                    })?;
                }
                _ => {
                    return Err(Refusal::new(
                        Status::BadRequest,
                        format!(
                            "there is no parameter {}; a tree has freshness, path and depth",
                            quoted(key)
                        ),
                    ));
                }
            }
        }
        let group = group.unwrap_or_else(|| self.memory.root());
        let snapshot = group.snapshot(freshness.0).map_err(not_fresh)?;
        Ok(Response::tree(Tree::new(
            &self.program,
            freshness.1,
            snapshot,
            depth,
        )))
    }

    /// Answers for a path below `/v1/groups/`: a group's, which ends with a slash, or a file's.
    fn group(&self, encoded: &str) -> Result<Response, Refusal> {
        let (names, file) = encoded.rsplit_once('/').unwrap_or(("", encoded));
        let mut group = self.memory.root();
        for name in names.split('/').filter(|name| !name.is_empty()) {
            let name = decode(name)?;
            group = group.find(&name).ok_or_else(|| no_group(&name))?;
        }
        if file.is_empty() {
            return Ok(Response::text(listing(&group)?));
        }
        let file = decode(file)?;
        let text = files::read(&group, &file).ok_or_else(|| {
            Refusal::new(
                Status::NotFound,
                format!(
                    "{group} has no file {}; the path of a group ends with '/'",
                    quoted(&file)
                ),
            )
        })?;
        Ok(Response::text(text))
    }
}

/// Files, then children, a line each. Each line is the end of a path that can be asked for.
///
/// By a snapshot, which has no handles of the children. A handle would keep a child's name taken after the program's last handle
/// has gone.
fn listing(group: &Group) -> Result<String, Refusal> {
    let snapshot = group.snapshot(Freshness::Cached).map_err(not_fresh)?;
    let mut text = String::new();
    for file in files::FILES {
        text += file;
        text.push('\n');
    }
    for child in snapshot.iter().filter(|group| group.depth == 1) {
        let encoded = utf8_percent_encode(child.name(), ENCODED);
        writeln!(text, "{encoded}/").expect("a string takes all text");
    }
    Ok(text)
}

/// The refusals that the memory has kept, as JSON.
fn refusals(memory: &Memory) -> Vec<u8> {
    #[derive(serde::Serialize)]
    struct Kept<'a> {
        age_ns: u64,
        #[serde(flatten)]
        refusal: &'a LimitReached,
    }
    #[derive(serde::Serialize)]
    struct Document<'a> {
        schema: u32,
        kind: &'a str,
        refusals: Vec<Kept<'a>>,
    }
    let kept = memory.refusals();
    let refusals = kept.iter().map(|(age, refusal)| Kept {
        age_ns: u64::try_from(age.as_nanos()).unwrap_or(u64::MAX),
        refusal,
    });
    let document = Document {
        schema: SCHEMA,
        kind: "bursar-refusals",
        refusals: refusals.collect(),
    };
    line(&document)
}

/// The groups that have ended with bytes charged, as JSON.
fn leftovers(memory: &Memory) -> Vec<u8> {
    #[derive(serde::Serialize)]
    struct Document<'a> {
        schema: u32,
        kind: &'a str,
        leftovers: Vec<Leftover>,
    }
    line(&Document {
        schema: SCHEMA,
        kind: "bursar-leftovers",
        leftovers: memory.leftovers(),
    })
}

fn line(document: &impl serde::Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(document).expect("it has no map and no file");
    text.push(b'\n');
    text
}

fn not_fresh(_: NotFresh) -> Refusal {
    let reason = "this memory's policy lets no reader flush: ask with freshness=cached";
    Refusal::new(Status::Unavailable, reason)
}

fn no_group(name: &str) -> Refusal {
    Refusal::new(
        Status::NotFound,
        format!("there is no group {}", quoted(name)),
    )
}

fn no_parameters(request: &Request) -> Result<(), Refusal> {
    match request.query.first() {
        None => Ok(()),
        Some((key, _)) => Err(Refusal::new(
            Status::BadRequest,
            format!("{} has no parameter {}", quoted(&request.path), quoted(key)),
        )),
    }
}
