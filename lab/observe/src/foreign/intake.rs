//! From the records of a file to [`Seen`], with the filters that a live session has in the kernel.

use std::collections::{BTreeMap, BTreeSet};

use super::trace_dat::Texts;
use crate::analysis::Analysis;
use crate::event::{
    Decoder, Event, FLUSH_EVENTS, HOLD_EVENTS, Kind, PAGE_EVENTS, TIMER_EVENTS, WAIT_EVENTS,
    WORK_EVENTS, Wanted,
};
use crate::format::{EventFormat, Field};
use crate::seen::{Cgroup, Losses, Machine, Missing, Seen, Task};
use crate::symbols::Symbols;

/// Greatest time that is believed: 73 years.
const TIME_NS_MAX: u64 = 1 << 61;
/// `flags` of a wait for a spin lock that is neither for readers nor for writers.
const SPIN: u64 = 1;
/// Frames of a stack that are looked at: one or two that wait, and the function that takes the lock.
const FRAMES: usize = 4;
/// Addresses from here on say where the frames behind them are from.
const CONTEXTS: u64 = -4_095_i64 as u64;

/// Facts that a file has about its recording.
pub(super) struct Facts<'a> {
    pub(super) machine: Machine,
    pub(super) texts: &'a Texts,
    pub(super) symbols: Symbols,
    /// The command that recorded, with its filters.
    pub(super) command: &'a str,
}

/// Condition for the events of one number.
#[derive(Debug)]
struct Rule {
    id: u16,
    field: Field,
    value: u64,
}

/// The way of records to the analysis.
#[derive(Debug)]
pub(super) struct Intake {
    decoder: Decoder,
    rules: Vec<Rule>,
    /// Address ranges of functions that take a zone's lock.
    zone_lockers: Vec<(u64, u64)>,
    /// CPUs whose last record began a wait for a spin lock, so that a stack behind it is the waiter's.
    waiting: BTreeSet<u32>,
    has_stacks: bool,
    analysis: Analysis,
    seen: Seen,
    /// Time of the last event.
    now_ns: u64,
}

impl Intake {
    pub(super) fn new(facts: Facts<'_>) -> Self {
        let Facts {
            machine,
            texts,
            symbols,
            command,
        } = facts;
        let is_recorded = |wanted: &Wanted| format(texts, wanted.system, wanted.name).is_some();
        let deep = (PAGE_EVENTS.iter().chain(&WAIT_EVENTS).chain(&HOLD_EVENTS)).any(is_recorded);
        let mut intake = Self {
            decoder: Decoder::default(),
            rules: Vec::new(),
            zone_lockers: symbols.zone_lockers,
            waiting: BTreeSet::new(),
            has_stacks: false,
            analysis: Analysis::new(&machine, deep),
            seen: Seen {
                machine,
                deep,
                start_ns: u64::MAX,
                ..Seen::default()
            },
            now_ns: 0,
        };
        intake.miss("vm.stat_interval", "its value; 1 s is assumed");
        // A filter by name needs no address.
        let is_filtered = command.contains("vmstat_update");
        let update = symbols.vmstat_update.filter(|_| !is_filtered);
        match update.is_some() || is_filtered {
            true => intake.learn(texts, &WORK_EVENTS, Some("function").zip(update)),
            false => intake.miss(
                "addresses of functions for workqueue_execute_start (`--kallsyms` gives them)",
                WORK_EVENTS[0].removes,
            ),
        }
        let timer = symbols.delayed_work_timer_fn;
        intake.learn(texts, &TIMER_EVENTS, Some("function").zip(timer));
        intake.learn(texts, &FLUSH_EVENTS, None);
        if deep {
            intake.miss("the machine's zones", "whether a burst was one hold");
            intake.learn(texts, &PAGE_EVENTS, None);
            intake.learn(texts, &HOLD_EVENTS, None);
            let [begin, end] = &WAIT_EVENTS;
            intake.learn(texts, std::slice::from_ref(begin), Some(("flags", SPIN)));
            intake.learn(texts, std::slice::from_ref(end), None);
            if let Some(stack) = format(texts, "ftrace", "kernel_stack") {
                let functions = intake.zone_lockers.clone();
                intake.decoder.learn_stack(&stack, functions);
            }
        }
        intake
    }

    /// Learns events. They count only if a field, where they have it, has this value.
    fn learn(&mut self, texts: &Texts, all: &[Wanted], only: Option<(&str, u64)>) {
        for wanted in all {
            let name = format!("{}:{}", wanted.system, wanted.name);
            let Some(format) = format(texts, wanted.system, wanted.name) else {
                self.miss(&format!("event {name} in the file"), wanted.removes);
                continue;
            };
            let fields = match self.decoder.learn(wanted, &format) {
                Ok(fields) => fields,
                Err(field) => vec![field],
            };
            for field in fields {
                self.miss(&format!("field {field} of {name}"), wanted.removes);
            }
            let rule = only.and_then(|(field, value)| {
                Some(Rule {
                    id: format.id,
                    field: format.field(field)?.clone(),
                    value,
                })
            });
            self.rules.extend(rule);
        }
    }

