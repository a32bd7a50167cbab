//! The desk of the rivals: one lock, one book of all queries, and a rule that names whom to ask and whom to stop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bursar_machine::{Event, Lock};
use bursar_rig::timer::Timers;

use super::desk::{Denied, Desk, Moment, Start};
use super::parameters::{Parameters, of_percent};
use super::rivals::{Rival, Seen};

/// A query that runs.
struct Entry<M: Timers> {
    score: u32,
    begun: u64,
    can_spill: bool,
    held_mib: u64,
    /// MiB that it was admitted with, by its own word.
    said_mib: u64,
    is_asked: bool,
    is_stopped: bool,
    /// MiB that it waits for, the time since when, and what wakes it.
    growing: Option<(u64, u64, Arc<M::Event>)>,
}

impl<M: Timers> Entry<M> {
    fn spillable_mib(&self) -> u64 {
        if self.can_spill { self.held_mib } else { 0 }
    }
}

struct Inner<M: Timers> {
    limit_mib: u64,
    used_mib: u64,
    /// MiB that all running queries said that they need.
    said_mib: u64,
    /// Numbers that were given out so far.
    numbers: u64,
    /// Queries that began so far.
    begun: u64,
    queries: BTreeMap<u64, Entry<M>>,
    /// Those that wait for memory, in the order in which they came.
    growing: VecDeque<u64>,
    /// Those that wait to begin, in the order in which they came.
    starting: VecDeque<(u64, Entry<M>, Arc<M::Event>)>,
    /// The rule's numbers, if those of this moment are not wanted: MiB held, by query, and their time.
    held_before: (u64, BTreeMap<u64, u64>),
    stops: u64,
    is_closed: bool,
}

impl<M: Timers> Inner<M> {
    fn insert(&mut self, id: u64, entry: Entry<M>) {
        self.begun += 1;
        self.said_mib += entry.said_mib;
        let begun = self.begun;
        self.queries.insert(id, Entry { begun, ..entry });
    }
}

/// The desk of a rival.
pub(super) struct Book<'a, M: Timers> {
    machine: &'a M,
    rival: Rival,
    settings: Settings,
    inner: M::Mutex<Inner<M>>,
}

/// Settings of a rival.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// Queries that may run at once; `u64::MAX` for any number.
    at_once: u64,
    /// MiB of each; `u64::MAX` for any number.
    part_mib: u64,
    /// MiB that all may say that they need.
    said_max_mib: u64,
    /// Time that a query waits before another is stopped.
    wait_ns: u64,
    /// Age of the numbers that victims are chosen by.
    age_ns: u64,
}

impl Settings {
    fn new(rival: Rival, own: &Parameters, cpus: usize) -> Self {
        let limit_mib = own.memory_mib(cpus);
        let queries = |percent| match of_percent(cpus as u64, percent) {
            _ if percent == 0 => u64::MAX,
            queries => queries.max(1),
        };
        let (at_once, wait_ms) = match rival {
            Rival::Greedy => (queries(own.greedy_at_once_percent), 0),
            Rival::FixedParts => (queries(own.fixed_parts_percent), 0),
            Rival::Velox => (queries(own.velox_at_once_percent), 0),
            Rival::ClickHouse => (u64::MAX, 0),
            Rival::LargestFirst => (queries(own.largest_at_once_percent), own.largest_wait_ms),
            Rival::YoungestFirst => (queries(own.youngest_at_once_percent), own.youngest_wait_ms),
        };
        Self {
            at_once,
            part_mib: match rival {
                Rival::FixedParts => (limit_mib / at_once).max(1),
                _ => u64::MAX,
            },
            said_max_mib: match rival {
                Rival::ClickHouse => of_percent(limit_mib, own.clickhouse_overcommit_percent),
                _ => u64::MAX,
            },
            wait_ns: wait_ms * 1_000_000,
            age_ns: own.numbers_age_ms * 1_000_000,
        }
    }
}

impl<'a, M: Timers> Book<'a, M> {
    pub(super) fn new(machine: &'a M, rival: Rival, own: &Parameters) -> Self {
        let cpus = machine.cpus();
        Self {
            machine,
            rival,
            settings: Settings::new(rival, own, cpus),
            inner: M::Mutex::new(Inner {
                limit_mib: own.memory_mib(cpus),
                used_mib: 0,
                said_mib: 0,
                numbers: 0,
                begun: 0,
                queries: BTreeMap::new(),
                growing: VecDeque::new(),
                starting: VecDeque::new(),
                held_before: (0, BTreeMap::new()),
                stops: 0,
                is_closed: false,
            }),
        }
    }

