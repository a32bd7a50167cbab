//! Values on cache lines of their own.

use std::ops::Deref;

/// Value on cache lines of its own, so that writes to it do not slow down reads of its neighbours. Two lines, because processors fetch
/// them in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
