//! Pools that an arbiter asks to give back memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Charge, Limits, Memory};
use bursar_arbiter::{Answer, Arbiter, Ask, Engine, Grant, Grow, GrowError, Policy, Stop};
use bursar_datafusion::{FairShare, GroupPool};

use crate::common::{MIB, exhausted, fixed, spiller};

struct Spills(Arc<GroupPool>);

impl Engine for Spills {
    fn reclaimable(&self) -> u64 {
        self.0.reclaimable()
    }
    fn ask(&self, bytes: u64, answer: Answer) {
        self.0.ask(bytes, answer);
    }
    fn stop(&self, _: &Arc<Stop>) {}
}

struct Scene {
    arbiter: Arbiter,
    needy: Grant,
    asked: Grant,
    pool: Arc<GroupPool>,
}

fn scene() -> Scene {
    scene_with(0, Duration::from_secs(60))
}

/// A query that needs memory, and one that came later, with a pool, in 100 MiB. So many MiB are kept for queries that are asked.
fn scene_with(credit: u64, ask_max: Duration) -> Scene {
    let memory = Memory::builder().max(100 << 20).build().unwrap();
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
    let mut policy = Policy::default();
    policy.yielding.ask_after = Duration::ZERO;
    policy.yielding.ask_max = ask_max;
    policy.yielding.stop_after = Duration::MAX;
    policy.yielding.spill_credit = credit << 20;
    let arbiter = Arbiter::new(&memory, policy);
    let ask = |name| Ask::new(&tenant, name).least((100 - credit) << 19, 0);
    let needy = arbiter.try_admit(ask("needy")).unwrap();
    arbiter.tick();
    let asked = arbiter.try_admit(ask("asked")).unwrap();
    let pool = GroupPool::builder(asked.group().clone());
    let pool = pool.share(&FairShare::new(asked.group())).grant(&asked);
    let pool = pool.build();
    asked.attach(Arc::new(Spills(pool.clone())));
    Scene {
        arbiter,
        needy,
        asked,
        pool,
    }
}

