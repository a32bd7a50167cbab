//! Engines of C, which arbiters ask to give memory back.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use bursar_arbiter::{Answer, Engine, Stop};

use crate::arbiter::{GrantHandle, attach};
use crate::arguments::sized;
use crate::callbacks::{Data, Destroy};
use crate::error::{Error, Failure, guard};
use crate::handles::Numbered;

/// An answer's handle, `bursar_answer` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnswerHandle {
    bits: u64,
}

type Reclaimable = unsafe extern "C-unwind" fn(data: *mut c_void) -> u64;
type AskFor = unsafe extern "C-unwind" fn(data: *mut c_void, bytes: u64, answer: AnswerHandle);
type TellStop = unsafe extern "C-unwind" fn(data: *mut c_void, reason: *const c_char);

/// `bursar_engine` of the header.
#[repr(C)]
pub struct EngineOption {
    size: usize,
    reclaimable: Option<Reclaimable>,
    ask: Option<AskFor>,
    stop: Option<TellStop>,
    destroy: Option<Destroy>,
    data: *mut c_void,
}

impl Default for EngineOption {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            reclaimable: None,
            ask: None,
            stop: None,
            destroy: None,
            data: ptr::null_mut(),
        }
    }
}

struct CEngine {
    data: Data,
    reclaimable: Option<Reclaimable>,
    ask: Option<AskFor>,
    stop: Option<TellStop>,
}

static ANSWERS: Numbered<Answer> = Numbered::new();

impl Engine for CEngine {
    fn reclaimable(&self) -> u64 {
        match self.reclaimable.filter(|_| self.ask.is_some()) {
            // SAFETY: as the caller's of `bursar_grant_attach`.
            Some(reclaimable) => unsafe { reclaimable(self.data.get()) },
            None => 0,
        }
    }

    fn ask(&self, bytes: u64, answer: Answer) {
        let Some(ask) = self.ask else {
            return answer.cannot();
        };
        let bits = ANSWERS.add(answer);
        // SAFETY: as above.
        unsafe { ask(self.data.get(), bytes, AnswerHandle { bits }) };
    }

    fn stop(&self, stop: &Arc<Stop>) {
        if let Some(tell) = self.stop {
            // Shown paths have an escape in the place of NUL.
            let reason = CString::new(stop.to_string()).unwrap_or_default();
            // SAFETY: as above.
            unsafe { tell(self.data.get(), reason.as_ptr()) };
        }
    }
}

/// # Safety
/// `engine` is NULL, or points to such a structure, whose functions are NULL or take its `data` on any thread. `error` is NULL, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_grant_attach(
    grant: GrantHandle,
    engine: *const EngineOption,
    error: *mut *mut Error,
) -> c_int {
    let run = || {
        // SAFETY: as the caller's; `EngineOption` has a number, a pointer, and functions that may be NULL.
        let option = unsafe { sized(engine, "engine") }?;
        attach(grant, || {
            let EngineOption { data, destroy, .. } = option;
            Arc::new(CEngine {
                data: Data { data, destroy },
                reclaimable: option.reclaimable,
                ask: option.ask,
                stop: option.stop,
            })
        })?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

fn end_answer(answer: AnswerHandle, end: impl FnOnce(Answer)) -> c_int {
    let run = || {
        end(ANSWERS.take(answer.bits).ok_or(Failure::Handle)?);
        Ok(0)
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_answer_freed(answer: AnswerHandle, bytes: u64) -> c_int {
    end_answer(answer, |answer| answer.freed(bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_answer_cannot(answer: AnswerHandle) -> c_int {
    end_answer(answer, Answer::cannot)
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_answer_drop(answer: AnswerHandle) -> c_int {
    end_answer(answer, drop)
}

version!(1: bursar_grant_attach, bursar_answer_freed, bursar_answer_cannot, bursar_answer_drop);
