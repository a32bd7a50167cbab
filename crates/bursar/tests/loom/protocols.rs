//! The protocols under loom: every interleaving of a few threads, up to a bound on preemptions, of the production code.
//!
//! Each model runs with shards that are changed by sections and with shards that are changed by atomic operations.
//! `machine/mod.rs` says what that machine models. `LOOM_MAX_PREEMPTIONS` overrides the bounds.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::{Kind, LoomMachine, run_on, spawn_on};
use bursar::{
    ChargeError, Counter, FlushPolicy, Freshness, Limits, Memory, Reading, RemoveError, Statistic,
};
use loom::sync::atomic::{AtomicBool, Ordering};

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
const BATCHED: &[Statistic] = &[Statistic::counter("bytes").batch(2)];
const BYTES: Counter = Counter::from_name(BATCHED, "bytes");

type Group = bursar::Group<LoomMachine>;

/// A tree of two levels at most; groups are dropped, and so removed, from the bottom up.
struct Books {
    groups: Vec<Group>,
    root: Group,
    memory: Memory<LoomMachine>,
}

impl Books {
    /// The root with a child for each of `limits`.
    fn new(machine: LoomMachine, statistics: &'static [Statistic], limits: &[Limits]) -> Arc<Self> {
        Self::build(Memory::builder(), machine, statistics, limits)
    }

    fn build(
        builder: bursar::Builder,
        machine: LoomMachine,
        statistics: &'static [Statistic],
        limits: &[Limits],
    ) -> Arc<Self> {
        let memory = builder.statistics(statistics).build_on(machine).unwrap();
        let root = memory.root();
        let child =
            |(name, &limits): (usize, &Limits)| root.child(name.to_string(), limits).unwrap();
        Arc::new(Self {
            groups: limits.iter().enumerate().map(child).collect(),
            root,
            memory,
        })
    }

    /// The same with two CPUs.
    fn of_two(kind: Kind, statistics: &'static [Statistic], limits: &[Limits]) -> Arc<Self> {
        Self::new(LoomMachine::new(kind, 2, &[0, 1]), statistics, limits)
    }

    /// Two CPUs and groups that count rows.
    fn of_rows(kind: Kind, groups: usize) -> Arc<Self> {
        Self::of_two(kind, STATISTICS, &vec![Limits::none(); groups])
    }

    /// Two CPUs and one group with a limit, whose CPU 0 holds stock.
    fn of_bytes(kind: Kind, max: u64) -> Arc<Self> {
        let books = Self::of_two(kind, &[], &[Limits::max(max)]);
        drop(books.groups[0].try_charge(16).unwrap());
        assert!(books.memory.machine().stock(1) > 0);
        books
    }

    /// Starts a thread on a CPU that works with this.
    fn on<T: 'static>(
        self: &Arc<Self>,
        cpu: u32,
        work: impl FnOnce(&Arc<Self>) -> T + 'static,
    ) -> loom::thread::JoinHandle<T> {
        let books = self.clone();
        spawn_on(cpu, move || work(&books))
    }

    /// Takes the stock of the first group back.
    fn drain(&self) {
        self.groups[0].set_max(0);
        self.groups[0].set_max(1000);
    }

    /// Checks that all bytes reserved for the first group are `held` or stock, and that no stock is out of reach.
    fn check_bytes(&self, held: u64) {
        let group = &self.groups[0];
        let stock = self.memory.machine().stock(1);
        assert_eq!(group.reserved(), held + stock, "bytes were lost or made");
        assert_eq!(self.root.reserved(), group.reserved());
        assert_eq!(
            (usage(group), usage(&self.root)),
            (held as i64, held as i64)
        );
        group.set_max(0);
        assert_eq!(group.reserved(), held, "a drain leaves stock");
        assert_eq!(self.root.reserved(), held, "a drain leaves stock above");
    }
}

fn exact(group: &Group) -> Reading {
    group.read(Freshness::Exact).unwrap()
}

fn usage(group: &Group) -> i64 {
    exact(group).usage().value
}

fn rows(group: &Group) -> i64 {
    exact(group).get(ROWS).value
}

/// The own part and the whole of the rows.
fn own_rows(group: &Group) -> (i64, i64) {
    let reading = exact(group);
    (reading.get(ROWS).value, reading.own(ROWS))
}