    fn may_begin(&self, inner: &Inner<M>, said_mib: u64) -> bool {
        let running = inner.queries.len() as u64;
        let is_within = inner.said_mib.saturating_add(said_mib) <= self.settings.said_max_mib;
        // One that says more than there is runs alone.
        running < self.settings.at_once && (is_within || running == 0)
    }

    /// Gives memory to those that wait for it, and lets others begin, as far as there is room.
    fn serve(&self, inner: &mut Inner<M>) {
        let mut place = 0;
        while let Some(&id) = inner.growing.get(place) {
            let entry = inner.queries.get_mut(&id).expect("it waits");
            let (mib, ..) = *entry.growing.as_ref().expect("it waits");
            if inner.used_mib + mib <= inner.limit_mib {
                inner.used_mib += mib;
                entry.held_mib += mib;
                let (.., event) = entry.growing.take().expect("it waits");
                inner.growing.remove(place);
                event.set();
            } else if self.rival.is_in_order() {
                break;
            } else {
                place += 1;
            }
        }
        while let Some((_, entry, _)) = inner.starting.front()
            && self.may_begin(inner, entry.said_mib)
        {
            let (id, entry, event) = inner.starting.pop_front().expect("just seen");
            inner.insert(id, entry);
            event.set();
        }
    }

    fn see(&self, inner: &mut Inner<M>, now_ns: u64) -> Vec<Seen> {
        let age_ns = self.settings.age_ns;
        if age_ns > 0 && now_ns >= inner.held_before.0 + age_ns {
            let held = inner
                .queries
                .iter()
                .map(|(&id, entry)| (id, entry.held_mib));
            inner.held_before = (now_ns, held.collect());
        }
        let seen = inner.queries.iter().map(|(&id, entry)| {
            let (held_mib, spillable_mib) = match age_ns {
                0 => (entry.held_mib, entry.spillable_mib()),
                _ => {
                    let held = inner.held_before.1.get(&id).copied().unwrap_or(0);
                    (held, if entry.can_spill { held } else { 0 })
                }
            };
            Seen {
                id,
                score: entry.score,
                begun: entry.begun,
                held_mib,
                spillable_mib,
                is_leaving: entry.is_asked || entry.is_stopped,
            }
        });
        seen.collect()
    }

    /// Asks and stops others until what they will give back is enough for the first that waits, and for the limit.
    fn relieve(&self, inner: &mut Inner<M>, now_ns: u64) {
        let over_mib = inner.used_mib.saturating_sub(inner.limit_mib);
        let waiting = inner.growing.front().and_then(|id| {
            let (mib, since_ns, _) = inner.queries[id].growing.as_ref()?;
            Some((*mib, *since_ns))
        });
        if !self.rival.waits() || over_mib == 0 && waiting.is_none() {
            return;
        }
        let room_mib = inner.limit_mib.saturating_sub(inner.used_mib);
        let missing_mib = over_mib + waiting.map_or(0, |(mib, _)| mib).saturating_sub(room_mib);
        let mut seen = self.see(inner, now_ns);
        let expected = |inner: &Inner<M>| -> u64 {
            let leaving = inner.queries.values().map(|entry| {
                if entry.is_stopped {
                    entry.held_mib
                } else if entry.is_asked {
                    entry.spillable_mib()
                } else {
                    0
                }
            });
            leaving.sum()
        };
        while expected(inner) < missing_mib {
            let spiller = self.rival.spiller(&seen);
            let may_stop = over_mib > 0
                || waiting.is_some_and(|(_, since_ns)| {
                    now_ns.saturating_sub(since_ns) >= self.settings.wait_ns
                });
            let victim = self.rival.victim(&seen).filter(|_| may_stop);
            let Some(chosen) = spiller.or(victim) else {
                return;
            };
            let entry = inner.queries.get_mut(&chosen).expect("just seen");
            match spiller {
                Some(_) => entry.is_asked = true,
                None => {
                    entry.is_stopped = true;
                    inner.stops += 1;
                }
            }
            // If it waits for memory, it has time to give some back.
            if let Some((.., event)) = &entry.growing {
                event.set();
            }
            for query in seen.iter_mut().filter(|query| query.id == chosen) {
                query.is_leaving = true;
            }
        }
    }

