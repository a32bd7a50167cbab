//! Parts that contenders of `charge` and `stat` share: sixteen accounts, and threads that use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, compiler_fence};

use bursar_bench_peers::BareCounter;
use bursar_machine::host::{Backend, report};

use crate::series::BARE;

/// Accounts a contender has; most scenarios use the first only.
pub const ACCOUNTS: usize = 16;
/// The most threads that a scenario runs with.
pub const THREADS_MAX: usize = 2;

/// The block once for each of the numbers. Loops of some ten instructions run half as fast again if they happen to lie
/// badly in memory, which says nothing about what is in them; longer ones do not.
macro_rules! unrolled {
    ([$($literal:literal)+] |$number:ident| $body:block) => {
        $({
            let $number: usize = $literal;
            $body
        })+
    };
}
pub(crate) use unrolled;

/// A named set of accounts.
pub struct Contender<A> {
    pub name: String,
    /// For each thread, its accounts: the same for all threads unless the peer's own design gives each thread one.
    accounts: Vec<Vec<Arc<A>>>,
}

impl<A> Contender<A> {
    /// All threads use the same accounts.
    pub fn shared(name: &str, mut account: impl FnMut(usize) -> A) -> Self {
        let accounts: Vec<_> = (0..ACCOUNTS)
            .map(|index| Arc::new(account(index)))
            .collect();
        Self {
            name: name.to_owned(),
            accounts: vec![accounts; THREADS_MAX],
        }
    }

    /// All sixteen accounts are the same one.
    pub fn single(name: &str, account: A) -> Self {
        let account = Arc::new(account);
        Self {
            name: name.to_owned(),
            accounts: vec![vec![account; ACCOUNTS]; THREADS_MAX],
        }
    }

    /// Each thread has accounts of its own (which may share what they draw on).
    #[cfg(feature = "datafusion")]
    pub fn per_thread(name: &str, mut account: impl FnMut() -> A) -> Self {
        let mut accounts = || (0..ACCOUNTS).map(|_| Arc::new(account())).collect();
        Self {
            name: name.to_owned(),
            accounts: (0..THREADS_MAX).map(|_| accounts()).collect(),
        }
    }

    /// The accounts of a thread.
    pub fn of_thread(&self, thread: usize) -> [&A; ACCOUNTS] {
        std::array::from_fn(|index| &*self.accounts[thread][index])
    }

    /// Every account once.
    pub fn distinct(&self) -> Vec<&A> {
        let mut accounts: Vec<&Arc<A>> = self.accounts.iter().flatten().collect();
        accounts.sort_by_key(|account| Arc::as_ptr(account));
        accounts.dedup_by(|one, other| Arc::ptr_eq(one, other));
        accounts.into_iter().map(|account| &**account).collect()
    }
}

/// A word on cache lines of its own, so that neighbours do not slow it down (128: processors fetch lines in pairs).
#[derive(Default)]
#[repr(align(128))]
pub struct Padded(pub AtomicI64);

/// One word on the path of all threads for each level of a tree.
pub struct Path {
    pub levels: Vec<Arc<Padded>>,
}

impl Path {
    /// `ACCOUNTS` paths of `depth` levels that part at the last one.
    pub fn bundle(depth: usize) -> impl FnMut(usize) -> Self {
        let word = || Arc::new(Padded::default());
        let above: Vec<_> = (1..depth).map(|_| word()).collect();
        move |_| {
            // The leaf first: that is the way a charge takes.
            let mut levels = vec![word()];
            levels.extend(above.iter().rev().cloned());
            Self { levels }
        }
    }
}

/// The bare add, on machines that have it.
///
/// One counter serves as all sixteen accounts. Each counter begins a chunk of memory of its own, so that sixteen of them
/// would compete for one set of the processor's cache: a yardstick longer than it should be.
pub fn bare() -> Option<Contender<BareCounter>> {
    if report().backend != Backend::Rseq {
        return None;
    }
    let counter = BareCounter::new().expect("memory for a counter")?;
    Some(Contender::single(BARE, counter))
}

thread_local! {
    static CELLS: [std::cell::Cell<i64>; ACCOUNTS] = const { [const { std::cell::Cell::new(0) }; ACCOUNTS] };
}

/// A cell of the calling thread: the least that counting can cost. Nobody else can read it, and it ends with its thread;
/// [`Local::fold`] saves what it holds for the final check.
pub struct Local {
    index: usize,
    folded: AtomicI64,
}

impl Local {
    /// The cell at `index` of each thread.
    pub fn new(index: usize) -> Self {
        assert!(index < ACCOUNTS);
        Self {
            index,
            folded: AtomicI64::new(0),
        }
    }

    /// Adds to this thread's cell.
    #[inline]
    pub fn add(&self, delta: i64) {
        CELLS.with(|cells| {
            let cell = &cells[self.index];
            cell.set(cell.get().wrapping_add(delta));
        });
        // No instruction; it keeps the compiler from counting in a register and storing once at the end.
        compiler_fence(Ordering::SeqCst);
    }

    /// Before a thread ends: moves what its cell holds to where [`Local::sum`] finds it.
    pub fn fold(&self) {
        let held = CELLS.with(|cells| cells[self.index].take());
        self.folded.fetch_add(held, Ordering::Relaxed);
    }

    /// The sum over all threads that ended.
    pub fn sum(&self) -> i64 {
        self.folded.load(Ordering::Relaxed)
    }
}

/// Number of operations that were really done, untimed ones included.
#[derive(Default)]
pub struct Done(AtomicU64);

impl Done {
    /// Adds what a thread did in a turn.
    pub fn add(&self, operations: u64) {
        self.0.fetch_add(operations, Ordering::Relaxed);
    }

    /// All so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
