//! Charging, as each contender does it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bursar::{Charge, Freshness, Group};
use bursar_bench_peers::BareCounter;

use crate::contender::{Local, Padded, Path};

/// Bytes of one charge: a page.
pub const BYTES: usize = 4096;

/// Something that bytes are charged to and uncharged from.
pub trait Account: Send + Sync {
    /// Proof that a charge hands out and an uncharge takes back.
    type Token: Send;
    /// Charges `bytes`; the limits are far away.
    fn charge(&self, bytes: usize) -> Self::Token;
    /// Gives a charge back, on any thread.
    fn uncharge(&self, token: Self::Token);
    /// Bytes charged and not given back, when no thread is using the account.
    fn outstanding(&self) -> i64;
    /// Before a thread that used the account ends.
    fn thread_done(&self) {}
}

impl Account for Group {
    type Token = Charge;

    #[inline(always)]
    fn charge(&self, bytes: usize) -> Charge {
        self.try_charge(bytes as u64)
            .expect("the limits are far away")
    }

    #[inline(always)]
    fn uncharge(&self, token: Charge) {
        drop(token);
    }

    fn outstanding(&self) -> i64 {
        let reading = self.read(Freshness::Exact).expect("the group exists");
        reading.usage().value
    }
}

/// Something that counts.
pub trait Tally: Send + Sync {
    /// Counts `number` more.
    fn count(&self, number: i64);
    /// Sum of all counts, when no thread is counting.
    fn total(&self) -> i64;
    /// Before a thread that counted ends.
    fn thread_done(&self) {}
}

/// The least: the number is added on this CPU.
impl Tally for BareCounter {
    #[inline(always)]
    fn count(&self, number: i64) {
        self.add(number);
    }

    fn total(&self) -> i64 {
        self.sum()
    }
}

impl Tally for Local {
    #[inline(always)]
    fn count(&self, number: i64) {
        self.add(number);
    }

    fn total(&self) -> i64 {
        self.sum()
    }

    fn thread_done(&self) {
        self.fold();
    }
}

/// One shared word.
impl Tally for Padded {
    #[inline(always)]
    fn count(&self, number: i64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    fn total(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters as accounts without a limit: the amount serves as the token.
macro_rules! without_limit {
    ($($counter:ty)+) => {$(
        impl Account for $counter {
            type Token = usize;

            #[inline(always)]
            fn charge(&self, bytes: usize) -> usize {
                self.count(bytes as i64);
                bytes
            }

            #[inline(always)]
            fn uncharge(&self, token: usize) {
                self.count(-(token as i64));
            }

            fn outstanding(&self) -> i64 {
                self.total()
            }

            fn thread_done(&self) {
                Tally::thread_done(self);
            }
        }
    )+};
}
without_limit!(BareCounter Local Padded);

/// As the trackers of Impala and TiDB do it: add to every ancestor, look at its limit, undo on excess.
impl Account for Path {
    type Token = usize;

    #[inline(always)]
    fn charge(&self, bytes: usize) -> usize {
        const LIMIT: i64 = 1 << 50;
        let bytes_signed = bytes as i64;
        for (reached, level) in self.levels.iter().enumerate() {
            if level.0.fetch_add(bytes_signed, Ordering::Relaxed) + bytes_signed > LIMIT {
                undo(&self.levels[..=reached], bytes_signed);
                return 0;
            }
        }
        bytes
    }

    #[inline(always)]
    fn uncharge(&self, token: usize) {
        for level in &self.levels {
            level.0.fetch_sub(token as i64, Ordering::Relaxed);
        }
    }

    fn outstanding(&self) -> i64 {
        self.levels.iter().map(|level| level.total()).sum()
    }
}

#[cold]
fn undo(levels: &[Arc<Padded>], bytes: i64) {
    for level in levels {
        level.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
