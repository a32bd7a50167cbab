//! Slots of the host: their place in memory, and the path that an operation takes.
//!
//! A chunk is one stride of 64 KiB for each shard, and the copies of a slot lie one stride apart. So the address of the
//! current CPU's copy is a shift and an add, and copies of different CPUs share no page. Copies of neighbouring groups
//! on one CPU lie side by side.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use super::chunk::{self, STRIDE, STRIDE_SHIFT};
use super::sync::HostWord;
use super::{backend, rseq, time};
use crate::shard::{AtomicShard, busy_wait};
use crate::slot::{FIRST_STATISTIC, STATE, WORDS_MAX};
use crate::{OutOfMemory, Outcome, Shard, Slot};

/// Slots start on lines of their own, because neighbours belong to other groups.
const LINE: usize = 64;

/// Number of CPU shards, which is the extra shard's index. Set once, before the first slot exists.
static CPUS: AtomicU32 = AtomicU32::new(0);

/// Sets the number of CPU shards.
pub(super) fn set_cpus(cpus: usize) {
    // Relaxed: as for `rseq::enable`.
    CPUS.store(
        u32::try_from(cpus).expect("fewer than 2^32 CPUs"),
        Ordering::Relaxed,
    );
}

/// The extra shard, the last one.
pub(super) fn shards_max() -> Shard {
    extra()
}

#[inline]
fn extra() -> Shard {
    Shard(CPUS.load(Ordering::Relaxed))
}

/// Shard of the calling thread.
pub(super) fn current_shard() -> Shard {
    rseq::current_cpu()
        .or_else(|| backend::hashed_shard(extra().index()))
        .unwrap_or_else(extra)
}

/// Handle of one group's per-CPU words on the host.
#[derive(Clone, Copy, Debug)]
pub struct HostSlot {
    base: NonNull<u8>,
}

// SAFETY: a slot points to shared memory that stays mapped until the process ends and is only accessed as atomic words
// or by sections.
unsafe impl Send for HostSlot {}
// SAFETY: as above.
unsafe impl Sync for HostSlot {}

/// Reserves a chunk and cuts it into slots.
pub(super) fn chunk_of_slots(words: usize) -> Result<Vec<HostSlot>, OutOfMemory> {
    assert!(
        (FIRST_STATISTIC..=WORDS_MAX).contains(&words),
        "a slot has {FIRST_STATISTIC} to {WORDS_MAX} words"
    );
    let size = (words * size_of::<HostWord>()).next_multiple_of(LINE);
    let mut slots = Vec::new();
    // First, because a chunk is never given back.
    slots
        .try_reserve_exact(STRIDE / size)
        .map_err(|_| OutOfMemory)?;
    let base = chunk::reserve(extra().index() + 1, WORDS_MAX * size_of::<HostWord>())?;
    slots.extend((0..STRIDE / size).map(|index| HostSlot {
        // SAFETY: `index * size` lies inside the chunk's first stride.
        base: unsafe { base.add(index * size) },
    }));
    Ok(slots)
}

impl HostSlot {
    fn copy(&self, shard: Shard) -> &[HostWord] {
        assert!(shard <= extra(), "no such shard");
        // SAFETY: (1) the chunk has a stride for each shard up to the extra one and `WORDS_MAX` words of padding behind
        // the last. So that many words from the start of any slot's copy lie inside. Words beyond the slot are a
        // neighbour's; touching them is a bug but sound. (2) The memory stays mapped and is only written through
        // atomics and sections. (3) Zeroed memory is a valid `HostWord`.
        unsafe {
            let at = self.base.add(shard.index() << STRIDE_SHIFT);
            core::slice::from_raw_parts(at.cast().as_ptr(), WORDS_MAX)
        }
    }

    fn atomic(&self, shard: Shard) -> AtomicShard<'_, HostWord> {
        AtomicShard::new(self.copy(shard), shard)
    }

    /// Repeats an addition that [`rseq::try_add`] missed: gets the reason, or adds on a shard without sections.
    #[cold]
    #[inline(never)]
    fn add_again(self, word: usize, delta: i64) -> Outcome {
        // SAFETY: as in `add`.
        let (status, shard) = unsafe { rseq::add(self.base.as_ptr(), word * 8, delta) };
        if status == rseq::ABSENT {
            return self.without_section().1.add_fetch(word, delta).0;
        }
        outcome(status, shard)
    }

    #[cold]
    #[inline(never)]
    fn charge_again(self, bytes: u64) -> Outcome {
        // SAFETY: as in `charge`.
        let (status, shard) = unsafe { rseq::charge(self.base.as_ptr(), bytes) };
        if status == rseq::ABSENT {
            return self.without_section().1.charge(bytes);
        }
        outcome(status, shard)
    }

    #[cold]
    #[inline(never)]
    fn uncharge_again(self, bytes: u64) -> Outcome {
        // SAFETY: as in `charge`.
        let (status, shard) = unsafe { rseq::uncharge(self.base.as_ptr(), bytes) };
        if status == rseq::ABSENT {
            return self.without_section().1.uncharge(bytes);
        }
        outcome(status, shard)
    }

    /// Shard for a thread that has no section. Beside sections this is always the extra shard, whichever CPU the thread
    /// runs on by now: nothing else may change words that sections change.
    #[cold]
    fn without_section(&self) -> (Shard, AtomicShard<'_, HostWord>) {
        let shard = if backend::has_sections() {
            extra()
        } else {
            current_shard()
        };
        (shard, self.atomic(shard))
    }
}

