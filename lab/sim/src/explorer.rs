//! Many schedules of one scenario, and the shortest failing beginning of one.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Once};

use bursar_rig::random::Random;

use crate::failure::{Failure, keep_last_panic, message_of, take_last_panic};
use crate::machine::{Sim, Simulator};
use crate::settings::{Mode, SectionKind, Settings};
use crate::strategy::{Decision, Strategy};
use crate::topology::Topology;

/// Exploration, apart from the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explorer {
    /// Machine; few CPUs show more.
    pub topology: Topology,
    /// Way in which words of a CPU are changed.
    pub sections: SectionKind,
    /// Seed of all schedules.
    pub seed: u64,
}

/// Schedule for a replay: `SEED:NUMBER` or `SEED:NUMBER:LENGTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleId {
    /// The explorer's seed.
    pub seed: u64,
    /// Number of the schedule.
    pub number: u64,
    /// Number of its choices that are followed. Beyond, the running task goes on until it waits. `None` for all.
    pub length: Option<usize>,
}

/// Error of a text that is not a [`ScheduleId`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadScheduleId(pub String);

impl fmt::Display for BadScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a schedule; write SEED:NUMBER or SEED:NUMBER:LENGTH",
            self.0
        )
    }
}

impl std::error::Error for BadScheduleId {}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.number)?;
        self.length.map_or(Ok(()), |length| write!(f, ":{length}"))
    }
}

impl FromStr for ScheduleId {
    type Err = BadScheduleId;

    fn from_str(text: &str) -> Result<Self, BadScheduleId> {
        let bad = || BadScheduleId(text.to_owned());
        let mut parts = text.split(':');
        let mut number = || parts.next().map(str::parse::<u64>);
        let (Some(Ok(seed)), Some(Ok(index)), length) = (number(), number(), number()) else {
            return Err(bad());
        };
        let length = length.transpose().map_err(|_| bad())?;
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Self {
            seed,
            number: index,
            length: length.map(|length| length as usize),
        })
    }
}

/// A schedule that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its shortest beginning that still fails, if beyond it the running task goes on until it waits.
    pub schedule: ScheduleId,
    /// The failure.
    pub failure: Failure,
    /// Choices of that beginning: the task that goes on.
    pub choices: Vec<Decision>,
}

/// Result of an exploration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Schedules that were run, including the first that failed.
    pub schedules: u64,
    /// Number of steps of all of them.
    pub steps: u64,
    /// The first schedule that failed.
    pub found: Option<Found>,
}

/// Number of schedules in which something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Schedules in which it happened.
    pub happened: u64,
    /// Schedules that failed, which are not counted in `happened`.
    pub failed: u64,
    /// Number of steps of all schedules that ran.
    pub steps: u64,
}

/// Result of one schedule.
struct Outcome {
    result: Result<(), Failure>,
    decisions: Vec<Decision>,
    steps: u64,
}

/// Maximum depth of the bugs that PCT schedules look for: the number of events that must come in one order.
const DEPTH_MAX: u64 = 5;

/// Schedules whose numbers of steps stand for those of all (judgement). Random walks, a quarter, need none. A scenario chooses its work by the schedule's number, and its
/// kinds of work differ in length.
const TYPICAL: usize = 16;

/// Number of steps of typical schedules without any choice, those that are known.
type TypicalSteps = [Option<u64>; TYPICAL];

impl Explorer {
    /// Runs schedules `first..first + count` of `scenario` until one fails: a quarter of them random walks, the others
    /// PCT.
    ///
    /// `progress` is told the number of schedules run. The scenario gets a number of the schedule's own, so that the
    /// work of its tasks can vary too.
    pub fn explore(
        &self,
        scenario: &dyn Fn(&Sim, u64),
        first: u64,
        count: u64,
        mut progress: impl FnMut(u64),
    ) -> Explored {
        let mut typical = TypicalSteps::default();
        let mut steps = 0;
        for done in 0..count {
            let number = first + done;
            let strategy = self.strategy(scenario, number, &mut typical);
            let outcome = self.run(scenario, number, strategy);
            steps += outcome.steps;
            if let Err(failure) = outcome.result {
                let found = self.shorten(scenario, number, failure, outcome.decisions);
                return Explored {
                    schedules: done + 1,
                    steps,
                    found: Some(found),
                };
            }
            progress(done + 1);
        }
        Explored {
            schedules: count,
            steps,
            found: None,
        }
    }

