//! Address space that pools cut into blocks.

use std::ptr::{NonNull, null_mut};

use crate::{Absent, FRAME_BYTES};

/// Memory from the kernel, for the life of the process: blocks of it may be held anywhere.
pub struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

impl Arena {
    /// Returns an arena of `bytes` bytes, none of them touched yet.
    ///
    /// # Errors
    /// If the kernel has no room.
    pub fn new(bytes: usize) -> Result<Self, Absent> {
        let (read_write, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, at no given address, changes nothing that exists.
        let start = unsafe { libc::mmap(null_mut(), bytes, read_write, flags, -1, 0) };
        let start = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED);
        match start {
            Some(start) => Ok(Self { start, bytes }),
            None => Err(Absent(format!("no {bytes} bytes of address space"))),
        }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The starts of its blocks of `bytes` bytes, which share nothing.
    pub fn into_blocks(self, bytes: usize) -> impl Iterator<Item = NonNull<u8>> {
        assert!(bytes > 0 && bytes.is_multiple_of(FRAME_BYTES));
        (0..self.bytes / bytes).map(move |index| {
            // SAFETY: `index * bytes` is below the arena's size.
            unsafe { self.start.add(index * bytes) }
        })
    }
}
