//! Signal handlers that charge and count.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bursar::engine::NowaitError;

use crate::Stage;
use crate::births::Births;
use crate::common::site::{DEPARTMENT_MAX, Held, Site, TENANT_MAX};
use crate::common::world::Stop;
use crate::common::{BATCHED, Leaves, Short, signals};

/// Site of the signal handlers.
static INTERRUPTED: OnceLock<Site> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Bytes that handlers charged to the first query, for threads to return.
static OWED: AtomicU64 = AtomicU64::new(0);

fn charge_in_handler() {
    let Some(site) = INTERRUPTED.get() else {
        return;
    };
    let handled = HANDLED.fetch_add(1, Ordering::SeqCst);
    let at = handled as usize % site.queries.len();
    let query = &site.queries[at];
    site.add(&query.group);
    query.group.add(BATCHED, 3);
    let bytes = 1 + (handled * 977) % 30_000;
    if at == 0 {
        let charge = |bytes| Ok::<_, NowaitError>(query.group.engine().charge_nowait(bytes));
        if let Ok(charge) = query.truth.attempt(bytes, charge) {
            OWED.fetch_add(charge.forget(), Ordering::SeqCst);
        }
    } else if let Ok(charge) = query
        .truth
        .attempt(bytes, |bytes| query.group.engine().try_charge_nowait(bytes))
    {
        query.truth.give_back(bytes, || charge.release_nowait());
    }
}

/// Returns what handlers charged.
fn settle_owed(site: &Site) {
    let bytes = OWED.swap(0, Ordering::SeqCst);
    let query = &site.queries[0];
    query
        .truth
        .give_back(bytes, || query.group.engine().uncharge(bytes));
}

/// Signals meet threads anywhere, and their handlers charge and count, while limits change and groups come and go.
#[test]
fn signals_beside_all_of_it() {
    const WORKERS: u64 = 3;
    const STEPS: usize = 8_000;
    let stage = Stage::begin();
    let site = INTERRUPTED.get_or_init(Site::new);
    signals::on(libc::SIGUSR2, charge_in_handler);
    let [stuck_names, record] = [const { AtomicU64::new(0) }; 2];
    let births = site.memory.make("births");
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let working = AtomicUsize::new(WORKERS as usize);
        let stop = AtomicBool::new(false);
        let (sender, targets) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let _stop = Stop(&stop);
            for thread in 0..WORKERS {
                let (births, stop, working) = (&births, &stop, &working);
                let mut random = stage.random(epochs << 8 | thread);
                let mut births = Births {
                    parent: births,
                    thread,
                    rows: &site.rows_elsewhere,
                    stuck_names: &stuck_names,
                    record: &record,
                    random: stage.random(epochs << 8 | 50 | thread),
                    late: Vec::new(),
                    removed: Vec::new(),
                };
                let sender = sender.clone();
                scope.spawn(move || {
                    sender.send(signals::this_thread()).unwrap();
                    // A signal needs a thread to go to, also one that found fault.
                    let _stays = Stays(stop);
                    let _leaves = Leaves(working);
                    let mut held = Held::new();
                    for step in 0..STEPS {
                        site.step(&mut random, &mut held);
                        match step % 64 {
                            0 => births.step(),
                            32 => settle_owed(site),
                            _ => {}
                        }
                    }
                    site.leave(held);
                    drop(births);
                });
            }
            let targets: Vec<_> = targets.iter().take(WORKERS as usize).collect();
            scope.spawn(|| {
                let mut random = stage.random(epochs << 8 | 100);
                while working.load(Ordering::SeqCst) > 0 {
                    let at = random.below(3);
                    let most = [TENANT_MAX, DEPARTMENT_MAX][at.min(1)];
                    let group = site.part(at).0;
                    group.set_max(random.below(most as usize) as u64);
                    std::thread::yield_now();
                    group.set_max(most);
                }
            });
            let mut random = stage.random(epochs << 8 | 101);
            while working.load(Ordering::SeqCst) > 0 {
                signals::send(&targets[random.below(targets.len())], libc::SIGUSR2);
                let handled = HANDLED.load(Ordering::SeqCst);
                site.watch(&mut random);
                // One at a time: threads must get on beside their handlers.
                while HANDLED.load(Ordering::SeqCst) == handled
                    && working.load(Ordering::SeqCst) > 0
                {
                    std::thread::yield_now();
                }
            }
        });
        settle_owed(site);
        let tenant = site.tenant.exact();
        let batched = tenant.get(BATCHED).value;
        let handled = HANDLED.load(Ordering::SeqCst) as i64;
        assert!(
            batched == 3 * handled,
            "{handled} signals, {batched} counted"
        );
        site.check();
        epochs += 1;
    }
    drop(births);
    site.end();
}

/// Keeps a thread until others have stopped, also after a panic.
struct Stays<'a>(&'a AtomicBool);

impl Drop for Stays<'_> {
    fn drop(&mut self) {
        while !self.0.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}
