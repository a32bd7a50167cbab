//! CPU time of the server's thread for each request, with 10 statistics and 1,000 groups, or as many as the first argument says; with a second,
//! of requests that contain it; with a third, with so many statistics.
//!
//! `cargo run --release -p bursar-serve --example cost`

#[macro_use]
mod common;

use bursar::{Limits, Memory};
use bursar_serve::Server;
use rustix::time::{ClockId, clock_gettime};

use common::{STATISTICS, get};

const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let groups: u64 = match std::env::args().nth(1) {
        Some(groups) => groups.parse()?,
        None => 1_000,
    };
    let only = std::env::args().nth(2).unwrap_or_default();
    let statistics = match std::env::args().nth(3) {
        Some(statistics) => &STATISTICS[..statistics.parse()?],
        None => STATISTICS,
    };
    let memory = Memory::builder().statistics(statistics).build()?;
    // A group lives as long as a handle.
    let mut tenants = Vec::new();
    for number in 0..groups {
        let group = memory
            .root()
            .child(format!("tenant-{number}"), Limits::max(64 << 20))?;
        group.try_charge((number % 1_000) << 10)?.forget();
        tenants.push(group);
    }
    let server = Server::start(&memory)?;
    println!("{:<40} {:>10}  {:>12}", "request", "bytes", "CPU, us");
    for (target, repeats) in [
        ("/v1/tree", (20_000 / groups).max(1)),
        ("/v1/tree?freshness=exact", (20_000 / groups).max(1)),
        ("/v1/tree?path=/tenant-7", 200),
        ("/metrics", (20_000 / groups).max(1)),
        ("/v1/groups/", 200),
        ("/v1/groups/tenant-7/memory.current", 1_000),
    ] {
        if !target.contains(&*only) {
            continue;
        }
        let mut bytes = 0;
        // Of the whole process, without this thread: the thread that serves. The median of rounds.
        let mut rounds = [0; ROUNDS];
        for round in &mut rounds {
            let before = others_ns();
            for _ in 0..repeats {
                bytes = get(&server, target)?;
            }
            *round = (others_ns() - before) / repeats as i64;
        }
        rounds.sort_unstable();
        println!(
            "{target:<40} {bytes:>10}  {:>12.1}",
            rounds[ROUNDS / 2] as f64 / 1e3
        );
    }
    Ok(())
}

fn others_ns() -> i64 {
    let ns = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    ns(ClockId::ProcessCPUTime) - ns(ClockId::ThreadCPUTime)
}
