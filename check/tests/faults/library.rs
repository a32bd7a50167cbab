//! Calls of the crate `bursar`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::housekeeping::{Options, Upkeeper};
use bursar::pages::{Order, PageOptions, Zeroed};
use bursar::{By, Charge, Freshness, Group, Host, Level, Limits, Memory, Page, Statistic};

use crate::allocations::{Case, Fault, Outcome, case, outcome};

pub const MIB: u64 = 1 << 20;
const TENANT_MAX: u64 = 8 * MIB;
const STATISTICS: &[Statistic] = &[Statistic::counter("rows"), Statistic::gauge("open")];

const fn first(name: &'static str, run: fn(&mut Fault) -> Outcome) -> Case {
    Case {
        name,
        run,
        is_first: true,
    }
}

#[rustfmt::skip]
pub const CASES: &[Case] = &[
    first("Host::start", |fault| {
        let host = fault.during(Host::start);
        world().settle();
        outcome(&host)
    }),
    case("Builder::build", build),
    case("Builder::ticker", build_with_ticker),
    case("Builder::max_from_cgroup", build_from_cgroup),
    case("Memory::start_ticker", start_ticker),
    case("Memory::reread_cgroup", reread_cgroup),
    case("Memory::set_max", |fault| with_world(fault, |fault, world| {
        fault.during(|| world.memory.set_max(32 * MIB));
        Outcome::Done
    })),
    case("Memory::drift", drift),
    case("Memory::tick", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.memory.tick());
        Outcome::Done
    })),
    case("Memory::find", |fault| with_world(fault, |fault, world| {
        let found = fault.during(|| world.memory.find("tenant/query"));
        assert!(found.is_some());
        Outcome::Done
    })),
    case("Memory::refusals", refusals),
    case("Memory::leftovers", leftovers),
    case("Memory::reset_after_fork", reset_after_fork),
    case("Memory::housekeeping", housekeeping),
    case("Group::child", child),
    case("Group::child of many", children_of_many),
    case("Group::child in a used record", child_in_used_record),
    case("Group::child that exists", child_that_exists),
    case("Group::remove", remove),
    case("Group::remove after a charge", |fault| with_bytes(fault, |fault, world| {
        let removed = fault.during(|| world.query.remove());
        assert!(removed.is_ok() && world.query.is_removed());
        Outcome::Done
    })),
    case("Group::close", close),
    case("Group::drop", |fault| with_world(fault, |fault, world| {
        let one = world.tenant.child("one", Limits::none()).unwrap();
        fault.during(|| drop(one));
        assert!(world.tenant.find("one").is_none());
        Outcome::Done
    })),
    case("Group::path", |fault| with_world(fault, |fault, world| {
        let path = fault.during(|| world.query.path());
        assert_eq!(path, "/tenant/query");
        Outcome::Done
    })),
    case("Group::children", |fault| with_world(fault, |fault, world| {
        let children = fault.during(|| world.tenant.children());
        assert_eq!(children.len(), 1);
        Outcome::Done
    })),
    case("Group::find", |fault| with_world(fault, |fault, world| {
        let found = fault.during(|| world.tenant.find("query"));
        assert!(found.is_some());
        Outcome::Done
    })),
    case("Group::try_charge", try_charge),
    case("Group::try_charge that is refused", refused_charge),
    case("Group::try_charge that never fits", charge_that_never_fits),
    case("Group::try_charge of a removed group", charge_of_removed),
    case("Group::try_charge that reclaims", charge_that_reclaims),
    case("Group::try_charge that tells listeners", charge_that_tells),
    case("Group::charge", |fault| with_world(fault, |fault, world| {
        let charge = fault.during(|| world.query.charge(2 * TENANT_MAX));
        assert_eq!(charge.bytes(), 2 * TENANT_MAX);
        assert!(world.tenant.is_over_max());
        Outcome::Done
    })),
    case("Group::charge_async", charge_async),
    case("Group::charge_async that waits", charge_async_that_waits),
    case("ChargeAsync::give_up", give_up),
    case("Group::emergency_reserve", emergency_reserve),
    case("Group::take_debt", |fault| with_world(fault, |fault, world| {
        world.tenant.set_high(MIB);
        let charge = world.query.try_charge(4 * MIB).unwrap();
        assert!(fault.during(|| world.query.take_debt()).bytes > 0);
        drop(charge);
        Outcome::Done
    })),
    case("Group::set_max", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.tenant.set_max(MIB));
        assert!(world.query.try_charge(2 * MIB).is_err());
        Outcome::Done
    })),
    case("Group::set_limits", |fault| with_world(fault, |fault, world| {
        fault.during(|| world.tenant.set_limits(Limits::max(4 * MIB).high(2 * MIB)));
        assert_eq!(world.tenant.limits().max, 4 * MIB);
        Outcome::Done
    })),
    case("Group::set_high", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.tenant.set_high(1000));
        Outcome::Done
    })),
    case("Group::set_low", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.tenant.set_low(MIB));
        Outcome::Done
    })),
    case("Group::set_min", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.tenant.set_min(MIB));
        Outcome::Done
    })),
    case("Group::add", |fault| with_world(fault, |fault, world| {
        let rows = bursar::Counter::from_name(STATISTICS, "rows");
        fault.during(|| world.query.add(rows, 7));
        assert_eq!(world.memory.root().read(Freshness::Exact).unwrap().get(rows).value, 7);
        Outcome::Done
    })),
    case("Group::read", |fault| with_bytes(fault, |fault, world| {
        let read = fault.during(|| world.tenant.read(Freshness::Exact));
        assert_eq!(read.as_ref().unwrap().usage_bytes(), 3_000);
        Outcome::Done
    })),
    case("Group::read of a cached number", |fault| with_bytes(fault, |fault, world| {
        let read = fault.during(|| world.tenant.read(Freshness::Cached));
        outcome(&read)
    })),
    case("Group::flush", |fault| with_bytes(fault, |fault, world| {
        let read = fault.during(|| world.tenant.flush());
        assert_eq!(read.as_ref().unwrap().usage_bytes(), 3_000);
        Outcome::Done
    })),
    case("Group::snapshot", |fault| with_bytes(fault, |fault, world| {
        let snapshot = fault.during(|| world.memory.snapshot(Freshness::Exact));
        assert_eq!(snapshot.unwrap().groups().len(), 3);
        Outcome::Done
    })),
    case("Group::events", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| (world.tenant.events(), world.tenant.own_events()));
        Outcome::Done
    })),
    case("Group::keep_peak", |fault| with_bytes(fault, |fault, world| {
        let kept = fault.during(|| world.tenant.keep_peak());
        drop(kept);
        Outcome::Done
    })),
    case("Group::add_reclaimer", |fault| with_bytes(fault, |fault, world| {
        let kept = fault.during(|| world.tenant.add_reclaimer(0, |_| 0));
        drop(kept);
        Outcome::Done
    })),
    case("Group::reclaim", |fault| with_bytes(fault, |fault, world| {
        let _kept = world.query.add_reclaimer(0, |_| 0);
        fault.during(|| world.tenant.reclaim(MIB));
        Outcome::Done
    })),
    case("Group::work", |fault| with_bytes(fault, |fault, world| {
        let work = fault.during(|| world.tenant.work());
        drop(work);
        Outcome::Done
    })),
    case("Group::on_pressure", |fault| with_bytes(fault, |fault, world| {
        let kept = fault.during(|| world.tenant.on_pressure(|_| ()));
        drop(kept);
        Outcome::Done
    })),
    case("Group::pressure", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.tenant.pressure());
        Outcome::Done
    })),
    case("Group::pressure_changed", |fault| with_bytes(fault, |fault, world| {
        let mut changed = world.tenant.pressure_changed(Level::None);
        assert!(fault.during(|| poll(&mut changed)).is_pending());
        Outcome::Done
    })),
    case("Group::emptied", |fault| with_bytes(fault, |fault, world| {
        let mut emptied = world.tenant.emptied();
        assert!(fault.during(|| poll(&mut emptied)).is_pending());
        Outcome::Done
    })),
    case("Group::top", |fault| with_bytes(fault, |fault, world| {
        let top = fault.during(|| world.memory.root().top(5, By::Reserved));
        assert_eq!(top.len(), 2);
        Outcome::Done
    })),
    case("Group::largest_children", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.memory.root().largest_children(5));
        Outcome::Done
    })),
    case("Group::protection", |fault| with_bytes(fault, |fault, world| {
        fault.during(|| world.query.protection());
        Outcome::Done
    })),
    case("Group::choose_victim", |fault| with_bytes(fault, |fault, world| {
        let victim = fault.during(|| world.memory.root().choose_victim());
        assert!(victim.unwrap().is_some());
        Outcome::Done
    })),
    case("Group::alloc_pages", |fault| with_world(fault, |fault, world| {
        let page = fault.during(|| world.query.alloc_pages(Order::ZERO, Zeroed::Yes));
        outcome(&page)
    })),
    case("Group::alloc_pages once more", |fault| with_pages(fault, |fault, world| {
        let page = fault.during(|| world.query.alloc_pages(Order::ZERO, Zeroed::Yes));
        outcome(&page)
    })),
    case("Group::alloc_pages beyond the lists", |fault| with_pages(fault, |fault, world| {
        // By then the lists have been filled again and again, and a second table was needed.
        let mut pages: [Option<Page>; 1_500] = [const { None }; 1_500];
        let all = fault.during(|| pages.iter_mut().try_for_each(|page| {
            *page = Some(world.query.alloc_pages(Order::ZERO, Zeroed::No)?);
            Ok::<_, bursar::AllocPagesError>(())
        }));
        outcome(&all)
    })),
    case("Page::drop", page_drop),
    case("Page::drop beyond the lists", |fault| with_pages(fault, |fault, world| {
        let mut pages: Vec<Page> = (0..1_500)
            .map(|_| world.query.alloc_pages(Order::ZERO, Zeroed::No).unwrap())
            .collect();
        fault.during(|| pages.drain(..).for_each(drop));
        Outcome::Done
    })),
    case("Page::drop of the largest order", |fault| with_world(fault, |fault, world| {
        let page = world.query.alloc_pages(Order::MAX, Zeroed::No).unwrap();
        fault.during(|| drop(page));
        Outcome::Done
    })),
    case("Group::alloc_many", |fault| with_pages(fault, |fault, world| {
        let pages = fault.during(|| world.query.alloc_many(Order::ZERO, 1_500, Zeroed::No));
        outcome(&pages)
    })),
    case("Page::free_many", |fault| with_pages(fault, |fault, world| {
        let pages = world.query.alloc_many(Order::ZERO, 1_500, Zeroed::No).unwrap();
        fault.during(|| Page::free_many(pages));
        Outcome::Done
    })),
    case("Memory::drain_pages", |fault| with_pages(fault, |fault, world| {
        fault.during(|| world.memory.drain_pages());
        Outcome::Done
    })),
    case("Memory::zone_info", |fault| with_pages(fault, |fault, world| {
        fault.during(|| world.memory.zone_info());
        Outcome::Done
    })),
    case("Charge::drop", |fault| with_world(fault, |fault, world| {
        let charge = world.query.try_charge(TENANT_MAX).unwrap();
        fault.during(|| drop(charge));
        Outcome::Done
    })),
    case("Charge::drop that ends a group", |fault| with_world(fault, |fault, world| {
        let charge = world.query.try_charge(TENANT_MAX).unwrap();
        world.query.remove().unwrap();
        fault.during(|| drop(charge));
        Outcome::Done
    })),
    case("Charge::resize", |fault| with_charge(fault, |fault, _, mut charge| {
        let resized = fault.during(|| charge.resize(5 * MIB));
        outcome(&resized)
    })),
    case("Charge::split", |fault| with_charge(fault, |fault, _, mut charge| {
        let rest = fault.during(|| charge.split(1000));
        outcome(&rest)
    })),
    case("Charge::merge", |fault| with_charge(fault, |fault, _, mut charge| {
        let other = charge.split(1000).unwrap();
        outcome(&fault.during(|| charge.merge(other)))
    })),
    case("Charge::move_to", |fault| with_charge(fault, |fault, world, mut charge| {
        let moved = fault.during(|| charge.move_to(&world.memory.root()));
        outcome(&moved)
    })),
    case("Charge::move_to that is refused", |fault| with_charge(fault, |fault, world, mut charge| {
        let small = world.tenant.child("small", Limits::max(1)).unwrap();
        let moved = fault.during(|| charge.move_to(&small));
        assert_eq!(charge.bytes(), 3_000_000);
        outcome(&moved)
    })),
    case("Engine::try_charge_nowait", |fault| with_world(fault, |fault, world| {
        let charge = fault.during(|| world.query.engine().try_charge_nowait(MIB));
        outcome(&charge)
    })),
    case("Engine::charge_nowait", |fault| with_world(fault, |fault, world| {
        let charge = fault.during(|| world.query.engine().charge_nowait(2 * TENANT_MAX));
        fault.during(|| charge.release_nowait());
        Outcome::Done
    })),
    case("Engine::account", |fault| with_world(fault, |fault, world| {
        let account = fault.during(|| world.query.engine().account());
        account.charge_nowait(100);
        account.uncharge_nowait(100);
        Outcome::Done
    })),
];

