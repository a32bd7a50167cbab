//! The group that this thread is in.
//!
//! Entries are a list through frames: of scopes on the stack, of guards on the heap. Leaving removes the entry's own
//! frame, at any place in the list. The thread is in the group of the last frame that is left, so guards may be dropped
//! in any order.

use std::cell::Cell;
use std::fmt;
use std::marker::{PhantomData, PhantomPinned};
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

use bursar::Group;
use bursar_machine::host::is_in_operation;

use super::record::Record;

thread_local! {
    /// Record that this thread's allocations are charged to. Needs no initialization and no destructor, so it exists as
    /// long as the thread does.
    static CURRENT: Cell<Option<&'static Record>> = const { Cell::new(None) };
    /// Last frame entered, of those not left yet.
    static LAST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// Payer for allocations in no group; null if there is none.
static REST: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// Owner of the handle that keeps an entry's group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// The caller of the function that entered: the group stays at least until that function returns.
    ByScope,
    /// A guard, which any code on this thread may drop.
    ByGuard,
}

/// One entry.
struct Frame {
    record: Option<&'static Record>,
    kept: Kept,
    before: Cell<*const Frame>,
    after: Cell<*const Frame>,
    /// Pinned, because other frames point to it.
    _pinned: PhantomPinned,
}

/// Returns the record that pays for this thread's allocations now. The group that the thread is in does not pay for Bursar's own
/// records: they are reused and outlive it, so it would never be empty.
#[inline(always)]
pub(super) fn payer() -> Option<&'static Record> {
    match CURRENT.get() {
        Some(record) if !is_in_operation() => Some(record),
        _ => rest(),
    }
}

#[inline]
fn rest() -> Option<&'static Record> {
    // SAFETY: null, or a record, which is never freed; Acquire pairs with the Release in `charge_rest_to`.
    unsafe { REST.load(Ordering::Acquire).as_ref() }
}

/// Makes `group` pay for allocations in no group from now on.
pub(super) fn charge_rest_to(group: &Group) {
    // The group is there for good, and nobody can end what the process itself does.
    std::mem::forget(group.clone());
    group.exclude_from_victims();
    let record = ptr::from_ref(Record::of(group)).cast_mut();
    // Release: pairs with the Acquire in `rest`; a thread that sees the record sees its fields.
    REST.store(record, Ordering::Release);
}

impl Frame {
    fn new(record: Option<&'static Record>, kept: Kept) -> Self {
        Self {
            record,
            kept,
            before: Cell::new(ptr::null()),
            after: Cell::new(ptr::null()),
            _pinned: PhantomPinned,
        }
    }

    /// Enters.
    ///
    /// # Safety
    /// Each frame enters once. [`Frame::leave`] is called once, afterwards, on the same thread, before the frame is gone. A frame that is
    /// never gone need not leave.
    unsafe fn enter(self: Pin<&Self>) {
        let me: *const Frame = ptr::from_ref(&*self);
        self.before.set(LAST.get());
        // Release: pairs with the reads of a signal handler on this thread, which may enter and leave in between.
        compiler_fence(Ordering::Release);
        let before = LAST.replace(me);
        // SAFETY: frames in the list of this thread are there until they leave, by the contract of those that entered.
        if let Some(before) = unsafe { before.as_ref() } {
            before.after.set(me);
        }
        CURRENT.set(self.record);
    }

