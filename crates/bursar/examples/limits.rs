//! A greedy tenant and a protected one share 96 MiB: how the greedy one is slowed down, gives back,
//! and is refused, and the protected one keeps what it has. Prints a timeline.
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
use std::thread::{Thread, sleep};
use std::time::{Duration, Instant};

use bursar::{Bytes, Charge, Events, Group, HighPolicy, Limits, Memory, Registration};

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

const MIB: u64 = 1 << 20;
const PIECE: u64 = 256 << 10;
const WIDTH: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    // Threads of their own, which may sleep.
    let memory = Memory::builder()
        .max(96 * MIB)
        .high_policy(HighPolicy::Throttle)
        .build()?;
    let root = memory.root();
    let greedy = root.child("greedy", Limits::none().high(40 * MIB))?;
    let query = greedy.child("query", Limits::none())?;
    let protected = root.child("protected", Limits::none().low(32 * MIB).min(16 * MIB))?;
    let (greedy_cache, protected_cache) = (Cache::new(&greedy), Cache::new(&protected));
    let mut timeline = Timeline {
        begun: Instant::now(),
        shown_ms: None,
        query: &query,
        caches: [&greedy_cache, &protected_cache],
        before: [Events::default(); 2],
    };
    println!("Each # is 4 MiB of a cache, each o 4 MiB of a query; the level is that of all.");
    println!("     ms  greedy                         protected           level");

    let evicts_last = protected_cache.evicts();
    (0..30 * MIB / PIECE).for_each(|_| protected_cache.grow());
    say("\n-- protected has filled its cache; 32 MiB of it are `low`: taken last");
    timeline.row();

    say("\n-- greedy charges on and on: above `high` (40 MiB) it sleeps, longer the further above");
    let stop = AtomicBool::new(false);
    let evicts_first = std::thread::scope(|scope| {
        let growing = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                greedy_cache.grow();
                sleep(Duration::from_millis(2));
            }
        });
        for _ in 0..6 {
            sleep(Duration::from_millis(250));
            timeline.row();
        }
        say(
            "\n-- an operator lifts greedy's `high`, and what it holds may be evicted now: it runs \
             into the 96 MiB of all, and evicts its own",
        );
        let evicts_first = greedy_cache.evicts();
        greedy.set_high(u64::MAX);
        for _ in 0..4 {
            sleep(Duration::from_millis(150));
            timeline.row();
        }
        stop.store(true, Ordering::Relaxed);
        growing.join().expect("the cache grows or evicts");
        evicts_first
    });

    say(
        "\n-- greedy runs a query that pins what it charges: its own cache goes, then protected's \
         down to its `min` (16 MiB), then it is refused",
    );
    let mut pinned = Vec::new();
    let refusal = loop {
        match query.try_charge(4 * PIECE) {
            Ok(charge) => pinned.push(charge),
            Err(refusal) => break refusal,
        }
        sleep(Duration::from_millis(1));
        if pinned.len() % 12 == 0 {
            timeline.row();
        }
    };
    timeline.row();
    say(&format!("         refused: {refusal}"));
    if let Some((group, victim)) = root.choose_victim()? {
        let (name, excess) = (group.path(), Bytes(victim.excess));
        say(&format!(
            "         choose_victim(): {name}, which uses {excess} above its protection"
        ));
    }

    say("\n-- protected wants 16 MiB more, and waits; greedy's query ends");
    let more = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(protected.charge_async(16 << 20)));
        sleep(Duration::from_millis(100));
        timeline.row();
        let begun = Instant::now();
        pinned.clear();
        let more = waiting.join().expect("it waits for nothing else");
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        say(&format!(
            "         granted {ms:.1} ms after the query began to end"
        ));
        more
    })?;
    timeline.row();

    drop((more, evicts_first, evicts_last));
    println!("\nevents of each group and all below:");
    for group in [&root, &greedy, &protected] {
        say(&format!("  {:<11} {}", group.path(), group.events()));
    }
    Ok(())
}

/// Pieces of memory that nobody would miss.
struct Cache {
    group: Group,
    pieces: Arc<Mutex<Vec<Charge>>>,
    is_charging: AtomicBool,
}

