//! The last decisions of an arbiter as JSON. `docs/live-schema.md` describes it.

use bursar_arbiter::Decision;
use serde::Serialize;

use crate::admissions::ns;
use crate::tree::SCHEMA;

#[derive(Serialize)]
pub(crate) struct Document<'a> {
    schema: u32,
    kind: &'static str,
    decisions: Vec<Made<'a>>,
}

#[derive(Serialize)]
struct Made<'a> {
    number: u64,
    decided: &'static str,
    query: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    needed_by: &'a str,
    limited: &'a str,
    missing: u64,
    charged: u64,
    expected: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<u64>,
    age_ns: u64,
}

impl<'a> Document<'a> {
    pub(crate) fn new(decisions: &'a [Decision]) -> Self {
        Self {
            schema: SCHEMA,
            kind: "bursar-decisions",
            decisions: decisions.iter().map(Made::from).collect(),
        }
    }
}

impl<'a> From<&'a Decision> for Made<'a> {
    fn from(decision: &'a Decision) -> Self {
        Self {
            number: decision.number,
            decided: decision.kind.name(),
            query: &decision.query,
            needed_by: &decision.needed_by,
            limited: &decision.limited,
            missing: decision.missing,
            charged: decision.charged,
            expected: decision.expected,
            said: decision.said,
            seen: decision.seen,
            age_ns: ns(decision.age),
        }
    }
}