fn outcome(status: u64, shard: Shard) -> Outcome {
    match status {
        rseq::DONE => Outcome::Done,
        rseq::UNPUBLISHED => Outcome::Unpublished {
            shard,
            committed: false,
        },
        rseq::MOVED => Outcome::Moved,
        _ => {
            debug_assert_eq!(status, rseq::SHORT, "the caller dealt with ABSENT");
            Outcome::Short
        }
    }
}

impl Slot for HostSlot {
    type Word = HostWord;

    #[inline(always)]
    fn add(&self, word: usize, delta: i64) -> Outcome {
        assert!(word < WORDS_MAX, "no slot has that many words");
        // SAFETY: `chunk_of_slots` laid the copies out as required, and `word` is inside the slot or in the padding.
        if unsafe { rseq::try_add(self.base.as_ptr(), word * 8, delta) } {
            return Outcome::Done;
        }
        self.add_again(word, delta)
    }

    #[inline]
    fn add_fetch(&self, word: usize, delta: i64) -> (Outcome, Shard, i64) {
        assert!(word < WORDS_MAX, "no slot has that many words");
        // SAFETY: as in `add`.
        let (status, shard, sum) = unsafe { rseq::add_fetch(self.base.as_ptr(), word * 8, delta) };
        if status == rseq::ABSENT {
            let (shard, words) = self.without_section();
            let (outcome, sum) = words.add_fetch(word, delta);
            return (outcome, shard, sum);
        }
        (outcome(status, shard), shard, sum)
    }

    #[inline(always)]
    fn charge(&self, bytes: u64) -> Outcome {
        if self.charge_at_once(bytes) {
            return Outcome::Done;
        }
        self.charge_again(bytes)
    }

    #[inline(always)]
    fn charge_at_once(&self, bytes: u64) -> bool {
        // SAFETY: as in `add`; every slot has an account.
        unsafe { rseq::try_charge(self.base.as_ptr(), bytes) }
    }

    #[inline(always)]
    fn uncharge(&self, bytes: u64) -> Outcome {
        if self.uncharge_at_once(bytes) {
            return Outcome::Done;
        }
        self.uncharge_again(bytes)
    }

    #[inline(always)]
    fn uncharge_at_once(&self, bytes: u64) -> bool {
        // SAFETY: as in `charge_at_once`.
        unsafe { rseq::try_uncharge(self.base.as_ptr(), bytes) }
    }

    fn adjust(&self, shard: Shard, charged: i64, ceiling: i64) -> Outcome {
        if shard == extra() || !backend::has_sections() {
            return self.atomic(shard).adjust(charged, ceiling);
        }
        // SAFETY: as in `charge`.
        let status = unsafe { rseq::adjust(self.base.as_ptr(), shard, charged, ceiling) };
        if status == rseq::ABSENT {
            return Outcome::Moved;
        }
        outcome(status, shard)
    }

    fn add_extra(&self, word: usize, delta: i64) {
        self.atomic(extra()).add(word, delta);
    }

    fn word(&self, shard: Shard, word: usize) -> &HostWord {
        &self.copy(shard)[word]
    }

    fn room(&self, shard: Shard) -> i64 {
        if shard == extra() || !backend::has_sections() {
            return self.atomic(shard).room();
        }
        use crate::{AtomicWord, CEILING, CHARGED, MemoryOrder};
        let copy = self.copy(shard);
        // Acquire, both: pair with the Release in `take_room`. Sections change the room at any time, so `adjust` looks at it again.
        let ceiling = copy[CEILING].load_signed(MemoryOrder::Acquire);
        ceiling.wrapping_sub(copy[CHARGED].load_signed(MemoryOrder::Acquire))
    }

    fn settle(&self, shard: Shard) {
        if shard == extra() || !backend::has_sections() {
            let shard = self.atomic(shard);
            busy_wait(|| !shard.is_busy(), time::relax);
        }
    }

    fn take_room(&self, shard: Shard) -> u64 {
        if shard == extra() || !backend::has_sections() {
            return self.atomic(shard).take_room();
        }
        use crate::{AtomicWord, CEILING, CHARGED, MemoryOrder, State};
        let copy = self.copy(shard);
        debug_assert!(State(copy[STATE].load(MemoryOrder::Relaxed)).is_frozen());
        // Acquire, both: pair with the stores of sections. The caller's fence comes in between, and none has committed since.
        let charged = copy[CHARGED].load_signed(MemoryOrder::Acquire);
        let ceiling = copy[CEILING].load_signed(MemoryOrder::Acquire);
        // Release: pairs with the clearing of FROZEN, which sections see before they look at the ceiling again.
        copy[CEILING].store(charged as u64, MemoryOrder::Release);
        let room = ceiling.wrapping_sub(charged);
        u64::try_from(room).expect("sections never let the room become negative")
    }
}