pub struct World {
    pub memory: Memory,
    pub tenant: Group,
    pub query: Group,
}

pub fn world() -> World {
    let builder = Memory::builder().statistics(STATISTICS).max(64 * MIB);
    let builder = builder.pages(PageOptions {
        bytes_per_node: Some(16 * MIB),
        ..PageOptions::default()
    });
    let memory = builder.build().expect("nothing fails");
    let tenant = memory.root().child("tenant", Limits::max(TENANT_MAX));
    let tenant = tenant.expect("nothing fails");
    let query = tenant
        .child("query", Limits::none())
        .expect("nothing fails");
    World {
        memory,
        tenant,
        query,
    }
}

impl World {
    /// Checks that nothing is charged any more, and that all can be used.
    pub fn settle(self) {
        let Self {
            memory,
            tenant,
            query,
        } = self;
        tenant.set_limits(Limits::max(TENANT_MAX));
        if !query.is_removed() {
            drop(query.try_charge(TENANT_MAX).expect("all is returned"));
            assert!(query.try_charge(TENANT_MAX + 1).is_err());
        }
        drop((query, tenant));
        memory.tick();
        let root = memory.root();
        assert_eq!(root.read(Freshness::Exact).unwrap().usage().value, 0);
        root.set_max(0);
        assert_eq!(memory.reserved(), 0, "neither bytes nor stock");
        root.set_max(64 * MIB);
        memory.tick();
        assert_eq!(memory.removed_groups(), 0, "all records are free");
        let again = root
            .child("tenant", Limits::max(TENANT_MAX))
            .expect("the name is free");
        drop(again.try_charge(TENANT_MAX).unwrap());
    }
}

