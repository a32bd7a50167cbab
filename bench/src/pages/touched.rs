//! *touched*: frames of memory that the allocator itself reads or writes for a block that nobody writes to.
//!
//! 4,096 blocks are allocated and then freed, by one thread of a process without huge pages. *cold*: by how many frames that
//! makes the process larger, at its largest, the first time; they are the allocator's headers, lists and tables. *warm*:
//! how many different frames it reads or writes when all that is done again, by the marks that the processor leaves. Both
//! are for one block, that is one allocation and one free.

use std::hint::black_box;

use bursar_bench_peers::{Pages, without_huge_pages};

use crate::pages::resident::{FRAME_BYTES, Resident, forget_touches};
use crate::pages::speed::alloc;

/// Blocks held.
const BLOCKS: usize = 4096;

/// Frames for each block.
pub struct Touched {
    pub cold: f64,
    pub warm: f64,
}

/// Counts.
///
/// # Errors
/// If the kernel does not count.
pub fn run<P: Pages>(pages: &P) -> Result<Touched, String> {
    without_huge_pages().map_err(|error| format!("huge pages: {error}"))?;
    // Structures that an allocator makes once, with its first block, do not count for each block.
    pages.free(alloc(pages));
    let mut held: Vec<Option<P::Block>> = (0..BLOCKS).map(|_| None).collect();

    let before = Resident::now()?;
    held.iter_mut().for_each(|slot| *slot = Some(alloc(pages)));
    let full = Resident::now()?;
    free_all(pages, &mut held);
    let empty = Resident::now()?;
    let most = full.kept_bytes.max(empty.kept_bytes);

    // The second time everything is where it will be.
    held.iter_mut().for_each(|slot| *slot = Some(alloc(pages)));
    free_all(pages, &mut held);
    forget_touches()?;
    held.iter_mut().for_each(|slot| *slot = black_box(None));
    let nothing = Resident::now()?;
    forget_touches()?;
    held.iter_mut().for_each(|slot| *slot = Some(alloc(pages)));
    let full = Resident::now()?;
    free_all(pages, &mut held);
    let empty = Resident::now()?;
    // Frames that were given to the kernel meanwhile are no longer counted.
    let touched_bytes = full.touched_bytes.max(empty.touched_bytes);

    let each = |more: u64, less: u64| {
        let frames = more.saturating_sub(less) / FRAME_BYTES;
        frames as f64 / BLOCKS as f64
    };
    Ok(Touched {
        cold: each(most, before.kept_bytes),
        warm: each(touched_bytes, nothing.touched_bytes),
    })
}

fn free_all<P: Pages>(pages: &P, held: &mut [Option<P::Block>]) {
    held.iter_mut()
        .flat_map(Option::take)
        .for_each(|block| pages.free(block));
}
