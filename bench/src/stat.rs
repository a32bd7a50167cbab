//! `stat`: what counting something for a group costs, beside peers.
//!
//! Every contender adds 1. With two threads both count in the same groups.

use std::hint::black_box;

use bursar::{Freshness, Group};
use hytra::TrAdder;
use prometheus::IntCounter;

use crate::account::Tally;
use crate::contender::{ACCOUNTS, Contender, Done, Local, Padded, Path, bare, unrolled};
use crate::rounds::{Heat, Racer};
use crate::series::BURSAR;
use crate::timing::{Slice, Spent, on_cpus};
use crate::tree::{self, COMMON_DEPTH, DEPTHS, ROWS};

/// Operations of a block.
const BLOCK: u64 = 8192;

/// The scenarios: one group, or sixteen in turn.
const SCENARIOS: [&str; 2] = ["hot", "rotate 16"];

impl Tally for Group {
    #[inline(always)]
    fn count(&self, number: i64) {
        self.add(ROWS, number as u64);
    }

    fn total(&self) -> i64 {
        let reading = self.read(Freshness::Exact).expect("the group exists");
        reading.get(ROWS).value
    }
}

impl Tally for Path {
    #[inline(always)]
    fn count(&self, number: i64) {
        for level in &self.levels {
            level.count(number);
        }
    }

    fn total(&self) -> i64 {
        self.levels[0].total()
    }
}

impl Tally for IntCounter {
    #[inline(always)]
    fn count(&self, number: i64) {
        self.inc_by(number as u64);
    }

    fn total(&self) -> i64 {
        self.get() as i64
    }
}

impl Tally for TrAdder<i64> {
    #[inline(always)]
    fn count(&self, number: i64) {
        self.inc(number);
    }

    fn total(&self) -> i64 {
        self.get()
    }
}

/// All heats of this benchmark.
pub fn heats() -> Vec<Heat> {
    let mut heats = Vec::new();
    for scenario in SCENARIOS {
        for depth in DEPTHS {
            heats.push(heat(scenario, depth));
        }
    }
    heats
}

fn heat(scenario: &str, depth: usize) -> Heat {
    let accounts = if scenario == "hot" { 1 } else { ACCOUNTS };
    let mut racers: Vec<Box<dyn Racer>> = Vec::new();
    racers.extend(bare().map(|contender| enter(contender, accounts)));
    let memory = tree::memory();
    let mut leaves = tree::leaves(&memory, depth, ACCOUNTS).into_iter();
    let bursar = Contender::shared(BURSAR, |_| leaves.next().expect("a leaf for each account"));
    racers.push(enter(bursar, accounts));
    let path = Contender::shared("atomics per ancestor", Path::bundle(depth));
    racers.push(enter(path, accounts));
    if depth == COMMON_DEPTH {
        let local = Contender::shared("thread-local Cell", Local::new);
        racers.push(enter(local, accounts));
        let word = Contender::shared("AtomicU64", |_| Padded::default());
        racers.push(enter(word, accounts));
        let prometheus = Contender::shared("prometheus IntCounter", |_| {
            IntCounter::new("rows", "rows").expect("a valid name")
        });
        racers.push(enter(prometheus, accounts));
        let hytra = Contender::shared("hytra TrAdder", |_| TrAdder::<i64>::new());
        racers.push(enter(hytra, accounts));
    }
    Heat {
        scenario: scenario.to_owned(),
        depth,
        threads: &[1, 2],
        racers,
    }
}

fn enter<A: Tally + 'static>(contender: Contender<A>, accounts: usize) -> Box<dyn Racer> {
    Box::new(Counting {
        contender,
        accounts,
        done: Done::default(),
    })
}

struct Counting<A> {
    contender: Contender<A>,
    accounts: usize,
    done: Done,
}

impl<A: Tally> Racer for Counting<A> {
    fn name(&self) -> &str {
        &self.contender.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        on_cpus(cpus, |thread, meeting| {
            let accounts = self.contender.of_thread(thread);
            let block = || {
                self.done.add(BLOCK);
                match self.accounts {
                    1 => hot(accounts[0]),
                    _ => rotate(&accounts),
                }
            };
            let spent = slice.run(|| meeting.join(), block);
            accounts.iter().for_each(|account| account.thread_done());
            spent
        })
    }

    fn check(&self) -> Result<(), String> {
        let counted: i64 = self
            .contender
            .distinct()
            .into_iter()
            .map(Tally::total)
            .sum();
        let done = self.done.get();
        if counted != done as i64 {
            return Err(format!("{done} times 1 were counted as {counted}"));
        }
        Ok(())
    }
}

#[inline(never)]
fn hot<A: Tally>(account: &A) -> u64 {
    let number = black_box(1);
    for _ in 0..BLOCK / 4 {
        unrolled!([0 1 2 3] |_turn| { account.count(number) });
    }
    BLOCK
}

#[inline(never)]
fn rotate<A: Tally>(accounts: &[&A; ACCOUNTS]) -> u64 {
    let number = black_box(1);
    for _ in 0..BLOCK / ACCOUNTS as u64 {
        unrolled!([0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] |turn| { accounts[turn].count(number) });
    }
    BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds;
    use crate::timing::Effort;
    use bursar_machine::host;

    #[test]
    fn everybody_counts_everything() {
        let cpus = host::allowed_cpus();
        for scenario in SCENARIOS {
            // `run` fails if anything was lost or counted twice.
            let heats = [heat(scenario, COMMON_DEPTH)];
            let series = rounds::run(&heats, &cpus, Effort::smoke()).unwrap();
            assert!(series.iter().all(|series| series.samples.len() == 1));
        }
    }
}