/// Runs a call in a world, then without a fault, and looks at the books.
pub fn with_world(fault: &mut Fault, call: impl Fn(&mut Fault, &World) -> Outcome) -> Outcome {
    let world = world();
    let outcome = call(fault, &world);
    world.settle();
    outcome
}

/// The same, with some bytes charged.
fn with_bytes(fault: &mut Fault, call: impl Fn(&mut Fault, &World) -> Outcome) -> Outcome {
    with_world(fault, |fault, world| {
        let _charge = world.query.try_charge(3_000).expect("nothing fails");
        call(fault, world)
    })
}

fn with_charge(fault: &mut Fault, call: impl Fn(&mut Fault, &World, Charge) -> Outcome) -> Outcome {
    with_world(fault, |fault, world| {
        let charge = world.query.try_charge(3_000_000).expect("nothing fails");
        call(fault, world, charge)
    })
}

/// The same, with zones that exist.
fn with_pages(fault: &mut Fault, call: impl Fn(&mut Fault, &World) -> Outcome) -> Outcome {
    with_world(fault, |fault, world| {
        drop(
            world
                .query
                .alloc_pages(Order::ZERO, Zeroed::No)
                .expect("nothing fails"),
        );
        call(fault, world)
    })
}

pub fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn build(fault: &mut Fault) -> Outcome {
    let builder = Memory::builder().statistics(STATISTICS);
    let built = fault.during(|| builder.build());
    world().settle();
    outcome(&built)
}

