//! Shared words of a simulated machine.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, MemoryOrder};

use crate::engine::with_engine;
use crate::lines::{Access, LineId};
use crate::task::Step;

/// Line of a word that was built without a simulator.
const NO_LINE: LineId = LineId::MAX;
/// Engine of a word without a line of its own.
const NO_ENGINE: u32 = u32::MAX;
/// Bit that is set in the line of words that share one; such a word does not give the line back.
const SHARED: LineId = 1 << 31;

/// Word of a simulated machine. A word that is made alone has a cache line to itself.
///
/// It is atomic only because it must be `Sync`: one thread of the host runs all tasks.
pub struct SimWord {
    value: AtomicU64,
    line: LineId,
    /// Number of the engine that the line belongs to.
    engine: u32,
}

impl fmt::Debug for SimWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimWord").field(&self.peek()).finish()
    }
}

impl Drop for SimWord {
    fn drop(&mut self) {
        if self.line & SHARED == 0 {
            with_engine(|engine| {
                if engine.number == self.engine {
                    engine.world.lines.release(self.line);
                }
            });
        }
    }
}

impl SimWord {
    /// Makes a word on a line that it shares with others.
    pub(crate) fn on_line(value: u64, line: LineId) -> Self {
        debug_assert!(line < SHARED);
        Self {
            value: AtomicU64::new(value),
            line: line | SHARED,
            engine: NO_ENGINE,
        }
    }

    /// Number of the line.
    #[inline]
    pub(crate) fn line(&self) -> LineId {
        self.line & !SHARED
    }

    /// Value, for the machine itself.
    #[inline]
    pub(crate) fn peek(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Sets the value, for the machine itself.
    #[inline]
    pub(crate) fn poke(&self, value: u64) {
        if value != self.peek() {
            self.value.store(value, Ordering::Relaxed);
            with_engine(|engine| engine.world.changes.set(engine.world.changes.get() + 1));
        }
    }

    #[inline]
    fn step(&self, step: Step, order: MemoryOrder) {
        if self.line == NO_LINE {
            return;
        }
        with_engine(|engine| {
            // Outside of tasks, as in a check after a step, nothing costs time or lets another task run.
            if !engine.is_scheduled() {
                return;
            }
            engine.visible(step, self.line());
            let costs = engine.costs();
            let (access, extra_ns) = match step {
                Step::Load => (Access::Read, 0),
                Step::Store => (Access::Write, 0),
                _ => (Access::Write, costs.atomic_ns),
            };
            // Full: only its cost stands here, and the caller names its partner. A load needs no barrier on the machine that is modelled.
            let barrier_ns = match (step, order) {
                (Step::Store, MemoryOrder::Full) => costs.full_barrier_ns,
                _ => 0,
            };
            engine.access(self.line(), access, extra_ns + barrier_ns);
        });
    }

    #[inline]
    fn update(&self, order: MemoryOrder, change: impl FnOnce(u64) -> u64) -> u64 {
        self.step(Step::Update, order);
        let before = self.peek();
        self.poke(change(before));
        before
    }
}

impl AtomicWord for SimWord {
    fn new(value: u64) -> Self {
        let line = with_engine(|engine| (engine.world.lines.allocate(), engine.number));
        let (line, engine) = line.unwrap_or((NO_LINE, NO_ENGINE));
        Self {
            value: AtomicU64::new(value),
            line,
            engine,
        }
    }
    #[inline]
    fn load(&self, order: MemoryOrder) -> u64 {
        self.step(Step::Load, order);
        self.peek()
    }
    #[inline]
    fn prefetch(&self) {
        if self.line != NO_LINE {
            with_engine(|engine| engine.prefetch(self.line(), Access::Read));
        }
    }
    #[inline]
    fn store(&self, value: u64, order: MemoryOrder) {
        self.step(Step::Store, order);
        self.poke(value);
    }
    #[inline]
    fn swap(&self, value: u64, order: MemoryOrder) -> u64 {
        self.update(order, |_| value)
    }
    #[inline]
    fn fetch_add(&self, value: u64, order: MemoryOrder) -> u64 {
        self.update(order, |before| before.wrapping_add(value))
    }
    #[inline]
    fn fetch_or(&self, bits: u64, order: MemoryOrder) -> u64 {
        self.update(order, |before| before | bits)
    }
    #[inline]
    fn fetch_and(&self, bits: u64, order: MemoryOrder) -> u64 {
        self.update(order, |before| before & bits)
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64, order: MemoryOrder) -> Result<u64, u64> {
        self.step(Step::Update, order);
        let found = self.peek();
        if found != current {
            return Err(found);
        }
        self.poke(new);
        Ok(found)
    }
}