    /// Runs schedules `first..first + count` of a scenario that returns whether something happened, whatever it
    /// returns.
    pub fn count(&self, scenario: &dyn Fn(&Sim, u64) -> bool, first: u64, count: u64) -> Counted {
        let has_happened = Cell::new(false);
        let noting = |machine: &Sim, variety| has_happened.set(scenario(machine, variety));
        let mut typical = TypicalSteps::default();
        let mut counted = Counted::default();
        for number in first..first + count {
            let strategy = self.strategy(&noting, number, &mut typical);
            let outcome = self.run(&noting, number, strategy);
            counted.steps += outcome.steps;
            match outcome.result {
                Ok(()) => counted.happened += u64::from(has_happened.get()),
                Err(_) => counted.failed += 1,
            }
        }
        counted
    }

    /// Runs one schedule again.
    ///
    /// # Errors
    /// The failure, and the choices made.
    pub fn replay(&self, scenario: &dyn Fn(&Sim, u64), schedule: ScheduleId) -> Result<(), Found> {
        let explorer = Self {
            seed: schedule.seed,
            ..*self
        };
        let mut typical = TypicalSteps::default();
        let strategy = explorer.strategy(scenario, schedule.number, &mut typical);
        let mut outcome = explorer.run(scenario, schedule.number, strategy);
        if let Some(length) = schedule.length {
            outcome.decisions.truncate(length);
            let replayed = Strategy::Replay(outcome.decisions.clone().into());
            outcome.result = explorer.run(scenario, schedule.number, replayed).result;
        }
        outcome.result.map_err(|failure| Found {
            schedule,
            failure,
            choices: outcome.decisions,
        })
    }

    /// Strategy of a schedule. PCT takes the length from one of the typical schedules; which one depends on the number alone, so that a
    /// replay takes the same.
    fn strategy(
        &self,
        scenario: &dyn Fn(&Sim, u64),
        number: u64,
        typical: &mut TypicalSteps,
    ) -> Strategy {
        // PCT has found nearly all of the bugs found so far.
        if number.is_multiple_of(4) {
            return Strategy::RandomWalk;
        }
        let like = number % TYPICAL as u64;
        let without_choice = || {
            self.run(scenario, like, Strategy::Replay(Arc::new([])))
                .steps
        };
        Strategy::Pct {
            depth: 1 + (number % DEPTH_MAX) as u32,
            steps: *typical[like as usize].get_or_insert_with(without_choice),
        }
    }

    fn run(&self, scenario: &dyn Fn(&Sim, u64), number: u64, strategy: Strategy) -> Outcome {
        let mut seeds = Random::new(self.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let seed = seeds.number();
        let variety = seeds.number();
        let mut settings = Settings::new(self.topology, seed);
        settings.sections = self.sections;
        settings.mode = Mode::Explored(strategy);
        let simulator = Simulator::new(settings);
        let result = quietly(|| simulator.try_run(|machine| scenario(machine, variety)));
        Outcome {
            result,
            decisions: simulator.take_decisions(),
            steps: simulator.counts().steps,
        }
    }

    /// Finds the shortest beginning that fails. Tries beginnings from the shortest on, because one that fails tells
    /// nothing about longer ones.
    fn shorten(
        &self,
        scenario: &dyn Fn(&Sim, u64),
        number: u64,
        failure: Failure,
        decisions: Vec<Decision>,
    ) -> Found {
        for length in 0..decisions.len() {
            let some = &decisions[..length];
            let outcome = self.run(scenario, number, Strategy::Replay(some.into()));
            if let Err(failure) = outcome.result {
                return self.found(number, Some(length), failure, some.to_vec());
            }
        }
        self.found(number, None, failure, decisions)
    }

    fn found(
        &self,
        number: u64,
        length: Option<usize>,
        failure: Failure,
        choices: Vec<Decision>,
    ) -> Found {
        Found {
            schedule: ScheduleId {
                seed: self.seed,
                number,
                length,
            },
            failure,
            choices,
        }
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` such that panics in it are results, not messages.
fn quietly<R>(work: impl FnOnce() -> R) -> R {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_QUIET.get() {
                keep_last_panic(message_of(info.payload()));
            } else {
                usual(info);
            }
        }));
    });
    take_last_panic();
    let before = IS_QUIET.replace(true);
    let result = work();
    IS_QUIET.set(before);
    result
}