// Publication against walk: the update is in the read that runs at the same time, or in the next.
model!(a_first_update_against_a_walk, 3, |kind| {
    let books = Books::of_rows(kind, 1);
    let adder = books.on(0, move |books| books.groups[0].add(ROWS, 1));
    run_on(1);
    assert!((0..=1).contains(&rows(&books.root)));
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 1);
});

// The same in a slot that is published, which the walk leaves so.
model!(an_update_against_a_walk, 4, |kind| {
    let books = Books::of_rows(kind, 1);
    books.groups[0].add(ROWS, 1);
    let adder = books.on(0, move |books| books.groups[0].add(ROWS, 1));
    run_on(1);
    assert!((1..=2).contains(&rows(&books.root)));
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 2);
});

// The same by a thread that has no CPU's shard, which adds to the extra one.
model!(an_update_without_a_cpu_against_a_walk, 3, |kind| {
    let books = Books::of_rows(kind, 1);
    let adder = books.on(2, move |books| {
        books.groups[0].add(ROWS, 1);
        assert_eq!(rows(&books.root), 1);
    });
    assert!((0..=1).contains(&rows(&books.root)));
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 1);
});

// Two threads of one CPU publish its shard, and each finds the other half-way. The update of the first to return is read.
model!(two_publish_one_shard, 2, |kind| publish_twice(
    &Books::of_rows(kind, 1),
    0
));

// The same with more shards than one word has bits, so that marks have a summary.
model!(two_publish_one_of_many_shards, 2, |kind| {
    let machine = LoomMachine::new(kind, 65, &[64]);
    publish_twice(&Books::new(machine, STATISTICS, &[Limits::none()]), 64);
});

fn publish_twice(books: &Arc<Books>, cpu: u32) {
    let adder = books.on(cpu, move |books| books.groups[0].add(ROWS, 1));
    run_on(cpu);
    books.groups[0].add(ROWS, 1);
    assert!((1..=2).contains(&rows(&books.root)));
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 2);
}

// A publication that a retirement passed and another began anew must not be ended by the first.
model!(publish_retire_publish, 2, |kind| {
    let machine = LoomMachine::new(kind, 2, &[0, 1]);
    let builder = Memory::builder().policy(FlushPolicy::CombiningFence);
    let books = Books::build(builder, machine, STATISTICS, &[Limits::none()]);
    let retirer = books.on(0, move |books| {
        books.groups[0].add(ROWS, 10);
        // Retires.
        assert_eq!(rows(&books.root) / 10, 1);
        books.groups[0].add(ROWS, 10);
    });
    books.groups[0].add(ROWS, 1);
    books.groups[0].add(ROWS, 1);
    assert_eq!(rows(&books.root) % 10, 2);
    retirer.join().unwrap();
    assert_eq!(rows(&books.root), 22);
});

// Two adders on different CPUs in different groups, and a walk over both.
model!(siblings_against_a_walk, 2, |kind| {
    let books = Books::of_rows(kind, 2);
    let adders =
        [0, 1].map(|cpu| books.on(cpu, move |books| books.groups[cpu as usize].add(ROWS, 1)));
    assert!((0..=2).contains(&rows(&books.root)));
    for adder in adders {
        adder.join().unwrap();
    }
    assert_eq!(rows(&books.root), 2);
});

// A group without children is read while a walk from the root comes by.
model!(a_leaf_is_read_while_the_root_is_walked, 3, |kind| {
    let books = Books::of_rows(kind, 1);
    let reader = books.on(0, move |books| {
        books.groups[0].add(ROWS, 1);
        assert_eq!(rows(&books.groups[0]), 1);
    });
    run_on(1);
    assert!((0..=1).contains(&rows(&books.root)));
    reader.join().unwrap();
    assert_eq!(rows(&books.root), 1);
    assert_eq!(rows(&books.groups[0]), 1);
});

// An update that meets a frozen shard.
model!(an_update_against_a_drain, 3, |kind| {
    let books = Books::of_two(kind, STATISTICS, &[Limits::max(1000)]);
    drop(books.groups[0].try_charge(16).unwrap());
    let adder = books.on(0, move |books| {
        books.groups[0].add(ROWS, 1);
        assert_eq!(rows(&books.root), 1);
    });
    run_on(1);
    books.groups[0].set_max(10);
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 1);
    books.check_bytes(0);
});

