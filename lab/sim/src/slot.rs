//! Per-CPU words and the sections that change them.
//!
//! A section looks at the state and the words it needs, and commits; see `section.rs`.

use std::sync::{Arc, OnceLock};

use bursar_machine::{
    AtomicShard, AtomicWord, CAP, CEILING, CHARGED, MemoryOrder, Outcome, STATE, Shard, Slot,
    State, WORDS_MAX, busy_wait,
};

use crate::current::{current_shard, relax};
use crate::engine::with_engine;
use crate::lines::Access;
use crate::section;
use crate::settings::SectionKind;
use crate::word::SimWord;

/// Number of words of a cache line.
const LINE_WORDS: usize = 8;

/// Changes that a section commits: words and their new values.
type Changes = [Option<(usize, i64)>; 2];

struct Words {
    cpus: u32,
    words: usize,
    sections: SectionKind,
    shards: Box<[OnceLock<Box<[SimWord]>>]>,
    /// Number of the engine that the lines belong to.
    engine: Option<u32>,
}

impl Drop for Words {
    fn drop(&mut self) {
        with_engine(|engine| {
            if self.engine != Some(engine.number) {
                return;
            }
            for shard in self.shards.iter().filter_map(OnceLock::get) {
                let firsts = shard.iter().step_by(LINE_WORDS);
                firsts.for_each(|word| engine.world.lines.release(word.line()));
            }
        });
    }
}

/// Per-CPU words of one group on a simulated machine.
#[derive(Clone)]
pub struct SimSlot(Arc<Words>);

impl SimSlot {
    pub(crate) fn new(cpus: usize, words: usize, sections: SectionKind) -> Self {
        Self(Arc::new(Words {
            cpus: cpus as u32,
            words,
            sections,
            shards: (0..=cpus).map(|_| OnceLock::new()).collect(),
            engine: with_engine(|engine| engine.number),
        }))
    }

    #[inline]
    fn shard(&self, shard: Shard) -> &[SimWord] {
        self.0.shards[shard.index()].get_or_init(|| {
            let mut line = 0;
            let word = |at: usize| {
                if at.is_multiple_of(LINE_WORDS) {
                    line = with_engine(|engine| engine.world.lines.allocate()).unwrap_or(0);
                }
                SimWord::on_line(0, line)
            };
            (0..self.0.words).map(word).collect()
        })
    }

    #[inline]
    fn atomic(&self, shard: Shard) -> AtomicShard<'_, SimWord> {
        AtomicShard::new(self.shard(shard), shard)
    }

    #[inline]
    fn has_sections(&self, shard: Shard) -> bool {
        self.0.sections == SectionKind::Restartable && shard.0 < self.0.cpus
    }

    /// Runs a section on the current CPU's words. `look` returns the words to write and their values, or an outcome
    /// without them.
    #[inline]
    fn section(
        &self,
        shard: Shard,
        mut look: impl FnMut(&[SimWord]) -> Result<Changes, Outcome>,
    ) -> Outcome {
        let words = self.shard(shard);
        let state = &words[STATE];
        with_engine(|engine| {
            let seen = section::section(engine, shard, state.line(), || {
                if state.peek() & 0xff == State::PUBLISHED {
                    return look(words);
                }
                Err(Outcome::Unpublished {
                    shard,
                    committed: false,
                })
            });
            match seen {
                Some(Ok(changes)) => {
                    for (word, value) in changes.into_iter().flatten() {
                        words[word].poke(value as u64);
                        if word >= LINE_WORDS {
                            engine.access(words[word].line(), Access::Write, 0);
                        }
                    }
                    Outcome::Done
                }
                Some(Err(outcome)) => outcome,
                None => Outcome::Moved,
            }
        })
        .unwrap_or_else(|| panic!("sections run on a simulator"))
    }

    /// Runs [`SimSlot::section`] on the CPU that the task is on, again after each interruption.
    #[inline]
    fn anywhere(
        &self,
        mut look: impl FnMut(&[SimWord]) -> Result<Changes, Outcome>,
        otherwise: impl FnOnce(AtomicShard<'_, SimWord>) -> Outcome,
    ) -> (Outcome, Shard) {
        loop {
            let shard = current_shard();
            if !self.has_sections(shard) {
                return (otherwise(self.atomic(shard)), shard);
            }
            match self.section(shard, &mut look) {
                // The section was interrupted.
                Outcome::Moved => {}
                outcome => return (outcome, shard),
            }
        }
    }
}

