//! The limits of a group, and changing them while everything runs.

use std::fmt;

use bursar_machine::{AtomicWord, Machine, Order};

use super::reclaim::Reason;
use super::{Bytes, Ledger};

/// A limit in bytes; `u64::MAX` means none.
pub(crate) type Limit = u64;

/// The limits of a group, bytes. All compare with the usage of the group and everything below it, stock included.
///
/// Any combination is allowed, as in the kernel: each is judged by itself, and the strictest decides. So with `min`
/// above `max` the group is limited to `max` and protected up to it; `low` above `high` slows down a group that
/// reclaim passes over. A limit below the usage lets nothing more in; what is above it stays until it is returned, though
/// reclaimers are asked for it when `max` or `high` is set.
///
/// ```
/// use bursar::Limits;
///
/// let limits = Limits::max(2 << 30).high(1800 << 20).low(1 << 30);
/// assert_eq!((limits.max, limits.min), (2 << 30, 0));
/// assert_eq!(limits.to_string(), "max 2.00 GiB, high 1.76 GiB, low 1.00 GiB");
/// assert_eq!(Limits::none().to_string(), "no limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reclaim never takes from what is within the effective `min`: no round asks for it. 0 for no protection.
    #[doc(alias = "memory.min")]
    pub min: Limit,
    /// Reclaim takes from what is within the effective `low` only if there is nothing else to take. 0 for no protection.
    #[doc(alias = "memory.low")]
    pub low: Limit,
    /// Charges above it succeed, ask reclaimers, and leave a debt, so it slows only callers of [`crate::Group::take_debt`];
    /// under [`crate::HighPolicy::Throttle`] they sleep instead. `u64::MAX` for none.
    #[doc(alias = "memory.high")]
    pub high: Limit,
    /// No fallible charge goes above it; `u64::MAX` for none.
    #[doc(alias = "memory.max")]
    pub max: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        Self::none()
    }
}

impl Limits {
    /// No limit but those of the ancestors, and no protection.
    pub const fn none() -> Self {
        Self {
            min: 0,
            low: 0,
            high: Limit::MAX,
            max: Limit::MAX,
        }
    }

    /// At most `bytes` for the group and all below it.
    pub const fn max(bytes: u64) -> Self {
        Self {
            max: bytes,
            ..Self::none()
        }
    }

    /// The same with another `high`. By default a `high` asks reclaimers and delays no charge: see [`crate::HighPolicy`].
    #[must_use]
    pub const fn high(self, high: u64) -> Self {
        Self { high, ..self }
    }

    /// The same with another `low`.
    #[must_use]
    pub const fn low(self, low: u64) -> Self {
        Self { low, ..self }
    }

    /// The same with another `min`.
    #[must_use]
    pub const fn min(self, min: u64) -> Self {
        Self { min, ..self }
    }
}

/// What is set, as in `max 2.00 GiB, low 1.00 GiB`; without a `max`, `no limit` in its place.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            Limit::MAX => f.write_str("no limit")?,
            max => write!(f, "max {}", Bytes(max))?,
        }
        for (name, bytes, unset) in [
            ("high", self.high, Limit::MAX),
            ("low", self.low, 0),
            ("min", self.min, 0),
        ] {
            if bytes != unset {
                write!(f, ", {name} {}", Bytes(bytes))?;
            }
        }
        Ok(())
    }
}

impl<M: Machine> Ledger<M> {
    /// Changes a group's limit. When this returns, no stock below was reserved under a higher one, and reclaimers have been
    /// asked for what the usage exceeds it by.
    pub(crate) fn set_max(&self, index: u32, max: Limit) {
        if self.raise_max(index, max) {
            return self.notice(index);
        }
        // Nothing is reserved below while the limit changes, and no stock is left that was reserved under the old one.
        let max_word = &self.counter(index).settings.max;
        self.drain_closed(index, || max_word.store(max, Order::Full));
        self.notice(index);
        self.reclaim_down_to(index, Reason::Max, || {
            self.counter(index).settings.max.load(Order::Full)
        });
    }

    /// A raised limit takes nothing from anyone, if it is this one that is raised.
    fn raise_max(&self, index: u32, max: Limit) -> bool {
        let max_word = &self.counter(index).settings.max;
        let mut seen = max_word.load(Order::Full);
        while max >= seen {
            match max_word.compare_exchange(seen, max, Order::Full) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Changes from where on charges are throttled; asks reclaimers for what the usage exceeds it by.
    pub(crate) fn set_high(&self, index: u32, high: Limit) {
        let high_word = &self.counter(index).settings.high;
        // Full, here and below: whoever is told that a limit was set finds it set.
        high_word.store(high, Order::Full);
        if self.counter(index).usage.load(Order::Full) > high {
            // Nobody is asked for what nobody uses.
            self.drain_closed(index, || ());
        }
        self.notice(index);
        self.reclaim_down_to(index, Reason::High, || high_word.load(Order::Full));
    }

    pub(crate) fn set_low(&self, index: u32, low: Limit) {
        self.counter(index).settings.low.store(low, Order::Full);
    }

    pub(crate) fn set_min(&self, index: u32, min: Limit) {
        self.counter(index).settings.min.store(min, Order::Full);
    }

    pub(crate) fn limits(&self, index: u32) -> Limits {
        let settings = &self.counter(index).settings;
        Limits {
            min: settings.min.load(Order::Full),
            low: settings.low.load(Order::Full),
            high: settings.high.load(Order::Full),
            max: settings.max.load(Order::Full),
        }
    }

    /// A removed group protects nothing any more.
    pub(super) fn unprotect(&self, index: u32) {
        self.set_min(index, 0);
        self.set_low(index, 0);
    }
}
