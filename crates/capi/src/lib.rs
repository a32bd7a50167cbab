//! The C interface of Bursar. Its documentation is the header, `include/bursar.h`. A program in Rust needs [`GroupHandle`] alone, to hand a group
//! to an engine in C of the same process.
//!
//! Each function here takes what C gave it, looks up the handles, calls the Rust library, and turns the result into a number. All `unsafe`
//! code of the crate reads arguments of C or writes its results.

#![deny(clippy::undocumented_unsafe_blocks)]

/// Gives functions of the same file the version of the header that they came with. They must be in the same object as this, and one file is.
macro_rules! version {
    ($version:literal: $($function:ident),* $(,)?) => {
        $(
            #[cfg(all(feature = "versioned", target_os = "linux"))]
            std::arch::global_asm!(concat!(
                ".symver ", stringify!($function), ", ", stringify!($function), "@@BURSAR_", $version, ", remove"
            ));
        )*
    };
}

mod arbiter;
mod arguments;
mod callbacks;
mod charge;
mod engine;
mod error;
mod group;
mod handles;
mod heap;
mod pages;
mod read;

pub use handles::GroupHandle;

/// `BURSAR_ABI_VERSION` of the header that this library was built with.
#[unsafe(no_mangle)]
pub extern "C" fn bursar_abi_version() -> u32 {
    1
}

version!(1: bursar_abi_version);
