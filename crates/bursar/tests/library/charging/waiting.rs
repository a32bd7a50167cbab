//! Charges that wait for memory: in turn, cancelled at any stage, woken whenever a retry may succeed, with many
//! threads.
//!
//! First by hand, with whole units (so that there is no stock), then with an executor that parks its thread.

use std::task::Poll;

use bursar::{Charge, ChargeAsync, ChargeError, Group, Memory};

use crate::common::{Random, Short, Task, UNIT, block_on, crew, hop, memory, seed, units};

fn wait(group: &Group, units: u64) -> Task<ChargeAsync> {
    Task::new(group.charge_async(units * UNIT))
}

fn served(task: &mut Task<ChargeAsync>) -> Charge {
    match task.poll() {
        Poll::Ready(charged) => charged.expect("not refused"),
        Poll::Pending => panic!("not served"),
    }
}

fn assert_refused(task: &mut Task<ChargeAsync>, limited: &str) {
    match task.poll() {
        Poll::Ready(Err(ChargeError::LimitReached(reached))) => {
            assert_eq!(reached.limited, limited)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn served_in_turn() {
    let group = memory().make_max("group", units(8));
    let mut held = group.try_charge(8 * UNIT).unwrap();
    let mut tasks = [wait(&group, 4), wait(&group, 1), wait(&group, 3)];
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    // Not enough for the first, and the others do not pass it.
    drop(held.split(3 * UNIT).unwrap());
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 0, 0]);
    assert!(tasks[1].poll().is_pending() && tasks[2].poll().is_pending());
    drop(held.split(UNIT).unwrap());
    assert_eq!(tasks.each_ref().map(Task::wakes), [1, 0, 0]);
    assert!(
        tasks[1].poll().is_pending(),
        "even before the first is polled"
    );
    let first = served(&mut tasks[0]);
    assert!(tasks[1].wakes() >= 1);
    assert!(tasks[1].poll().is_pending());
    // One that does not wait may pass.
    drop(held.split(2 * UNIT).unwrap());
    let passed = group.try_charge(UNIT).unwrap();
    let second = served(&mut tasks[1]);
    assert!(tasks[2].poll().is_pending());
    drop((first, second, passed, held));
    assert!(tasks[2].wakes() >= 1);
    drop(served(&mut tasks[2]));
    assert_eq!(group.reserved(), 0);
}

#[test]
fn giving_up_passes_the_turn_on() {
    let group = memory().make_max("group", units(4));
    let mut held = group.try_charge(4 * UNIT).unwrap();
    drop(wait(&group, 1));
    let [mut first, mut behind, mut last] = [wait(&group, 4), wait(&group, 3), wait(&group, 1)];
    assert!(first.poll().is_pending() && behind.poll().is_pending() && last.poll().is_pending());
    // Queued behind: nobody's turn changes.
    drop(behind);
    assert_eq!((first.wakes(), last.wakes()), (0, 0));
    // Queued first, with room for the next only.
    drop(held.split(UNIT).unwrap());
    assert_eq!((first.wakes(), last.wakes()), (0, 0));
    drop(first);
    assert_eq!(last.wakes(), 1);
    let got = served(&mut last);
    // Woken, but gone before it was polled.
    let [mut first, mut last] = [wait(&group, 1), wait(&group, 1)];
    assert!(first.poll().is_pending() && last.poll().is_pending());
    drop(got);
    assert_eq!((first.wakes(), last.wakes()), (1, 0));
    drop(first);
    assert_eq!(last.wakes(), 1);
    drop((served(&mut last), held));
    assert_eq!(group.reserved(), 0);
    drop(group.try_charge(100).unwrap());
    assert!(group.reserved() > 0, "nobody waits: stock is held again");
}

#[test]
fn waiting_in_vain_is_an_error() {
    let tenant = memory().make_max("tenant", units(4));
    let group = tenant.make("group");
    assert_refused(&mut wait(&group, 5), "/tenant");
    let mut task = Task::new(group.charge_async(u64::MAX));
    let too_large = |polled| matches!(polled, Poll::Ready(Err(ChargeError::TooLarge { .. })));
    assert!(too_large(task.poll()));
    assert_eq!(served(&mut Task::new(group.charge_async(0))).bytes(), 0);
    let held = group.try_charge(4 * UNIT).unwrap();
    let mut task = wait(&group, 3);
    assert!(task.poll().is_pending());
    tenant.set_max(units(3));
    assert_eq!(task.wakes(), 0, "it fits as soon as enough is returned");
    tenant.set_max(units(2));
    assert_eq!(task.wakes(), 1);
    assert_refused(&mut task, "/tenant");
    // Raised again: enough for the one, and then for the other.
    let mut tasks = [wait(&group, 2), wait(&group, 1)];
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    tenant.set_max(units(5));
    assert_eq!(tasks[0].wakes(), 0);
    tenant.set_max(units(7));
    assert_eq!(tasks.each_ref().map(Task::wakes), [1, 0]);
    let charge = served(&mut tasks[0]);
    assert!(tasks[1].wakes() >= 1);
    drop((served(&mut tasks[1]), charge));
    // Of a group that is removed all give up, and others have their turn.
    let other = tenant.make("other");
    let mut tasks = [wait(&group, 7), wait(&group, 7), wait(&other, 3)];
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    group.remove().unwrap();
    assert_eq!(tasks.each_ref().map(Task::wakes), [1, 1, 0]);
    for task in &mut tasks[..2] {
        let polled = task.poll();
        assert!(matches!(
            polled,
            Poll::Ready(Err(ChargeError::Removed { .. }))
        ));
    }
    assert!(tasks[2].wakes() >= 1);
    drop((served(&mut tasks[2]), held));
    assert_eq!(tenant.reserved(), 0);
}

/// A wait that ends before it is served is counted and kept, whether it is dropped or asks for the reason.
#[test]
fn giving_up_tells_why() {
    let memory = Memory::builder().max(units(64)).build().unwrap();
    let (one, neighbour) = (memory.make("one"), memory.make_max("neighbour", units(62)));
    let held = neighbour.try_charge(units(60)).unwrap();
    let counts = |group: &Group| {
        let events = group.events();
        (events.gave_up, events.refused)
    };
    let waits = |group: &Group, units| {
        let mut task = wait(group, units);
        assert!(task.poll().is_pending());
        task
    };
    let reason = |task: Task<ChargeAsync>| task.into_future().give_up().to_string();
    drop(waits(&one, 10));
    let (age, kept) = memory.refusals().pop().expect("the drop is kept");
    assert!(!age.is_zero());
    assert_eq!((&kept.charged[..], &kept.limited[..]), ("/one", "/"));
    assert_eq!((kept.requested, kept.usage), (units(10), units(60)));
    assert_eq!(counts(&one), (1, 0));
    let second = reason(waits(&one, 10));
    assert!(second.starts_with("cannot charge 10.0 MiB to /one: / uses 60.0 MiB of 64.0 MiB"));
    assert_eq!([counts(&one), counts(&memory.root())], [(2, 0); 2]);
    // The nearest limit in the way; what is in the way of those ahead; a limit that is in the way no more.
    let own = "cannot charge 3.00 MiB to /neighbour: /neighbour uses 60.0 MiB of 62.0 MiB";
    assert_eq!(reason(waits(&neighbour, 3)), own);
    let (ahead, behind) = (waits(&one, 5), waits(&one, 1));
    assert!(reason(behind).starts_with("cannot charge 1.00 MiB to /one: / uses"));
    drop(held);
    assert!(reason(ahead).starts_with("cannot charge 5.00 MiB to /one: / uses 0 B of"));
    assert_eq!([counts(&one), counts(&neighbour)], [(4, 0), (1, 0)]);
    // Those that do not wait leave no trace.
    drop(wait(&one, 10));
    drop(served(&mut wait(&one, 10)));
    assert_refused(&mut wait(&one, 65), "/");
    let _held = neighbour.try_charge(units(60)).unwrap();
    let task = waits(&one, 10);
    one.close().unwrap();
    assert_eq!(reason(task), "cannot charge /one: it was removed");
    assert_eq!(counts(&one), (4, 0));
    assert_eq!(counts(&memory.root()), (5, 1));
}

#[test]
fn two_levels() {
    let tenant = memory().make_max("tenant", units(8));
    let one = tenant.make_max("one", units(4));
    let two = tenant.make("two");
    let (in_one, in_two) = (
        one.try_charge(4 * UNIT).unwrap(),
        two.try_charge(4 * UNIT).unwrap(),
    );
    let [mut first, mut later] = [wait(&one, 3), wait(&two, 2)];
    assert!(first.poll().is_pending() && later.poll().is_pending());
    // Memory that is returned elsewhere does not wake the task that waits for `one`.
    drop(in_two);
    assert_eq!((first.wakes(), later.wakes()), (0, 1));
    let charge = served(&mut later);
    // Room in `one`, but gone from the tenant before the task looks: it waits there now.
    let kept = two.try_charge(2 * UNIT).unwrap();
    drop(in_one);
    let taken = two.try_charge(4 * UNIT).unwrap();
    assert_eq!(first.wakes(), 1);
    assert!(first.poll().is_pending());
    drop(charge);
    assert_eq!(first.wakes(), 0, "2 of 3");
    drop(kept);
    assert_eq!(first.wakes(), 1);
    drop((served(&mut first), taken));
    assert_eq!(tenant.reserved(), 0);
}

/// A return that may call no code leaves that to the next operation that may.
#[test]
fn a_silent_return_is_noticed_later() {
    let memory = memory();
    let group = memory.make_max("group", units(4));
    let other = memory.make("other");
    for by_tick in [true, false] {
        let held = group.try_charge(4 * UNIT).unwrap();
        let mut task = wait(&group, 1);
        assert!(task.poll().is_pending());
        held.release_nowait();
        assert_eq!((task.wakes(), group.reserved()), (0, 0));
        if by_tick {
            memory.tick();
        } else {
            drop(other.try_charge(UNIT).unwrap());
        }
        assert!(task.wakes() >= 1, "{by_tick}");
        drop(served(&mut task));
    }
}

/// Tasks that want more than fits: all finish, nothing is ever above the limit, and nothing is left in the books.
#[test]
fn threads_all_get_their_turn() {
    const MAX: u64 = 1 << 20;
    let seed = seed();
    let memory = memory();
    let tenant = memory.make_max("tenant", MAX);
    let groups = [u64::MAX, MAX / 2, MAX / 3].map(|max| tenant.make_max(format!("to{max}"), max));
    let work = |thread| {
        let mut random = Random(seed ^ thread);
        for step in 0..500 {
            if step % 16 == 0 {
                hop(&mut random);
            }
            let group = &groups[random.below(3)];
            let wanted = 1 + random.below(MAX as usize / 3) as u64;
            let mut given_up = Task::new(group.charge_async(wanted));
            if random.below(4) == 0 && given_up.poll().is_pending() {
                std::thread::yield_now();
            }
            drop(given_up);
            let charge = block_on(group.charge_async(wanted)).unwrap();
            assert_eq!(charge.bytes(), wanted);
            std::thread::yield_now();
            if random.below(4) == 0 {
                // The watcher's tick wakes the waiting tasks.
                charge.release_nowait();
            }
        }
    };
    crew(6, work, || {
        let reserved = tenant.reserved();
        assert!(reserved <= MAX, "{reserved}");
        memory.tick();
    });
    assert_eq!(tenant.used(), 0);
    tenant.set_max(0);
    assert_eq!(tenant.reserved(), 0);
}

/// However long others wait, and wherever the limit is that it exceeds.
#[test]
fn too_large_is_refused_at_once() {
    let tenant = memory().make_max("tenant", units(6));
    let query = tenant.make_max("query", units(8));
    let _held = query.try_charge(5 * UNIT).unwrap();
    let mut first = wait(&query, 3);
    assert!(first.poll().is_pending());
    assert_refused(&mut wait(&query, 7), "/tenant");
    assert_refused(&mut wait(&query, 9), "/tenant/query");
    assert_eq!(first.wakes(), 0);
}
