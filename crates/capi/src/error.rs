//! Errors: a number of errno's, and a text for people.

use std::any::Any;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use bursar::engine::NowaitError;
use bursar::{AllocPagesError, ChargeError, CreateError, MemoryError, RemoveError};
use bursar_alloc::FromRawError;
use bursar_arbiter::{AdmitError, GrowError};

/// Reason why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Charge(ChargeError),
    Nowait(NowaitError),
    Create(CreateError),
    Memory(MemoryError),
    Remove(RemoveError),
    Pages(AllocPagesError),
    FreePages(FromRawError),
    Admit(AdmitError),
    Grow(GrowError),
    /// The system starts no thread.
    Thread(io::Error),
    /// A handle that was released, or was never given.
    Handle,
    TooManyHandles,
    /// The argument of this name is NULL.
    Null(&'static str),
    /// The text of this name is not UTF-8.
    NotUtf8(&'static str),
    /// An argument is out of its range, for this reason.
    Argument(&'static str),
    /// There is no group of this path below.
    NoGroup(String),
    /// The numbers are older than was asked for.
    NotFresh(String),
    /// A bug: a panic with this text.
    Panic(String),
}

impl Failure {
    fn errno(&self) -> c_int {
        match self {
            Self::Pages(AllocPagesError::Refused(error)) => Self::Charge(error.clone()).errno(),
            Self::Admit(AdmitError::Create(error)) => Self::Create(error.clone()).errno(),
            Self::Grow(GrowError::Charge(error)) => Self::Charge(error.clone()).errno(),
            Self::Grow(GrowError::Stopped(_)) => libc::ECANCELED,
            Self::Grow(GrowError::NobodyYields { .. }) => libc::EDEADLK,
            Self::Grow(GrowError::TimedOut { .. }) | Self::Admit(AdmitError::TimedOut { .. }) => {
                libc::ETIMEDOUT
            }
            Self::Grow(GrowError::NeverFits { .. }) | Self::Admit(AdmitError::NeverFits { .. }) => {
                libc::E2BIG
            }
            Self::Thread(error) => error.raw_os_error().unwrap_or(libc::EAGAIN),
            Self::Pages(_)
            | Self::Grow(GrowError::Nested { .. })
            | Self::Admit(AdmitError::Nested { .. })
            | Self::Charge(ChargeError::LimitReached(_))
            | Self::Nowait(NowaitError::LimitReached)
            | Self::Create(CreateError::OutOfMemory)
            | Self::Memory(MemoryError::OutOfMemory) => libc::ENOMEM,
            Self::Charge(ChargeError::Removed { .. })
            | Self::Nowait(NowaitError::Removed)
            | Self::Create(CreateError::ParentRemoved { .. })
            | Self::Admit(AdmitError::Removed { .. })
            | Self::NoGroup(_) => libc::ENOENT,
            Self::Charge(ChargeError::TooLarge { .. }) | Self::Nowait(NowaitError::TooLarge) => {
                libc::EOVERFLOW
            }
            Self::Nowait(NowaitError::Busy) => libc::EBUSY,
            Self::Create(CreateError::LongName { .. }) => libc::ENAMETOOLONG,
            Self::Create(CreateError::Exists { .. }) => libc::EEXIST,
            Self::Create(CreateError::TooDeep) => libc::EMLINK,
            Self::Memory(MemoryError::Start(_)) => libc::ENOTSUP,
            Self::Remove(RemoveError::Root) => libc::EPERM,
            Self::Remove(_) => libc::ENOTEMPTY,
            // Its handle was closed during the wait.
            Self::Handle | Self::Grow(GrowError::Ended) => libc::EBADF,
            Self::TooManyHandles => libc::ENFILE,
            Self::NotUtf8(_) => libc::EILSEQ,
            Self::NotFresh(_) => libc::EAGAIN,
            Self::Panic(_) => libc::ENOTRECOVERABLE,
            // Names and statistics that cannot be, and reasons that a later version of the library adds.
            Self::Create(_)
            | Self::Admit(_)
            | Self::Grow(_)
            | Self::Memory(_)
            | Self::Charge(_)
            | Self::Nowait(_)
            | Self::FreePages(_)
            | Self::Null(_)
            | Self::Argument(_) => libc::EINVAL,
        }
    }
}

impl Failure {
    /// Whether the request is larger than the limit that refused it.
    fn never_fits(&self) -> bool {
        match self {
            Self::Grow(GrowError::NeverFits { .. }) | Self::Admit(AdmitError::NeverFits { .. }) => {
                true
            }
            Self::Charge(ChargeError::LimitReached(reached))
            | Self::Grow(GrowError::Charge(ChargeError::LimitReached(reached)))
            | Self::Pages(AllocPagesError::Refused(ChargeError::LimitReached(reached))) => {
                reached.never_fits()
            }
            _ => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // With the tree around the limit.
            Self::Charge(error) | Self::Grow(GrowError::Charge(error)) => write!(f, "{error:#}"),
            Self::Nowait(error) => error.fmt(f),
            Self::Create(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Remove(error) => error.fmt(f),
            Self::Pages(AllocPagesError::Refused(error)) => write!(f, "{error:#}"),
            Self::Pages(error) => error.fmt(f),
            Self::FreePages(error) => error.fmt(f),
            Self::Admit(error) => error.fmt(f),
            Self::Grow(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "the system starts no thread: {error}"),
            Self::Handle => f.write_str("the handle was released, or is none"),
            Self::TooManyHandles => f.write_str("too many handles: at most 16777216 at a time"),
            Self::Null(name) => write!(f, "{name} is NULL"),
            Self::NotUtf8(name) => write!(f, "{name} is not UTF-8"),
            Self::Argument(reason) => f.write_str(reason),
            Self::NoGroup(path) => write!(f, "there is no group {}", bursar::printable(path)),
            Self::NotFresh(reason) => f.write_str(reason),
            Self::Panic(text) => write!(f, "a bug of Bursar or of a callback: {text}"),
        }
    }
}

macro_rules! from {
    ($($error:ident => $kind:ident),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::$kind(error)
            }
        })*
    };
}
from!(ChargeError => Charge, NowaitError => Nowait, CreateError => Create, MemoryError => Memory, RemoveError => Remove, AllocPagesError => Pages, FromRawError => FreePages, AdmitError => Admit, GrowError => Grow);

