//! Results of an exploration, for programs.

use crate::protocols::published::Stale;
use bursar_sim::{Decision, Explored, Found, ScheduleId, Sim};
use serde::Serialize;

use super::subject::{Group, Target};

/// The document.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Seed of the schedules.
    pub seed: u64,
    /// The rest was not explored.
    pub interrupted: bool,
    /// Results in the order of the targets.
    pub results: Vec<Result>,
}

/// Results of one target.
#[derive(Debug, Serialize)]
pub struct Result {
    /// Name on the command line.
    pub protocol: String,
    /// Concurrent operations, and the properties that must hold.
    pub summary: String,
    /// Way in which a CPU's words are changed.
    pub sections: &'static str,
    /// A bug was planted, and must be found.
    pub planted: bool,
    /// It is a published policy.
    #[serde(skip)]
    published: bool,
    /// Number of schedules that ran.
    pub schedules: u64,
    /// Number of steps of all schedules.
    pub steps: u64,
    /// Schedules in which a read was stale. Only published flush policies may have such; `failure` is the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<u64>,
    /// The first failure.
    pub failure: Option<Failed>,
}

/// Way in which a target is broken.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// The schedule, as the command line reads it.
    pub schedule: String,
    /// The message of the failure.
    pub reason: String,
    /// Number of its choices.
    pub choices: usize,
    /// Tasks that went on at them: `0x5 1 (1 to CPU 0) 2x3` is task 0 at five choices, then task 1, which was moved to
    /// another CPU when task 2 went on at the next three.
    pub order: String,
    /// The command that shows it again.
    pub replay: String,
    /// A read was stale, and nothing else is wrong.
    #[serde(skip)]
    is_stale: bool,
}

impl Document {
    /// Makes a document of results.
    pub fn new(seed: u64, interrupted: bool, results: Vec<Result>) -> Self {
        Self {
            seed,
            interrupted,
            results,
        }
    }

    /// Runs one schedule again.
    pub fn replay(target: &Target, schedule: ScheduleId) -> Self {
        let explorer = target.explorer(schedule.seed);
        let mut result = Result::new(target);
        result.schedules = 1;
        let scenario = target.scenario();
        let scenario = |machine: &Sim, variety| scenario.run(machine, variety);
        if let Err(found) = explorer.replay(&scenario, schedule) {
            result.fail(&found);
            if result.is_stale() {
                result.stale = Some(1);
            }
        }
        // That a planted bug shows again is no success, but what was asked to be seen.
        result.planted = false;
        Self::new(schedule.seed, false, vec![result])
    }

    /// Puts the results of another document behind these.
    pub fn append(&mut self, other: Self) {
        self.interrupted |= other.interrupted;
        self.results.extend(other.results);
    }

    /// Whether protocols hold, planted bugs were found, and published policies do nothing worse than read old numbers.
    pub fn is_as_expected(&self) -> bool {
        self.results.iter().all(Result::is_as_expected)
    }
}

impl Result {
    pub(super) fn new(target: &Target) -> Self {
        Self {
            protocol: target.subject.name.clone(),
            summary: target.subject.summary.clone(),
            sections: target.sections_name(),
            planted: target.subject.group == Group::Planted,
            schedules: 0,
            steps: 0,
            published: target.subject.group == Group::Published,
            stale: target.scenario().is_judged().then_some(0),
            failure: None,
        }
    }

    /// Some more schedules, of which so many were stale, if that is counted.
    pub(super) fn add(&mut self, explored: &Explored, stale: Option<u64>) {
        self.schedules += explored.schedules;
        self.steps += explored.steps;
        self.stale = self.stale.zip(stale).map(|(before, more)| before + more);
        self.add_finding(explored);
    }

    /// The failure that was found among some schedules.
    pub(super) fn add_finding(&mut self, explored: &Explored) {
        // A stale read makes room for something worse.
        if let Some(found) = &explored.found
            && (self.failure.is_none() || (self.is_stale() && !is_stale(found)))
        {
            self.fail(found);
        }
    }

    /// Whether the failure is a stale read of a published policy.
    fn is_stale(&self) -> bool {
        self.failure.as_ref().is_some_and(|failed| failed.is_stale)
    }

    /// Whether it is a published policy.
    pub fn is_published(&self) -> bool {
        self.published
    }

    /// Whether it is one that may read old numbers.
    pub fn is_judged(&self) -> bool {
        self.stale.is_some()
    }

    fn fail(&mut self, found: &Found) {
        let group = match (self.planted, self.is_published()) {
            (true, _) => " --planted",
            (_, true) => " --published",
            (false, false) => "",
        };
        self.failure = Some(Failed {
            schedule: found.schedule.to_string(),
            reason: found.failure.to_string(),
            choices: found.choices.len(),
            order: order(&found.choices),
            replay: format!(
                "bursar-lab explore {}{group} --sections {} --replay {}",
                self.protocol, self.sections, found.schedule
            ),
            is_stale: self.is_judged() && is_stale(found),
        });
    }

    /// Whether the result is the one that its group demands.
    pub fn is_as_expected(&self) -> bool {
        self.failure.is_some() == self.planted || self.is_stale()
    }

    /// The result in two words at most.
    pub fn verdict(&self) -> &'static str {
        if self.is_judged() && self.schedules > 0 && self.is_as_expected() {
            return if self.is_stale() { "stale" } else { "fresh" };
        }
        match (self.planted, &self.failure) {
            // Interrupted before.
            (_, None) if self.schedules == 0 => "not explored",
            (false, None) => "holds",
            (false, Some(_)) => "BROKEN",
            (true, Some(_)) => "found",
            (true, None) => "NOT FOUND",
        }
    }
}

/// Whether a stale read is what was found.
fn is_stale(found: &Found) -> bool {
    matches!(&found.failure, bursar_sim::Failure::Panic(message) if message.starts_with(Stale::PREFIX))
}

/// See [`Failed::order`].
fn order(choices: &[Decision]) -> String {
    let task = |choice: Decision| choice & 0xff;
    let mut words: Vec<String> = Vec::new();
    let mut before = None;
    let mut left = choices;
    while let [first, rest @ ..] = left {
        if let (Some(mover), Some(cpu)) = (before, (first >> 8).checked_sub(1)) {
            words.push(format!("({mover} to CPU {cpu})"));
        }
        let next = task(*first);
        let same = rest.iter().take_while(|choice| **choice == next).count();
        words.push(match same {
            0 => next.to_string(),
            same => format!("{next}x{}", same + 1),
        });
        before = Some(next);
        left = &rest[same..];
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn choices_in_a_row_are_counted() {
        assert_eq!(
            order(&[0, 0, 1, 0x0202, 2, 2, 0]),
            "0x2 1 (1 to CPU 1) 2x3 0"
        );
        assert_eq!(order(&[]), "");
    }
}
