//! `Exact` against the truth: a read counts each update that returned before the read began, and none that began after
//! it returned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::{Freshness, Group, Memory};
use bursar_machine::host::{allowed_cpus, pin_to};

use crate::common::{ROWS, Random, STATISTICS, Short, memory, seed};

#[derive(Default)]
struct Updates {
    begun: AtomicU64,
    returned: AtomicU64,
}

/// Four writers and six readers over a tree of three levels; every read is checked.
#[test]
fn exact_reads_miss_nothing_that_returned() {
    const ROUNDS: usize = 400;
    let seed = seed();
    // Each read retires what the pass before found idle.
    let builder = Memory::builder()
        .statistics(STATISTICS)
        .retire_period(Duration::ZERO);
    let memory = builder.build().unwrap();
    let tenants: Vec<Group> = (0..2)
        .map(|index| memory.make(format!("t{index}")))
        .collect();
    let queries: Vec<(usize, Group)> = (0..8)
        .map(|index| {
            let tenant = index % 2;
            let name = format!("q{index}");
            (tenant, tenants[tenant].make(&name))
        })
        .collect();
    // By tenant, then by query, then all.
    let truth: Vec<Updates> = (0..11).map(|_| Updates::default()).collect();
    let writing = AtomicU64::new(4);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (queries, truth, writing) = (&queries, &truth, &writing);
            scope.spawn(move || {
                let cpus = allowed_cpus();
                let mut random = Random(seed ^ writer);
                for _ in 0..ROUNDS {
                    // Moving gives way to a reader, so that updates and reads interleave on a machine of any size.
                    let _ = pin_to(cpus[random.below(cpus.len())]);
                    std::thread::yield_now();
                    for _ in 0..random.below(50) {
                        let at = random.below(queries.len());
                        let touched = [queries[at].0, 2 + at, 10];
                        touched.iter().for_each(|&at| {
                            truth[at].begun.fetch_add(1, Ordering::SeqCst);
                        });
                        queries[at].1.add(ROWS, 1);
                        touched.iter().for_each(|&at| {
                            truth[at].returned.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for reader in 0..6 {
            let (memory, tenants, queries, truth) = (&memory, &tenants, &queries, &truth);
            let (writing, reads) = (&writing, &reads);
            scope.spawn(move || {
                let mut random = Random(seed ^ 100 ^ reader);
                let root = memory.root();
                while writing.load(Ordering::SeqCst) > 0 {
                    let at = random.below(11);
                    let group = match at {
                        0 | 1 => &tenants[at],
                        10 => &root,
                        _ => &queries[at - 2].1,
                    };
                    let returned = truth[at].returned.load(Ordering::SeqCst);
                    let value = group.rows() as u64;
                    let begun = truth[at].begun.load(Ordering::SeqCst);
                    assert!(value >= returned, "{group:?} misses {}", returned - value);
                    assert!(value <= begun, "{group:?} invents {}", value - begun);
                    reads.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
        }
    });
    let counts = memory.flush_counts();
    assert!(
        counts.retired > 10,
        "slots were retired beside updates: {counts:?}, {reads:?} reads"
    );
}

/// Readers of one scope at once need no more flushes than a few: those who come during one share the next.
#[test]
fn overlapping_readers_share_flushes() {
    const READERS: u64 = 32;
    const READS: u64 = 20;
    let memory = memory();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    let (tenant, query) = (&tenant, &query);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(move || {
                for _ in 0..READS {
                    query.add(ROWS, 1);
                    tenant.exact();
                }
            });
        }
    });
    let counts = memory.flush_counts();
    assert_eq!(counts.root, 0);
    assert_eq!(
        counts.subtree + counts.joined + counts.rosters,
        READERS * READS,
        "each read had exactly one"
    );
    let total = tenant.rows();
    assert_eq!(total as u64, READERS * READS);
}

/// No read passes a fence. Idle slots are retired by ticks, many with one fence, and are found again when they change.
#[test]
fn ticks_retire_idle_slots() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let queries: Vec<Group> = (0..500)
        .map(|index| tenant.make(format!("q{index}")))
        .collect();
    let read = || tenant.rows();
    queries.iter().for_each(|query| query.add(ROWS, 1));
    assert_eq!(read(), 500);
    let counts = memory.flush_counts();
    assert_eq!((counts.fences, counts.retired), (0, 0));
    let mut ticks = 0;
    while memory.flush_counts().retired < 500 {
        // A slot that changes is left alone.
        queries[0].add(ROWS, 1);
        memory.tick();
        ticks += 1;
        if memory.flush_counts().retired == 499 {
            break;
        }
        assert!(ticks < 10, "{:?}", memory.flush_counts());
    }
    assert!(
        memory.flush_counts().fences <= 2,
        "{:?}",
        memory.flush_counts()
    );
    assert_eq!(read(), 500 + ticks);
    queries[7].add(ROWS, 1);
    assert_eq!(read(), 501 + ticks);
    // Ranges know what was left in the marks.
    for _ in 0..3 {
        memory.tick();
    }
    assert_eq!(tenant.read(Freshness::Cached).unwrap().get(ROWS).error(), 0);
    assert_eq!(read(), 501 + ticks);
}

/// A read by roster: one that finds in use what the last found, and walks no more.
#[test]
fn a_second_read_of_the_same_slots_needs_no_walk() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    let read = || tenant.exact();
    let mut before = memory.flush_counts();
    for added in 1..200 {
        query.add(ROWS, 1);
        let reading = read();
        assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (added, 0));
        if added == 100 {
            before = memory.flush_counts();
        }
    }
    let after = memory.flush_counts();
    // The test may be moved to the other CPU now and then, and a slot may be retired.
    let (walks, rosters) = (
        after.subtree - before.subtree,
        after.rosters - before.rosters,
    );
    assert!(rosters > walks, "{before:?}, {after:?}");
}

/// The slots of a group that has ended belong to the group that its record has next.
#[test]
fn a_roster_does_not_follow_a_record_to_its_next_group() {
    let memory = memory();
    let parent = |name| memory.make(name);
    let (old, new) = (parent("old"), parent("new"));
    let guest = old.make("guest");
    let beside = old.make("beside");
    guest.add(ROWS, 1);
    // It keeps the record. So the group is still there, and on the roster, when it has lost its name.
    let kept = guest.try_charge(1).unwrap();
    let rows = || {
        let reading = old.exact();
        (reading.get(ROWS).value, reading.own(ROWS))
    };
    let add_and_read = |added: i64, own: i64| {
        beside.add(ROWS, 1);
        assert_eq!(rows(), (1 + added, own));
    };
    (1..10).for_each(|added| add_and_read(added, 0));
    drop(guest);
    (10..20).for_each(|added| add_and_read(added, 1));
    drop(kept);
    while memory.removed_groups() > 0 {
        memory.tick();
    }
    let again = new.make("again");
    again.add(ROWS, 100);
    assert_eq!(rows(), (20, 1), "the next group of the record is elsewhere");
}
