//! Bytes, limits and readings as people read them.

use std::fmt;

use crate::tree::Value;

/// A number of bytes with a binary unit and at least three digits: `Bytes(48 << 20)` prints `48.0 MiB`.
///
/// [`Bytes::display_limit`] prints limits, and [`Bytes::display_value`] prints values of a reading. All of them pad to the width in a format
/// string, so they fit into tables.
///
/// ```
/// use bursar::Bytes;
///
/// let rows = vec![0_u64; 1000];
/// assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
/// assert_eq!(Bytes::from(size_of_val(&rows[..])).to_string(), "7.81 KiB");
/// assert_eq!(format!("{:>10}|", Bytes(300 << 30)), "   300 GiB|");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(
    /// The number of bytes.
    pub u64,
);

impl From<u64> for Bytes {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl From<u32> for Bytes {
    fn from(bytes: u32) -> Self {
        Self(bytes.into())
    }
}

/// Conversion of lengths of slices.
impl From<usize> for Bytes {
    fn from(bytes: usize) -> Self {
        Self(bytes as u64)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let unit = (self.0.ilog2() / 10 - 1) as usize;
        let number = self.0 as f64 / 1024_f64.powi(unit as i32 + 1);
        let decimals = if number < 10.0 {
            2
        } else {
            usize::from(number < 100.0)
        };
        f.pad(&format!("{number:.decimals$} {}", UNITS[unit]))
    }
}

impl Bytes {
    /// Prints a limit: `no limit` for [`u64::MAX`], any other as [`Bytes`] does.
    ///
    /// ```
    /// use bursar::{Bytes, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::max(256 << 20))?;
    /// for group in [tenant, memory.root()] {
    ///     println!("{group} uses {} of {}", Bytes(group.reserved()), Bytes::display_limit(group.limits().max));
    /// }
    /// assert_eq!(Bytes::display_limit(memory.root().limits().max).to_string(), "no limit");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn display_limit(limit: u64) -> impl fmt::Display + fmt::Debug + Copy {
        LimitShown(limit)
    }

    /// Prints a value that counts bytes with its error, as in `48.0 MiB +- 256 KiB`. An exact value prints without an error,
    /// and a value whose error differs on both sides prints its range.
    ///
    /// ```
    /// use bursar::{Bytes, Freshness, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::none())?;
    /// let charge = tenant.try_charge(48 << 20)?;
    /// let usage = tenant.read(Freshness::Exact)?.usage();
    /// assert_eq!(Bytes::display_value(usage).to_string(), "48.0 MiB");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn display_value(value: Value) -> impl fmt::Display + fmt::Debug + Copy {
        ValueShown(value)
    }
}

#[derive(Clone, Copy, Debug)]
struct LimitShown(u64);

impl fmt::Display for LimitShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.pad("no limit"),
            limit => Bytes(limit).fmt(f),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct ValueShown(Value);

impl fmt::Display for ValueShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Value { value, lo, hi } = self.0;
        let shown = signed(value);
        let text = match (lo, hi) {
            _ if lo == value && hi == value => shown,
            (i64::MIN, i64::MAX) => format!("{shown} (range unknown)"),
            (i64::MIN, hi) => format!("{shown} (at most {})", signed(hi)),
            (lo, i64::MAX) => format!("{shown} (at least {})", signed(lo)),
            _ if value.abs_diff(lo) == value.abs_diff(hi) => {
                format!("{shown} +- {}", Bytes(value.abs_diff(hi)))
            }
            (lo, hi) => format!("{shown} ({} to {})", signed(lo), signed(hi)),
        };
        f.pad(&text)
    }
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        let shown =
            [0, 1023, 1024, 1536, 10 << 20, 300 << 30, u64::MAX].map(|n| Bytes(n).to_string());
        assert_eq!(
            shown,
            [
                "0 B", "1023 B", "1.00 KiB", "1.50 KiB", "10.0 MiB", "300 GiB", "16.0 EiB"
            ]
        );
        assert_eq!(
            format!("{:>8}|{:<9}|", Bytes(5), Bytes(1 << 40)),
            "     5 B|1.00 TiB |"
        );
        assert_eq!(Bytes::from(7_usize), Bytes::from(7_u32));
    }

    #[test]
    fn limits_read_well() {
        let shown = |limit| format!("{:>9}", Bytes::display_limit(limit));
        assert_eq!(shown(u64::MAX), " no limit");
        assert_eq!(shown(u64::MAX - 1), " 16.0 EiB");
        assert_eq!(shown(0), "      0 B");
    }

    #[test]
    fn values_read_well() {
        const MIB: i64 = 1 << 20;
        let shown = |value, lo, hi| Bytes::display_value(Value { value, lo, hi }).to_string();
        assert_eq!(shown(48 * MIB, 48 * MIB, 48 * MIB), "48.0 MiB");
        let (lo, hi) = (48 * MIB - 256 * 1024, 48 * MIB + 256 * 1024);
        assert_eq!(shown(48 * MIB, lo, hi), "48.0 MiB +- 256 KiB");
        assert_eq!(shown(0, 0, 48 * MIB), "0 B (0 B to 48.0 MiB)");
        assert_eq!(shown(-MIB, -2 * MIB, 0), "-1.00 MiB +- 1.00 MiB");
        assert_eq!(shown(5, i64::MIN, i64::MAX), "5 B (range unknown)");
        assert_eq!(shown(5, i64::MIN, 7), "5 B (at most 7 B)");
        assert_eq!(shown(5, 3, i64::MAX), "5 B (at least 3 B)");
    }
}
