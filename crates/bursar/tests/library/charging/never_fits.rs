//! Charges that can never fit: refused before stock is taken back and before any code of the program is called, by every call that
//! charges.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bursar::engine::NowaitError;
use bursar::pages::{Order, Zeroed};
use bursar::{
    AllocPagesError, Charge, ChargeAsync, ChargeError, Events, Group, LimitReached, Limits, Memory,
    MoveError, PageRequest, Registration,
};

use crate::common::{Pages, Random, Short, Task, UNIT, memory, refused, seed, units};

const PAGE: u64 = 4096;

/// Calls that charge and can be refused.
#[derive(Clone, Copy, Debug)]
enum Call {
    TryCharge,
    Async,
    Reserve,
    Resize,
    Move,
    Page,
    Request,
    Many,
    Nowait,
}

const CALLS: [Call; 9] = [
    Call::TryCharge,
    Call::Async,
    Call::Reserve,
    Call::Resize,
    Call::Move,
    Call::Page,
    Call::Request,
    Call::Many,
    Call::Nowait,
];

/// Outcome of a call: bytes that are held until this is dropped, or the limit that refused. One call does not
/// name the limit.
type Outcome = Result<Box<dyn Any>, Option<LimitReached>>;

fn limit(error: ChargeError) -> Option<LimitReached> {
    match error {
        ChargeError::LimitReached(reached) => Some(*reached),
        other => panic!("{other}"),
    }
}

fn of_pages<T: 'static>(allocated: Result<T, AllocPagesError>) -> Outcome {
    match allocated {
        Ok(pages) => Ok(Box::new(pages)),
        Err(AllocPagesError::Refused(error)) => Err(limit(error)),
        Err(other) => panic!("{other}"),
    }
}

fn of_charge<T: 'static>(charged: Result<T, ChargeError>) -> Outcome {
    charged
        .map(|held| Box::new(held) as Box<dyn Any>)
        .map_err(limit)
}

impl Call {
    /// The nearest size that the call can ask for.
    fn size(self, bytes: u64) -> u64 {
        match self {
            Self::Page | Self::Request => PAGE << (bytes / PAGE).max(1).ilog2().min(10),
            Self::Many => bytes.next_multiple_of(PAGE),
            _ => bytes,
        }
    }

    /// Asks for bytes of a size that the call knows. As many are `ready` in a group without a limit, to be moved.
    fn ask(self, group: &Group, bytes: u64, ready: &mut Charge) -> Outcome {
        let order = || Order::new((bytes / PAGE).ilog2() as u8);
        match self {
            Self::TryCharge => of_charge(group.try_charge(bytes)),
            Self::Async => {
                let mut task = Task::<ChargeAsync>::new(group.charge_async(bytes));
                match task.poll() {
                    Poll::Ready(charged) => of_charge(charged),
                    Poll::Pending => Ok(Box::new(task)),
                }
            }
            Self::Reserve => of_charge(group.emergency_reserve(bytes)),
            Self::Resize => {
                let mut charge = group.charge(0);
                let resized = charge.resize(bytes);
                of_charge(resized.map(|()| charge))
            }
            Self::Move => match ready.move_to(group) {
                Ok(()) => Ok(Box::new(())),
                Err(MoveError::Refused(error)) => Err(limit(error)),
                Err(other) => panic!("{other}"),
            },
            Self::Page => of_pages(group.alloc_pages(order(), Zeroed::No)),
            Self::Request => of_pages(PageRequest::new(order()).alloc(group)),
            Self::Many => {
                let count = (bytes / PAGE) as usize;
                of_pages(group.alloc_many(Order::new(0), count, Zeroed::No))
            }
            Self::Nowait => match group.engine().try_charge_nowait(bytes) {
                Ok(charge) => Ok(Box::new(charge)),
                Err(NowaitError::LimitReached) => Err(None),
                Err(other) => panic!("{other}"),
            },
        }
    }
}

/// Tenants below a limit: one with a cache that gives back all it has, watchers of pressure everywhere, and stock.
struct World {
    memory: Memory,
    /// The limit, a tenant with a limit of its own, a query of it, and the cache of another tenant.
    groups: Vec<Group>,
    elsewhere: Group,
    cached: Pages,
    calls: Arc<AtomicUsize>,
    _kept: Vec<Registration>,
}

impl World {
    fn new(random: &mut Random) -> Self {
        let memory = memory();
        let top = memory.make_max("top", units(8 + random.below(8) as u64));
        let tenant = top.make_max("tenant", units(2 + random.below(8) as u64));
        let query = tenant.make("query");
        let cache = top.make("other").make("cache");
        let (cached, calls) = (Pages::default(), Arc::new(AtomicUsize::new(0)));
        cached.fill(&cache, 1 + random.below(6));
        let mut kept = Vec::new();
        for group in [&top, &tenant, &query, &cache] {
            let (evicted, counted) = (cached.clone(), calls.clone());
            kept.push(group.add_reclaimer(0, move |request| {
                counted.fetch_add(1, Ordering::SeqCst);
                evicted.evict(request.target)
            }));
            let counted = calls.clone();
            kept.push(group.on_pressure(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            }));
        }
        Self {
            elsewhere: memory.make("elsewhere"),
            groups: vec![top, tenant, query, cache],
            memory,
            cached,
            calls,
            _kept: kept,
        }
    }

    fn state(&self) -> (Vec<(u64, Events)>, u64, usize) {
        let of = |group: &Group| (group.reserved(), group.own_events());
        let calls = self.calls.load(Ordering::SeqCst);
        let groups = self.groups.iter().map(of).collect();
        (groups, self.cached.bytes(), calls)
    }

    /// The position of the first group on the way up from `at` whose limit is less than `bytes`.
    fn never_fits(&self, at: usize, bytes: u64) -> Option<usize> {
        let mut way: Vec<usize> = (0..=at).rev().collect();
        if at == 3 {
            way = vec![3, 0];
        }
        way.into_iter()
            .find(|&above| self.groups[above].limits().max < bytes)
    }
}

