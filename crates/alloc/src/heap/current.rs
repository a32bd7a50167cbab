//! Which group this thread is in.
//!
//! Entries are a list through frames: of scopes on the stack, of guards on the heap. Whoever leaves takes its own frame out,
//! wherever in the list it is; the thread is in the group of the last frame that is left. So guards may be dropped in any order.

use std::cell::Cell;
use std::fmt;
use std::marker::{PhantomData, PhantomPinned};
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

use bursar::Group;

use super::record::Record;

thread_local! {
    /// What allocations are charged to. Neither needs to be made nor to be dropped, so it is there as long as the thread is.
    static CURRENT: Cell<Option<&'static Record>> = const { Cell::new(None) };
    /// The frame entered last of those not left yet.
    static LAST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// Who pays for what is allocated in no group; null for nobody.
static REST: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// One entry.
struct Frame {
    record: Option<&'static Record>,
    before: Cell<*const Frame>,
    after: Cell<*const Frame>,
    /// Others point to it.
    _pinned: PhantomPinned,
}

/// Who pays for what this thread allocates now.
#[inline(always)]
pub(super) fn current() -> Option<&'static Record> {
    CURRENT.get().or_else(rest)
}

#[inline]
fn rest() -> Option<&'static Record> {
    // SAFETY: null, or a record, which is never freed; Acquire pairs with the Release in `charge_rest_to`.
    unsafe { REST.load(Ordering::Acquire).as_ref() }
}

/// From now on `group` pays for what is allocated in no group.
pub(super) fn charge_rest_to(group: &Group) {
    // The group is there for good.
    std::mem::forget(group.clone());
    let record = ptr::from_ref(Record::of(group)).cast_mut();
    // Release: pairs with the Acquire in `rest`; who sees the record sees what is in it.
    REST.store(record, Ordering::Release);
}

impl Frame {
    fn new(record: Option<&'static Record>) -> Self {
        Self {
            record,
            before: Cell::new(ptr::null()),
            after: Cell::new(ptr::null()),
            _pinned: PhantomPinned,
        }
    }

    /// Enters. Whoever calls this calls [`Frame::leave`] on the same thread before the frame is gone.
    fn enter(self: Pin<&Self>) {
        let me: *const Frame = ptr::from_ref(&*self);
        self.before.set(LAST.get());
        // In this order for a signal handler on this thread, which may enter and leave in between.
        compiler_fence(Ordering::Release);
        let before = LAST.replace(me);
        // SAFETY: frames in the list of this thread are there until they leave.
        if let Some(before) = unsafe { before.as_ref() } {
            before.after.set(me);
        }
        CURRENT.set(self.record);
    }

    fn leave(&self) {
        let (before, after) = (self.before.get(), self.after.get());
        // SAFETY: as in `enter`; our neighbours are in the same list.
        let (earlier, later) = unsafe { (before.as_ref(), after.as_ref()) };
        if let Some(earlier) = earlier {
            earlier.after.set(after);
        }
        match later {
            Some(later) => later.before.set(before),
            None => {
                LAST.set(before);
                CURRENT.set(earlier.and_then(|frame| frame.record));
            }
        }
    }
}

/// Runs `run` in no group, wherever the thread is: for what outlives whoever happens to be served, as caches do.
/// [`crate::Charged`] lists what else a group pays for by surprise.
///
/// What Bursar itself allocates in a group is not exempt: groups, readings, and what its books come to need are best made
/// outside.
pub fn outside<R>(run: impl FnOnce() -> R) -> R {
    within(None, run)
}

/// Runs `run` in the group of a record, or in none.
#[inline]
pub(super) fn within<R>(record: Option<&'static Record>, run: impl FnOnce() -> R) -> R {
    struct Leave<'a>(&'a Frame);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.leave();
        }
    }
    let frame = pin!(Frame::new(record));
    let frame = frame.into_ref();
    frame.enter();
    let _leave = Leave(frame.get_ref());
    run()
}

/// The calling thread is in a group until this is dropped; see [`GroupExt::enter`].
///
/// It belongs to its thread, so what holds it across an `.await` cannot move between threads. It must not be held there in any
/// case: others are polled on this thread meanwhile, and would be charged to the wrong group. Use
/// [`crate::InGroupExt::in_group`].
#[must_use = "dropping it leaves the group"]
pub struct Entered {
    frame: Pin<Box<Frame>>,
    /// For a guard that is never dropped: then the group is never gone.
    group: Group,
    /// It is of this thread.
    _not_send: PhantomData<*const ()>,
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entered").field(&self.group).finish()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.frame.leave();
    }
}

/// What the program's allocator adds to groups. It needs [`crate::Charged`] as the global allocator; without, entering has no
/// effect.
pub trait GroupExt {
    /// Charges what this thread allocates to the group, until the guard is dropped. Guards may be nested, and dropped in any
    /// order: the thread is in the group whose guard was made last, of those that are left. A guard keeps the group like a handle.
    /// Costs about as much as a `Box`.
    ///
    /// ```
    /// use std::alloc::System;
    /// use bursar::{Freshness, Limits, Memory};
    /// use bursar_alloc::{Charged, GroupExt};
    ///
    /// #[global_allocator]
    /// static HEAP: Charged<System> = Charged::new(System);
    ///
    /// let memory = Memory::host()?;
    /// let query = memory.root().child("query", Limits::max(64 << 20))?;
    /// let entered = query.enter();
    /// let rows: Vec<u64> = (0..100_000).collect();
    /// drop(entered);
    /// // Whoever frees them, and wherever: they are the query's.
    /// assert!(query.read(Freshness::Exact)?.usage().value >= 800_000);
    /// drop(rows);
    /// assert!(query.read(Freshness::Exact)?.usage().value < 800_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn enter(&self) -> Entered;

    /// Runs `run` in the group: what it allocates is charged to it. As [`GroupExt::enter`], and allocates nothing itself.
    ///
    /// `run` must end on the thread and the stack that it began on: a stackful coroutine must not move to another thread inside.
    fn scope<R>(&self, run: impl FnOnce() -> R) -> R;
}

impl GroupExt for Group {
    fn enter(&self) -> Entered {
        let frame = outside(|| Box::pin(Frame::new(Some(Record::of(self)))));
        frame.as_ref().enter();
        Entered {
            frame,
            group: self.clone(),
            _not_send: PhantomData,
        }
    }

    fn scope<R>(&self, run: impl FnOnce() -> R) -> R {
        within(Some(outside(|| Record::of(self))), run)
    }
}