// A cached number with its range, while a walk runs: the truth lies in it.
model!(a_range_holds_the_truth, 2, |kind| {
    let books = Books::of_two(kind, BATCHED, &[Limits::none()]);
    let adder = books.on(0, move |books| {
        books.groups[0].add(BYTES, 3);
        check_range(books, 3);
    });
    run_on(1);
    exact(&books.root);
    adder.join().unwrap();
});

// The same for the usage, which is bounded by what is reserved.
model!(a_range_of_bytes_holds_the_truth, 2, |kind| {
    let books = Books::of_two(kind, &[], &[Limits::max(1000)]);
    let charger = books.on(0, move |books| {
        let charge = books.groups[0].try_charge(16).unwrap();
        for group in [&books.groups[0], &books.root] {
            let usage = group.read(Freshness::Cached).unwrap().usage();
            assert!(usage.lo <= 16 && 16 <= usage.hi, "{usage:?} of {group:?}");
        }
        charge
    });
    run_on(1);
    exact(&books.root);
    drop(charger.join().unwrap());
    books.check_bytes(0);
});

// Bytes reserved ahead are no usage, also while they are on their way into the stock.
model!(a_range_of_bytes_while_a_cpu_refills, 2, |kind| {
    let charge = |books: &Arc<Books>| books.groups[0].try_charge(16).ok();
    range_of_no_bytes(kind, 16, Books::drain, charge);
});

// The same while a drain takes them out of it.
model!(a_range_of_bytes_while_stock_is_taken_back, 2, |kind| {
    let drain = |books: &Arc<Books>| {
        books.groups[0].set_max(0);
        None
    };
    range_of_no_bytes(kind, 0, |_| (), drain);
});

// Nor are bytes reserved for a charge that a group higher up refuses.
model!(a_range_of_bytes_while_a_charge_is_refused, 2, |kind| {
    let prepare = |books: &Books| {
        books.drain();
        books.root.set_max(100);
    };
    let charge = |books: &Arc<Books>| {
        assert!(books.groups[0].try_charge(200).is_err());
        None
    };
    range_of_no_bytes(kind, 0, prepare, charge);
});

/// A cached usage of 100 bytes, all of them returned since, and its range while `work` charges at most `charged`.
fn range_of_no_bytes(
    kind: Kind,
    charged: i64,
    prepare: fn(&Books),
    work: fn(&Arc<Books>) -> Option<bursar::Charge<LoomMachine>>,
) {
    let books = Books::of_two(kind, &[], &[Limits::max(1000)]);
    let charge = books.groups[0].try_charge(100).unwrap();
    exact(&books.root);
    drop(charge);
    prepare(&books);
    let worker = books.on(0, work);
    run_on(1);
    let mut lo = 0;
    for group in [&books.groups[0], &books.root] {
        let usage = group.read(Freshness::Cached).unwrap().usage();
        assert!(
            usage.lo <= charged && 0 <= usage.hi,
            "{usage:?} of {group:?}"
        );
        lo = usage.lo;
    }
    // Nothing is returned from here on.
    assert!(charged == 0 || lo <= usage(&books.root), "{lo}");
    let charge = worker.join().unwrap();
    books.check_bytes(charge.as_ref().map_or(0, bursar::Charge::bytes));
}

// When a limit was lowered, not even stock charges above it.
model!(stock_against_a_lowered_limit, 2, |kind| lower_the_limit(
    kind, 32
));

// The same with a charge that reserves.
model!(a_refill_against_a_lowered_limit, 2, |kind| lower_the_limit(
    kind, 500
));

fn lower_the_limit(kind: Kind, bytes: u64) {
    const LOWERED: u64 = 10;
    let books = Books::of_bytes(kind, 1000);
    let is_lowered = Arc::new(AtomicBool::new(false));
    let charger = spawn_on(0, {
        let (books, is_lowered) = (books.clone(), is_lowered.clone());
        move || {
            let is_lowered = is_lowered.load(Ordering::Acquire);
            let charge = books.groups[0].try_charge(bytes);
            assert!(
                charge.is_err() || !is_lowered,
                "a charge above a limit in force"
            );
            charge.ok()
        }
    });
    run_on(1);
    let group = &books.groups[0];
    group.set_max(LOWERED);
    is_lowered.store(true, Ordering::Release);
    assert!(group.try_charge(bytes).is_err());
    let charge = charger.join().unwrap();
    let held = charge.as_ref().map_or(0, bursar::Charge::bytes);
    assert!(
        group.reserved() <= LOWERED.max(held),
        "stock above the limit"
    );
    books.check_bytes(held);
}

