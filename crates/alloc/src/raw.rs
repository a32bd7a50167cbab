//! Pages by their address.
//!
//! The safe and the unsafe half: giving up a token loses pages at worst, so [`into_raw`] is safe. Making a token from
//! an address must be exclusive. [`Memory::claim`] lets one caller do so each time that a page was given up, so two
//! frees of one address cannot both have the page. It cannot detect a late free of an address whose pages have been
//! given out again; [`from_raw`]'s contract excludes that.

use std::fmt;
use std::ptr::NonNull;

use bursar::raw::ClaimError;
use bursar::{Memory, Page};
use bursar_machine::pages::{PAGE_BYTES, Pfn};

/// Reason why an address is not one that [`into_raw`] returned and that is still in use. Nothing was touched.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FromRawError {
    /// Address that is no page of this memory: one on the stack, of another allocator, or of another memory.
    Foreign {
        /// The address.
        address: usize,
    },
    /// Freed already.
    AlreadyFreed {
        /// The address.
        address: usize,
    },
    /// An address in the middle of raw memory.
    Middle {
        /// The address.
        address: usize,
        /// The address that [`into_raw`] returned.
        start: usize,
        /// Bytes from there on.
        bytes: usize,
    },
    /// A page of this memory that is not given out as raw memory: it is free, or there is a [`Page`] for it.
    NotRaw {
        /// The address.
        address: usize,
    },
}

impl fmt::Display for FromRawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { address } => write!(f, "{address:#x} is in no page of this memory"),
            Self::AlreadyFreed { address } => {
                write!(f, "{address:#x} was freed already: a double free")
            }
            Self::Middle {
                address,
                start,
                bytes,
            } => write!(
                f,
                "{address:#x} is {} bytes into a block of {bytes} that begins at {start:#x}: only that can be freed",
                address - start
            ),
            Self::NotRaw { address } => write!(
                f,
                "{address:#x} was not given out as raw memory: its page is free, or held by its token"
            ),
        }
    }
}

bursar_machine::debug_as_message!(
    enum FromRawError {
        Foreign { address: "{:#x}" },
        AlreadyFreed { address: "{:#x}" },
        Middle { address: "{:#x}", start: "{:#x}", bytes },
        NotRaw { address: "{:#x}" },
    }
);

impl std::error::Error for FromRawError {}

/// Returns the memory of a page as an address: as many bytes as the page has, aligned to their number. The caller owns
/// them, and they stay charged to the page's group, until [`from_raw`] is called.
///
/// The bytes may be uninitialized, and hold nothing that another group wrote.
pub fn into_raw(page: Page) -> NonNull<u8> {
    let frames = *page.frames();
    // The token ends here.
    let block = page.into_block();
    frames.address(&block)
}

/// Returns the page at an address. Its bytes count as uninitialized.
///
/// Any thread may call this.
///
/// # Errors
/// [`FromRawError`] if the address must not be freed now. Nothing changes then.
///
/// # Safety
/// If the address may be freed now:
/// 1. the caller owns it: [`into_raw`] returned it to the caller, or to code that passed it on, and it has not been
///    freed since;
/// 2. nothing uses the memory any more.
pub unsafe fn from_raw(memory: &Memory, address: NonNull<u8>) -> Result<Page, FromRawError> {
    let number = address.addr().get();
    let mut frames = memory.frames();
    let found = frames.find_map(|frames| Some((frames, frames.page_at(address)?)));
    let Some((frames, (pfn, offset))) = found else {
        return Err(FromRawError::Foreign { address: number });
    };
    if offset > 0 {
        return Err(not_a_beginning(memory, number, pfn, offset));
    }
    let claim = memory.claim(pfn).map_err(|error| match error {
        ClaimError::AlreadyFreed { .. } => FromRawError::AlreadyFreed { address: number },
        _ => not_a_beginning(memory, number, pfn, 0),
    })?;
    // SAFETY: the claim is for pages of this very reservation whose token was given up, and no other claim has one for
    // them. By (1) the token was given up in `into_raw`, where it ended, and so it exists nowhere; by (2) nothing uses
    // the pages.
    let block = unsafe { frames.reclaim(claim.pfn(), claim.order(), claim.owner()) };
    Ok(claim.page(memory, block))
}

/// Finds the error for an address inside a reservation, `offset` bytes into a page.
fn not_a_beginning(memory: &Memory, address: usize, pfn: Pfn, offset: usize) -> FromRawError {
    let Some((first, order)) = memory.raw_block(pfn) else {
        return FromRawError::NotRaw { address };
    };
    let before = (pfn.0 - first.0) as usize * PAGE_BYTES + offset;
    FromRawError::Middle {
        address,
        start: address - before,
        bytes: order.bytes(),
    }
}