/// Asks by one call, and compares. Returns whether the request can never fit.
fn ask(world: &World, call: Call, at: usize, bytes: u64) -> bool {
    let group = &world.groups[at];
    let mut ready = world.elsewhere.try_charge(bytes).expect("no limit");
    // Bytes that returned, and that no listener was told of.
    if let Ok(charge) = world.groups[1].try_charge(UNIT) {
        charge.release_nowait();
    }
    let mut expected = world.state();
    let refusal = call.ask(group, bytes, &mut ready).err();
    let found = world.state();
    let Some(limited) = world.never_fits(at, bytes) else {
        let never = refusal
            .flatten()
            .is_some_and(|reached| reached.never_fits());
        assert!(!never, "{call:?} of {bytes} to {group}");
        return false;
    };
    let refusal = refusal.unwrap_or_else(|| panic!("{call:?} of {bytes} to {group} is granted"));
    if let Some(reached) = refusal {
        assert!(reached.never_fits(), "{call:?}: {reached}");
        let path = world.groups[limited].path();
        assert_eq!((&reached.limited, reached.requested), (&path, bytes));
        // Counted and recorded.
        let events = &mut expected.0[limited].1;
        events.refused += 1;
        events.max += 1;
        let kept = world.memory.refusals();
        assert!(kept.iter().any(|(_, kept)| kept.limited == path));
    }
    assert_eq!(found, expected, "{call:?} of {bytes} to {group}");
    true
}

#[test]
fn nothing_is_reclaimed_drained_or_called() {
    let random = &mut Random(seed());
    let (mut never, mut with_stock) = (0, 0);
    for _ in 0..40 {
        let world = World::new(random);
        // Stock that a drain would take.
        let small = world.groups[2].charge(100);
        let stock = world.groups[2].reserved() - 100;
        for _ in 0..10 {
            let call = CALLS[random.below(CALLS.len())];
            let bytes = call.size(units(1) + random.below(20 << 20) as u64);
            let has_stock = world.groups[2].reserved() > 100;
            let is_never = ask(&world, call, random.below(4), bytes);
            never += usize::from(is_never);
            with_stock += usize::from(is_never && has_stock && stock > 0);
        }
        drop(small);
    }
    assert!(
        never > 50 && with_stock > 0,
        "this shows too little: {never} {with_stock}"
    );
}

/// A task that waits is not woken, and keeps its place.
#[test]
fn tasks_that_wait_are_left_alone() {
    let memory = memory();
    let (group, elsewhere) = (memory.make_max("group", units(4)), memory.make("elsewhere"));
    for call in CALLS {
        let held = group.try_charge(units(4)).unwrap();
        let mut waiting = Task::new(group.charge_async(UNIT));
        assert!(waiting.poll().is_pending());
        let bytes = call.size(units(5));
        let mut ready = elsewhere.try_charge(bytes).unwrap();
        held.release_nowait();
        if bytes > units(4) {
            assert!(call.ask(&group, bytes, &mut ready).is_err());
        }
        assert_eq!(waiting.wakes(), 0, "{call:?}");
        assert!(waiting.poll().is_ready());
    }
}

/// A size that one tenant chooses takes no cache of another: the cases of the reports.
#[test]
fn a_request_beyond_all_that_could_be_freed_asks_for_nothing() {
    let memory = Memory::builder().max(units(256)).build().unwrap();
    let good = memory.make_with("good", Limits::max(units(128)));
    let bad = memory.make("bad");
    let cached = Pages::default();
    cached.fill(&good, 100);
    let _evicts = cached.evict_for(&good);
    let asked = |bytes| {
        let reached = refused(bad.try_charge(bytes));
        assert_eq!(cached.bytes(), units(100), "{reached}");
        reached
    };
    let never = asked(1 << 40);
    assert!(never.never_fits());
    assert_eq!(
        never.to_string(),
        "cannot charge 1.00 TiB to /bad: the limit of / is 256 MiB"
    );
    // Within the limit, but not beside the bytes that nobody can give back.
    let held = bad.try_charge(units(150)).unwrap();
    let reached = asked(units(107));
    assert!(!reached.never_fits());
    assert_eq!(reached.usage, units(250));
    drop(held);
    // Nor beside those that `min` protects.
    good.set_min(units(90));
    let reached = asked(units(167));
    assert!(!reached.never_fits());
    assert_eq!(memory.root().events().reclaimed_bytes, 0);
    // A charge that the reclaimer can make room for succeeds.
    drop(bad.try_charge(units(166)).unwrap());
    assert_eq!(cached.bytes(), units(90));
}
