//! Two tenants read a table through buffer pools of 64 KiB frames, under limits of their own and one that they share.
//!
//! A tenant at its own limit evicts what it used least; one that meets the shared limit makes the other give frames back.
//!
//! `cargo run --release -p bursar --example buffer_pool`

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar::pages::{Order, PageOptions, Zeroed};
use bursar::{AllocPagesError, Bytes, Freshness, Group, Limits, Memory, Page};

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

const FRAME: Order = Order::new(4);
const FRAME_BYTES: usize = FRAME.bytes();
/// Pages of the table: 10 MiB.
const TABLE_PAGES: u64 = 160;
const READS: u64 = 8_000;

/// A file that somebody keeps in memory: each page begins with its number, squared.
struct TableFile(Vec<u8>);

impl TableFile {
    fn new() -> Self {
        let page = |id: u64| {
            let mut page = vec![id as u8; FRAME_BYTES];
            page[..8].copy_from_slice(&(id * id).to_le_bytes());
            page
        };
        Self((0..TABLE_PAGES).flat_map(page).collect())
    }

    fn page(&self, id: u64) -> &[u8] {
        &self.0[id as usize * FRAME_BYTES..][..FRAME_BYTES]
    }
}

struct Frame {
    id: u64,
    /// Somebody reads it as long as there is another reference.
    page: Arc<Page>,
    /// Used since the clock's hand came by.
    is_used: bool,
}

#[derive(Default)]
struct Frames {
    frames: Vec<Frame>,
    hand: usize,
    hits: u64,
    misses: u64,
    /// To make room for another page of its own.
    evicted: u64,
    /// Because others needed room.
    given_up: u64,
}

impl Frames {
    /// Takes out the first frame in the clock's way that nobody reads and nobody used for a round.
    fn evict(&mut self) -> Option<Arc<Page>> {
        for _ in 0..2 * self.frames.len() {
            let at = self.hand % self.frames.len();
            let frame = &mut self.frames[at];
            if Arc::strong_count(&frame.page) > 1 || std::mem::take(&mut frame.is_used) {
                self.hand = at + 1;
                continue;
            }
            return Some(self.frames.swap_remove(at).page);
        }
        None
    }
}

struct Pool {
    group: Group,
    file: Arc<TableFile>,
    frames: Mutex<Frames>,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page of the table, from its frame or from the file. (A real pool would read without the lock.)
    fn fetch(&self, id: u64) -> Result<Arc<Page>, AllocPagesError> {
        let mut frames = self.lock();
        if let Some(frame) = frames.frames.iter_mut().find(|frame| frame.id == id) {
            frame.is_used = true;
            let page = frame.page.clone();
            frames.hits += 1;
            return Ok(page);
        }
        frames.misses += 1;
        let mut page = loop {
            // Asks the other's reclaimer, if that can help; ours finds the lock taken and leaves it to us.
            match self.group.alloc_pages(FRAME, Zeroed::No) {
                Ok(page) => break page,
                Err(refused @ AllocPagesError::Refused(_)) => {
                    drop(frames.evict().ok_or(refused)?);
                    frames.evicted += 1;
                }
                Err(error) => return Err(error),
            }
        };
        page.copy_from(self.file.page(id));
        let (page, is_used) = (Arc::new(page), false);
        let frame = page.clone();
        frames.frames.push(Frame { id, page, is_used });
        Ok(frame)
    }

    /// Gives back at least `target` bytes, if that can be done at once; returns how many.
    fn shrink(&self, target: u64) -> u64 {
        let Ok(mut frames) = self.frames.try_lock() else {
            return 0;
        };
        let mut freed = 0;
        while freed < target
            && let Some(page) = frames.evict()
        {
            drop(page);
            frames.given_up += 1;
            freed += FRAME_BYTES as u64;
        }
        freed
    }

    /// Reads pages, most of them from the first fifth of the table; returns whether their sum is right.
    fn read_many(&self, seed: u64) -> Result<bool, AllocPagesError> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut sum, mut expected) = (0, 0);
        for _ in 0..READS {
            let range = if random.u64(..10) < 8 { 5 } else { 1 };
            let id = random.u64(..TABLE_PAGES / range);
            let page = self.fetch(id)?;
            let first = page.bytes().first_chunk().expect("a frame has 64 KiB");
            sum += u64::from_le_bytes(*first);
            expected += id * id;
        }
        Ok(sum == expected)
    }
}