// A charge that fits only with another CPU's stock is not refused, and that CPU's fast path loses nothing.
model!(stock_of_another_cpu_is_found, 3, |kind| charge_all(kind, 1));

// The same for a thread that has no CPU's shard.
model!(stock_is_found_without_a_cpu, 3, |kind| charge_all(kind, 2));

fn charge_all(kind: Kind, cpu: u32) {
    let books = Books::of_bytes(kind, 1000);
    let charger = books.on(0, move |books| {
        books.groups[0]
            .try_charge(40)
            .expect("there were 1000 - 960")
    });
    run_on(cpu);
    let large = books.groups[0]
        .try_charge(960)
        .expect("there were 1000 - 40");
    let small = charger.join().unwrap();
    books.check_bytes(large.bytes() + small.bytes());
}

// The same while the other CPU takes bytes back into its stock.
model!(returned_bytes_are_found, 2, |kind| {
    let books = Books::of_bytes(kind, 1000);
    let small = books.groups[0].try_charge(40).unwrap();
    let returner = spawn_on(0, move || drop(small));
    run_on(1);
    let large = books.groups[0]
        .try_charge(960)
        .expect("there were 1000 - 40");
    returner.join().unwrap();
    books.check_bytes(large.bytes());
});

// Bytes that move are counted once when they have moved, and before that by what of the two groups a walk saw.
model!(a_move_against_a_walk, 2, |kind| {
    let books = Books::of_two(kind, &[], &[Limits::max(1000); 2]);
    let mut charge = books.groups[1].try_charge(16).unwrap();
    let mover = books.on(0, move |books| {
        charge.move_to(&books.groups[0]).unwrap();
        charge
    });
    run_on(1);
    let usage = exact(&books.root).usage();
    assert!([0, 16, 32].contains(&usage.value), "{usage:?}");
    let charge = mover.join().unwrap();
    books.groups[1].set_max(0);
    assert_eq!(books.groups[1].reserved(), 0);
    books.check_bytes(charge.bytes());
});

// Two that reserve at once up to the last byte: neither's batch refuses the other.
model!(two_refills_at_the_limit, 2, |kind| {
    let books = Books::of_two(kind, &[], &[Limits::max(1000)]);
    let charger = books.on(0, move |books| {
        books.groups[0].try_charge(500).expect("there were 500")
    });
    run_on(1);
    let one = books.groups[0].try_charge(500).expect("there were 500");
    let other = charger.join().unwrap();
    books.check_bytes(one.bytes() + other.bytes());
});

// A reservation that the root is about to refuse is not in the way of one that fits everywhere.
model!(a_refusal_higher_up_refuses_nobody_else, 2, |kind| {
    let books = Books::of_two(kind, &[], &[Limits::max(1000)]);
    books.root.set_max(900);
    let refused = books.on(0, move |books| {
        assert!(books.groups[0].try_charge(950).is_err())
    });
    run_on(1);
    let charge = books.groups[0]
        .try_charge(100)
        .expect("nobody holds a byte");
    refused.join().unwrap();
    books.check_bytes(charge.bytes());
});

// When a charge overstepped a limit, not even stock charges until the usage is back within it.
model!(stock_against_an_overshoot, 2, |kind| {
    let books = Books::of_bytes(kind, 1000);
    let is_over = Arc::new(AtomicBool::new(false));
    let charger = spawn_on(0, {
        let (books, is_over) = (books.clone(), is_over.clone());
        move || {
            // This may leave new stock, which is not to be charged from when the limit is over.
            let first = books.groups[0].try_charge(16);
            let is_over = is_over.load(Ordering::Acquire);
            let second = books.groups[0].try_charge(16);
            assert!(
                second.is_err() || !is_over,
                "a charge while the limit is over"
            );
            [first, second].map(Result::ok)
        }
    });
    run_on(1);
    let large = books.groups[0].charge(2000);
    is_over.store(true, Ordering::Release);
    let small = charger.join().unwrap();
    assert!(books.groups[0].is_over_max() && books.groups[0].events().overshot == 1);
    let held: u64 = small.iter().flatten().map(bursar::Charge::bytes).sum();
    books.check_bytes(large.bytes() + held);
});

