//! Charges that wait for memory: in turn, passed within bounds, cancelled at any stage, woken whenever a retry may succeed, with many
//! threads.
//!
//! First by hand, with whole units (so that there is no stock), then with an executor that parks its thread.

use std::task::Poll;
use std::time::Duration;

use bursar::{Charge, ChargeAsync, ChargeError, Group, Memory};

use crate::common::{Random, Short, Task, UNIT, block_on, crew, hop, memory, seed, units};

fn wait(group: &Group, units: u64) -> Task<ChargeAsync> {
    Task::new(group.charge_async(units * UNIT))
}

/// A memory in which a waiting charge is passed so many times.
fn passing(times: u32) -> Memory {
    let builder = Memory::builder().passing(times, Duration::MAX);
    builder.build().expect("the host starts")
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
    let group = passing(0).make_max("group", units(8));
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

/// Memory that a large charge cannot use goes to small ones behind it, of any group below the limit.
#[test]
fn small_ones_pass_a_large_one() {
    let memory = Memory::builder().max(units(10)).build().unwrap();
    let [one, other] = ["one", "other"].map(|name| memory.make(name));
    let mut held = one.try_charge(units(10)).unwrap();
    let mut tasks = [
        wait(&one, 8),
        wait(&other, 3),
        wait(&one, 1),
        wait(&other, 1),
    ];
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    // One that came later fits, and one return has room for both.
    drop(held.split(units(2)).unwrap());
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 0, 1, 0]);
    let first = served(&mut tasks[2]);
    assert!(tasks[3].wakes() >= 1 && tasks[1].wakes() == 0);
    // Before it is polled, it comes before those that come.
    let mut late = wait(&one, 1);
    assert!(late.poll().is_pending());
    let second = served(&mut tasks[3]);
    assert!(late.poll().is_pending(), "nothing is left");
    // One that does not wait at all.
    drop(held.split(units(2)).unwrap());
    drop((served(&mut late), served(&mut wait(&other, 1))));
    // Enough for the large one: it comes first, also before those that would fit beside it.
    drop(held);
    assert!(tasks[0].wakes() >= 1);
    assert!(tasks[1].poll().is_pending());
    let large = served(&mut tasks[0]);
    assert!(tasks[1].poll().is_pending());
    drop((first, second, large));
    drop(served(&mut tasks[1]));
    assert_eq!(memory.root().reserved(), 0);
}

#[test]
fn none_is_passed_more_often_than_the_bound() {
    let group = passing(3).make_max("group", units(10));
    let mut held = group.try_charge(units(10)).unwrap();
    let [mut large, mut medium] = [wait(&group, 8), wait(&group, 7)];
    assert!(large.poll().is_pending());
    drop(held.split(units(6)).unwrap());
    drop(served(&mut wait(&group, 1)));
    assert!(medium.poll().is_pending());
    for _ in 0..2 {
        drop(served(&mut wait(&group, 1)));
    }
    // Room is kept for the large one, and nothing wakes others.
    let mut small = wait(&group, 1);
    assert!(small.poll().is_pending());
    drop(held.split(units(1)).unwrap());
    assert_eq!((large.wakes(), small.wakes()), (0, 0));
    assert!(small.poll().is_pending());
    // A charge that does not wait takes it, and returns it.
    drop(group.try_charge(UNIT).unwrap());
    assert_eq!(small.wakes(), 0);
    drop(held.split(units(1)).unwrap());
    assert!(large.wakes() >= 1 && small.wakes() == 0);
    // The next was passed twice, and may be passed once more.
    let large = served(&mut large);
    assert!(medium.wakes() >= 1 && medium.poll().is_pending());
    drop(held.split(units(1)).unwrap());
    assert!(small.wakes() >= 1);
    drop(served(&mut small));
    let mut small = wait(&group, 1);
    assert!(small.poll().is_pending());
    // It leaves, and the memory that was kept for it is free.
    drop(medium);
    assert!(small.wakes() >= 1);
    drop((served(&mut small), large, held));
    assert_eq!(group.reserved(), 0);
}

