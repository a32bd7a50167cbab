//! Stackful coroutines.
//!
//! Code that runs on the simulated machine is written for threads. It calls [`suspend`] from deep inside, at any
//! visible operation, and does not know of it. So each task has a stack of its own. corosensei switches stacks in a few
//! nanoseconds. Stacks are reserved, not touched, and reused from one run to the next.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Address space of one stack, bytes. Pages that are not touched take no memory.
const STACK_BYTES: usize = 256 << 10;
/// Number of stacks that are kept for reuse.
const STACKS_KEPT: usize = 1 << 15;

/// Number of places at which a stack may begin, a cache line apart: half a page (judgement). Stacks lie pages apart: if all began at the same place of a page,
/// their lines would compete for the same few sets of the host's cache.
const COLOURS: usize = 32;

type Switch = Yielder<(), ()>;

thread_local! {
    /// Switch of the routine that runs now on this thread; null outside of all.
    static RUNNING: Cell<*const Switch> = const { Cell::new(ptr::null()) };
    static STACKS: RefCell<Vec<Coloured>> = const { RefCell::new(Vec::new()) };
    /// Number of stacks made so far.
    static MADE: Cell<usize> = const { Cell::new(0) };
}

/// Stack that begins below its top.
struct Coloured {
    stack: DefaultStack,
    below_top: usize,
}

impl Coloured {
    fn new() -> std::io::Result<Self> {
        let number = MADE.replace(MADE.get() + 1);
        Ok(Self {
            stack: DefaultStack::new(STACK_BYTES)?,
            below_top: number % COLOURS * 64,
        })
    }
}

// SAFETY: it is the stack inside, with its guard page, less at most 2 KiB of 256. Its base is aligned, because 64 is a multiple of
// every stack's alignment.
unsafe impl Stack for Coloured {
    #[inline]
    fn base(&self) -> StackPointer {
        let base = self.stack.base().get() - self.below_top;
        StackPointer::new(base).expect("far above 0")
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }
}

/// Stack of a task, and the place where it stopped.
pub(crate) struct Routine {
    /// `Some` until dropped.
    coroutine: Option<Coroutine<(), (), (), Coloured>>,
    switch: *const Switch,
}

impl Routine {
    /// Makes a routine that will run `body`, which must not panic.
    ///
    /// # Errors
    /// The system's error, if it has no room for a stack.
    ///
    /// # Safety
    /// All that `body` borrows must live until the routine has ended or is dropped.
    pub(crate) unsafe fn new<'scope>(body: Box<dyn FnOnce() + 'scope>) -> std::io::Result<Self> {
        let kept = STACKS.with_borrow_mut(Vec::pop);
        let stack = kept.map_or_else(Coloured::new, Ok)?;
        let start = move |switch: &Switch, ()| {
            RUNNING.set(switch);
            body();
        };
        Ok(Self {
            // SAFETY: the only bound that is not checked here is `'scope` on the body, for which the caller answers.
            // Nothing is passed in or out.
            coroutine: Some(unsafe { Coroutine::with_stack_unchecked(stack, start) }),
            switch: ptr::null(),
        })
    }

    /// Runs on until the routine suspends itself (`false`) or ends (`true`).
    #[inline]
    pub(crate) fn resume(&mut self) -> bool {
        let resumer = RUNNING.replace(self.switch);
        let coroutine = self.coroutine.as_mut().expect("there until dropped");
        let result = coroutine.resume(());
        self.switch = RUNNING.replace(resumer);
        matches!(result, CoroutineResult::Return(()))
    }
}

impl Drop for Routine {
    /// Gives up a routine that has not ended: the values on its stack are leaked, never used again.
    fn drop(&mut self) {
        let Some(mut coroutine) = self.coroutine.take() else {
            return;
        };
        if coroutine.started() && !coroutine.done() {
            // SAFETY: no destructor on that stack runs, which safe code must allow for. Only `switch` points to it from
            // outside, and that goes with us. Two things would be exceptions: values that a suspended task shares with
            // other threads of the host (`std::thread::scope` around a visible operation), and values that it has
            // pinned there. Code that is written against `Machine` has neither.
            unsafe { coroutine.force_reset() };
        }
        if !coroutine.started() {
            return;
        }
        let stack = coroutine.into_stack();
        // The thread's list is gone if the thread is ending.
        let _ = STACKS.try_with(|stacks| {
            let mut stacks = stacks.borrow_mut();
            if stacks.len() < STACKS_KEPT {
                stacks.push(stack);
            }
        });
    }
}

/// Stops the running routine until it is resumed.
#[inline]
pub(crate) fn suspend() {
    let switch = RUNNING.get();
    assert!(!switch.is_null(), "nothing to suspend outside of a routine");
    // SAFETY: `RUNNING` is the switch of the routine that we are on. `resume` sets it at each entry and takes it back
    // when the routine stops, and corosensei keeps it alive as long as the routine's body runs.
    unsafe { (*switch).suspend(()) };
}

/// Stops the running routine for good.
pub(crate) fn give_up() -> ! {
    loop {
        suspend();
    }
}

/// Returns whether the caller runs on a routine.
pub(crate) fn is_inside() -> bool {
    !RUNNING.get().is_null()
}

/// Value that can be reached from anywhere on the thread while it is installed.
pub(crate) struct Installed<T: 'static> {
    place: &'static std::thread::LocalKey<Cell<*const T>>,
    /// Pointer from a box. Not the box itself, because moving a box asserts that it is the only access to its value.
    value: NonNull<T>,
}

impl<T: 'static> Installed<T> {
    /// Puts `value` at `place` until the result is dropped.
    pub(crate) fn new(
        place: &'static std::thread::LocalKey<Cell<*const T>>,
        value: Box<T>,
    ) -> Self {
        assert!(
            place.get().is_null(),
            "one simulator at a time on each thread"
        );
        let value = NonNull::from(Box::leak(value));
        place.set(value.as_ptr());
        Self { place, value }
    }

    /// The value.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: it is ours until we are dropped, and only ever shared.
        unsafe { self.value.as_ref() }
    }
}

impl<T: 'static> Drop for Installed<T> {
    fn drop(&mut self) {
        self.place.set(ptr::null());
        // SAFETY: from a box, in `new`, and no code can reach it any more.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

/// Calls `work` with the value installed at `place`; `None` if there is none.
#[inline]
pub(crate) fn with_installed<T: 'static, R>(
    place: &'static std::thread::LocalKey<Cell<*const T>>,
    work: impl FnOnce(&T) -> R,
) -> Option<R> {
    let value = place.get();
    // SAFETY: not null, so `Installed` owns it, at this address, until it takes the pointer away again. `work` runs
    // inside the simulator: routines that suspend in it have ended or been given up before a run ends, and a
    // `Simulator` is never freed during a run.
    unsafe { value.as_ref() }.map(work)
}

/// Removes the lifetime of a closure, so that it can be stored.
///
/// # Safety
/// The result must be dropped before `'scope` ends.
pub(crate) unsafe fn forget_scope<'scope>(
    check: Box<dyn FnMut() + 'scope>,
) -> Box<dyn FnMut() + 'static> {
    // SAFETY: only the lifetime changes, and the caller keeps to it.
    unsafe { std::mem::transmute(check) }
}