// Readers of the root and of a group below it walk over the same groups: neither misses an update, nor counts it twice.
model!(readers_of_overlapping_scopes, 3, |kind| {
    let books = Books::of_rows(kind, 1);
    let leaf = books.groups[0].child("leaf", Limits::none()).unwrap();
    leaf.add(ROWS, 1);
    let reader = books.on(0, move |books| assert_eq!(rows(&books.groups[0]), 1));
    assert_eq!(rows(&books.root), 1);
    reader.join().unwrap();
    assert_eq!(rows(&books.root), 1);
});

// Readers that come during another's walk sleep, and one of them walks for the others. Each finds its own update.
model!(readers_of_one_scope, 2, |kind| {
    let books = Books::of_rows(kind, 1);
    for cpu in [0, 1] {
        run_on(cpu);
        books.groups[0].add(ROWS, 1);
    }
    let readers = [0, 1].map(|cpu| {
        books.on(cpu, move |books| {
            books.groups[0].add(ROWS, 1);
            assert!((3..=4).contains(&rows(&books.root)));
        })
    });
    assert!((2..=4).contains(&rows(&books.root)));
    for reader in readers {
        reader.join().unwrap();
    }
});

// An idle slot is retired and its group leaves the root's marks, while it is updated and read in the group and at the root.
model!(an_update_against_retirement, 2, |kind| {
    let books = Books::of_rows(kind, 1);
    make_idle(&books, ROWS, 0);
    let adder = books.on(0, move |books| {
        books.groups[0].add(ROWS, 1);
        assert_eq!(rows(&books.groups[0]), 2);
        assert_eq!(rows(&books.root), 2);
    });
    run_on(1);
    books.memory.tick();
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 2);
});

// A group leaves the root's marks while its first update comes on another CPU.
model!(a_first_update_while_its_group_leaves_the_marks, 2, |kind| {
    retire_beside_update(&Books::of_rows(kind, 1), 0, (0, 1))
});

// The same while the first update comes in a sibling.
model!(
    a_first_update_of_a_sibling_while_a_group_leaves_the_marks,
    2,
    |kind| { retire_beside_update(&Books::of_rows(kind, 2), 0, (1, 0)) }
);

// The last mark below a summary is removed while another is set there.
model!(a_first_update_while_a_summary_is_removed, 2, |kind| {
    let machine = LoomMachine::new(kind, 66, &[64, 65]);
    let books = Books::new(machine, STATISTICS, &[Limits::none()]);
    retire_beside_update(&books, 64, (0, 65));
});

/// Retires the slot that the first group has on CPU `idle`, while a group is updated on a CPU.
fn retire_beside_update(books: &Arc<Books>, idle: u32, (group, cpu): (usize, u32)) {
    make_idle(books, ROWS, idle);
    let adder = books.on(cpu, move |books| books.groups[group].add(ROWS, 1));
    run_on(idle);
    books.memory.tick();
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 2);
}

/// Adds 1 to a statistic of the first group on a CPU. The next pass retires its slot.
fn make_idle(books: &Books, statistic: Counter, cpu: u32) {
    run_on(cpu);
    books.groups[0].add(statistic, 1);
    books.memory.tick();
}

// Without sections, an update is in its word before its marks are set. A reader that has found it there finds it above.
model!(an_update_found_below_is_found_above, 3, |kind| {
    let books = Books::of_rows(kind, 1);
    let adder = books.on(2, move |books| books.groups[0].add(ROWS, 1));
    check_above(&books);
    adder.join().unwrap();
    assert_eq!(rows(&books.root), 1);
});

// The same while the slot is retired and the group leaves the root's marks.
model!(
    an_update_found_below_is_found_above_beside_retirement,
    2,
    |kind| {
        let books = Books::of_rows(kind, 1);
        make_idle(&books, ROWS, 0);
        let adder = books.on(0, move |books| books.groups[0].add(ROWS, 1));
        let retirer = books.on(1, move |books| books.memory.tick());
        check_above(&books);
        adder.join().unwrap();
        retirer.join().unwrap();
        assert_eq!(rows(&books.root), 2);
    }
);

