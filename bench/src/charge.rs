//! `charge`: what charging and uncharging costs, beside peers.
//!
//! Every contender charges pages of 4,096 bytes. With two threads both use the same accounts: the honest worst case.

use std::hint::black_box;

use crate::account::{Account, BYTES};
use crate::contender::{ACCOUNTS, Contender, Local, Padded, Path, bare, unrolled};
use crate::hand_over;
#[cfg(feature = "datafusion")]
use crate::pools;
use crate::rounds::{Heat, Racer};
use crate::series::BURSAR;
use crate::timing::{Slice, Spent, on_cpus};
use crate::tree::{self, COMMON_DEPTH, DEPTHS};

/// Operations of a block of `hot` and `rotate`; `ramp` does twice `RAMP`.
const BLOCK: u64 = 8192;
/// Charges held at once in `ramp`.
const RAMP: usize = 1024;

/// Pattern of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A charge and its uncharge, again and again.
    Hot,
    /// The same, each time on the next of sixteen groups.
    Rotate,
    /// 1,024 charges, each kept, then all given back.
    Ramp,
    /// One thread charges, the other, on another CPU, uncharges.
    HandOver,
}

impl Shape {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Hot, Self::Rotate, Self::Ramp, Self::HandOver];

    /// Name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Rotate => "rotate 16",
            Self::Ramp => "ramp 1024",
            Self::HandOver => "hand over",
        }
    }

    fn threads(self) -> &'static [usize] {
        match self {
            Self::HandOver => &[2],
            _ => &[1, 2],
        }
    }
}

/// All heats of this benchmark.
pub fn heats() -> Vec<Heat> {
    let mut heats = Vec::new();
    for shape in Shape::ALL {
        for depth in DEPTHS {
            heats.push(Heat {
                scenario: shape.name().to_owned(),
                depth,
                threads: shape.threads(),
                racers: racers(shape, depth),
            });
        }
    }
    heats
}

/// Contenders: at the common depth all, at the others those for which depth matters.
pub fn racers(shape: Shape, depth: usize) -> Vec<Box<dyn Racer>> {
    let mut racers: Vec<Box<dyn Racer>> = Vec::new();
    racers.extend(bare().map(|contender| enter(contender, shape)));
    let memory = tree::memory();
    let mut leaves = tree::leaves(&memory, depth, ACCOUNTS).into_iter();
    let bursar = Contender::shared(BURSAR, |_| leaves.next().expect("a leaf for each account"));
    racers.push(enter(bursar, shape));
    let path = Contender::shared("atomics per ancestor", Path::bundle(depth));
    racers.push(enter(path, shape));
    if depth == COMMON_DEPTH {
        racers.push(enter(
            Contender::shared("thread-local Cell", Local::new),
            shape,
        ));
        let word = Contender::shared("AtomicU64", |_| Padded::default());
        racers.push(enter(word, shape));
        #[cfg(feature = "datafusion")]
        racers.extend(pools::all().into_iter().map(|pool| enter(pool, shape)));
    }
    racers
}

fn enter<A: Account + 'static>(contender: Contender<A>, shape: Shape) -> Box<dyn Racer> {
    Box::new(Charging { contender, shape })
}

struct Charging<A> {
    contender: Contender<A>,
    shape: Shape,
}

impl<A: Account> Racer for Charging<A> {
    fn name(&self) -> &str {
        &self.contender.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        if self.shape == Shape::HandOver {
            let account = self.contender.of_thread(0)[0];
            return hand_over::race(account, (BYTES, hand_over::BATCH), cpus, slice);
        }
        on_cpus(cpus, |thread, meeting| {
            let accounts = self.contender.of_thread(thread);
            let meet = || meeting.join();
            let spent = match self.shape {
                Shape::Hot => slice.run(meet, || hot(accounts[0])),
                Shape::Rotate => slice.run(meet, || rotate(&accounts)),
                Shape::Ramp | Shape::HandOver => {
                    let mut held = Vec::with_capacity(RAMP);
                    slice.run(meet, || ramp(accounts[0], &mut held))
                }
            };
            accounts.iter().for_each(|account| account.thread_done());
            spent
        })
    }

    fn check(&self) -> Result<(), String> {
        for account in self.contender.distinct() {
            match account.outstanding() {
                0 => {}
                bytes => return Err(format!("{bytes} bytes are still charged")),
            }
        }
        Ok(())
    }
}

#[inline(never)]
fn hot<A: Account>(account: &A) -> u64 {
    let bytes = black_box(BYTES);
    for _ in 0..BLOCK / 2 / 4 {
        unrolled!([0 1 2 3] |_number| {
            let token = account.charge(bytes);
            account.uncharge(token);
        });
    }
    BLOCK
}

#[inline(never)]
fn rotate<A: Account>(accounts: &[&A; ACCOUNTS]) -> u64 {
    let bytes = black_box(BYTES);
    for _ in 0..BLOCK / 2 / ACCOUNTS as u64 {
        unrolled!([0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] |number| {
            let token = accounts[number].charge(bytes);
            accounts[number].uncharge(token);
        });
    }
    BLOCK
}

#[inline(never)]
fn ramp<A: Account>(account: &A, held: &mut Vec<A::Token>) -> u64 {
    let bytes = black_box(BYTES);
    for _ in 0..RAMP {
        held.push(account.charge(bytes));
    }
    for token in held.drain(..) {
        account.uncharge(token);
    }
    2 * RAMP as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds;
    use crate::timing::Effort;
    use bursar_machine::host;

    #[test]
    fn every_shape_gives_everything_back() {
        let cpus = host::allowed_cpus();
        for shape in Shape::ALL {
            let heat = Heat {
                scenario: shape.name().to_owned(),
                depth: COMMON_DEPTH,
                threads: shape.threads(),
                racers: racers(shape, COMMON_DEPTH),
            };
            // `run` fails if anything is still charged anywhere.
            let series = rounds::run(&[heat], &cpus, Effort::smoke()).unwrap();
            assert!(series.iter().all(|series| series.samples.len() == 1));
        }
    }
}
