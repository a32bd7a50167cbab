//! The C interface of Bursar. Its documentation is the header, `include/bursar.h`.
//!
//! Each function here takes what C gave it, looks up the handles, calls the Rust library, and turns the result into a number. All `unsafe`
//! code of the crate reads arguments of C or writes its results.

#![deny(clippy::undocumented_unsafe_blocks)]

mod arguments;
mod callbacks;
mod charge;
mod error;
mod group;
mod handles;
mod heap;
mod pages;
mod read;

/// `BURSAR_ABI_VERSION` of the header that this library was built with.
#[unsafe(no_mangle)]
pub extern "C" fn bursar_abi_version() -> u32 {
    1
}
