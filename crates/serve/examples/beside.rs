//! Time of a charge and its return while a server is scraped, against the same without scrapes: turns of a second in pairs, whose order
//! changes. 1,000 groups with 10 statistics; the charges go to one of them, by one thread.
//!
//! `cargo run --release -p bursar-serve --example beside`

#[macro_use]
mod common;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bursar::{Group, Limits, Memory};
use bursar_serve::Server;
use rustix::time::{ClockId, clock_gettime};

use common::{STATISTICS, get};

const PAIRS: usize = 21;
const TURN: Duration = Duration::from_secs(1);

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Nanoseconds of a charge with its return, for the time of a turn.
fn turn(group: &Group) -> f64 {
    let (begin, mut charges) = (now(), 0_u64);
    while now() - begin < TURN {
        for _ in 0..4096 {
            drop(group.try_charge(4096).expect("it has no limit in reach"));
        }
        charges += 4096;
    }
    (now() - begin).as_nanos() as f64 / charges as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::builder().statistics(STATISTICS).build()?;
    let mut groups = Vec::new();
    for number in 0..1_000 {
        let limits = Limits::max(1 << 40);
        groups.push(memory.root().child(format!("tenant-{number}"), limits)?);
    }
    let server = Server::start(&memory)?;
    println!(
        "{:<24} {:>8} {:>10} {:>24}",
        "scrapes", "ns alone", "ns beside", "ratio, 50 % (10 to 90 %)"
    );
    for (target, each) in [
        ("/metrics", Duration::from_secs(1)),
        ("/v1/tree", Duration::from_secs(1)),
        ("/metrics", Duration::from_millis(100)),
    ] {
        let (mut ratios, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            let scraped = || {
                // Dropping its end of the channel ends the thread that scrapes.
                let (end, ended) = mpsc::channel::<()>();
                thread::scope(|scope| {
                    let server = &server;
                    scope.spawn(move || {
                        let mut wait = each / 4;
                        while ended.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                            get(server, target).expect("the server answers");
                            wait = each;
                        }
                    });
                    let time = turn(&groups[7]);
                    drop(end);
                    time
                })
            };
            let (without, with) = match pair % 2 {
                0 => (turn(&groups[7]), scraped()),
                _ => {
                    let with = scraped();
                    (turn(&groups[7]), with)
                }
            };
            ratios.push(with / without);
            alone.push(without);
            beside.push(with);
        }
        for times in [&mut ratios, &mut alone, &mut beside] {
            times.sort_by(f64::total_cmp);
        }
        let at = |times: &[f64], percent: usize| times[(times.len() - 1) * percent / 100];
        println!(
            "{:<24} {:>8.2} {:>10.2} {:>24}",
            format!("{target}, each {each:?}"),
            at(&alone, 50),
            at(&beside, 50),
            format!(
                "{:.3} ({:.3} to {:.3})",
                at(&ratios, 50),
                at(&ratios, 10),
                at(&ratios, 90)
            ),
        );
    }
    Ok(())
}