/// A charge that has waited for the whole time is not passed at all.
#[test]
fn none_is_passed_when_it_has_waited_for_too_long() {
    let builder = Memory::builder().passing(u32::MAX, Duration::ZERO);
    let group = builder.build().unwrap().make_max("group", units(4));
    let held = group.try_charge(units(3)).unwrap();
    let [mut large, mut small] = [wait(&group, 2), wait(&group, 1)];
    assert!(large.poll().is_pending() && small.poll().is_pending());
    drop(held);
    drop((served(&mut large), served(&mut small)));
}

/// A waiter that needs the memory of a task behind it: where that task may not pass, none of the two goes on.
#[test]
fn a_task_that_holds_memory_and_waits_behind_goes_on() {
    let group = memory().make_max("group", units(10));
    let held = group.try_charge(units(4)).unwrap();
    let mut large = wait(&group, 8);
    assert!(large.poll().is_pending());
    let more = served(&mut wait(&group, 2));
    drop((held, more));
    drop(served(&mut large));
}

/// A waiter of [`waiters_at_random`].
struct Waits {
    task: Task<ChargeAsync>,
    is_woken: bool,
    group: usize,
    units: u64,
    /// Times that another was served before it, of its group or, below one limit, of any.
    passed: u32,
}

/// Waiters in the order of their first polls, and the charges of those that were served.
#[derive(Default)]
struct Crowd {
    waits: Vec<Waits>,
    held: Vec<Charge>,
    has_one_limit: bool,
}

impl Crowd {
    fn poll(&mut self, at: usize) {
        let one = &mut self.waits[at];
        one.is_woken = false;
        if let Poll::Ready(charged) = one.task.poll() {
            self.held.push(charged.expect("no limit is smaller"));
            let group = self.waits.remove(at).group;
            let has_one_limit = self.has_one_limit;
            let early = self.waits[..at].iter_mut();
            early
                .filter(|early| has_one_limit || early.group == group)
                .for_each(|early| early.passed += 1);
        }
    }

    fn comes(&mut self, (group, size): (usize, u64), to: &Group) {
        self.waits.push(Waits {
            task: wait(to, size),
            is_woken: false,
            group,
            units: size,
            passed: 0,
        });
        self.poll(self.waits.len() - 1);
    }

    /// A waiter that was woken since it was last polled.
    fn woken(&mut self, random: &mut Random) -> Option<usize> {
        for one in &mut self.waits {
            one.is_woken |= one.task.wakes() > 0;
        }
        let woken = (0..self.waits.len()).filter(|&at| self.waits[at].is_woken);
        let woken: Vec<_> = woken.collect();
        (!woken.is_empty()).then(|| woken[random.below(woken.len())])
    }
}

