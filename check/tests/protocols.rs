//! A bounded exploration of every protocol, and of bugs that were planted so that the explorer is known to find things.
//!
//! A longer one: `cargo run --release -- explore --schedules 1000000`.

use bursar_check::protocols;
use bursar_sim::{Explorer, ScheduleId, SectionKind, Sim, Topology};

/// Schedules of each protocol and each kind of sections. `.ci/run simulated` and `.ci/run explore` look at more, in a release build.
const SCHEDULES: u64 = 1_000;
/// Schedules within which each planted bug is found, and none in its twin.
const SCHEDULES_TO_FIND: u64 = 2_000;
const KINDS: [SectionKind; 2] = [SectionKind::Restartable, SectionKind::Atomic];

fn explorer(cpus: usize, sections: SectionKind) -> Explorer {
    Explorer {
        topology: Topology::new(cpus, 1, 1000),
        sections,
        seed: 1,
    }
}

fn holds(name: &str, cpus: usize, scenario: fn(&Sim, u64), schedules: u64) {
    for sections in KINDS {
        let explored = explorer(cpus, sections).explore(&scenario, 0, schedules, |_| ());
        assert_eq!(explored.found, None, "{name}, {sections:?}");
        assert_eq!(explored.schedules, schedules);
    }
}

fn protocol_holds(name: &str) {
    let all = protocols::all::<Sim>();
    let protocol = all.iter().find(|protocol| protocol.name == name);
    let protocol = protocol.expect("a protocol of that name");
    holds(name, protocol.cpus, protocol.scenario, SCHEDULES);
}

/// A test of each protocol, and one that none is missing.
macro_rules! protocols {
    ($($test:ident: $name:literal),+ $(,)?) => {
        $(#[test] fn $test() { protocol_holds($name); })+

        #[test]
        fn every_protocol_has_a_test() {
            let names: Vec<_> = protocols::all::<Sim>().iter().map(|protocol| protocol.name).collect();
            assert_eq!(names, [$($name),+]);
        }
    };
}

protocols![
    publish_flush: "publish-flush",
    one_shard: "one-shard",
    roster: "roster",
    idle_roster: "idle-roster",
    combining: "combining",
    quiesce: "quiesce",
    charge_refuse: "charge-refuse",
    set_limit: "set-limit",
    drains: "drains",
    removal: "removal",
    rebirth: "rebirth",
    reversal: "reversal",
    nowait_and_overshoot: "nowait-and-overshoot",
    count_anywhere: "count-anywhere",
    move_charge: "move-charge",
    overshoot_and_refill: "overshoot-and-refill",
    over_return: "over-return",
    ranges: "ranges",
    waiting: "waiting",
    reclaim: "reclaim",
    pressure: "pressure",
    admission: "admission",
    arbitration: "arbitration",
    rooms: "rooms",
    fork: "fork",
    pages: "pages",
    pages_tuning: "pages-tuning",
    pages_exhaustion: "pages-exhaustion",
    pages_last: "pages-last",
    pages_exchange: "pages-exchange",
    pages_many: "pages-many",
    pages_raw: "pages-raw",
    pages_fork: "pages-fork",
    small_counters: "small-counters",
    upkeep: "upkeep",
];

#[test]
fn planted_bugs_are_found_and_fail_again_in_the_same_way() {
    for planted in protocols::planted::all::<Sim>() {
        for sections in KINDS {
            let name = planted.name;
            let explorer = explorer(planted.cpus, sections);
            let explored = explorer.explore(&planted.broken, 0, SCHEDULES_TO_FIND, |_| ());
            let found = explored.found.unwrap_or_else(|| {
                panic!("{name}, {sections:?}: not found in {SCHEDULES_TO_FIND} schedules")
            });
            assert_eq!(found.schedule.number + 1, explored.schedules, "{name}");
            // By its printed name, and by an explorer of another seed.
            let id: ScheduleId = found.schedule.to_string().parse().expect("an id");
            let other = Explorer {
                seed: 99,
                ..explorer
            };
            let again = other.replay(&planted.broken, id).expect_err("it fails");
            assert_eq!(again, found, "{name}, {sections:?}");
        }
    }
}

#[test]
fn their_twins_are_right() {
    for planted in protocols::planted::all::<Sim>() {
        holds(
            planted.name,
            planted.cpus,
            planted.mended,
            SCHEDULES_TO_FIND,
        );
    }
}

/// The beginning that is reported is one that fails, and no shorter one does.
#[test]
fn the_shortest_beginning_that_fails_is_reported() {
    let all = protocols::planted::all::<Sim>();
    let planted = all.iter().find(|planted| planted.name == "lost-wakeup");
    let planted = planted.expect("it is there");
    let explorer = explorer(planted.cpus, SectionKind::Restartable);
    let explored = explorer.explore(&planted.broken, 0, SCHEDULES_TO_FIND, |_| ());
    let schedule = explored.found.expect("it is found").schedule;
    let length = schedule.length.expect("a beginning is enough");
    for shorter in 0..length {
        let schedule = ScheduleId {
            length: Some(shorter),
            ..schedule
        };
        assert_eq!(explorer.replay(&planted.broken, schedule), Ok(()));
    }
}
