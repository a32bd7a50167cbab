//! The limits of a group, and changing them while everything runs.

use std::fmt;

use bursar_machine::{AtomicWord, Machine, Order};

use super::reclaim::Reason;
use super::{Bytes, Ledger};

/// A limit in bytes; `u64::MAX` means none.
pub(crate) type Limit = u64;

/// The limits of a group, bytes. All four are compared with [`crate::Group::reserved`]: the usage of the group and everything below
/// it, stock included.
///
/// Any combination is allowed, as in the kernel: each limit applies by itself, and the strictest decides. If `min` is above `max`, the
/// group is limited to `max` and protected up to it. If `low` is above `high`, charges leave a debt although reclaim does not
/// ask the group. A `max` below the usage refuses all fallible charges. The bytes above it stay until they are returned. A call that
/// sets `max` or `high` asks reclaimers for the bytes above it.
///
/// Write limits as one expression, with fields or with functions:
///
/// ```
/// use bursar::Limits;
///
/// let all = Limits { max: 2 << 30, high: 1800 << 20, low: 1 << 30, min: 512 << 20 };
/// assert_eq!(all, Limits::max(2 << 30).high(1800 << 20).low(1 << 30).min(512 << 20));
/// let without_max = Limits { high: 1 << 30, low: 1 << 28, ..Limits::none() };
/// assert_eq!(without_max, Limits::none().high(1 << 30).low(1 << 28));
///
/// assert_eq!(all.to_string(), "max 2.00 GiB, high 1.76 GiB, low 1.00 GiB, min 512 MiB");
/// assert_eq!(Limits::none().to_string(), "no limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reclaim never takes bytes within the effective `min`. 0 for no protection.
    #[doc(alias = "memory.min")]
    pub min: Limit,
    /// Reclaim takes bytes within the effective `low` only if it finds no others. 0 for no protection.
    #[doc(alias = "memory.low")]
    pub low: Limit,
    /// Charges above it succeed, ask reclaimers, and leave a debt. So `high` slows only callers of [`crate::Group::take_debt`]. With
    /// [`crate::HighPolicy::Throttle`] such charges sleep instead. `u64::MAX` for none.
    #[doc(alias = "memory.high")]
    pub high: Limit,
    /// No charge that can be refused goes above it. `u64::MAX` for none.
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

    /// Sets `high`. By default a `high` asks reclaimers and delays no charge: see [`crate::HighPolicy`].
    #[must_use]
    pub const fn high(self, high: u64) -> Self {
        Self { high, ..self }
    }

    /// Sets `low`.
    #[must_use]
    pub const fn low(self, low: u64) -> Self {
        Self { low, ..self }
    }

    /// Sets `min`.
    #[must_use]
    pub const fn min(self, min: u64) -> Self {
        Self { min, ..self }
    }
}

/// Prints the limits that are set, as in `max 2.00 GiB, low 1.00 GiB`. Without a `max` it begins with `no limit`.
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
    /// Changes a group's `max`. When this returns, no stock below was reserved under a higher limit, and reclaimers were asked for
    /// the excess.
    pub(crate) fn set_max(&self, index: u32, max: Limit) {
        if self.raise_max(index, max) {
            return self.notice(index);
        }
        // Nothing is reserved below while the limit changes, and no stock that was reserved under the old limit is left.
        let max_word = &self.counter(index).settings.max;
        self.drain_closed(index, || max_word.store(max, Order::Full));
        self.notice(index);
        self.reclaim_down_to(index, Reason::Max, || {
            self.counter(index).settings.max.load(Order::Full)
        });
    }

    /// Raises `max`, which needs no drain. `false` if the new limit is lower.
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

    /// Changes `high`, and asks reclaimers for the excess.
    pub(crate) fn set_high(&self, index: u32, high: Limit) {
        let high_word = &self.counter(index).settings.high;
        // Full, here and below: a task that learns that a limit was set finds it set.
        high_word.store(high, Order::Full);
        if self.counter(index).usage.load(Order::Full) > high {
            // Stock is in no use, so reclaimers are not asked for it.
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

    /// Ends the protection of a removed group.
    pub(super) fn unprotect(&self, index: u32) {
        self.set_min(index, 0);
        self.set_low(index, 0);
    }
}