#[inline]
fn value(words: &[SimWord], word: usize) -> i64 {
    words[word].peek() as i64
}

#[inline]
fn room_of(words: &[SimWord]) -> i64 {
    value(words, CEILING).wrapping_sub(value(words, CHARGED))
}

impl Slot for SimSlot {
    type Word = SimWord;

    #[inline]
    fn add(&self, word: usize, delta: i64) -> Outcome {
        self.add_fetch(word, delta).0
    }

    #[inline]
    fn add_fetch(&self, word: usize, delta: i64) -> (Outcome, Shard, i64) {
        assert!(word < WORDS_MAX);
        let sum = std::cell::Cell::new(0);
        let (outcome, shard) = self.anywhere(
            |words| {
                sum.set(value(words, word).wrapping_add(delta));
                Ok([Some((word, sum.get())), None])
            },
            |shard| {
                let (outcome, now) = shard.add_fetch(word, delta);
                sum.set(now);
                outcome
            },
        );
        (outcome, shard, sum.get())
    }

    #[inline]
    fn charge(&self, bytes: u64) -> Outcome {
        let look = |words: &[SimWord]| {
            if bytes.wrapping_sub(1) >= room_of(words) as u64 {
                return Err(Outcome::Short);
            }
            let charged = value(words, CHARGED).wrapping_add(bytes as i64);
            Ok([Some((CHARGED, charged)), None])
        };
        self.anywhere(look, |shard| shard.charge(bytes)).0
    }

    #[inline]
    fn uncharge(&self, bytes: u64) -> Outcome {
        let look = |words: &[SimWord]| {
            if bytes > (value(words, CAP) - room_of(words)) as u64 {
                return Err(Outcome::Short);
            }
            let charged = value(words, CHARGED).wrapping_sub(bytes as i64);
            Ok([Some((CHARGED, charged)), None])
        };
        self.anywhere(look, |shard| shard.uncharge(bytes)).0
    }

    #[inline]
    fn adjust(&self, shard: Shard, charged: i64, ceiling: i64) -> Outcome {
        if !self.has_sections(shard) {
            return self.atomic(shard).adjust(charged, ceiling);
        }
        let look = |words: &[SimWord]| {
            let room = room_of(words).wrapping_add(ceiling.wrapping_sub(charged));
            if room < 0 || room > value(words, CAP) {
                return Err(Outcome::Short);
            }
            Ok([
                Some((CHARGED, value(words, CHARGED).wrapping_add(charged))),
                Some((CEILING, value(words, CEILING).wrapping_add(ceiling))),
            ])
        };
        loop {
            if current_shard() != shard {
                return Outcome::Moved;
            }
            match self.section(shard, look) {
                Outcome::Moved => {}
                outcome => return outcome,
            }
        }
    }

    fn add_extra(&self, word: usize, delta: i64) {
        self.atomic(Shard(self.0.cpus)).add(word, delta);
    }

    #[inline]
    fn word(&self, shard: Shard, word: usize) -> &SimWord {
        &self.shard(shard)[word]
    }

    #[inline]
    fn room(&self, shard: Shard) -> i64 {
        if !self.has_sections(shard) {
            return self.atomic(shard).room();
        }
        let words = self.shard(shard);
        // Acquire, both: pair with the Release in `take_room`, as on the host.
        let ceiling = words[CEILING].load_signed(MemoryOrder::Acquire);
        ceiling.wrapping_sub(words[CHARGED].load_signed(MemoryOrder::Acquire))
    }

    fn settle(&self, shard: Shard) {
        if !self.has_sections(shard) {
            let shard = self.atomic(shard);
            busy_wait(|| !shard.is_busy(), relax);
        }
    }

    fn take_room(&self, shard: Shard) -> u64 {
        if !self.has_sections(shard) {
            return self.atomic(shard).take_room();
        }
        let words = self.shard(shard);
        // Acquire, both: pair with the stores of `section`. The caller's fence comes in between, and none has committed since.
        let charged = words[CHARGED].load_signed(MemoryOrder::Acquire);
        let ceiling = words[CEILING].load_signed(MemoryOrder::Acquire);
        // Release: pairs with the clearing of FROZEN, which `section` sees before it looks at the ceiling again.
        words[CEILING].store(charged as u64, MemoryOrder::Release);
        let room = ceiling.wrapping_sub(charged);
        u64::try_from(room).expect("sections never let the room become negative")
    }
}
