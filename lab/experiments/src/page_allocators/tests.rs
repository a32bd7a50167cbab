//! Both kinds of subjects do what is asked of them.

use std::time::Duration;

use bursar_kernel::pages::{Release, Settings};
use bursar_rig::Tasks;
use bursar_sim::{Settings as SimSettings, Sim, Simulator, Topology};

use super::*;

const PAGES: u64 = 4 * GIB_PAGES;

fn on_sim(test: impl FnOnce(&Sim)) {
    let simulator = Simulator::new(SimSettings::new(Topology::new(4, 1, 1000), 1));
    test(&simulator.machine());
}

fn own(machine: &Sim) -> Own<Sim> {
    let sizes = OwnSizes {
        pages: PAGES,
        watermarks: None,
        hold_blocks: None,
        decay_period: Duration::from_millis(1),
    };
    Own::new(machine, sizes).expect("room")
}

fn theirs(machine: &Sim, release: Release) -> Theirs<Sim> {
    Theirs::new(machine, Settings::of(PAGES, 4, release)).expect("room")
}

/// Takes and frees pages by all ways there are; the zone's free pages before and after all lists are emptied.
fn in_and_out<S: Lists<Sim>>(machine: &Sim, subject: &S, most_pages: u64) {
    assert_eq!(subject.free_pages(), subject.managed_pages());
    subject.fill(machine, 2_000);
    assert!(subject.about_free_pages() <= PAGES - 4 * 2_000);
    assert_eq!(subject.free_pages(), PAGES);
    let before = subject.holds();
    let mut pages = Vec::new();
    let work = || {
        subject.alloc(30_000, &mut pages);
        assert_eq!(pages.len(), 30_000);
        assert_eq!(subject.free_pages(), PAGES - 30_000);
        assert!(!subject.write(&mut pages[0], 1), "nothing is behind it");
        let one = pages.pop().expect("there are many");
        subject.free(one);
        subject.free_many(std::mem::take(&mut pages));
        subject.decay(Shard(0));
        subject.drain_all();
    };
    machine.run(vec![Box::new(work)]);
    assert_eq!(subject.about_free_pages(), PAGES);
    let holds = subject.holds().since(&before);
    let summary = holds.given_pages.summary();
    // All that was in lists came back, and what had been taken beyond.
    let given = summary.mean * summary.samples as f64;
    assert!((30_000.0..60_000.0).contains(&given), "{given}");
    assert!(summary.max <= most_pages && summary.max > most_pages / 2);
    assert!(holds.holds > summary.samples, "some only took");
    assert_eq!(holds.held_ns.samples(), holds.holds);
}

#[test]
fn pages_come_and_go() {
    on_sim(|machine| {
        in_and_out(machine, &own(machine), 63);
    });
    for release in Release::ALL {
        on_sim(|machine| in_and_out(machine, &theirs(machine, release), 2_016));
    }
}

#[test]
fn what_was_counted_before_is_not_part_of_what_came_since() {
    let mut samples = Samples::new(Unit::Ns);
    [5, 5, 900]
        .into_iter()
        .for_each(|value| samples.record(value));
    let before = samples.distribution();
    [5, 7].into_iter().for_each(|value| samples.record(value));
    let since = difference(&samples.distribution(), &before);
    assert_eq!(since.values().collect::<Vec<_>>(), [(5, 1), (7, 1)]);
    assert_eq!((since.above(5), since.above(4)), (1, 2));
}