fn usage(group: &Group) -> Result<u64, Box<dyn Error>> {
    Ok(group.read(Freshness::Exact)?.usage().value as u64)
}

fn main() -> Result<(), Box<dyn Error>> {
    // Quicker than a program needs it, so that the end can be seen: looks each ms, and keeps 256 KiB a CPU.
    let options = PageOptions {
        bytes_per_node: Some(64 << 20),
        // Each tick is a period.
        decay_period: Duration::ZERO,
        retained_bytes_per_cpu: 256 << 10,
        ..PageOptions::default()
    };
    let memory = Memory::builder().pages(options).build()?;
    let shared = memory.root().child("pools", Limits::max(8 << 20))?;
    let file = Arc::new(TableFile::new());

    let mut pools = Vec::new();
    let mut reclaimers = Vec::new();
    for name in ["acme", "umbrella"] {
        // Reclaim never takes memory within `min`.
        let group = shared.child(name, Limits::max(6 << 20).min(2 << 20))?;
        let pool = Arc::new(Pool {
            group: group.clone(),
            file: file.clone(),
            frames: Mutex::default(),
        });
        let weak = Arc::downgrade(&pool);
        reclaimers.push(group.add_reclaimer(0, move |request| {
            weak.upgrade().map_or(0, |pool| pool.shrink(request.target))
        }));
        pools.push(pool);
    }

    println!(
        "acme and umbrella read a table of 10.0 MiB, each with a pool of at most 6.0 MiB, both of at most 8.0 MiB."
    );
    for (title, readers) in [
        ("acme alone, on two threads", &pools[..1]),
        ("both, on two threads each", &pools[..]),
    ] {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for pool in readers {
                threads.extend((0..2).map(|seed| scope.spawn(move || pool.read_many(seed))));
            }
            for thread in threads {
                let is_right = thread.join().expect("a reader panicked")?;
                assert!(is_right, "each page was read as it was written");
            }
            Ok::<_, AllocPagesError>(())
        })?;
        println!("\n{title}:  (frames of 64 KiB)");
        for pool in &pools {
            let (frames, name) = (pool.lock(), pool.group.name());
            let (hits, misses) = (frames.hits, frames.misses);
            let (evicted, given_up) = (frames.evicted, frames.given_up);
            let held = frames.frames.len() as u64;
            let before = format!("  {name:<9} hits {hits:>6}  misses {misses:>5}");
            let after =
                format!("  evicted for its own pages {evicted:>5}, for the other's {given_up:>3}");
            println!(
                "{before}{after}; holds {held:>3}: {}",
                Bytes(usage(&pool.group)?)
            );
            assert_eq!(misses, held + evicted + given_up);
            assert_eq!(usage(&pool.group)?, held * FRAME_BYTES as u64);
            assert!(held * FRAME_BYTES as u64 <= 6 << 20);
        }
        println!("  together  {} of 8.0 MiB", Bytes(usage(&shared)?));
        assert!(usage(&shared)? <= 8 << 20);
    }
    let reads = pools
        .iter()
        .map(|pool| pool.lock())
        .map(|frames| frames.hits + frames.misses);
    assert_eq!(reads.sum::<u64>(), 6 * READS);

    let info = memory.zone_info().expect("there are pages");
    println!("\nwhere the pages come from (pages of 4 KiB):\n{info}");

    drop((reclaimers, pools));
    assert_eq!(usage(&memory.root())?, 0);
    println!("both pools are gone; what they held goes back to the system, tick by tick:");
    for tick in 0..=40 {
        if tick > 0 {
            memory.tick();
        }
        if tick % 10 == 0 {
            let zones = memory.zone_info().expect("there are pages").zones;
            let kept: u64 = zones.iter().map(|zone| zone.retained_bytes()).sum();
            let in_use = memory.drift().map_or(0, |drift| drift.resident_anonymous);
            let (kept, in_use) = (Bytes(kept).to_string(), Bytes(in_use));
            println!(
                "  after {tick:>2} ticks {kept:>8} is kept for the next user; this process uses {in_use}, with its table"
            );
        }
    }
    Ok(())
}
