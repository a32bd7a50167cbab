//! From the records of a file to [`Seen`], with the filters that a live session has in the kernel.
//!
//! A file may have the formats of all events of the kernel, whatever was recorded. So an event counts as there only if it has
//! a record.

use std::collections::{BTreeMap, BTreeSet};

use super::trace_dat::Texts;
use crate::analysis::Analysis;
use crate::event::{
    CONTEXT, CONTEXT_EVENTS, Decoder, Event, FLUSH_EVENTS, HOLD_EVENTS, Kind, PAGE_EVENTS,
    TIMER_EVENTS, WAIT_EVENTS, WAITS, WORK, WORK_EVENTS, Wanted,
};
use crate::format::{EventFormat, Field};
use crate::recording::{CPUS_MAX, NUMBER_MAX};
use crate::seen::{Cgroup, Losses, Machine, Missing, Seen, Task};
use crate::symbols::Symbols;
use crate::writer::Writer;

/// Greatest number of pages of an event that is believed: 16 TiB.
const PAGES_MAX: u64 = 1 << 32;
/// `flags` of a wait for a spin lock that is neither for readers nor for writers.
const SPIN: u64 = 1;
/// Frames of a stack that are looked at: one or two that wait, and the function that takes the lock.
const FRAMES: usize = 4;
/// Addresses from here on say where the frames behind them are from.
const CONTEXTS: u64 = -4_095_i64 as u64;

/// Facts that a file has about its recording.
pub(super) struct Facts<'a> {
    pub(super) writer: Writer,
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
    /// `None`: none fits, because the address is not known.
    value: Option<u64>,
}

