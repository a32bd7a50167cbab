//! Guarantee 1 on simulated machines, by the clock: a read that asks for an age misses no update that is older, and the age of
//! a reading says no less than it should. Flushes take time there, and updates go on meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bursar::{Freshness, Group, Limits};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_rig::timer::Timers;
use bursar_sim::{SectionKind, Sim, Simulator};

use crate::common::{BALANCE, Body, ROWS, US, builder, settings};

const CPUS: usize = 64;
/// Groups that a flush finds changed, beside the one that is read.
const OTHERS: usize = 100;
const ROUNDS: usize = 6;

/// Scope of a read.
#[derive(Clone, Copy, Debug)]
enum Scope {
    Root,
    /// The one group that others update.
    Busy,
}

/// Times at which the updates had returned. The simulator runs one task at a time, so the host's lock is never waited for.
#[derive(Default)]
struct Updates(Mutex<Vec<u64>>);

impl Updates {
    fn note(&self, now_ns: u64) {
        self.0.lock().expect("no panic").push(now_ns);
    }

    /// Updates that had returned by then.
    fn by(&self, time_ns: u64) -> usize {
        let times = self.0.lock().expect("no panic");
        times.iter().filter(|time| **time <= time_ns).count()
    }
}

/// Reads, and compares with what the age that was asked for and the age of the reading promise.
fn check(machine: &Sim, group: &Group<Sim>, updates: &Updates, age: Duration) {
    let began_ns = machine.now_ns();
    let reading = group.read(Freshness::AtMost(age));
    let reading = reading.expect("readers may flush");
    let rows = reading.get(ROWS).value as usize;
    for (what, age) in [("asked for", age), ("of the reading", reading.age())] {
        let age_ns = age.as_nanos() as u64;
        let least = updates.by(began_ns.saturating_sub(age_ns));
        assert!(
            rows >= least,
            "{group:?} reads {rows} rows, and {least} are older than the age {what}, {age_ns} ns"
        );
    }
}

/// Reads while others update: after each exact read, which takes a while, one that asks for `age`.
fn read_while_others_update(sections: SectionKind, scope: Scope) {
    let mut settings = settings(CPUS, 31);
    settings.sections = sections;
    let simulator = Simulator::new(settings);
    let machine = &simulator.machine();
    let memory = builder().build_on(machine.clone()).expect("a small memory");
    let root = memory.root();
    let child = |number: usize| root.child(number.to_string(), Limits::none()).unwrap();
    let others: Vec<_> = (0..OTHERS).map(child).collect();
    let busy = &root.child("busy", Limits::none()).unwrap();
    let (updates, is_done) = (&Updates::default(), &AtomicBool::new(false));
    let update = || {
        while !is_done.load(Ordering::Relaxed) {
            busy.add(ROWS, 1_u64);
            updates.note(machine.now_ns());
            machine.compute(US);
        }
    };
    let read = || {
        let group = match scope {
            Scope::Root => &root,
            Scope::Busy => busy,
        };
        for _ in 0..ROUNDS {
            others.iter().for_each(|other| other.add(BALANCE, 1));
            let began_ns = machine.now_ns();
            group.read(Freshness::Exact).expect("readers may flush");
            let took_ns = machine.now_ns() - began_ns;
            assert!(took_ns >= US, "too fast to show anything: {took_ns} ns");
            // An update that the flush had passed by before it ended is older than that.
            for part in [8, 2, 1] {
                let age = Duration::from_nanos(took_ns / part);
                check(machine, group, updates, age);
            }
        }
        is_done.store(true, Ordering::Relaxed);
    };
    let mut tasks: Vec<(Option<u32>, Body<'_>)> = vec![(Some(0), Box::new(read))];
    tasks.extend((1..CPUS as u32).map(|cpu| -> (_, Body<'_>) { (Some(cpu), Box::new(update)) }));
    machine.run_bound(tasks);
    assert!(updates.by(u64::MAX) > CPUS, "somebody updated");
}

#[test]
fn a_flush_is_as_old_as_its_beginning() {
    for sections in [SectionKind::Restartable, SectionKind::Atomic] {
        read_while_others_update(sections, Scope::Root);
    }
}

/// Without children nothing is flushed: the group's own words are summed.
#[test]
fn a_sum_in_place_is_as_old_as_its_beginning() {
    for sections in [SectionKind::Restartable, SectionKind::Atomic] {
        read_while_others_update(sections, Scope::Busy);
    }
}
