//! Allocators that the benchmarks compare Bursar's pages with, behind one safe trait.
//!
//! Each is called explicitly and none is installed as the program's allocator, so that all live in one program. Pages are
//! asked for with an alignment of 4 KiB. The `unsafe` part of foreign allocators ends here: a block is owned, cannot be
//! copied, and carries its allocator and its size in its type, so it can be freed once, where it came from.
//!
//! | file | allocators |
//! |---|---|
//! | `system.rs` | glibc, mmap |
//! | `native.rs` | mimalloc, snmalloc, jemalloc (feature `native`) |
//! | `wrappers.rs` | stats_alloc, cap, tracking-allocator: wrappers that count; any global allocator |
//! | `bare.rs` | none: the yardsticks, minimum costs of per-CPU operations |
//! | `pools.rs` | buddy_system_allocator, a stack under a mutex, crossbeam's queue: each over an arena |

mod arena;
mod bare;
mod heap;
#[cfg(feature = "native")]
mod native;
mod pools;
mod system;
mod wrappers;

pub use arena::Arena;
pub use bare::{BareCounter, BareStack};
pub use heap::{Block, Heap, Library};
#[cfg(feature = "native")]
pub use native::{Jemalloc, Mimalloc, Snmalloc, jemalloc, mimalloc, snmalloc};
pub use pools::{Buddy, Queue, Stack, buddy, queue, stack};
pub use system::{Glibc, Mmap, glibc, mmap};
pub use wrappers::{
    Global, OfCollections, Tracked, bare, cap, global, in_tracked_group, of_collections,
    stats_alloc, tracking,
};

/// Bytes of the smallest page.
pub const FRAME_BYTES: usize = 4096;

/// An allocator of blocks of one size.
pub trait Pages: Send + Sync {
    /// A block that nobody else has. Only [`Pages::free`] gives it back: one that is dropped stays allocated, unless the
    /// allocator's own type does otherwise.
    type Block: Send;

    /// A block, or `None` if there is no memory.
    fn alloc(&self) -> Option<Self::Block>;

    /// Gives a block back, on any thread.
    fn free(&self, block: Self::Block);

    /// Address of the block.
    fn address(block: &Self::Block) -> usize;

    /// Writes the first byte of the block, as its user would.
    fn touch(block: &mut Self::Block);

    /// Writes a byte of each 4 KiB of the block.
    fn fill(block: &mut Self::Block);

    /// A call that a program with this allocator makes now and then while little happens. Nothing, where the default is
    /// to call nothing.
    fn upkeep(&self) {}
}

/// Reason for which an allocator cannot take part here, such as that it is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent(pub String);