/// A group in the middle with one group below, whose slot of CPU 0 is in use and on the middle's roster.
struct Listed {
    leaf: Option<Group>,
    middle: Group,
    books: Arc<Books>,
}

impl Listed {
    fn new(kind: Kind) -> Self {
        let books = Books::of_rows(kind, 1);
        let middle = books.groups[0].clone();
        let leaf = middle.child("leaf", Limits::none()).unwrap();
        run_on(0);
        leaf.add(ROWS, 1);
        assert_eq!((rows(&middle), rows(&middle)), (1, 1));
        Self {
            leaf: Some(leaf),
            middle,
            books,
        }
    }

    fn leaf(&self) -> Group {
        self.leaf.clone().unwrap()
    }
}

// One update of a slot on the roster, and one of another.
model!(updates_against_a_read_by_roster, 3, |kind| {
    let listed = Listed::new(kind);
    let add = |cpu| {
        let leaf = listed.leaf();
        spawn_on(cpu, move || leaf.add(ROWS, 1))
    };
    let (same, other) = (add(0), add(1));
    run_on(1);
    assert!((1..=3).contains(&rows(&listed.middle)));
    same.join().unwrap();
    assert!((2..=3).contains(&rows(&listed.middle)));
    other.join().unwrap();
    assert_eq!(rows(&listed.middle), 3);
});

// A reader by roster has found an update in a slot that is retired. It finds it above too.
model!(
    an_update_found_by_roster_is_found_above_beside_retirement,
    2,
    |kind| {
        let listed = Listed::new(kind);
        // The next pass finds the slot idle.
        listed.books.memory.tick();
        let adder = spawn_on(0, {
            let leaf = listed.leaf();
            move || leaf.add(ROWS, 1)
        });
        let retirer = spawn_on(1, {
            let books = listed.books.clone();
            move || books.memory.tick()
        });
        let below = rows(&listed.middle);
        let above = rows(&listed.books.root);
        assert!(above >= below, "{below} below, and {above} above");
        adder.join().unwrap();
        retirer.join().unwrap();
        assert_eq!((rows(&listed.middle), rows(&listed.books.root)), (2, 2));
    }
);

// The group below leaves the marks of the middle, and is marked again. A reader of the root finds the update that marked it.
model!(
    a_walk_finds_a_group_that_leaves_and_is_used_again,
    3,
    |kind| {
        let listed = Listed::new(kind);
        // The next pass finds the slot idle.
        listed.books.memory.tick();
        let retirer = spawn_on(1, {
            let books = listed.books.clone();
            move || books.memory.tick()
        });
        run_on(0);
        listed.leaf().add(ROWS, 1);
        assert_eq!(rows(&listed.books.root), 2);
        retirer.join().unwrap();
    }
);

// The group below ends, and its record is used again elsewhere.
model!(removal_against_a_read_by_roster, 3, |kind| {
    let mut listed = Listed::new(kind);
    let middle = listed.middle.clone();
    let reader = spawn_on(1, move || assert_eq!(rows(&middle), 1));
    run_on(0);
    listed.leaf = None;
    let again = listed.books.root.child("again", Limits::none()).unwrap();
    again.add(ROWS, 1);
    reader.join().unwrap();
    assert_eq!(own_rows(&listed.middle), (1, 1));
    assert_eq!((rows(&again), rows(&listed.books.root)), (1, 2));
});

// A reader of the group in the middle hands up what it finds, while a reader of the root makes a roster.
model!(a_roster_is_made_while_numbers_move_up, 2, |kind| {
    let listed = Listed::new(kind);
    assert_eq!(rows(&listed.books.root), 1);
    listed.leaf().add(ROWS, 1);
    let walker = spawn_on(1, {
        let middle = listed.middle.clone();
        move || assert_eq!(middle.flush().unwrap().get(ROWS).value, 2)
    });
    run_on(0);
    assert_eq!((rows(&listed.books.root), rows(&listed.books.root)), (2, 2));
    walker.join().unwrap();
    assert_eq!(rows(&listed.books.root), 2);
});

/// Checks that the root has what its only group has.
fn check_above(books: &Books) {
    let below = rows(&books.groups[0]);
    let above = rows(&books.root);
    assert!(below <= above, "{below} rows were found, and {above} above");
}

