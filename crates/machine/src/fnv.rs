//! FNV-1a: an identity of data, not a protection against forgery.

use core::fmt;

/// 64-bit FNV-1a hash (Fowler, Noll and Vo) of the bytes written so far: the same on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Fnv1a64(u64);

impl Fnv1a64 {
    /// Hash of no bytes.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Hash of the bytes so far, followed by these.
    #[must_use]
    pub const fn write(mut self, bytes: &[u8]) -> Self {
        let mut index = 0;
        while index < bytes.len() {
            self.0 = (self.0 ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            index += 1;
        }
        self
    }

    /// The hash.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Default for Fnv1a64 {
    fn default() -> Self {
        Self::new()
    }
}

/// Shape: `fnv1a64:` and 16 hexadecimal digits.
impl fmt::Display for Fnv1a64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fnv1a64:{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_the_published_test_vectors() {
        assert_eq!(Fnv1a64::new().get(), 0xcbf2_9ce4_8422_2325);
        let whole = Fnv1a64::new().write(b"foobar");
        assert_eq!(whole.get(), 0x8594_4171_f739_67e8);
        let parts = Fnv1a64::new().write(b"foo").write(b"bar");
        assert_eq!(parts.get(), whole.get());
        assert_eq!(whole.to_string(), "fnv1a64:85944171f73967e8");
    }
}
