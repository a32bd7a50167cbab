//! Words of loom's.
//!
//! Loom 0.7 remembers one last access of an atomic word. A thread that loads a word and then writes it thus hides that
//! the write races with an earlier load by another thread. The order in which the write comes first is never tried.
//! Nearly all of Bursar's writes follow a load. [`LoomWord`] shows loom these races; see there.

use std::array;
use std::cell::Cell;
use std::sync::OnceLock;

use bursar_machine::{AtomicWord, MemoryOrder};
use loom::sync::Condvar;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread::JoinHandle;

/// The most threads of a model.
const THREADS: usize = 4;

loom::thread_local! {
    /// The first thread is number 0.
    static NUMBER: Cell<usize> = Cell::new(0);
    static STARTED: Cell<usize> = Cell::new(0);
}

/// Number of the calling thread.
pub fn number() -> usize {
    NUMBER.with(Cell::get)
}

/// Starts a thread that has a number. Only the first thread does.
pub fn spawn<T: 'static>(work: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let number = STARTED.with(|started| {
        started.set(started.get() + 1);
        started.get()
    });
    loom::thread::spawn(move || {
        NUMBER.with(|own| own.set(number));
        work()
    })
}

/// A word of loom's.
///
/// Each load first touches a mark of its thread, each write those of all other threads. A condition variable that nobody
/// waits for serves as mark: loom takes any two touches for dependent, and they order no memory.
#[derive(Debug)]
pub struct LoomWord {
    word: AtomicU64,
    loaded: [OnceLock<Condvar>; THREADS],
}

impl LoomWord {
    fn reading(&self) -> &AtomicU64 {
        let own = number();
        self.loaded[own].get_or_init(Condvar::new).notify_one();
        &self.word
    }

    /// Writes, with a fence behind a `Full` write; [`ordering`] has the one before.
    fn write<R>(&self, order: MemoryOrder, write: impl FnOnce(&AtomicU64) -> R) -> R {
        let own = number();
        let others = self.loaded.iter().enumerate().filter(|&(at, _)| at != own);
        others
            .filter_map(|(_, loaded)| loaded.get())
            .for_each(Condvar::notify_one);
        let result = write(&self.word);
        if order == MemoryOrder::Full {
            fence(Ordering::SeqCst);
        }
        result
    }
}

/// The fence of a `Full` access, and what remains of its ordering.
fn ordering(order: MemoryOrder, full: Ordering) -> Ordering {
    match order {
        MemoryOrder::Relaxed => Ordering::Relaxed,
        MemoryOrder::Acquire => Ordering::Acquire,
        MemoryOrder::Release => Ordering::Release,
        MemoryOrder::Full => {
            fence(Ordering::SeqCst);
            full
        }
    }
}

impl AtomicWord for LoomWord {
    fn new(value: u64) -> Self {
        Self {
            word: AtomicU64::new(value),
            loaded: array::from_fn(|_| OnceLock::new()),
        }
    }
    fn load(&self, order: MemoryOrder) -> u64 {
        self.reading().load(ordering(order, Ordering::Acquire))
    }
    fn store(&self, value: u64, order: MemoryOrder) {
        self.write(order, |word| {
            word.store(value, ordering(order, Ordering::Release));
        });
    }
    fn swap(&self, value: u64, order: MemoryOrder) -> u64 {
        self.write(order, |word| {
            word.swap(value, ordering(order, Ordering::AcqRel))
        })
    }
    fn fetch_add(&self, value: u64, order: MemoryOrder) -> u64 {
        self.write(order, |word| {
            word.fetch_add(value, ordering(order, Ordering::AcqRel))
        })
    }
    fn fetch_or(&self, bits: u64, order: MemoryOrder) -> u64 {
        self.write(order, |word| {
            word.fetch_or(bits, ordering(order, Ordering::AcqRel))
        })
    }
    fn fetch_and(&self, bits: u64, order: MemoryOrder) -> u64 {
        self.write(order, |word| {
            word.fetch_and(bits, ordering(order, Ordering::AcqRel))
        })
    }
    fn compare_exchange(&self, current: u64, new: u64, order: MemoryOrder) -> Result<u64, u64> {
        self.write(order, |word| {
            let success = ordering(order, Ordering::AcqRel);
            word.compare_exchange(current, new, success, Ordering::Acquire)
        })
    }
}