/// The way of records to the analysis.
#[derive(Debug)]
pub(super) struct Intake {
    decoder: Decoder,
    rules: Vec<Rule>,
    /// The events that are wanted, with their numbers where the file has their formats.
    wanted: Vec<(&'static Wanted, Option<u16>)>,
    /// Numbers of the events that have a record.
    recorded: BTreeSet<u16>,
    /// Whether `vmstat_update` cannot be told from other work.
    is_work_unknown: bool,
    /// Whether a record says that the lock of statistics was waited for, or does not say that it was not.
    may_have_waited: bool,
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
            writer,
            machine,
            texts,
            symbols,
            command,
        } = facts;
        let update = symbols.vmstat_update;
        // A filter by name needs no address.
        let is_filtered =
            update.is_none() && command.contains("function.function == vmstat_update");
        let mut intake = Self {
            decoder: Decoder::default(),
            rules: Vec::new(),
            wanted: Vec::new(),
            recorded: BTreeSet::new(),
            is_work_unknown: !is_filtered && update.is_none(),
            may_have_waited: false,
            zone_lockers: symbols.zone_lockers,
            waiting: BTreeSet::new(),
            has_stacks: false,
            analysis: Analysis::new(&machine),
            seen: Seen {
                recorded_by: Some(writer),
                machine,
                start_ns: u64::MAX,
                ..Seen::default()
            },
            now_ns: 0,
        };
        intake.miss("vm.stat_interval", "its value; 1 s is assumed");
        let of_update = (!is_filtered).then_some(("function", update));
        intake.learn(texts, &WORK_EVENTS, of_update);
        let timer = symbols.delayed_work_timer_fn;
        let of_timer = timer.map(|address| ("function", Some(address)));
        intake.learn(texts, &TIMER_EVENTS, of_timer);
        intake.learn(texts, &FLUSH_EVENTS, None);
        intake.learn(texts, &PAGE_EVENTS, None);
        intake.learn(texts, &CONTEXT_EVENTS, None);
        intake.learn(texts, &HOLD_EVENTS, None);
        let [begin, end] = &WAIT_EVENTS;
        let spin = Some(("flags", Some(SPIN)));
        intake.learn(texts, std::slice::from_ref(begin), spin);
        intake.learn(texts, std::slice::from_ref(end), None);
        if let Some(stack) = format(texts, "ftrace", "kernel_stack") {
            let functions = intake.zone_lockers.clone();
            intake.decoder.learn_stack(&stack, functions);
        }
        intake
    }

    /// Learns events. They count only if a field, where they have it, has this value.
    fn learn(&mut self, texts: &Texts, all: &'static [Wanted], only: Option<(&str, Option<u64>)>) {
        for wanted in all {
            let Some(format) = format(texts, wanted.system, wanted.name) else {
                self.wanted.push((wanted, None));
                continue;
            };
            let fields = match self.decoder.learn(wanted, &format) {
                Ok(fields) => fields,
                Err(field) => vec![field],
            };
            for field in fields {
                let name = format!("{}:{}", wanted.system, wanted.name);
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
            self.wanted.push((wanted, Some(format.id)));
        }
    }

    fn is_recorded(&self, name: &str) -> bool {
        let mut named = self.wanted.iter().filter(|(wanted, _)| wanted.name == name);
        named.any(|(_, id)| id.is_some_and(|id| self.recorded.contains(&id)))
    }

    /// Names the events without a record, together those with which the same is lost.
    fn miss_unrecorded(&mut self) {
        let mut lost: Vec<(&str, Vec<String>)> = Vec::new();
        for (wanted, _) in &self.wanted {
            // Each lock of statistics says whether it was waited for.
            let is_known = wanted.name == "cgroup_rstat_lock_contended"
                && self.is_recorded("cgroup_rstat_locked")
                && !self.may_have_waited;
            if is_known || self.is_recorded(wanted.name) {
                continue;
            }
            let name = format!("{}:{}", wanted.system, wanted.name);
            match lost.last_mut() {
                Some((removes, names)) if *removes == wanted.removes => names.push(name),
                _ => lost.push((wanted.removes, vec![name])),
            }
        }
        for (removes, names) in lost {
            self.miss(
                &format!("record of {} in the file", names.join(", ")),
                removes,
            );
        }
        let mut pages = PAGE_EVENTS.iter().chain(&HOLD_EVENTS);
        self.seen.deep = pages.any(|it| it.system == "kmem" && self.is_recorded(it.name));
        let has_waits = WAIT_EVENTS.iter().any(|it| self.is_recorded(it.name));
        self.seen.locks = has_waits && !self.seen.deep;
        if !self.seen.deep {
            self.seen.missing.retain(|it| it.removes != CONTEXT);
        }
        if self.is_work_unknown && self.is_recorded("workqueue_execute_start") {
            let what =
                "addresses of functions for workqueue_execute_start (`--kallsyms` gives them)";
            self.miss(what, WORK);
        }
        if self.is_recorded("contention_begin") {
            match (self.has_stacks, self.zone_lockers.is_empty()) {
                (false, _) => self.miss("stacks of waiters", WAITS),
                (true, true) => {
                    let what =
                        "addresses of functions for stacks of waiters (`--kallsyms` gives them)";
                    self.miss(what, WAITS);
                }
                (true, false) => {}
            }
        }
        if self.seen.deep {
            let what = "description of the machine's zones";
            self.miss(what, "whether a burst was one hold");
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
        if time_ns > NUMBER_MAX {
            return None;
        }
        self.seen.start_ns = self.seen.start_ns.min(time_ns);
        self.seen.end_ns = self.seen.end_ns.max(time_ns);
        let event = self.decoder.decode(time_ns, cpu, record)?;
        if !is_possible(&event) {
            return None;
        }
        let id = u16::from_ne_bytes(record.get(..2)?.try_into().ok()?);
        self.recorded.insert(id);
        let is_value =
            |rule: &Rule| rule.value.is_some() && rule.value == rule.field.number(record);
        let fits = |rule: &Rule| rule.id != id || is_value(rule);
        if !self.rules.iter().all(fits) {
            return None;
        }
        match event.kind {
            Kind::ContentionBegin { .. } => {
                self.waiting.insert(cpu);
            }
            Kind::Stack { .. } if !was_waiting => return None,
            Kind::Stack { .. } => self.has_stacks = true,
            Kind::RstatLocked { contended, .. } => self.may_have_waited |= contended != Some(false),
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
        // A loss may have any time.
        if event.time_ns > NUMBER_MAX {
            return;
        }
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
        self.miss_unrecorded();
        let mut seen = self.seen;
        seen.losses = losses;
        // Files say it, and may say anything.
        seen.losses.events_lost = seen.losses.events_lost.min(NUMBER_MAX);
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
        seen.mark_workers();
        seen.mark_kswapd(|pid| names.get(&pid).is_some_and(|it| it.starts_with("kswapd")));
        seen
    }
}

/// Whether the numbers of an event may be those of a machine. So a recording may have them, and the sums that are made of them.
fn is_possible(event: &Event) -> bool {
    let are_small = |numbers: &[Option<u64>]| numbers.iter().flatten().all(|it| *it <= NUMBER_MAX);
    let numbers = match event.kind {
        Kind::MemcgFlush { stats_updates, .. } => [Some(stats_updates.unsigned_abs()), None, None],
        Kind::PcpuLocked { pages } => return pages <= PAGES_MAX,
        Kind::ZoneLocked { wait_ns, .. } => [wait_ns, None, None],
        Kind::TimerStart {
            expires,
            bucket_expiry,
            now,
            ..
        } => [Some(expires), bucket_expiry, now],
        Kind::TimerExpire { now, baseclk, .. } => [Some(now), baseclk, None],
        _ => [None; 3],
    };
    event.cpu < CPUS_MAX && are_small(&numbers)
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
            writer: Writer::Perf,
            machine: Machine::default(),
            texts: &Texts::default(),
            symbols: Symbols::default(),
            command: "",
        });
        intake.take(&lost(50, 0));
        intake.take(&lost(20, 1));
        intake.take(&lost(NUMBER_MAX + 1, 1));
        assert_eq!(intake.now_ns, 50);
        intake.decode(NUMBER_MAX + 1, 0, &[0; 8]);
        assert_eq!(intake.seen.end_ns, 0);
        intake.decode(NUMBER_MAX, 0, &[0; 8]);
        assert_eq!(intake.seen.end_ns, NUMBER_MAX);
    }

    #[test]
    fn only_a_filter_for_upkeep_alone_makes_all_works_upkeep() {
        let is_unknown = |command| {
            let intake = Intake::new(Facts {
                writer: Writer::Perf,
                machine: Machine::default(),
                texts: &Texts::default(),
                symbols: Symbols::default(),
                command,
            });
            intake.is_work_unknown
        };
        assert!(!is_unknown(
            "record --filter function.function == vmstat_update"
        ));
        assert!(is_unknown(
            "record --filter function.function != vmstat_update"
        ));
        assert!(is_unknown("record -o vmstat_update.data"));
    }

    /// Such an event would be in no recording that can be read.
    #[test]
    fn an_event_with_absurd_numbers_is_none() {
        let possible = |cpu, kind| {
            is_possible(&Event {
                time_ns: 1,
                cpu,
                pid: 1,
                kind,
            })
        };
        let flush = |stats_updates| Kind::MemcgFlush {
            id: 1,
            stats_updates,
            force: false,
            needs_flush: true,
        };
        assert!(possible(0, flush(-5)));
        assert!(!possible(0, flush(i64::MIN)));
        assert!(!possible(CPUS_MAX, flush(0)));
        assert!(!possible(0, Kind::PcpuLocked { pages: u64::MAX }));
        let (timer, now) = (1, u64::MAX);
        let baseclk = None;
        assert!(!possible(
            0,
            Kind::TimerExpire {
                timer,
                now,
                baseclk
            }
        ));
    }
}
