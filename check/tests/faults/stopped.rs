//! Threads that stand still at any instruction, and are moved between CPUs, while others go on.
//!
//! A signal stops a thread wherever it is, until it is released. Calls that never wait must return meanwhile, whatever the thread was
//! doing. Inside a section of the kernel's a thread cannot stand: the signal ends the section, and it begins again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::{Counter, Freshness, Limits, Memory, Statistic};
use bursar_machine::host::allowed_cpus;
use bursar_rig::random::Random;

use crate::child::{self, End};
use crate::library::MIB;
use crate::{cpus, signals};

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
const WORKERS: usize = 3;
/// Stops, of one worker after the other.
const STOPS: u64 = 200;
/// Calls that never wait, at each stop.
const CALLS: u64 = 50;

/// Stops that were asked for, and those that are over. The handler waits between the two.
static ASKED: AtomicU64 = AtomicU64::new(0);
static STOPPED: AtomicU64 = AtomicU64::new(0);
static RELEASED: AtomicU64 = AtomicU64::new(0);

/// Async-signal-safe: atomics, and a system call without effect on memory.
fn stand_still() {
    let stop = ASKED.load(Ordering::SeqCst);
    STOPPED.store(stop, Ordering::SeqCst);
    while RELEASED.load(Ordering::SeqCst) < stop {
        std::thread::yield_now();
    }
}

#[test]
fn threads_stand_still_anywhere() {
    let _alone = child::alone();
    let ended = child::run(|_| run());
    assert_eq!(ended.end, End::Well, "{}", ended.errors);
}

fn run() {
    let builder = Memory::builder().statistics(STATISTICS).max(64 * MIB);
    let memory = builder.build().expect("a memory");
    let tenant = memory.root().child("tenant", Limits::max(4 * MIB)).unwrap();
    let query = tenant.child("query", Limits::none()).unwrap();
    let bystander = memory.root().child("bystander", Limits::none()).unwrap();
    signals::on(libc::SIGURG, stand_still);
    let (done, rows) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..WORKERS {
            let (say, said) = std::sync::mpsc::channel();
            let (memory, tenant, query, done, rows) = (&memory, &tenant, &query, &done, &rows);
            scope.spawn(move || {
                say.send((signals::this_thread(), cpus::this_thread()))
                    .unwrap();
                let mut held = Vec::new();
                for step in 0_u64.. {
                    if done.load(Ordering::SeqCst) {
                        break;
                    }
                    query.add(ROWS, 1);
                    rows.fetch_add(1, Ordering::SeqCst);
                    // From stock, past it, at the limit, and with all that follows.
                    held.extend(query.try_charge(1 + step % 64 * 4_000));
                    if step % 5 == 0 {
                        held.clear();
                    }
                    match (step + number as u64) % 64 {
                        0 => tenant.set_max((2 + step % 3) * MIB),
                        16 => drop(tenant.read(Freshness::Exact)),
                        32 => drop(query.child(format!("{number}"), Limits::none())),
                        48 => memory.tick(),
                        _ => {}
                    }
                }
            });
            threads.push(said.recv().unwrap());
        }
        let mut random = Random::new(7);
        let mut below = |limit: usize| random.below(limit as u64) as usize;
        let cpus_here = allowed_cpus();
        let mut charged = 0;
        for stop in 1..=STOPS {
            let (thread, number) = &threads[below(WORKERS)];
            ASKED.store(stop, Ordering::SeqCst);
            signals::send(thread, libc::SIGURG);
            while STOPPED.load(Ordering::SeqCst) < stop {
                std::thread::yield_now();
            }
            // It stands. Each of these returns all the same, in its group and in one without a part in it.
            for group in [&query, &bystander] {
                for _ in 0..CALLS {
                    group.add(ROWS, 1);
                    if let Ok(charge) = group.engine().try_charge_nowait(100) {
                        charged += 1;
                        charge.release_nowait();
                    }
                }
            }
            // And goes on elsewhere.
            cpus::move_to(*number, cpus_here[below(cpus_here.len())]);
            RELEASED.store(stop, Ordering::SeqCst);
        }
        assert!(charged > STOPS, "{charged}");
        done.store(true, Ordering::SeqCst);
    });
    memory.tick();
    let reading = memory.root().read(Freshness::Exact).unwrap();
    let own = 2 * CALLS * STOPS;
    assert_eq!(reading.get(ROWS).value as u64, rows.into_inner() + own);
    assert_eq!(reading.usage().value, 0);
    memory.root().set_max(0);
    assert_eq!(memory.reserved(), 0, "neither bytes nor stock");
    memory.root().set_max(64 * MIB);
    tenant.set_max(4 * MIB);
    drop(query.try_charge(4 * MIB).expect("all is returned"));
}
