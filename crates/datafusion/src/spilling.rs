//! Asking operators to spill before a limit is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bursar::{Group, Level, Registration};

use crate::chain::Chain;

/// Bytes that a spiller must hold to be asked if there is pressure without a limit: 1 MiB.
const WORTH_WITHOUT_LIMIT: u64 = 1 << 20;

/// Added to the number of groups under pressure by a pool with a share, which asks spillers at any time.
pub(crate) const SHARE: usize = 1 << (usize::BITS - 1);

/// Added to that number while the arbiter asks the query to give back memory.
pub(crate) const ASKED: usize = 1 << (usize::BITS - 2);

/// Tells whether the query's group or one above it is under pressure.
#[derive(Debug)]
pub(crate) struct Watermark {
    from: Level,
    /// Number of these groups, [`SHARE`] and [`ASKED`].
    pressed: Arc<AtomicUsize>,
    /// They own only the count above: a subscriber must not keep the pool.
    _watchers: Vec<Registration>,
}

impl Watermark {
    /// Returns `None` if no consumer need be asked to spill.
    pub(crate) fn new(chain: &Chain, from: Level, pressed: &Arc<AtomicUsize>) -> Option<Self> {
        if from == Level::None {
            return None;
        }
        let watch = |group: &Group| {
            let pressed = Arc::clone(pressed);
            let was_pressed = AtomicBool::new(false);
            group.on_pressure(move |now| {
                let is_pressed = now.level >= from;
                // Relaxed: calls come one at a time. A decision by the count may use the one before.
                if was_pressed.swap(is_pressed, Ordering::Relaxed) == is_pressed {
                    return;
                }
                if is_pressed {
                    pressed.fetch_add(1, Ordering::Relaxed);
                } else {
                    pressed.fetch_sub(1, Ordering::Relaxed);
                }
            })
        };
        Some(Self {
            from,
            _watchers: chain.groups().iter().map(watch).collect(),
            pressed: Arc::clone(pressed),
        })
    }

    #[inline(always)]
    pub(crate) fn is_reached(&self) -> bool {
        // Relaxed: it may be the state of a moment ago.
        self.pressed.load(Ordering::Relaxed) & !(SHARE | ASKED) != 0
    }

    /// Returns a group under pressure, and its level; the level may have fallen meanwhile.
    pub(crate) fn pressed_group<'a>(&self, chain: &'a Chain) -> (&'a Group, Level) {
        let groups = chain.groups().iter();
        let mut pressed = groups.map(|group| (group, group.pressure().level));
        let found = pressed.find(|&(_, level)| level >= self.from);
        found.unwrap_or((&chain.groups()[0], self.from))
    }
}

/// Returns the bytes that a spiller must hold to be asked: a quarter of an even share of the lowest limit.
pub(crate) fn worth_spilling(lowest_limit: u64, spillers: u64) -> u64 {
    if lowest_limit == u64::MAX {
        return WORTH_WITHOUT_LIMIT;
    }
    (lowest_limit / 4 / spillers.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worth_it() {
        assert_eq!(worth_spilling(1 << 30, 1), 1 << 28);
        assert_eq!(worth_spilling(1 << 30, 16), 1 << 24);
        assert_eq!(worth_spilling(1 << 30, 0), 1 << 28);
        assert_eq!(worth_spilling(u64::MAX, 4), 1 << 20);
        // Never 0: a spiller that holds nothing has nothing to spill.
        assert_eq!(worth_spilling(0, 4), 1);
    }
}
