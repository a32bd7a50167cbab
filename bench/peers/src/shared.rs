//! Shared libraries that are loaded when they are wanted, and only then.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A library that stays loaded as long as the process.
#[derive(Clone, Copy)]
pub struct Shared(NonNull<c_void>);

impl Shared {
    /// The first of `names` that can be loaded. Its names are for us alone: whoever calls `malloc` goes on with the C
    /// library's.
    ///
    /// # Safety
    /// Code that runs when the library is loaded does no harm.
    pub unsafe fn open(names: &[&CStr]) -> Option<Self> {
        let open = |name: &&CStr| {
            // SAFETY: `name` is a C string; what loading runs, the caller answers for.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            NonNull::new(handle).map(Self)
        };
        names.iter().find_map(open)
    }

    /// Where `name` is.
    pub fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is never unloaded, and `name` is a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}
