//! The state of an arbiter as JSON. `docs/live-schema.md` describes it.

use std::time::Duration;

use bursar_arbiter::{Admissions, Granted, Refused, Waiting};
use serde::Serialize;

use crate::tree::SCHEMA;

#[derive(Serialize)]
pub(crate) struct Document<'a> {
    schema: u32,
    kind: &'static str,
    grants: Vec<Grant<'a>>,
    waiting: Vec<Waiter<'a>>,
    refusals: Vec<Refusal<'a>>,
    counts: Counts,
}

#[derive(Serialize)]
struct Grant<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    charged: u64,
    width: u32,
    waited_ns: u64,
    age_ns: u64,
}

#[derive(Serialize)]
struct Waiter<'a> {
    group: &'a str,
    name: &'a str,
    least: u64,
    waited_ns: u64,
    passed: u32,
    is_kept_room: bool,
    blocked_by: &'a str,
}

#[derive(Serialize)]
struct Refusal<'a> {
    group: &'a str,
    name: &'a str,
    why: String,
    age_ns: u64,
}

/// Writes [`bursar_arbiter::Counts::COUNTERS`] as one object.
struct Counts(bursar_arbiter::Counts);

impl Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counters = bursar_arbiter::Counts::COUNTERS;
        serializer.collect_map(counters.map(|(name, _, count_of)| (name, count_of(&self.0))))
    }
}

impl<'a> Document<'a> {
    pub(crate) fn new(admissions: &'a Admissions) -> Self {
        Self {
            schema: SCHEMA,
            kind: "bursar-admissions",
            grants: admissions.grants.iter().map(Grant::from).collect(),
            waiting: admissions.waiting.iter().map(Waiter::from).collect(),
            refusals: admissions.refusals.iter().map(Refusal::from).collect(),
            counts: Counts(admissions.counts.clone()),
        }
    }
}

impl<'a> From<&'a Granted> for Grant<'a> {
    fn from(grant: &'a Granted) -> Self {
        Self {
            path: &grant.path,
            bytes: (grant.bytes != u64::MAX).then_some(grant.bytes),
            charged: grant.charged,
            width: grant.width,
            waited_ns: ns(grant.waited),
            age_ns: ns(grant.age),
        }
    }
}

impl<'a> From<&'a Waiting> for Waiter<'a> {
    fn from(waiter: &'a Waiting) -> Self {
        Self {
            group: &waiter.group,
            name: &waiter.name,
            least: waiter.least,
            waited_ns: ns(waiter.waited),
            passed: waiter.passed,
            is_kept_room: waiter.is_kept_room,
            blocked_by: &waiter.blocked_by,
        }
    }
}

impl<'a> From<&'a Refused> for Refusal<'a> {
    fn from(refused: &'a Refused) -> Self {
        Self {
            group: &refused.group,
            name: &refused.name,
            why: refused.why.to_string(),
            age_ns: ns(refused.age),
        }
    }
}

pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