/// An error as C has it.
#[derive(Debug)]
pub struct Error {
    errno: c_int,
    never_fits: bool,
    text: CString,
}

/// Runs `run`, and turns its failure, or a panic, into a negative number of errno's.
///
/// # Safety
/// `error` is NULL, or can be written to.
#[inline(always)]
pub(crate) unsafe fn guard(
    error: *mut *mut Error,
    run: impl FnOnce() -> Result<i64, Failure>,
) -> i64 {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        // SAFETY: as the caller's.
        Ok(Err(failure)) => unsafe { fail(error, failure) },
        // SAFETY: as the caller's.
        Err(panic) => unsafe { fail(error, Failure::Panic(text_of(&*panic))) },
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

/// Writes the error if the caller wants one, and returns its number.
///
/// # Safety
/// `error` is NULL, or can be written to.
#[cold]
#[inline(never)]
unsafe fn fail(error: *mut *mut Error, failure: Failure) -> i64 {
    let (errno, never_fits) = (failure.errno(), failure.never_fits());
    if !error.is_null() {
        let mut text = failure.to_string().into_bytes();
        text.retain(|byte| *byte != 0);
        let text = CString::new(text).expect("without NUL");
        // SAFETY: it can be written to.
        unsafe {
            *error = Box::into_raw(Box::new(Error {
                errno,
                never_fits,
                text,
            }))
        };
    }
    -i64::from(errno)
}

/// Returns the error's number of errno's, positive; 0 for NULL.
///
/// # Safety
/// `error` is NULL, or an error that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_error_number(error: *const Error) -> c_int {
    // SAFETY: as the caller's.
    unsafe { error.as_ref() }.map_or(0, |error| error.errno)
}

/// Returns 1 if a limit refused a request that is larger than the limit; 0 otherwise, and for NULL.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_error_never_fits(error: *const Error) -> c_int {
    // SAFETY: as the caller's.
    unsafe { error.as_ref() }.map_or(0, |error| c_int::from(error.never_fits))
}

/// Returns the error's text, which lives as long as the error; NULL for NULL.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_error_text(error: *const Error) -> *const c_char {
    // SAFETY: as the caller's.
    unsafe { error.as_ref() }.map_or(ptr::null(), |error| error.text.as_ptr())
}

/// Frees an error; nothing for NULL.
///
/// # Safety
/// `error` is NULL, or an error that is not freed, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_error_free(error: *mut Error) {
    if !error.is_null() {
        // SAFETY: it came from `fail`.
        drop(unsafe { Box::from_raw(error) });
    }
}

version!(1: bursar_error_number, bursar_error_never_fits, bursar_error_text, bursar_error_free);
