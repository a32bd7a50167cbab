//! gperftools' tcmalloc, from the distribution, if it is installed.

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use crate::heap::{Heap, Library};
use crate::shared::Shared;
use crate::{Absent, FRAME_BYTES};

const NAMES: [&CStr; 2] = [c"libtcmalloc_minimal.so.4", c"libtcmalloc.so.4"];

type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

/// Its `tc_memalign` and `tc_free`.
pub struct Tcmalloc {
    memalign: Memalign,
    free: Free,
}

/// Blocks from tcmalloc.
///
/// # Errors
/// If it is not installed.
pub fn tcmalloc<const BYTES: usize>() -> Result<Heap<Tcmalloc, BYTES>, Absent> {
    let loaded = load().ok_or_else(|| {
        Absent("not installed (Debian: apt-get install libtcmalloc-minimal4)".to_owned())
    });
    loaded.map(Heap)
}

fn load() -> Option<Tcmalloc> {
    // SAFETY: loaded like this it sets itself up, and replaces nobody's `malloc`.
    let library = unsafe { Shared::open(&NAMES) }?;
    let (memalign, free) = (library.symbol(c"tc_memalign")?, library.symbol(c"tc_free")?);
    // SAFETY: these are their types, by `gperftools/tcmalloc.h`; the library stays loaded.
    let (memalign, free) = unsafe {
        (
            transmute::<NonNull<c_void>, Memalign>(memalign),
            transmute::<NonNull<c_void>, Free>(free),
        )
    };
    Some(Tcmalloc { memalign, free })
}

// SAFETY: tcmalloc hands out memory of the size asked for, to one caller at a time. There is one in a process.
unsafe impl Library for Tcmalloc {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { (self.memalign)(FRAME_BYTES, bytes).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, _bytes: usize) {
        // SAFETY: the caller says that it came from `alloc` and was not freed.
        unsafe { (self.free)(start.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::tests::no_two_overlap;

    #[test]
    fn no_two_blocks_overlap_where_it_is_installed() {
        if let Ok(pages) = tcmalloc::<4096>() {
            no_two_overlap(&pages, 4096, 500, FRAME_BYTES);
        }
        if let Ok(pages) = tcmalloc::<65536>() {
            no_two_overlap(&pages, 65536, 50, FRAME_BYTES);
        }
    }
}
