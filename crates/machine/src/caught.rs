//! Calls of users' code whose panics end here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a user's code. `None` if it panicked: the panic ends here, and its hook has shown the message.
///
/// The drop of the panic's payload runs the user's code, too. A payload that it throws is leaked. The caller holds no lock of ours, and has
/// nothing half changed.
pub fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => Some(answer),
        Err(thrown) => {
            if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
                std::mem::forget(thrown);
            }
            None
        }
    }
}
