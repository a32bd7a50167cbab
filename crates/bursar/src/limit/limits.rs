//! The limits of a group, as values.

use std::fmt;

use crate::bytes::Bytes;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_set_alone() {
        let limits = Limits::max(4).high(3).low(2).min(1);
        let expected = Limits {
            min: 1,
            low: 2,
            high: 3,
            max: 4,
        };
        assert_eq!(limits, expected);
    }
}