    fn miss(&mut self, what: &str, removes: &str) {
        if !removes.is_empty() {
            self.seen.missing.push(Missing {
                what: what.to_owned(),
                removes: removes.to_owned(),
            });
        }
    }

    /// The event of a record, if the analysis wants it.
    pub(super) fn decode(&mut self, time_ns: u64, cpu: u32, record: &[u8]) -> Option<Event> {
        let was_waiting = self.waiting.remove(&cpu);
        if time_ns > TIME_NS_MAX {
            return None;
        }
        self.seen.start_ns = self.seen.start_ns.min(time_ns);
        self.seen.end_ns = self.seen.end_ns.max(time_ns);
        let event = self.decoder.decode(time_ns, cpu, record)?;
        let id = u16::from_ne_bytes(record.get(..2)?.try_into().ok()?);
        let fits = |rule: &Rule| rule.id != id || rule.field.number(record) == Some(rule.value);
        if !self.rules.iter().all(fits) {
            return None;
        }
        match event.kind {
            Kind::ContentionBegin { .. } => {
                self.waiting.insert(cpu);
            }
            Kind::Stack { .. } if !was_waiting => return None,
            Kind::Stack { .. } => self.has_stacks = true,
            _ => {}
        }
        Some(event)
    }

    /// The stack of a wait, from the addresses that lead to it.
    pub(super) fn stack(&mut self, wait: &Event, callers: impl Iterator<Item = u64>) -> Event {
        self.has_stacks = true;
        let takes = |address: u64| {
            let mut ranges = self.zone_lockers.iter();
            ranges.any(|&(from, to)| (from..to).contains(&address))
        };
        let mut frames = callers.filter(|it| *it < CONTEXTS).take(FRAMES);
        let names_zone_lock = frames.any(takes);
        Event {
            kind: Kind::Stack { names_zone_lock },
            ..*wait
        }
    }

    /// Passes an event on. One that is earlier than the last one counts at that one's time.
    pub(super) fn take(&mut self, event: &Event) {
        self.now_ns = self.now_ns.max(event.time_ns);
        self.analysis.take(&Event {
            time_ns: self.now_ns,
            ..*event
        });
    }

    /// Ends the file. The result has names of those tasks and cgroups that flushed.
    pub(super) fn finish(
        mut self,
        losses: Losses,
        names: &BTreeMap<i32, String>,
        cgroups: &BTreeMap<u64, String>,
    ) -> Seen {
        if self.seen.deep && (self.zone_lockers.is_empty() || !self.has_stacks) {
            let what = match self.zone_lockers.is_empty() {
                true => "addresses of functions for stacks of waiters (`--kallsyms` gives them)",
                false => "stacks of waiters",
            };
            self.miss(what, WAIT_EVENTS[0].removes);
        }
        let mut seen = self.seen;
        seen.losses = losses;
        seen.start_ns = seen.start_ns.min(seen.end_ns);
        self.analysis.finish(&mut seen);
        let pids: BTreeSet<i32> = seen.flushes.iter().map(|it| it.pid).collect();
        let ids: BTreeSet<u64> = seen.flushes.iter().map(|it| it.cgroup).collect();
        let task = |pid| {
            let name = names.get(&pid)?.clone();
            Some(Task { pid, name })
        };
        let cgroup = |id| {
            let path = cgroups.get(&id)?.clone();
            Some(Cgroup { id, path })
        };
        seen.tasks = pids.into_iter().filter_map(task).collect();
        seen.cgroups = ids.into_iter().filter_map(cgroup).collect();
        seen
    }
}

/// The format of an event, if the file has it.
fn format(texts: &Texts, system: &str, name: &str) -> Option<EventFormat> {
    let of_system = texts.formats.iter().filter(|it| *it.0 == *system);
    let mut named = of_system.filter(|(_, text)| {
        let first = text.lines().next().and_then(|it| it.strip_prefix("name:"));
        first.is_some_and(|it| it.trim() == name)
    });
    EventFormat::parse(&named.next()?.1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::lost;

    #[test]
    fn the_analysis_sees_no_time_that_goes_back_or_is_absurd() {
        let mut intake = Intake::new(Facts {
            machine: Machine::default(),
            texts: &Texts::default(),
            symbols: Symbols::default(),
            command: "",
        });
        intake.take(&lost(50, 0));
        intake.take(&lost(20, 1));
        assert_eq!(intake.now_ns, 50);
        intake.decode(TIME_NS_MAX + 1, 0, &[0; 8]);
        assert_eq!(intake.seen.end_ns, 0);
        intake.decode(TIME_NS_MAX, 0, &[0; 8]);
        assert_eq!(intake.seen.end_ns, TIME_NS_MAX);
    }
}
