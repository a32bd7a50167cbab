//! Contenders taking turns.
//!
//! A *heat* is one scenario with everybody who takes part in it. In every round each of them has one short turn, in an
//! order that shifts by one each round, so that a change of clock frequency, a noisy neighbour or the turn before hits
//! all alike. Ratios are taken within a round.

use std::io::{IsTerminal, Write};

use crate::series::Series;
use crate::timing::{Effort, Slice, Spent};

/// Somebody who takes part in a heat.
pub trait Racer {
    /// Name in the tables.
    fn name(&self) -> &str;
    /// One turn, with a thread on each of `cpus`.
    fn race(&self, cpus: &[usize], slice: Slice) -> Spent;
    /// After all turns: whether the books balance.
    ///
    /// # Errors
    /// Returns the first inconsistency, if any.
    fn check(&self) -> Result<(), String>;
}

/// One scenario and who takes part.
pub struct Heat {
    pub scenario: String,
    /// See [`Series::depth`].
    pub depth: usize,
    /// Numbers of threads to run it with.
    pub threads: &'static [usize],
    pub racers: Vec<Box<dyn Racer>>,
}

impl Heat {
    /// Keeps the contenders whose row contains `filter`, and the yardstick if any of them is left.
    fn keep(&mut self, filter: &str, yardstick: &str) {
        let (scenario, depth) = (&self.scenario, self.depth);
        let wanted = |name: &str| format!("{scenario} {depth} {name}").contains(filter);
        let any = self.racers.iter().any(|racer| wanted(racer.name()));
        self.racers
            .retain(|racer| wanted(racer.name()) || any && racer.name() == yardstick);
    }
}

/// Drops from `heats` what `filter` does not name.
pub fn filtered(mut heats: Vec<Heat>, filter: Option<&str>, yardstick: &str) -> Vec<Heat> {
    if let Some(filter) = filter {
        for heat in &mut heats {
            heat.keep(filter, yardstick);
        }
        heats.retain(|heat| !heat.racers.is_empty());
    }
    heats
}

/// Runs all rounds of all heats and checks everybody's books. Heats that need more CPUs than there are run with fewer
/// threads only.
///
/// # Errors
/// Whose books do not balance, and how.
pub fn run(heats: &[Heat], cpus: &[usize], effort: Effort) -> Result<Vec<Series>, String> {
    let mut series = blank(heats, cpus);
    for round in 0..effort.rounds {
        progress(round, effort.rounds);
        let mut at = 0;
        for heat in heats {
            let entrants = heat.racers.len();
            for &threads in possible(heat, cpus) {
                for turn in 0..entrants {
                    let racer = (turn + round) % entrants;
                    let spent = heat.racers[racer].race(&cpus[..threads], effort.slice);
                    series[at + racer].samples.push(spent.ns_per_operation());
                }
                at += entrants;
            }
        }
    }
    progress(effort.rounds, effort.rounds);
    for heat in heats {
        for racer in &heat.racers {
            racer.check().map_err(|error| {
                let (scenario, name) = (&heat.scenario, racer.name());
                format!("{name}, {scenario}, depth {}: {error}", heat.depth)
            })?;
        }
    }
    Ok(series)
}

fn possible<'a>(heat: &'a Heat, cpus: &'a [usize]) -> impl Iterator<Item = &'a usize> {
    heat.threads
        .iter()
        .filter(|&&threads| threads <= cpus.len())
}

fn blank(heats: &[Heat], cpus: &[usize]) -> Vec<Series> {
    let mut series = Vec::new();
    for heat in heats {
        for &threads in possible(heat, cpus) {
            series.extend(heat.racers.iter().map(|racer| Series {
                scenario: heat.scenario.clone(),
                depth: heat.depth,
                contender: racer.name().to_owned(),
                threads,
                unit: "ns/op".to_owned(),
                samples: Vec::new(),
            }));
        }
    }
    series
}

/// Progress on a terminal, and nowhere else.
pub fn progress(done: usize, of: usize) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let end = if done == of { "\r\x1b[K" } else { "" };
        // A terminal that went away is no reason to stop measuring.
        let _ = write!(stderr, "\rround {done} of {of}{end}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::BARE;

    struct Named(&'static str);

    impl Racer for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn race(&self, _: &[usize], _: Slice) -> Spent {
            Spent {
                ns: 6,
                operations: 2,
            }
        }

        fn check(&self) -> Result<(), String> {
            if self.0 == "leaky" {
                return Err("1 byte left".into());
            }
            Ok(())
        }
    }

    fn heat(names: &[&'static str]) -> Heat {
        let racers = names.iter().map(|&name| Box::new(Named(name)) as Box<_>);
        Heat {
            scenario: "hot".into(),
            depth: 3,
            threads: &[1, 2],
            racers: racers.collect(),
        }
    }

    #[test]
    fn everybody_has_a_turn_in_every_round() {
        let effort = Effort {
            rounds: 5,
            ..Effort::smoke()
        };
        let series = run(&[heat(&[BARE, "a", "b"])], &[0], effort).unwrap();
        assert_eq!(series.len(), 3, "two threads need two CPUs");
        assert!(series.iter().all(|series| series.samples == [3.0; 5]));
    }

    #[test]
    fn a_run_whose_books_do_not_balance_fails() {
        let error = run(&[heat(&[BARE, "leaky"])], &[0], Effort::smoke()).unwrap_err();
        assert_eq!(error, "leaky, hot, depth 3: 1 byte left");
    }

    #[test]
    fn a_filter_keeps_the_yardstick() {
        let names = |heats: &[Heat]| -> Vec<String> {
            let racers = heats.iter().flat_map(|heat| &heat.racers);
            racers.map(|racer| racer.name().to_owned()).collect()
        };
        let heats = filtered(vec![heat(&[BARE, "a", "b"])], Some("3 b"), BARE);
        assert_eq!(names(&heats), [BARE, "b"]);
        assert!(filtered(vec![heat(&[BARE, "a"])], Some("cold"), BARE).is_empty());
    }
}