/// Waiters of two groups that come, give up, and are served in any order, while memory returns and limits change. Whenever all that
/// were woken have been polled: no waiter that fits is left, unless room is kept for one before it; and none was passed too often.
#[test]
fn waiters_at_random() {
    const MAX: u64 = 12;
    let seed = seed();
    for round in 0..400 {
        let mut random = Random(seed ^ (round + 1));
        let times = random.below(4) as u32;
        let tenant = passing(times).make_max("tenant", units(MAX));
        let mut crowd = Crowd {
            has_one_limit: round % 2 == 0,
            ..Crowd::default()
        };
        let own_max = [units(MAX), u64::MAX][usize::from(crowd.has_one_limit)];
        let groups = [tenant.make_max("one", own_max), tenant.make("two")];
        for _ in 0..80 {
            match random.below(10) {
                0..4 => {
                    let (group, size) = (random.below(2), 1 + random.below(7) as u64);
                    crowd.comes((group, size), &groups[group]);
                }
                4..7 if !crowd.held.is_empty() => {
                    let at = random.below(crowd.held.len());
                    drop(crowd.held.swap_remove(at));
                }
                7 if !crowd.waits.is_empty() => {
                    drop(crowd.waits.remove(random.below(crowd.waits.len())));
                }
                8 => (crowd.held).extend(groups[random.below(2)].try_charge(UNIT)),
                _ => {
                    let limited = [&tenant, &groups[0]][random.below(2)];
                    // Never below the largest waiter.
                    if limited.limits().max != u64::MAX {
                        limited.set_max(units(7 + random.below(MAX as usize - 6) as u64));
                    }
                }
            }
            let polls_all = random.below(3) > 0;
            while polls_all || random.below(2) == 0 {
                let Some(at) = crowd.woken(&mut random) else {
                    break;
                };
                crowd.poll(at);
            }
            let waits = &crowd.waits;
            assert!(waits.iter().all(|one| one.passed <= times), "round {round}");
            if polls_all {
                let has_room = |group: &Group, size| group.reserved() + size <= group.limits().max;
                let fits = |one: &Waits| {
                    let way = [&groups[one.group], &tenant];
                    way.iter().all(|group| has_room(group, units(one.units)))
                };
                let is_kept = waits.first().is_some_and(|first| first.passed == times);
                let may_pass = usize::from(crowd.has_one_limit && !is_kept) * waits.len();
                let mut may_try = waits.iter().take(may_pass.max(1));
                assert!(
                    !may_try.any(fits),
                    "round {round}: it fits, and is not woken"
                );
            }
        }
        crowd.held.clear();
        tenant.set_max(units(MAX));
        groups[0].set_max(own_max);
        while let Some(at) = crowd.woken(&mut random) {
            crowd.poll(at);
            crowd.held.clear();
        }
        assert!(crowd.waits.is_empty(), "round {round}: not woken");
        assert_eq!(tenant.reserved(), 0, "round {round}");
    }
}

#[test]
fn giving_up_passes_the_turn_on() {
    let group = passing(0).make_max("group", units(4));
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

/// A limit that is lowered anywhere on the way of a charge ends its wait, in whichever queue it is and at whichever place.
#[test]
fn a_lower_limit_elsewhere_ends_a_wait_in_vain() {
    let memory = passing(0);
    memory.set_max(units(10));
    let tenant = memory.make_max("tenant", units(5));
    let other = memory.make("other");
    let held = other.try_charge(9 * UNIT).unwrap();
    let mut tasks = [wait(&tenant, 2), wait(&tenant, 4), wait(&other, 1)];
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    tenant.set_max(units(3));
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 1, 0]);
    assert_refused(&mut tasks[1], "/tenant");
    tenant.set_max(units(1));
    assert_eq!(tasks[0].wakes(), 1);
    assert_refused(&mut tasks[0], "/tenant");
    assert!(tasks[2].wakes() >= 1);
    let last = served(&mut tasks[2]);
    drop((held, last));
    // It waits below the limit.
    tenant.set_max(units(5));
    let held = tenant.try_charge(3 * UNIT).unwrap();
    let mut tasks = [wait(&tenant, 3), wait(&tenant, 4), wait(&tenant, 5)];
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    tenant.set_max(units(4));
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 0, 1]);
    let [_first, mut task, _] = tasks;
    memory.set_max(units(3));
    assert_eq!(task.wakes(), 1);
    assert_refused(&mut task, "/");
    drop(held);
    // It waits in the root itself.
    let root = memory.root();
    memory.set_max(units(10));
    let held = root.try_charge(9 * UNIT).unwrap();
    let mut tasks = [wait(&root, 2), wait(&root, 4)];
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    memory.set_max(units(3));
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 1]);
    assert_refused(&mut tasks[1], "/");
    drop(held);
}

#[test]
fn waiting_in_vain_is_an_error() {
    let tenant = passing(0).make_max("tenant", units(4));
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
    let builder = Memory::builder().passing(0, Duration::MAX);
    let memory = builder.max(units(64)).build().unwrap();
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