impl Cache {
    fn new(group: &Group) -> Self {
        Self {
            group: group.clone(),
            pieces: Arc::default(),
            is_charging: AtomicBool::new(false),
        }
    }

    /// Lets Bursar ask for them.
    fn evicts(&self) -> Registration {
        let pieces = self.pieces.clone();
        self.group.add_reclaimer(0, move |request| {
            let (mut freed, mut out) = (0, Vec::new());
            // The charging task may hold the lock: only try.
            let Ok(mut pieces) = pieces.try_lock() else {
                return 0;
            };
            while freed < request.target
                && let Some(piece) = pieces.pop()
            {
                freed += piece.bytes();
                out.push(piece);
            }
            // First the lock: dropping a charge may wake tasks that wait for memory.
            drop(pieces);
            drop(out);
            freed
        })
    }

    fn grow(&self) {
        self.is_charging.store(true, Ordering::Relaxed);
        // Without the lock: this may sleep, and may call our own reclaimer.
        let piece = self.group.try_charge(PIECE);
        self.is_charging.store(false, Ordering::Relaxed);
        self.pieces.lock().expect("no panic").extend(piece);
    }

    /// Else a charge is over before anybody looks.
    fn is_asleep(&self) -> bool {
        let is_over = self.group.reserved() > self.group.limits().high;
        is_over && self.is_charging.load(Ordering::Relaxed)
    }
}

/// Usage of the two tenants, row by row, and events since the row before.
struct Timeline<'a> {
    begun: Instant,
    shown_ms: Option<u128>,
    query: &'a Group,
    caches: [&'a Cache; 2],
    before: [Events; 2],
}

impl Timeline<'_> {
    fn row(&mut self) {
        // Not twice in the same millisecond.
        while self.shown_ms == Some(self.begun.elapsed().as_millis()) {
            sleep(Duration::from_micros(100));
        }
        let now_ms = self.begun.elapsed().as_millis();
        self.shown_ms = Some(now_ms);
        let mut line = format!("{now_ms:>7}");
        let mut happened = Vec::new();
        for (at, width) in [(0, 20), (1, 8)] {
            let cache = self.caches[at];
            let used = cache.group.reserved();
            let pinned = if at == 0 { self.query.reserved() } else { 0 };
            let cached = used.saturating_sub(pinned);
            let signs = |sign: &str, bytes: u64| sign.repeat((bytes / (4 * MIB)) as usize);
            let bar = signs("#", cached) + &signs("o", pinned);
            line += &format!("  {bar:<width$} {:>8}", Bytes(used).to_string());
            let events = cache.group.events();
            let new = describe(&events.since(&self.before[at]), cache.is_asleep());
            if !new.is_empty() {
                happened.push(format!("{} {new}", cache.group.name()));
            }
            self.before[at] = events;
        }
        let root = self.query.parent().and_then(|greedy| greedy.parent());
        let level = root.expect("two above a query").pressure().level;
        let happened = happened.join("; ");
        line += &format!("  {level:<8}");
        if line.len() + happened.len() <= WIDTH - 2 {
            println!("{}", format!("{line}  {happened}").trim_end());
        } else {
            println!("{}\n         {happened}", line.trim_end());
        }
    }
}

fn describe(new: &Events, is_asleep: bool) -> String {
    let mut parts = Vec::new();
    if !new.throttled.is_zero() {
        parts.push(format!("has slept {} ms", new.throttled.as_millis()));
    }
    if is_asleep {
        parts.push("is asleep".to_owned());
    }
    if new.reclaimed_bytes > 0 {
        let gave = Bytes(new.reclaimed_bytes);
        let of = if new.low > 0 {
            " of what `low` covers"
        } else {
            ""
        };
        parts.push(format!("gave {gave}{of}"));
    }
    parts.join(", ")
}

/// Prints a text in lines of at most [`WIDTH`] columns.
fn say(text: &str) {
    let (indent, words) = text.split_at(text.len() - text.trim_start().len());
    let mut line = indent.to_owned();
    for word in words.split_inclusive(' ') {
        if line.len() + word.trim_end().len() > WIDTH {
            println!("{}", line.trim_end());
            line = " ".repeat(indent.len().max(3));
        }
        line += word;
    }
    println!("{}", line.trim_end());
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