    /// Leaves, once, where [`Frame::enter`] was called.
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

/// Runs `run` in no group, wherever the thread is. For values that outlive the request that happens to make them, such
/// as caches. [`crate::Charged`] lists what else a group pays for by surprise.
///
/// Bursar's own records need it not. No group that the thread is in pays for the records of groups and of waiting charges.
pub fn outside<R>(run: impl FnOnce() -> R) -> R {
    within(None, run)
}

/// Returns the group that the calling thread is in: by [`GroupExt::scope`], [`GroupExt::enter`], or a future or stream that
/// [`crate::InGroupExt::in_group`] made. The innermost counts. `None` if the thread is in no group, or within [`outside`].
///
/// So code deep in a program can charge or count for its tenant without a [`Group`] in each signature. It works with any global
/// allocator, also without [`crate::Charged`]. A group that pays for all else ([`crate::Charged::charge_rest_to`]) is not returned.
/// A spawned task or thread begins in no group.
///
/// The handle keeps the group, and costs a contended atomic operation to make and another to drop. [`with_current`] usually costs
/// neither. Not async-signal-safe, because dropping a handle may take locks.
///
/// ```
/// use bursar::{Counter, Freshness, Limits, Memory, Statistic};
/// use bursar_alloc::{GroupExt, current, outside, with_current};
///
/// const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
/// const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
///
/// fn deep_in_the_program() {
///     with_current(|tenant| tenant.add(ROWS, 10));
/// }
///
/// let memory = Memory::builder().statistics(STATISTICS).build()?;
/// let tenant = memory.root().child("tenant", Limits::none())?;
/// tenant.scope(|| {
///     deep_in_the_program();
///     assert_eq!(current(), Some(tenant.clone()));
///     assert_eq!(outside(current), None);
/// });
/// assert_eq!(current(), None);
/// deep_in_the_program();      // counts nothing
/// assert_eq!(tenant.read(Freshness::Exact)?.get(ROWS).value, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn current() -> Option<Group> {
    let (record, _) = innermost()?;
    Some(record.account.with_group(Group::clone))
}

/// Runs `run` with the group that the calling thread is in, and returns what it returns; `None` if [`current`] is.
///
/// In a scope or a future this counts no reference and touches no shared line. In the group of a guard ([`GroupExt::enter`]) it
/// costs as much as [`current`], because `run` may drop the guard.
///
/// In a scope or a future it is async-signal-safe if `run` is. In the group of a guard it is not.
pub fn with_current<R>(run: impl FnOnce(&Group) -> R) -> Option<R> {
    let (record, kept) = innermost()?;
    Some(match kept {
        // `run` ends before the scope that it runs in, and so before the group's handle there.
        Kept::ByScope => record.account.with_group(run),
        Kept::ByGuard => run(&record.account.with_group(Group::clone)),
    })
}

/// The record of the innermost group, and what keeps it.
fn innermost() -> Option<(&'static Record, Kept)> {
    // SAFETY: null, or a frame that this thread entered and has not left, so it is there.
    let frame = unsafe { LAST.get().as_ref() }?;
    Some((frame.record?, frame.kept))
}

/// Runs `run` in the group of a record, or in none. A group that is entered stays until this returns.
#[inline]
pub(super) fn within<R>(record: Option<&'static Record>, run: impl FnOnce() -> R) -> R {
    struct Leave<'a>(&'a Frame);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.leave();
        }
    }
    let frame = pin!(Frame::new(record, Kept::ByScope));
    let frame = frame.into_ref();
    // SAFETY: it is pinned on this stack, and `_leave` leaves before it is gone.
    unsafe { frame.enter() };
    let _leave = Leave(frame.get_ref());
    run()
}

/// Keeps the calling thread in a group until it is dropped; see [`GroupExt::enter`].
///
/// The guard belongs to its thread, so a future that holds it across an `.await` cannot move between threads. Do not
/// hold it there in any case: the thread polls other futures meanwhile, and their allocations would be charged to the
/// wrong group. Use [`crate::InGroupExt::in_group`].
#[must_use = "dropping it leaves the group"]
pub struct Entered {
    frame: Pin<Box<Frame>>,
    /// Keeps the group of a guard that is never dropped.
    group: Group,
    /// Bound to its thread.
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

/// Entering and leaving groups, for the program's allocator. Needs [`crate::Charged`] as the global allocator; without
/// it, entering only decides [`current`].
pub trait GroupExt {
    /// Charges this thread's allocations to the group until the guard is dropped. Guards may be nested, and dropped in
    /// any order: the thread is in the group of the newest guard that is left. A guard keeps the group like a handle.
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

    /// Runs `run` in the group, and charges its allocations to it. As [`GroupExt::enter`], but without an allocation of
    /// its own.
    ///
    /// `run` must end on the thread and the stack that it began on: a stackful coroutine must not move to another
    /// thread inside it.
    fn scope<R>(&self, run: impl FnOnce() -> R) -> R;
}

impl GroupExt for Group {
    fn enter(&self) -> Entered {
        let frame = outside(|| Box::pin(Frame::new(Some(Record::of(self)), Kept::ByGuard)));
        // SAFETY: the guard stays on this thread and leaves when it is dropped. A guard that is never dropped leaks the frame.
        unsafe { frame.as_ref().enter() };
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
