//! Two tenants run queries on a few threads; the tree is printed while they run, and what is refused says why.
//!
//! `cargo run --release -p bursar --example tenants`

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar::{Bytes, Counter, Freshness, Gauge, Group, Limits, Memory, Snapshot, Statistic};

const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows"),
    Statistic::gauge("open_files"),
    Statistic::counter("spills"),
];
const ROWS: Counter = Counter::of(STATISTICS, "rows");
const OPEN_FILES: Gauge = Gauge::of(STATISTICS, "open_files");
const SPILLS: Counter = Counter::of(STATISTICS, "spills");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::builder()
        .statistics(STATISTICS)
        .max(96 << 20)
        .build()?;
    let acme = memory.root().child("acme", Limits::max(64 << 20))?;
    let umbrella = memory.root().child("umbrella", Limits::max(24 << 20))?;

    // A group stays visible as long as a handle lives, so these keep the finished queries in the last picture.
    let mut queries = Vec::new();
    let running = AtomicBool::new(true);
    let start = Barrier::new(4);
    std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        let mut threads = Vec::new();
        for (tenant, name, batch) in [
            (&acme, "daily-report", 4 << 20),
            (&acme, "dashboard", 1 << 20),
            (&umbrella, "export", 3 << 20),
            (&umbrella, "import", 2 << 20),
        ] {
            let query = tenant.child(name, Limits::none())?;
            queries.push(query.clone());
            let (running, start) = (&running, &start);
            threads.push(scope.spawn(move || {
                start.wait();
                run_query(&query, batch, running)
            }));
        }
        for picture in 1..=3 {
            // A picture whenever another 100,000 rows are through.
            while memory.root().read(Freshness::Exact)?.get(ROWS).value < picture * 100_000 {
                std::thread::yield_now();
            }
            let snapshot = memory.snapshot(Freshness::Exact)?;
            let rows = snapshot.groups()[0].reading.get(ROWS).value;
            println!("after {rows} rows:");
            print_tree(&snapshot);
        }
        running.store(false, Ordering::Relaxed);
        for thread in threads {
            if let Some(refusal) = thread.join().expect("a query panicked") {
                println!("a refusal that made a query spill: {refusal}");
            }
        }
        Ok(())
    })?;

    println!("when all queries are done:");
    let snapshot = memory.snapshot(Freshness::Exact)?;
    print_tree(&snapshot);
    assert_eq!(snapshot.groups()[0].reading.usage_bytes(), 0);
    Ok(())
}

/// Reads batches and keeps them; when a limit says no, spills what it has. Returns its last refusal.
fn run_query(query: &Group, batch: usize, running: &AtomicBool) -> Option<String> {
    let mut kept = Vec::new();
    let mut refusal = None;
    query.add(OPEN_FILES, 1);
    while running.load(Ordering::Relaxed) {
        match query.try_charge(batch) {
            Ok(charge) => kept.push(charge),
            Err(error) => {
                refusal = Some(error.to_string());
                query.add(SPILLS, 1);
                kept.clear();
            }
        }
        for _ in 0..1000 {
            query.add(ROWS, 1);
        }
        // A real query would wait for its next batch here.
        std::thread::yield_now();
    }
    query.add(OPEN_FILES, -1);
    refusal
}

/// Draws the tree, with a line of statistics beside each group.
fn print_tree(snapshot: &Snapshot) {
    // A line for each group, in the same order.
    for (line, group) in snapshot.to_string().lines().zip(snapshot) {
        println!(
            "  {line:<41} peak {:>9}  rows {:>7}  spills {:>4}  files {}",
            Bytes(group.peak).to_string(),
            group.reading.get(ROWS).value,
            group.reading.get(SPILLS).value,
            group.reading.get(OPEN_FILES).value,
        );
    }
}
