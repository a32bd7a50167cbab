//! The server's document of its groups, as far as it is shown. `docs/live-schema.md` describes it. Unknown fields are ignored.

use serde::Deserialize;

/// Version that this program reads.
const SCHEMA: u64 = 1;
const KIND: &str = "bursar-tree";

#[derive(Clone, Debug, Deserialize)]
pub struct Document {
    pub pid: u64,
    pub program: String,
    pub uptime_ns: u64,
    pub taken_unix_ns: u64,
    /// Depth first: parents before their children.
    pub groups: Vec<Group>,
    /// Asks and charges that wait, those of the arbiter first. The asks come from another answer of the server.
    #[serde(skip)]
    pub waiters: Vec<Waiter>,
    /// Decisions of the arbiter in shortages, the newest first, from another answer of the server.
    #[serde(skip)]
    pub decisions: Vec<Decision>,
}

/// A decision of the arbiter in a shortage.
#[derive(Clone, Debug, Deserialize)]
pub struct Decision {
    /// `ask`, `stop` or `refuse`; newer servers may have more.
    pub decided: String,
    /// Path of the query that it is about.
    pub query: String,
    /// Path of the query that needed memory; empty if a limit was lowered.
    #[serde(default)]
    pub needed_by: String,
    /// Path of the group whose limit was in the way.
    pub limited: String,
    /// Bytes that came back, once that is known.
    pub seen: Option<u64>,
    pub age_ns: u64,
}

impl Decision {
    /// Reads a list, the oldest first. An answer that cannot be read is as good as none.
    pub fn parse(text: &str) -> Vec<Self> {
        #[derive(Deserialize)]
        struct List {
            decisions: Vec<Decision>,
        }
        serde_json::from_str(text).map_or_else(|_| Vec::new(), |list: List| list.decisions)
    }
}

/// An ask or a charge that waits for memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Ask")]
pub struct Waiter {
    /// Path of the query, or of the group that is charged.
    pub path: String,
    /// Bytes without which it cannot go on.
    pub bytes: u64,
    pub waited_ns: u64,
    /// Path of the group whose limit is in its way.
    pub limited: String,
}

/// A waiting ask in the server's form.
#[derive(Deserialize)]
struct Ask {
    group: String,
    name: String,
    least: u64,
    waited_ns: u64,
    blocked_by: String,
}

impl From<Ask> for Waiter {
    fn from(ask: Ask) -> Self {
        Self {
            path: format!("{}/{}", ask.group.trim_end_matches('/'), ask.name),
            bytes: ask.least,
            waited_ns: ask.waited_ns,
            limited: ask.blocked_by,
        }
    }
}

impl Waiter {
    /// Reads the waiters of an arbiter. An answer that cannot be read is as good as none.
    pub fn parse(text: &str) -> Vec<Self> {
        #[derive(Deserialize)]
        struct Admissions {
            waiting: Vec<Waiter>,
        }
        serde_json::from_str(text).map_or_else(|_| Vec::new(), |all: Admissions| all.waiting)
    }
}

/// Whether a path is that of a group or of one below it.
pub fn is_below(path: &str, group: &str) -> bool {
    let below = path.strip_prefix(group.trim_end_matches('/'));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    pub path: String,
    pub depth: usize,
    pub limits: Limits,
    pub reading: Reading,
    pub peak: u64,
    pub events: Events,
    pub pressure: Pressure,
    #[serde(default)]
    waiting: Vec<WaitingCharge>,
}

#[derive(Clone, Debug, Deserialize)]
struct WaitingCharge {
    charged: String,
    bytes: u64,
    waited_ns: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Limits {
    pub max: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Reading {
    pub usage: Usage,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Usage {
    pub value: i64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Events {
    pub refused: u64,
    pub reclaimed_bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Pressure {
    pub level: String,
}

/// A group that has ended, and to which bytes are still charged.
#[derive(Clone, Debug, Deserialize)]
pub struct Leftover {
    pub path: String,
    pub bytes: u64,
    pub age_ns: u64,
}

impl Leftover {
    /// Reads a list. One that cannot be read is as good as none.
    pub fn parse(text: &str) -> Vec<Self> {
        #[derive(Deserialize)]
        struct List {
            leftovers: Vec<Leftover>,
        }
        serde_json::from_str(text).map_or_else(|_| Vec::new(), |list: List| list.leftovers)
    }
}

impl Document {
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Opening {
            schema: u64,
            kind: String,
        }
        let broken = |error: serde_json::Error| match error.is_eof() {
            true => "the answer is cut off".to_owned(),
            false => format!(
                "the answer is no document of bursar-serve: {}",
                bursar::printable(&error.to_string())
            ),
        };
        let Opening { schema, kind } = serde_json::from_str(text).map_err(broken)?;
        if schema > SCHEMA || kind != KIND {
            return Err(format!(
                "the server sends {} of schema {schema}, and this program reads {KIND} of schema {SCHEMA}: update it",
                bursar::printable(&kind)
            ));
        }
        let mut document: Self = serde_json::from_str(text).map_err(broken)?;
        for group in &mut document.groups {
            let charges = std::mem::take(&mut group.waiting);
            document
                .waiters
                .extend(charges.into_iter().map(|charge| Waiter {
                    path: charge.charged,
                    bytes: charge.bytes,
                    waited_ns: charge.waited_ns,
                    limited: group.path.clone(),
                }));
        }
        match document.groups.is_empty() {
            true => Err("the answer has no group".to_owned()),
            false => Ok(document),
        }
    }
}

impl Group {
    /// The last name of the path, safe to print.
    pub fn name(&self) -> String {
        let name = match self.depth {
            0 => &self.path,
            _ => self.path.rsplit('/').next().unwrap_or_default(),
        };
        bursar::printable(name).into_owned()
    }

    /// Bytes charged, without stock.
    pub fn usage(&self) -> u64 {
        self.reading.usage.value.max(0) as u64
    }

    /// Share of its limit that is in use, without stock. A limit of 0 has no share.
    pub fn share(&self) -> Option<f64> {
        let max = self.limits.max.filter(|max| *max > 0)?;
        Some(self.usage() as f64 / max as f64)
    }

    /// Rank of its pressure.
    pub fn pressure(&self) -> usize {
        let levels = ["none", "low", "high", "critical"];
        levels
            .iter()
            .position(|level| *level == self.pressure.level)
            .unwrap_or(0)
    }
}
