//! Groups that come and go.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Charge, ChargeError, CreateError, Group, Limits};

use crate::Stage;
use crate::common::{ROWS, Random, Short, crew, memory};

/// The number of a group's record, which is the last that its hash takes in.
fn record(group: &Group) -> u32 {
    #[derive(Default)]
    struct Last(u32);
    impl Hasher for Last {
        fn finish(&self) -> u64 {
            self.0.into()
        }
        fn write(&mut self, _: &[u8]) {}
        fn write_u32(&mut self, number: u32) {
            self.0 = number;
        }
    }
    let mut last = Last::default();
    group.hash(&mut last);
    last.0
}

/// A thread that makes groups and lets them go.
pub struct Births<'a> {
    pub parent: &'a Group,
    pub thread: u64,
    pub rows: &'a AtomicU64,
    /// Names that were taken though no handle was left.
    pub stuck_names: &'a AtomicU64,
    /// The highest number of a record.
    pub record: &'a AtomicU64,
    pub random: Random,
    /// Charges of groups that are gone.
    pub late: Vec<Charge>,
    /// Handles of groups that were removed.
    pub removed: Vec<Group>,
}

impl Births<'_> {
    const LATE_MAX: usize = 20;
    const REMOVED_MAX: usize = 4;

    fn add(&self, group: &Group) {
        group.add(ROWS, 1);
        self.rows.fetch_add(1, Ordering::SeqCst);
    }

    /// A child of the parent, by one of a few names.
    fn query(&mut self) -> Group {
        // Far more than it takes to meet each name.
        for _ in 0..10_000 {
            let name = format!("t{}-{}", self.thread, self.random.below(64));
            match self.parent.child(&name, Limits::none()) {
                Ok(query) => return query,
                // No thread but this has such names, and this one has no handle left.
                Err(CreateError::Exists { .. }) => {
                    self.stuck_names.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("all names stay taken")
    }

    pub fn step(&mut self) {
        let query = self.query();
        let operator = query.make_max("scan", 1 << 20);
        let record = record(&query).max(record(&operator));
        self.record.fetch_max(record.into(), Ordering::SeqCst);
        self.add(&query);
        self.add(&operator);
        for group in [&query, &operator] {
            if self.random.below(2) == 0 {
                let charged = group.try_charge(1 + self.random.below(40_000) as u64);
                self.late.push(charged.expect("a new group has room"));
            }
        }
        match self.random.below(5) {
            way @ 0..2 => {
                match way {
                    0 => {
                        operator.remove().unwrap();
                        query.remove().unwrap();
                    }
                    _ => query.close().unwrap(),
                }
                self.add(&operator);
                match operator.try_charge(1) {
                    Err(ChargeError::Removed { .. }) => {}
                    other => panic!("charged when removed: {other:?}"),
                }
                // This charges a removed group as well.
                self.late.push(operator.engine().charge_nowait(100));
                self.removed.extend([query, operator]);
            }
            2 => {
                operator.remove().unwrap();
                drop(operator);
                drop(query);
            }
            3 => drop((operator, query)),
            _ => drop((query, operator)),
        }
        while self.removed.len() > Self::REMOVED_MAX {
            let at = self.random.below(self.removed.len());
            self.add(&self.removed[at]);
            drop(self.removed.swap_remove(at));
        }
        while self.late.len() > Self::LATE_MAX {
            drop(self.late.swap_remove(self.random.below(self.late.len())));
        }
    }
}

/// Groups come and go with charges that are returned later, by names that are used again. Records are used again, too.
#[test]
fn groups_that_come_and_go() {
    const THREADS: u64 = 4;
    const STEPS: usize = 1_000;
    // Each charge or handle keeps a query's record and its operator's. As many records again may wait to be looked at.
    const RECORDS: u64 = 4 * THREADS * (Births::LATE_MAX + Births::REMOVED_MAX) as u64;
    let stage = Stage::begin();
    let memory = memory();
    let tenant = memory.make("tenant");
    let [rows, stuck_names, record] = [const { AtomicU64::new(0) }; 3];
    let mut most_removed = 0;
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let work = |thread| {
            let mut births = Births {
                parent: &tenant,
                thread,
                rows: &rows,
                stuck_names: &stuck_names,
                record: &record,
                random: stage.random(epochs << 8 | thread),
                late: Vec::new(),
                removed: Vec::new(),
            };
            (0..STEPS).for_each(|_| births.step());
        };
        crew(THREADS, work, || {
            let done = rows.load(Ordering::SeqCst) as i64;
            let read = tenant.rows();
            assert!(read >= done, "{done} rows were counted, {read} read");
            memory.tick();
            most_removed = most_removed.max(memory.removed_groups());
        });
        // A record needs one tick for its own end, and one more for its parent's.
        (0..4).for_each(|_| memory.tick());
        let left = memory.removed_groups();
        assert!(left == 0, "{left} records wait for nothing");
        assert!(tenant.children().is_empty(), "a group has no handle");
        let reading = tenant.exact();
        let done = rows.load(Ordering::SeqCst) as i64;
        assert!(
            (reading.get(ROWS).value, reading.own(ROWS)) == (done, done),
            "{done} rows were counted, {:?} read",
            reading.get(ROWS)
        );
        assert!(
            reading.usage().value == 0,
            "{:?} is charged",
            reading.usage()
        );
        epochs += 1;
    }
    assert!(
        most_removed as u64 <= RECORDS && record.load(Ordering::SeqCst) <= RECORDS,
        "more than {RECORDS} records: {record:?} were in use, {most_removed} of removed groups"
    );
    tenant.set_max(0);
    assert!(memory.reserved() == 0, "lost stock");
    assert!(
        stuck_names.load(Ordering::SeqCst) == 0,
        "{stuck_names:?} times a name was taken though the last handle was gone"
    );
}
