//! Arguments of C.

use std::ffi::{CStr, c_char};

use crate::error::Failure;

/// A text of C's.
///
/// # Safety
/// `text` is NULL, or ends with NUL, and neither changes nor goes as long as the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &'static str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::Null(name));
    }
    // SAFETY: as the caller's.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::NotUtf8(name))
}

/// Writes a result.
///
/// # Safety
/// `to` is NULL, or can be written to. As C has it, it is aligned then.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, name: &'static str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::Null(name));
    }
    // SAFETY: as the caller's.
    unsafe { to.write(value) };
    Ok(())
}

/// Copies a structure that begins with its size, as the caller's header has it: shorter than `T` if that header is older, longer if it is
/// newer. Fields that the caller's structure lacks are those of `T`'s default.
///
/// # Safety
/// `from` is NULL, or aligned and begins with a `size_t` that tells how many bytes can be read. `T` is `repr(C)`, begins with a `usize`, and any bytes are
/// a value of it.
pub(crate) unsafe fn sized<T: Default>(from: *const T, name: &'static str) -> Result<T, Failure> {
    if from.is_null() {
        return Err(Failure::Null(name));
    }
    // SAFETY: it begins with its size, and is aligned.
    let size = unsafe { from.cast::<usize>().read() };
    if size < size_of::<usize>() || size > 4096 {
        return Err(Failure::Argument(
            "the size at the begin of a structure is not sizeof that structure",
        ));
    }
    let mut value = T::default();
    let length = size.min(size_of::<T>());
    // SAFETY: that many bytes can be read, and any bytes are a value of `T`.
    unsafe {
        from.cast::<u8>()
            .copy_to_nonoverlapping((&raw mut value).cast(), length)
    };
    Ok(value)
}
