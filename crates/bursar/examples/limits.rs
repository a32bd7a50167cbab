//! A greedy tenant and a protected one share 96 MiB: how the greedy one is slowed down, gives back, and is refused, and the
//! protected one keeps what it has. Prints a timeline.
//!
//! `cargo run --release -p bursar --example limits`

#![allow(
    clippy::disallowed_methods,
    reason = "a program of its own has a clock"
)]

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bursar::{Bytes, Charge, Events, Group, Limits, Memory, Registration};

const MIB: u64 = 1 << 20;
const PIECE: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let memory = Memory::builder().max(96 * MIB).build()?;
    let greedy = memory
        .root()
        .child("greedy", Limits::none().high(40 * MIB))?;
    let protected = memory
        .root()
        .child("protected", Limits::none().low(32 * MIB).min(16 * MIB))?;
    let mut timeline = Timeline::new(&greedy, &protected);

    let protected_cache = Cache::new(&protected);
    let evicts_last = protected_cache.evicts();
    protected_cache.fill(30 * MIB);
    timeline.phase("protected has filled its cache; 32 MiB of it are `low`: taken last");

    timeline.phase(
        "greedy charges on and on: above `high` (40 MiB) it sleeps, the longer the further above",
    );
    let greedy_cache = Cache::new(&greedy);
    let stop = AtomicBool::new(false);
    let mut evicts_first = None;
    std::thread::scope(|scope| {
        let growing = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                greedy_cache.fill(PIECE as u64);
            }
        });
        for _ in 0..6 {
            timeline.row(Duration::from_millis(250));
        }
        timeline.phase("an operator lifts greedy's `high`, and what it holds may be evicted now: it runs into the 96 MiB of all, and evicts its own");
        evicts_first = Some(greedy_cache.evicts());
        greedy.set_high(u64::MAX);
        for _ in 0..4 {
            timeline.row(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
        growing.join().expect("the cache grows or evicts");
    });

    timeline.phase("greedy runs a query that pins what it charges: its own cache goes, then protected's down to its `min` (16 MiB), then it is refused");
    let query = greedy.child("query", Limits::none())?;
    let mut pinned = Vec::new();
    loop {
        match query.try_charge(4 * PIECE) {
            Ok(charge) => pinned.push(charge),
            Err(refusal) => {
                timeline.say(&format!("refused: {refusal}"));
                break;
            }
        }
        if pinned.len() % 16 == 0 {
            timeline.row(Duration::ZERO);
        }
    }
    timeline.row(Duration::ZERO);
    if let Some(victim) = memory.root().choose_victim()? {
        timeline.say(&format!(
            "whom to end, if it came to that: {} ({} above its protection)",
            victim.group.path(),
            Bytes(victim.excess),
        ));
    }

    timeline.phase("protected wants 16 MiB more, and waits; greedy's query ends");
    let more = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(protected.charge_async(16 << 20)));
        timeline.row(Duration::from_millis(100));
        let begun = Instant::now();
        pinned.clear();
        let more = waiting.join().expect("it waits for nothing else");
        timeline.say(&format!(
            "granted {:?} after the query began to end",
            begun.elapsed()
        ));
        more
    })?;
    timeline.row(Duration::ZERO);

    drop((more, evicts_first, evicts_last));
    println!("\nwhat happened, in all:");
    for group in [&memory.root(), &greedy, &protected] {
        println!(
            "  {:<11} {}",
            group.path(),
            describe(Events::default(), group.events())
        );
    }
    Ok(())
}

/// Pieces of memory that nobody would miss.
struct Cache {
    group: Group,
    pieces: Arc<Mutex<Vec<Charge>>>,
}

impl Cache {
    fn new(group: &Group) -> Self {
        Self {
            group: group.clone(),
            pieces: Arc::default(),
        }
    }

    /// Lets Bursar ask for them.
    fn evicts(&self) -> Registration {
        let pieces = self.pieces.clone();
        self.group.add_reclaimer(0, move |request| {
            // Whoever charges may hold the lock: only try.
            let Ok(mut pieces) = pieces.try_lock() else {
                return 0;
            };
            let mut freed = 0;
            while freed < request.target
                && let Some(piece) = pieces.pop()
            {
                freed += piece.bytes() as u64;
            }
            freed
        })
    }

    fn fill(&self, bytes: u64) {
        for _ in 0..bytes / PIECE as u64 {
            // Without the lock: this may sleep, and may call our own reclaimer.
            if let Ok(piece) = self.group.try_charge(PIECE) {
                self.pieces.lock().expect("no panic").push(piece);
            }
        }
    }
}

/// What the two tenants use, row by row, and what happened since the row before.
struct Timeline<'a> {
    begun: Instant,
    groups: [&'a Group; 2],
    before: [Events; 2],
}

impl<'a> Timeline<'a> {
    fn new(greedy: &'a Group, protected: &'a Group) -> Self {
        println!(
            "     ms  greedy (each # is 4 MiB)             protected             pressure of all  since the last row"
        );
        Self {
            begun: Instant::now(),
            groups: [greedy, protected],
            before: [Events::default(); 2],
        }
    }

    fn phase(&mut self, text: &str) {
        println!("\n-- {text}");
        self.row(Duration::ZERO);
    }

    fn say(&self, text: &str) {
        println!("         {text}");
    }

    fn row(&mut self, after: Duration) {
        std::thread::sleep(after);
        let mut line = format!("{:>7}", self.begun.elapsed().as_millis());
        let mut happened = Vec::new();
        for (at, width) in [(0, 25), (1, 10)] {
            let group = self.groups[at];
            let used = group.reserved();
            let bar = "#".repeat((used / (4 * MIB)) as usize);
            line += &format!("  {bar:<width$} {:>8}", Bytes(used).to_string());
            let events = group.events();
            let new = describe(self.before[at], events);
            if !new.is_empty() {
                happened.push(format!("{} {new}", group.name()));
            }
            self.before[at] = events;
        }
        let root = self.groups[0].parent().expect("the root");
        let level = format!("{:?}", root.pressure().level).to_lowercase();
        println!("{line}  {level:<15}  {}", happened.join("; "));
    }
}

fn describe(before: Events, after: Events) -> String {
    let mut parts = Vec::new();
    let throttled = after.throttled.saturating_sub(before.throttled);
    if !throttled.is_zero() {
        parts.push(format!("slept {} ms", throttled.as_millis()));
    }
    let reclaimed = after.reclaimed_bytes - before.reclaimed_bytes;
    if reclaimed > 0 {
        parts.push(format!("gave back {}", Bytes(reclaimed)));
    }
    if after.low > before.low {
        parts.push(format!(
            "dipped into `low` {} times",
            after.low - before.low
        ));
    }
    if after.refused > before.refused {
        parts.push(format!("refused {}", after.refused - before.refused));
    }
    parts.join(", ")
}

/// Runs one future on this thread: all that `charge_async` needs of a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