// A range includes updates of a slot that the last walk left marked, also while this slot is retired.
model!(a_range_beside_retirement_holds_the_truth, 2, |kind| {
    let books = Books::of_two(kind, BATCHED, &[Limits::none()]);
    make_idle(&books, BYTES, 0);
    exact(&books.root);
    let adder = books.on(0, move |books| {
        books.groups[0].add(BYTES, 1);
        check_range(books, 2);
    });
    run_on(1);
    books.memory.tick();
    adder.join().unwrap();
    check_range(&books, 2);
});

/// Checks that the ranges of the first group and of the root hold the true number of bytes.
fn check_range(books: &Books, bytes: i64) {
    for group in [&books.groups[0], &books.root] {
        let value = group.read(Freshness::Cached).unwrap().get(BYTES);
        assert!(
            value.lo <= bytes && bytes <= value.hi,
            "{value:?} of {group:?}"
        );
    }
}

// An update of a group that is removed counts as its parent's own.
model!(an_update_against_removal, 4, |kind| {
    let books = Books::of_rows(kind, 1);
    let adder = books.on(0, move |books| books.groups[0].add(ROWS, 1));
    run_on(1);
    books.groups[0].remove().unwrap();
    adder.join().unwrap();
    assert_eq!(own_rows(&books.root), (1, 1));
});

// A removed group's numbers move to its parent in one step: a read finds them once, whenever it comes.
model!(a_read_against_removal, 3, |kind| {
    let mut books = Books::of_rows(kind, 1);
    books.groups[0].add(ROWS, 1);
    let root = books.root.clone();
    let reader = spawn_on(0, move || assert_eq!(rows(&root), 1));
    run_on(1);
    Arc::get_mut(&mut books)
        .expect("nobody else has them")
        .groups
        .clear();
    reader.join().unwrap();
    assert_eq!(own_rows(&books.root), (1, 1));
    assert_eq!(books.memory.removed_groups(), 0);
});

// The same for a reader of the group itself.
model!(a_read_of_a_leaf_against_removal, 3, |kind| {
    let books = Books::of_rows(kind, 1);
    let reader = books.on(0, move |books| {
        books.groups[0].add(ROWS, 1);
        assert_eq!(rows(&books.groups[0]), 1);
    });
    run_on(1);
    books.groups[0].remove().unwrap();
    reader.join().unwrap();
    assert_eq!(own_rows(&books.root), (1, 1));
});

// An idle slot is retired while its group ends, and its record may get a new life below a sibling.
model!(retirement_against_removal, 2, |kind| {
    let mut books = Books::of_rows(kind, 2);
    make_idle(&books, ROWS, 0);
    let memory = books.memory.clone();
    let retirer = spawn_on(1, move || memory.tick());
    let groups = &mut Arc::get_mut(&mut books).expect("not shared").groups;
    drop(groups.remove(0));
    let sibling = &books.groups[0];
    let reborn = sibling.child("reborn", Limits::none()).unwrap();
    reborn.add(ROWS, 1);
    assert_eq!(rows(&reborn), 1);
    retirer.join().unwrap();
    assert_eq!([sibling, &books.root].map(rows), [1, 2]);
});

// Bytes returned to a group that is removed are gone from its ancestors.
model!(an_uncharge_against_removal, 3, |kind| {
    let books = Books::of_bytes(kind, 1000);
    let charge = books.groups[0].try_charge(16).unwrap();
    let returner = spawn_on(0, move || drop(charge));
    run_on(1);
    books.groups[0].remove().unwrap();
    returner.join().unwrap();
    check_removed(&books);
});

// A charge that comes when its group is removed is refused or held, and in the latter case returned by its drop.
model!(a_charge_against_removal, 2, |kind| charge_and_remove(
    kind, 16
));

// The same with a charge that reserves.
model!(a_refill_against_removal, 2, |kind| charge_and_remove(
    kind, 500
));

fn charge_and_remove(kind: Kind, bytes: u64) {
    let books = Books::of_bytes(kind, 1000);
    let charger = books.on(0, move |books| match books.groups[0].try_charge(bytes) {
        Ok(charge) => Some(charge),
        Err(ChargeError::Removed { .. }) => None,
        Err(error) => panic!("{error}"),
    });
    run_on(1);
    books.groups[0].remove().unwrap();
    assert!(books.groups[0].try_charge(bytes).is_err());
    let charge = charger.join().unwrap();
    let held = charge.as_ref().map_or(0, bursar::Charge::bytes);
    assert_eq!(books.root.reserved(), held);
    drop(charge);
    check_removed(&books);
}