fn build_with_ticker(fault: &mut Fault) -> Outcome {
    let builder = Memory::builder().ticker(true);
    let built = fault.during(|| builder.build());
    world().settle();
    outcome(&built)
}

fn build_from_cgroup(fault: &mut Fault) -> Outcome {
    let builder = Memory::builder().max_from_cgroup(0);
    let built = fault.during(|| builder.build());
    world().settle();
    outcome(&built)
}

fn start_ticker(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let ticker = fault.during(|| world.memory.start_ticker());
        outcome(&ticker)
    })
}

fn reread_cgroup(fault: &mut Fault) -> Outcome {
    let world = world();
    let read = fault.during(|| world.memory.reread_cgroup());
    world.settle();
    outcome(&read)
}

fn drift(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        outcome(&fault.during(|| world.memory.drift()))
    })
}

fn refusals(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let _all = world.query.try_charge(TENANT_MAX).unwrap();
        assert!(world.query.try_charge(1).is_err());
        assert_eq!(fault.during(|| world.memory.refusals()).len(), 1);
        Outcome::Done
    })
}

fn leftovers(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let _left = world.query.try_charge(1000).unwrap();
        world.query.remove().unwrap();
        let leftovers = fault.during(|| world.memory.leftovers());
        assert_eq!(leftovers.len(), 1);
        Outcome::Done
    })
}

