//! `Exact` against the truth: a read counts each update that returned before the read began, and none that began after
//! it returned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::{Freshness, Group, Memory};
use bursar_check::model::Flow;

use crate::common::{ROWS, Random, STATISTICS, Short, crew, hop, memory, seed};

/// Four writers and six readers over a tree of three levels; every read is checked.
#[test]
fn exact_reads_miss_nothing_that_returned() {
    const ROUNDS: usize = 400;
    const WRITERS: u64 = 4;
    let seed = seed();
    // Each read retires what the pass before found idle.
    let builder = Memory::builder()
        .statistics(STATISTICS)
        .retire_period(Duration::ZERO);
    let memory = builder.build().unwrap();
    // Two tenants, the queries of both in turn, and the root; with the updates of each.
    let mut groups: Vec<Group> = (0..2).map(|at| memory.make(format!("t{at}"))).collect();
    for at in 0..8 {
        groups.push(groups[at % 2].make(format!("q{at}")));
    }
    groups.push(memory.root());
    let truth: Vec<Flow> = groups.iter().map(|_| Flow::default()).collect();
    let writing = AtomicU64::new(WRITERS);
    let write = |random: &mut Random| {
        for _ in 0..ROUNDS {
            // Moving gives way to a reader, so that updates and reads interleave on a machine of any size.
            hop(random);
            std::thread::yield_now();
            for _ in 0..random.below(50) {
                let at = 2 + random.below(8);
                truth[at % 2].change(1, || {
                    truth[at].change(1, || truth[10].change(1, || groups[at].add(ROWS, 1)));
                });
            }
        }
        writing.fetch_sub(1, Ordering::SeqCst);
    };
    let read = |random: &mut Random| {
        while writing.load(Ordering::SeqCst) > 0 {
            let at = random.below(11);
            let (returned, _) = truth[at].added();
            let value = groups[at].rows();
            let (_, begun) = truth[at].added();
            let seen = || format!("{:?}: {returned} <= {value} <= {begun}", groups[at]);
            assert!(returned <= value && value <= begun, "{}", seen());
            std::thread::yield_now();
        }
    };
    let work = |thread| match (thread < WRITERS, &mut Random(seed ^ thread)) {
        (true, random) => write(random),
        (false, random) => read(random),
    };
    crew(10, work, std::thread::yield_now);
    let counts = memory.flush_counts();
    assert!(
        counts.retired > 10,
        "slots were retired beside updates: {counts:?}"
    );
}

/// Readers of one scope at once need no more flushes than a few: readers that come during one share the next.
#[test]
fn overlapping_readers_share_flushes() {
    const READERS: u64 = 32;
    const READS: u64 = 20;
    let memory = memory();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    let work = |_| {
        for _ in 0..READS {
            query.add(ROWS, 1);
            tenant.exact();
        }
    };
    crew(READERS, work, std::thread::yield_now);
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