/// Checks that nothing is left of the first group, which was removed, at the root.
fn check_removed(books: &Books) {
    let reading = exact(&books.root);
    assert_eq!((reading.usage().value, reading.own_usage()), (0, 0));
    assert_eq!(books.root.reserved(), 0);
    assert_eq!(books.root.remove(), Err(RemoveError::Root));
}

// The last handle removes the group while its last bytes are returned; the record ends, once, and starts at zero.
model!(the_last_charge_against_the_last_handle, 2, |kind| {
    let mut books = Books::of_bytes(kind, 1000);
    let charge = books.groups[0].try_charge(16).unwrap();
    let returner = spawn_on(0, move || drop(charge));
    run_on(1);
    Arc::get_mut(&mut books)
        .expect("nobody else has them")
        .groups
        .clear();
    // In the same record, if that has ended.
    let reborn = books.root.child("reborn", Limits::max(100)).unwrap();
    returner.join().unwrap();
    books.memory.tick();
    assert_eq!(books.memory.removed_groups(), 0);
    assert_eq!(books.root.reserved(), 0);
    let charge = reborn.try_charge(100).expect("the whole limit is there");
    assert_eq!((usage(&reborn), usage(&books.root)), (100, 100));
    drop(charge);
});

// A charge that becomes empty takes its reference before it returns its bytes. So the group's record, which these bytes kept, does not end
// in between, whichever of the two another CPU sees first.
model!(an_empty_charge_against_the_last_handle, 2, |kind| {
    let mut books = Books::of_bytes(kind, 1000);
    let mut charge = books.groups[0].try_charge(16).unwrap();
    let holder = spawn_on(0, move || {
        charge.resize(0).unwrap();
        charge
    });
    run_on(1);
    Arc::get_mut(&mut books)
        .expect("nobody else has them")
        .groups
        .clear();
    let charge = holder.join().unwrap();
    // In the same record, if that has ended. Then the empty charge drops this group's reference.
    let reborn = books.root.child("reborn", Limits::max(100)).unwrap();
    drop(charge);
    books.memory.tick();
    assert_eq!(books.memory.removed_groups(), 0);
    let charge = reborn.try_charge(100).expect("it lives");
    assert_eq!((usage(&reborn), usage(&books.root)), (100, 100));
    drop(charge);
});

// Bytes that exceed a CPU's stock lower the usage before the slot's word. A reader who found them gone finds no higher lower bound.
model!(a_range_of_bytes_while_a_cpu_returns_a_surplus, 2, |kind| {
    let books = Books::of_bytes(kind, 1000);
    // Without a CPU, and so without stock: one CPU's cap is less than the bytes that come back.
    run_on(2);
    let charge = books.groups[0].try_charge(60).unwrap();
    // The second read leaves a roster: so reads that find the return leave older numbers to cached ones.
    assert_eq!((usage(&books.root), usage(&books.root)), (60, 60));
    let returner = spawn_on(0, move || drop(charge));
    for group in [&books.groups[0], &books.root] {
        let found = usage(group);
        let cached = group.read(Freshness::Cached).unwrap().usage();
        assert!(cached.lo <= found, "{cached:?} after {found}");
    }
    returner.join().unwrap();
    books.check_bytes(0);
});

// Large stock goes with the next upkeep, also that of a CPU that got it while upkeep took the reason which older stock had left.
model!(large_stock_against_upkeep, 2, |kind| {
    const MIB: u64 = 1 << 20;
    let builder = Memory::builder().flush_period(Duration::ZERO);
    let machine = LoomMachine::new(kind, 2, &[0, 1]);
    let books = Books::build(builder, machine, &[], &[Limits::max(1024 * MIB)]);
    let get_stock = |books: &Arc<Books>| drop(books.groups[0].try_charge(MIB).unwrap());
    get_stock(&books);
    assert!(books.memory.machine().stock(1) > 0);
    books.groups[0].set_max(0);
    books.groups[0].set_max(1024 * MIB);
    let charger = books.on(0, get_stock);
    run_on(1);
    books.memory.tick();
    charger.join().unwrap();
    books.memory.tick();
    assert_eq!(books.memory.machine().stock(1), 0);
    books.check_bytes(0);
});