fn reset_after_fork(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let fresh = fault.during(|| world.memory.reset_after_fork());
        if let Ok((fresh, groups)) = &fresh {
            assert_eq!((fresh.reserved(), groups.len()), (0, 2));
        }
        outcome(&fresh)
    })
}

fn housekeeping(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let options = || Options::every(Duration::from_secs(1));
        let upkeeper: Result<Upkeeper<_, _, _>, _> =
            fault.during(|| world.memory.housekeeping(options()));
        outcome(&upkeeper)
    })
}

fn child(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let made = fault.during(|| world.tenant.child("made", Limits::max(MIB)));
        match &made {
            Ok(made) => drop(made.try_charge(MIB).unwrap()),
            Err(error) => {
                assert_eq!(*error, bursar::CreateError::OutOfMemory);
                assert!(world.tenant.find("made").is_none());
                let again = world.tenant.child("made", Limits::max(MIB)).unwrap();
                drop(again.try_charge(MIB).unwrap());
            }
        }
        outcome(&made)
    })
}

/// Children until all tables have grown: names, ordinals, marks, records.
fn children_of_many(fault: &mut Fault) -> Outcome {
    let names: Vec<String> = (0..70).map(|number| format!("g{number:03}")).collect();
    with_world(fault, |fault, world| {
        let mut made: Vec<Group> = Vec::with_capacity(names.len());
        let result = fault.during(|| {
            names.iter().try_for_each(|name| {
                made.push(world.tenant.child(name, Limits::none())?);
                Ok::<_, bursar::CreateError>(())
            })
        });
        for name in &names[made.len()..] {
            made.push(world.tenant.child(name, Limits::none()).unwrap());
        }
        let mut found = world.tenant.children();
        found.retain(|group| *group != world.query);
        assert!(found == made, "in the order of their names");
        let held: Vec<_> = made
            .iter()
            .map(|group| group.try_charge(10).unwrap())
            .collect();
        let reading = world.tenant.read(Freshness::Exact).unwrap();
        assert_eq!(reading.usage_bytes(), 700);
        drop(held);
        outcome(&result)
    })
}

fn child_in_used_record(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        drop(world.tenant.child("before", Limits::none()).unwrap());
        let made = fault.during(|| world.tenant.child("made", Limits::max(MIB)));
        if made.is_err() {
            let again = world.tenant.child("made", Limits::max(MIB)).unwrap();
            drop(again.try_charge(MIB).unwrap());
        }
        outcome(&made)
    })
}

/// Each part of the path in the error takes more room than all before it.
fn child_that_exists(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let query = world.tenant.child("query-of-many", Limits::none()).unwrap();
        let make = || query.child("operator-of-this-one-query", Limits::none());
        let _first = make().unwrap();
        let made = fault.during(make);
        assert!(made.is_err());
        Outcome::Error
    })
}

