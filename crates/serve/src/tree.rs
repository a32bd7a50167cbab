//! The groups as JSON, made while it is sent. `docs/live-schema.md` describes it.

use std::time::Duration;

use bursar::diagnosis::WaitingCharge;
use bursar::{Freshness, GroupSnapshot, Snapshot};
use serde::Serialize;

use crate::clock;
use crate::request::{Refusal, Status, quoted};

/// Version of the schema. A field that is added does not change it; one that is removed or means something else does.
pub(crate) const SCHEMA: u32 = 1;

/// Bytes that are made at once.
const PIECE_BYTES: usize = 64 << 10;

/// The program that serves, as trees name it.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) process: u32,
    pub(crate) name: String,
    /// Start of the server.
    pub(crate) began_ns: u64,
}

impl Program {
    /// This process, which begins to serve now.
    pub(crate) fn this() -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        let name = program.file_name().unwrap_or_default();
        Self {
            process: std::process::id(),
            name: name.to_string_lossy().into_owned(),
            began_ns: clock::monotonic_ns(),
        }
    }
}

/// All before the groups.
#[derive(Serialize)]
struct Opening<'a> {
    schema: u32,
    kind: &'a str,
    pid: u32,
    program: &'a str,
    uptime_ns: u64,
    taken_unix_ns: u64,
    freshness: &'a str,
}

/// A tree that is being sent.
#[derive(Debug)]
pub(crate) struct Tree {
    /// JSON that comes before the next group.
    before: Vec<u8>,
    groups: std::vec::IntoIter<GroupSnapshot>,
    ended: bool,
    bytes_held: usize,
}

impl Tree {
    /// The groups of a snapshot down to `depth` levels.
    pub(crate) fn new(
        program: &Program,
        freshness: &str,
        snapshot: Snapshot,
        depth: usize,
    ) -> Self {
        let opening = Opening {
            schema: SCHEMA,
            kind: "bursar-tree",
            pid: program.process,
            program: &program.name,
            uptime_ns: clock::monotonic_ns().saturating_sub(program.began_ns),
            taken_unix_ns: clock::unix_ns(),
            freshness,
        };
        let mut before = serde_json::to_vec(&opening).expect("it has no map and no file");
        // The groups are the last field of the same object.
        before.pop();
        before.extend_from_slice(b",\"groups\":[\n");
        let mut groups: Vec<_> = snapshot.into_iter().collect();
        groups.retain(|group| group.depth <= depth);
        groups.shrink_to_fit();
        let bytes = |group: &GroupSnapshot| {
            let numbers = 1 + group.reading.iter().count();
            let waiting = group.waiting.capacity() * size_of::<WaitingCharge>();
            let charged = group.waiting.iter().map(|charge| charge.charged.capacity());
            group.path.capacity() + numbers * 32 + waiting + charged.sum::<usize>()
        };
        let all = groups.capacity() * size_of::<GroupSnapshot>();
        Self {
            before,
            bytes_held: all + groups.iter().map(bytes).sum::<usize>(),
            groups: groups.into_iter(),
            ended: false,
        }
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.bytes_held
    }

    pub(crate) fn next_piece(&mut self, piece: &mut Vec<u8>) {
        while piece.len() < PIECE_BYTES && !self.ended {
            let Some(group) = self.groups.next() else {
                piece.extend_from_slice(b"\n]}\n");
                self.ended = true;
                return;
            };
            piece.append(&mut self.before);
            serde_json::to_writer(&mut *piece, &group).expect("a vector takes all bytes");
            self.before.extend_from_slice(b",\n");
        }
    }
}

/// Parses a freshness: `cached`, `exact`, or an age in milliseconds.
pub(crate) fn freshness(text: &str) -> Result<Freshness, Refusal> {
    let milliseconds = || text.strip_suffix("ms")?.parse().ok();
    match text {
        "cached" => Ok(Freshness::Cached),
        "exact" => Ok(Freshness::Exact),
        _ => match milliseconds() {
            Some(milliseconds) => Ok(Freshness::AtMost(Duration::from_millis(milliseconds))),
            None => Err(Refusal::new(
                Status::BadRequest,
                format!(
                    "freshness is exact, cached, or an age such as 500ms, not {}",
                    quoted(text)
                ),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use bursar::{Limits, Memory};

    use super::*;

    fn bytes_held(memory: &Memory, depth: usize) -> usize {
        let snapshot = memory.snapshot(Freshness::Exact).unwrap();
        Tree::new(&Program::this(), "exact", snapshot, depth).bytes_held()
    }

    /// An answer of few levels does not keep the memory of all groups.
    #[test]
    fn left_out_groups_are_not_held() {
        let memory = Memory::host().unwrap();
        let child = |number: u32| memory.root().child(format!("{number}"), Limits::none());
        let alone = bytes_held(&memory, 0);
        let groups: Vec<_> = (0..1000).map(child).collect();
        assert_eq!(bytes_held(&memory, 0), alone);
        assert!(bytes_held(&memory, 1) > groups.len() * size_of::<GroupSnapshot>());
    }

    #[test]
    fn waiting_charges_are_held() {
        let memory = Memory::host().unwrap();
        let group = memory.root().child("full", Limits::max(100)).unwrap();
        let tenant = group.child("t".repeat(200), Limits::none()).unwrap();
        let charge = group.try_charge(100).unwrap();
        let before = bytes_held(&memory, 9);
        let mut waits: Vec<_> = (0..10)
            .map(|_| Box::pin(tenant.charge_async(100)))
            .collect();
        let mut context = Context::from_waker(Waker::noop());
        for wait in &mut waits {
            assert!(pin!(wait).poll(&mut context).is_pending());
        }
        let each = size_of::<WaitingCharge>() + tenant.path().len();
        assert!(bytes_held(&memory, 9) >= before + waits.len() * each);
        drop(charge);
    }
}
