//! The n-th allocation of a call fails, for each n until the call makes fewer.
//!
//! A call may return an error, or succeed without what it could not allocate. It may end the process only if `docs/hardening.md` says so.
//! If it returns, the books balance, and the same call succeeds once memory is there again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use crate::allocator::{Armed, Mode};
use crate::child::{self, End};
use crate::{arbiter, library, others};

/// More allocations than any call makes here.
const ALLOCATIONS_MAX: u64 = 20_000;
/// Bytes of a line that a child writes.
const LINE: usize = 10;

/// Outcome of a call under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It returned an error that says so.
    Error = 1,
    /// It did its work all the same, or returns nothing that could say so.
    Done = 2,
}

/// Outcome of a call that returns a result.
pub fn outcome<T, E>(result: &Result<T, E>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(_) => Outcome::Error,
    }
}

/// One public call.
pub struct Case {
    /// As the document names it.
    pub name: &'static str,
    /// Runs the call inside of [`Fault::during`], checks what it left, and calls it again.
    pub run: fn(&mut Fault) -> Outcome,
    /// Whether a process can make the call once only.
    pub is_first: bool,
}

pub const fn case(name: &'static str, run: fn(&mut Fault) -> Outcome) -> Case {
    Case {
        name,
        run,
        is_first: false,
    }
}

/// The fault of one run.
pub struct Fault {
    mode: Mode,
    nth: u64,
    met: bool,
}

impl Fault {
    /// Makes the call in which the fault comes.
    pub fn during<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let armed = Armed::new(self.mode, self.nth);
        let result = call();
        self.met |= armed.has_failed();
        drop(armed);
        result
    }
}

/// Observations of a case.
#[derive(Default)]
struct Seen {
    allocations: u64,
    outcomes: BTreeMap<Outcome, u64>,
    /// Numbers of the allocations whose faults ended the process.
    aborts: BTreeSet<u64>,
    /// Descriptions of all else that came out wrong.
    wrong: Vec<String>,
}

impl Case {
    /// Tries all faults of one kind.
    fn explore(&self, mode: Mode, seen: &mut Seen) {
        let mut next = 1;
        while seen.aborts.contains(&next) && mode == Mode::Always {
            // It ended with that fault alone.
            next += 1;
        }
        loop {
            let ended = child::run(|said| {
                if !self.is_first {
                    self.once(mode, 0);
                }
                for nth in next..ALLOCATIONS_MAX {
                    if mode == Mode::Always && seen.aborts.contains(&nth) {
                        continue;
                    }
                    say(said, nth, 0);
                    let (met, outcome) = self.once(mode, nth);
                    say(said, nth, if met { outcome as u8 } else { u8::MAX });
                    if !met || self.is_first {
                        return;
                    }
                }
                panic!(
                    "{} makes more than {ALLOCATIONS_MAX} allocations",
                    self.name
                );
            });
            let mut reached = 0;
            for line in ended.said.chunks_exact(LINE) {
                reached = u64::from_le_bytes(line[..8].try_into().expect("eight bytes"));
                match line[8] {
                    0 => {}
                    1 => *seen.outcomes.entry(Outcome::Error).or_default() += 1,
                    2 => *seen.outcomes.entry(Outcome::Done).or_default() += 1,
                    _ => {
                        seen.allocations = seen.allocations.max(reached - 1);
                        return;
                    }
                }
            }
            match ended.end {
                End::Well => {}
                End::Aborted if reached > 0 => {
                    if std::env::var_os("BURSAR_FAULT_TRACE").is_some() {
                        println!("{} {mode:?} {reached}: {}", self.name, ended.errors);
                    }
                    seen.aborts.insert(reached);
                }
                _ => {
                    let (name, text) = (self.name, ended.errors);
                    seen.wrong
                        .push(format!("{name}, {mode:?}, allocation {reached}: {text}"));
                    if reached == 0 {
                        return;
                    }
                }
            }
            next = reached + 1;
        }
    }

    fn once(&self, mode: Mode, nth: u64) -> (bool, Outcome) {
        let mut fault = Fault {
            mode,
            nth,
            met: false,
        };
        let outcome = (self.run)(&mut fault);
        (fault.met, outcome)
    }
}

/// Without allocating.
fn say(said: &mut impl Write, nth: u64, outcome: u8) {
    let mut line = [0; LINE];
    line[..8].copy_from_slice(&nth.to_le_bytes());
    line[8] = outcome;
    said.write_all(&line).expect("the parent reads");
}

/// Calls that the document lists: those that may end the process. The first cell of a row has one or more, with commas between.
fn documented() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hardening.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, table) = page
        .split_once("| call that may end the process |")
        .expect("the table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| {
        let first = row.split('|').nth(1).expect("a cell");
        first.split(", ").map(|name| name.trim().replace('`', ""))
    });
    names.collect()
}

/// Tries all faults of all these cases. Prints what was seen, and what is wrong behind [`WRONG`].
fn explore(cases: &[&Case], documented: &[String], out: &mut impl Write) {
    for case in cases {
        let mut seen = Seen::default();
        for mode in [Mode::Once, Mode::Always] {
            case.explore(mode, &mut seen);
        }
        let (name, count) = (case.name, seen.allocations);
        let (outcomes, aborts) = (seen.outcomes, seen.aborts);
        let line = format!("{name}: {count} allocations, {outcomes:?}, ended by {aborts:?}");
        writeln!(out, "{line}").expect("the parent reads");
        let says = documented.iter().any(|name| name == case.name);
        match (aborts.first(), says) {
            (Some(nth), false) => seen.wrong.push(format!(
                "{name} ends the process when allocation {nth} fails, and docs/hardening.md does not say so"
            )),
            (None, true) => seen.wrong.push(format!(
                "{name} never ends the process, and docs/hardening.md says that it may"
            )),
            _ => {}
        }
        for wrong in seen.wrong {
            writeln!(out, "{WRONG}{}", wrong.trim().replace('\n', "\n  "))
                .expect("the parent reads");
        }
    }
}

/// Begins lines about faults that came out wrong.
const WRONG: &str = "WRONG: ";

#[test]
fn each_allocation_of_each_call_fails() {
    let _alone = child::alone();
    let only = std::env::var("BURSAR_FAULT_CASE").ok();
    let documented = documented();
    let all = || {
        library::CASES
            .iter()
            .chain(arbiter::CASES)
            .chain(others::CASES)
    };
    let is_meant = |case: &&Case| only.as_ref().is_none_or(|only| case.name.contains(only));
    let (first, later): (Vec<&Case>, Vec<&Case>) =
        all().filter(is_meant).partition(|case| case.is_first);
    let mut text = Vec::new();
    explore(&first, &documented, &mut text);
    // The start of the host takes longer than most calls. So one process starts it, and forks for each call.
    let ended = child::run_all(|said| {
        bursar::Host::start().expect("nothing fails");
        explore(&later, &documented, said);
    });
    text.extend(ended.said);
    let text = String::from_utf8(text).expect("text");
    println!("{text}");
    assert_eq!(ended.end, End::Well, "{}", ended.errors);
    let is_wrong = |line: &&str| line.starts_with(WRONG) || line.starts_with(' ');
    let mut wrong: Vec<&str> = text.lines().filter(is_wrong).collect();
    let unknown = |name: &&String| all().all(|case| case.name != **name);
    wrong.extend(documented.iter().filter(unknown).map(|name| &**name));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