fn remove(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let removed = fault.during(|| world.query.remove());
        assert!(removed.is_ok() && world.query.is_removed());
        Outcome::Done
    })
}

fn close(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let tenant = world.memory.root().child("closed", Limits::none()).unwrap();
        let query = tenant.child("query", Limits::none()).unwrap();
        let charge = query.try_charge(1000).unwrap();
        assert!(fault.during(|| tenant.close()).is_ok());
        assert!(query.is_removed() && query.try_charge(1).is_err());
        drop(charge);
        Outcome::Done
    })
}

fn try_charge(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let charge = fault.during(|| world.query.try_charge(TENANT_MAX));
        outcome(&charge)
    })
}

fn refused_charge(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let _most = world.query.try_charge(TENANT_MAX - 10).unwrap();
        let charge = fault.during(|| world.query.try_charge(1000));
        assert!(charge.is_err());
        Outcome::Error
    })
}

fn charge_that_never_fits(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let charge = fault.during(|| world.query.try_charge(TENANT_MAX + 1));
        assert!(charge.is_err());
        Outcome::Error
    })
}

fn charge_of_removed(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        world.query.remove().unwrap();
        let charge = fault.during(|| world.query.try_charge(1));
        assert!(charge.is_err());
        Outcome::Error
    })
}

fn charge_that_reclaims(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let cache = world.tenant.child("cache", Limits::none()).unwrap();
        let held = std::sync::Mutex::new(Some(cache.try_charge(TENANT_MAX).unwrap()));
        let _reclaimer = cache.add_reclaimer(0, move |_| {
            let held = held.lock().unwrap().take();
            held.map_or(0, |charge| charge.bytes())
        });
        let charge = fault.during(|| world.query.try_charge(MIB));
        outcome(&charge)
    })
}

/// A listener that the charge could not be told of is told of it by the next tick.
fn charge_that_tells(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let told = Arc::new(AtomicU64::new(0));
        let tells = told.clone();
        let _told = world.tenant.on_pressure(move |pressure| {
            tells.store(pressure.level as u64, Relaxed);
        });
        let charge = fault.during(|| world.query.try_charge(TENANT_MAX));
        world.memory.tick();
        assert_eq!(told.load(Relaxed), world.tenant.pressure().level as u64);
        assert_eq!(told.load(Relaxed), Level::Critical as u64);
        let charge = charge.unwrap();
        fault.during(|| drop(charge));
        world.memory.tick();
        assert_eq!(told.load(Relaxed), Level::None as u64);
        Outcome::Done
    })
}

fn charge_async(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let charge = fault.during(|| poll(&mut world.query.charge_async(TENANT_MAX)));
        match charge {
            Poll::Ready(result) => outcome(&result),
            Poll::Pending => panic!("there is room"),
        }
    })
}

fn charge_async_that_waits(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let all = world.query.try_charge(TENANT_MAX).unwrap();
        let mut waits = world.query.charge_async(MIB);
        let polled = fault.during(|| poll(&mut waits));
        drop(all);
        match polled {
            Poll::Ready(result) => outcome(&result),
            Poll::Pending => {
                assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
                Outcome::Done
            }
        }
    })
}

fn give_up(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let _all = world.query.try_charge(TENANT_MAX).unwrap();
        let mut waits = world.query.charge_async(MIB);
        assert!(poll(&mut waits).is_pending());
        fault.during(|| waits.give_up());
        Outcome::Done
    })
}

fn emergency_reserve(fault: &mut Fault) -> Outcome {
    with_world(fault, |fault, world| {
        let reserve = fault.during(|| world.query.emergency_reserve(MIB));
        if let Ok(reserve) = &reserve {
            let taken = fault.during(|| reserve.take(1000));
            assert!(taken.is_ok());
        }
        outcome(&reserve)
    })
}

fn page_drop(fault: &mut Fault) -> Outcome {
    with_pages(fault, |fault, world| {
        let page = world.query.alloc_pages(Order::new(3), Zeroed::No).unwrap();
        fault.during(|| drop(page));
        Outcome::Done
    })
}