fn poll(grow: &mut Grow) -> Poll<Result<Charge, GrowError>> {
    Pin::new(grow).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_largest_spiller_is_refused_once_and_its_bytes_go_to_the_one_that_waits() {
    let scene = scene();
    let (large, small) = (
        spiller(&scene.pool, "ExternalSorter"),
        spiller(&scene.pool, "Grouped"),
    );
    let join = fixed(&scene.pool, "HashJoinInput");
    large.try_grow(20 * MIB).unwrap();
    small.try_grow(4 * MIB).unwrap();
    join.try_grow(4 * MIB).unwrap();
    assert_eq!(scene.pool.reclaimable(), 24 << 20);
    let _held = scene.needy.try_charge(50 << 20).unwrap();
    let mut more = scene.needy.grow(30 << 20);
    assert!(poll(&mut more).is_pending());
    scene.arbiter.tick();
    assert_eq!(scene.arbiter.decisions()[0].expected, 24 << 20);
    small.try_grow(MIB).unwrap();
    join.try_grow(MIB).unwrap();
    let text = exhausted(large.try_grow(MIB));
    assert!(
        text.contains("the arbiter asks this query to spill"),
        "{text}"
    );
    assert!(text.contains("(decision 1)"), "{text}");
    // It gets the memory that a spill takes. The answer comes with the bytes.
    large.try_grow(1).unwrap();
    assert!(poll(&mut more).is_pending());
    large.free();
    let charge = match poll(&mut more) {
        Poll::Ready(Ok(charge)) => charge,
        other => panic!("{other:?}"),
    };
    let decision = &scene.arbiter.decisions()[0];
    // The small one would have given less than its part.
    assert!(decision.seen >= Some(17 << 20), "{decision:?}");
    assert_eq!(decision.said, decision.seen);
    assert_eq!(scene.arbiter.counts().asked_in_vain, 0);
    // Nobody asks any more.
    large.try_grow(MIB).unwrap();
    large.try_grow(MIB).unwrap();
    drop((charge, scene.asked));
}

#[test]
fn a_query_without_spillers_is_not_asked() {
    let scene = scene();
    let join = fixed(&scene.pool, "HashJoinInput");
    join.try_grow(50 * MIB).unwrap();
    let _held = scene.needy.try_charge(50 << 20).unwrap();
    let mut more = scene.needy.grow(30 << 20);
    assert!(poll(&mut more).is_pending());
    scene.arbiter.tick();
    assert_eq!(
        (scene.pool.reclaimable(), scene.arbiter.counts().asked),
        (0, 0)
    );
}

/// Each of its files has a reservation, and it flushes the largest file.
#[test]
fn a_sink_of_several_files_is_asked_whenever_it_holds_enough() {
    let scene = scene();
    let sink = spiller(&scene.pool, "ParquetSink");
    let file = sink.new_empty();
    let _held = scene.needy.try_charge(50 << 20).unwrap();
    sink.try_grow(10 * MIB).unwrap();
    file.try_grow(15 * MIB).unwrap();
    assert_eq!(scene.pool.reclaimable(), 25 << 20);
    let mut more = scene.needy.grow(30 << 20);
    assert!(poll(&mut more).is_pending());
    scene.arbiter.tick();
    let text = exhausted(sink.try_grow(MIB));
    assert!(
        text.contains("the arbiter asks this query to spill"),
        "{text}"
    );
    file.free();
    sink.free();
    assert!(poll(&mut more).is_ready());
    // Another time.
    sink.try_grow(5 * MIB).unwrap();
    assert_eq!(scene.pool.reclaimable(), 5 << 20);
}

/// It says that it can spill. If all of its groups are ordered, it ends its query in place of that.
#[test]
fn an_ordered_aggregate_is_not_asked() {
    let scene = scene();
    let aggregate = spiller(&scene.pool, "OrderedFinalAggregateStream[0]");
    let sorter = spiller(&scene.pool, "ExternalSorter");
    aggregate.try_grow(20 * MIB).unwrap();
    sorter.try_grow(5 * MIB).unwrap();
    let _held = scene.needy.try_charge(50 << 20).unwrap();
    let mut more = scene.needy.grow(30 << 20);
    assert!(poll(&mut more).is_pending());
    scene.arbiter.tick();
    assert_eq!(scene.pool.reclaimable(), 5 << 20);
    aggregate.try_grow(MIB).unwrap();
    let text = exhausted(sorter.try_grow(MIB));
    assert!(
        text.contains("the arbiter asks this query to spill"),
        "{text}"
    );
}

#[test]
fn a_query_answers_though_the_one_that_waited_is_gone() {
    let scene = scene();
    let sorter = spiller(&scene.pool, "ExternalSorter");
    sorter.try_grow(30 * MIB).unwrap();
    let _held = scene.needy.try_charge(50 << 20).unwrap();
    let mut more = scene.needy.grow(30 << 20);
    assert!(poll(&mut more).is_pending());
    scene.arbiter.tick();
    assert_eq!(scene.arbiter.counts().asked, 1);
    // The one that waited is gone, and with it the shortage. The query was asked all the same.
    drop(more);
    exhausted(sorter.try_grow(MIB));
    sorter.free();
    assert_eq!(scene.arbiter.decisions()[0].said, Some(30 << 20));
    sorter.try_grow(MIB).unwrap();
}

#[test]
fn a_request_whose_time_is_over_refuses_nobody() {
    let scene = scene_with(0, Duration::ZERO);
    let sorter = spiller(&scene.pool, "ExternalSorter");
    sorter.try_grow(30 * MIB).unwrap();
    let _held = scene.needy.try_charge(50 << 20).unwrap();
    let mut more = scene.needy.grow(30 << 20);
    assert!(poll(&mut more).is_pending());
    scene.arbiter.tick();
    assert!(scene.arbiter.counts().asked > 0);
    sorter.try_grow(1).unwrap();
    assert_eq!(scene.pool.report().refused, 0);
}

#[test]
fn a_spill_draws_what_the_arbiter_keeps_for_it() {
    for (credit, may) in [(0, false), (10, true)] {
        let scene = scene_with(credit, Duration::from_secs(60));
        let max = (100 - credit as usize) / 2 * MIB;
        let (rows, merge) = (spiller(&scene.pool, "Rows"), fixed(&scene.pool, "Merge"));
        rows.try_grow(20 * MIB).unwrap();
        merge.try_grow(max - 20 * MIB).unwrap();
        let _held = scene.needy.try_charge(max as u64).unwrap();
        // Nobody asks yet, so there is nothing to draw.
        exhausted(merge.try_grow(4 * MIB));
        let mut more = scene.needy.grow(10 << 20);
        assert!(poll(&mut more).is_pending());
        exhausted(rows.try_grow(MIB));
        assert_eq!(merge.try_grow(4 * MIB).is_ok(), may);
        rows.free();
        assert!(poll(&mut more).is_ready());
    }
}
