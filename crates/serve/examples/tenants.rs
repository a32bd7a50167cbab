//! Two tenants run queries on a few threads; the tree is printed while they run, and what is refused says why.
//!
//! `cargo run --release --example tenants`
//!
//! With `-- --serve` the queries run until the end of the input, or Ctrl-C, and a Unix socket shows the tree to `curl` and the tool
//! `bursar`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bursar::{Bytes, Counter, Freshness, Gauge, Group, Limits, Memory, Snapshot, Statistic};

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows"),
    Statistic::gauge("open_files"),
    Statistic::counter("spills"),
];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
const OPEN_FILES: Gauge = Gauge::from_name(STATISTICS, "open_files");
const SPILLS: Counter = Counter::from_name(STATISTICS, "spills");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let serves = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--serve") => true,
        Some(other) => return Err(format!("unknown argument {other:?}; there is --serve").into()),
    };
    let memory = Memory::builder()
        .statistics(STATISTICS)
        .max(96 << 20)
        .build()?;
    let acme = memory.root().child("acme", Limits::max(64 << 20))?;
    let umbrella = memory.root().child("umbrella", Limits::max(24 << 20))?;

    // Removes its socket when it is dropped.
    #[cfg(unix)]
    let server = serves
        .then(|| bursar_serve::Server::start(&memory))
        .transpose()?;

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
                run_query(
                    &query,
                    batch,
                    running,
                    if serves { SLOWLY } else { AT_ONCE },
                )
            }));
        }
        #[cfg(unix)]
        if let Some(server) = &server {
            wait_for_end(server.path());
        }
        let pictures = if serves { 0 } else { 3 };
        for picture in 1..=pictures {
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

/// Says how to look, and returns at the end of the input or at Ctrl-C.
#[cfg(unix)]
fn wait_for_end(socket: &std::path::Path) {
    let socket = socket.display();
    println!("serving on {socket} until the end of the input, or Ctrl-C. In another terminal:");
    println!("  curl --unix-socket {socket} 'http://localhost/v1/tree?freshness=exact'");
    println!("  curl --unix-socket {socket} http://localhost/v1/groups/acme/memory.events");
    let (end, ended) = std::sync::mpsc::channel();
    let signalled = end.clone();
    let handler = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
    ]);
    // Without a handler, Ctrl-C ends the program at once and leaves the socket's file.
    if let Ok(mut signals) = handler {
        std::thread::spawn(move || signals.forever().next().map(|_| signalled.send(())));
    }
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        end.send(())
    });
    let _ = ended.recv();
}

/// Times for a batch: the queries run as fast as they can, or leave the CPUs to others.
const AT_ONCE: Duration = Duration::ZERO;
const SLOWLY: Duration = Duration::from_millis(10);

/// Reads batches and keeps them; when a limit says no, spills what it has. Returns its last refusal.
fn run_query(
    query: &Group,
    batch: u64,
    running: &AtomicBool,
    batch_time: Duration,
) -> Option<String> {
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
        if batch_time.is_zero() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(batch_time);
        }
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