    /// Whether a query may go on, or must spill or stop first.
    fn told(inner: &Inner<M>, id: u64) -> Result<(), Denied> {
        let entry = &inner.queries[&id];
        match entry {
            _ if inner.is_closed => Err(Denied::Over),
            entry if entry.is_stopped => Err(Denied::Stopped),
            entry if entry.is_asked => Err(Denied::Spill(entry.spillable_mib())),
            _ => Ok(()),
        }
    }
}

impl<M: Timers> Desk for Book<'_, M> {
    fn begin(&self, start: &Start<'_>) -> Result<u64, Denied> {
        let query = start.query;
        let entry = Entry {
            score: query.score,
            begun: 0,
            can_spill: query.can_spill,
            held_mib: 0,
            said_mib: query.estimate_mib,
            is_asked: false,
            is_stopped: false,
            growing: None,
        };
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(Denied::Over);
        }
        inner.numbers += 1;
        let id = inner.numbers;
        if inner.starting.is_empty() && self.may_begin(&inner, entry.said_mib) {
            inner.insert(id, entry);
            return Ok(id);
        }
        let event = Arc::new(M::Event::new());
        inner.starting.push_back((id, entry, event.clone()));
        drop(inner);
        event.wait();
        let inner = self.inner.lock();
        // It waits no more if the run is over.
        inner
            .queries
            .contains_key(&id)
            .then_some(id)
            .ok_or(Denied::Over)
    }

    fn grow(&self, id: u64, mib: u64) -> Result<(), Denied> {
        let mut inner = self.inner.lock();
        Self::told(&inner, id)?;
        let entry = &inner.queries[&id];
        let held_mib = entry.held_mib;
        let (limit_mib, part_mib) = (inner.limit_mib, self.settings.part_mib);
        let is_first = !self.rival.is_in_order() || inner.growing.is_empty();
        if held_mib + mib > part_mib.min(limit_mib) {
            return Err(Denied::Refused);
        }
        if is_first && inner.used_mib + mib <= limit_mib {
            inner.used_mib += mib;
            inner.queries.get_mut(&id).expect("it runs").held_mib += mib;
            return Ok(());
        }
        if !self.rival.waits() {
            return Err(Denied::Refused);
        }
        let event = Arc::new(M::Event::new());
        let now_ns = self.machine.now_ns();
        inner.queries.get_mut(&id).expect("it runs").growing = Some((mib, now_ns, event.clone()));
        inner.growing.push_back(id);
        self.relieve(&mut inner, now_ns);
        drop(inner);
        event.wait();
        let mut inner = self.inner.lock();
        let entry = inner.queries.get_mut(&id).expect("it runs");
        if entry.growing.take().is_none() {
            return Ok(());
        }
        inner.growing.retain(|&other| other != id);
        Self::told(&inner, id)
    }

    fn go_on(&self, id: u64) -> Result<(), Denied> {
        Self::told(&self.inner.lock(), id)
    }

    fn spilled(&self, id: u64, mib: u64) {
        let mut inner = self.inner.lock();
        let entry = inner.queries.get_mut(&id).expect("it runs");
        entry.held_mib -= mib;
        entry.is_asked = false;
        inner.used_mib -= mib;
        self.serve(&mut inner);
    }

    fn end(&self, id: u64) {
        let mut inner = self.inner.lock();
        let entry = inner.queries.remove(&id).expect("it runs");
        inner.used_mib -= entry.held_mib;
        inner.said_mib -= entry.said_mib;
        self.serve(&mut inner);
    }

    fn tick(&self) {
        let now_ns = self.machine.now_ns();
        let mut inner = self.inner.lock();
        self.relieve(&mut inner, now_ns);
    }

    fn lower(&self, limit_mib: u64) {
        self.inner.lock().limit_mib = limit_mib;
        self.tick();
    }

    fn close(&self) {
        let mut inner = self.inner.lock();
        inner.is_closed = true;
        for entry in inner.queries.values() {
            if let Some((.., event)) = &entry.growing {
                event.set();
            }
        }
        for (.., event) in inner.starting.drain(..) {
            event.set();
        }
    }

    fn now(&self) -> Moment {
        let inner = self.inner.lock();
        Moment {
            limit_mib: inner.limit_mib,
            used_mib: inner.used_mib,
        }
    }

    fn stops(&self) -> u64 {
        self.inner.lock().stops
    }
}
