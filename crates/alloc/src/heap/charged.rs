//! The allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::marker::PhantomData;
use std::ptr;

use bursar::Group;

use super::current::{charge_rest_to, payer};
use super::label::{Excess, Label, with_label};
use super::real::{RealSize, UsableByClass};
use super::record::Record;

/// An allocator that charges each block to the group that the allocating thread is in ([`crate::GroupExt::enter`],
/// [`crate::InGroupExt::in_group`]), by the bytes that it really takes. A free returns the bytes to that same group,
/// from any thread and any group.
///
/// A block that grows or shrinks stays with the group that it was charged to first. Allocations in no group are charged
/// to no group, or to the one given to [`Charged::charge_rest_to`].
///
/// # Limits
/// Most programs end when an allocation fails. So no allocation fails because of a limit: it exceeds the limit, as
/// [`Engine::charge_nowait`](bursar::engine::Engine::charge_nowait) does. Then [`bursar::Group::is_over_max`] is true, and the group's pressure is critical
/// ([`Group::on_pressure`]). Code that asks before it allocates is refused ([`Group::try_charge`], an engine's
/// reservations, [`crate::GroupAlloc`]), except for bytes that the stock of its CPU covers. The program must end the
/// work that uses too much.
///
/// **Run a ticker** ([`bursar::Memory::start_ticker`]). An allocator must not take back stock or call callbacks.
/// The next operation that may wait does both. In a program that only allocates, that operation is
/// [`bursar::Memory::tick`].
///
/// # Reserve or count
/// This allocator *counts* bytes that are allocated. An engine *reserves* bytes by [`Group::try_charge`] before it allocates them. If
/// a group does both for the same bytes, it pays for them twice. [`Group`] has a table of the two ways. A group may reserve some
/// bytes and count others, and [`crate::Twin`] keeps the two apart.
///
/// ```
/// # use std::alloc::System;
/// # use bursar_alloc::Charged;
/// # #[global_allocator]
/// # static HEAP: Charged<System> = Charged::new(System);
/// use bursar::{Freshness, Limits, Memory};
/// use bursar_alloc::{GroupExt, outside};
///
/// let memory = Memory::host()?;
/// let query = memory.root().child("query", Limits::max(64 << 20))?;
/// query.scope(|| {
///     let reserved = query.try_charge(8 << 20)?;          // may be refused
///     let sorted = outside(|| vec![0_u8; 8 << 20]);       // reserved, so not counted
///     let names: Vec<String> = (0..1000).map(|row| format!("row {row}")).collect();   // counted
///     let usage = query.read(Freshness::Exact)?.usage_bytes();
///     assert!((8 << 20..9 << 20).contains(&usage));
/// #   drop((reserved, sorted, names));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Charges that may surprise
/// A group pays for each block that its threads allocate in it, including blocks that other code keeps for later users.
/// Such a block stays charged until it is freed, often until the process ends.
///
/// * **Backtraces.** The standard library parses the program's debug information for the first backtrace that it prints, and keeps
///   the result: up to tens of megabytes. Under `RUST_BACKTRACE=1` a caught panic in a group is enough.
///   [`crate::panics_charge_nobody`] prevents this for panics, but not for a backtrace that the program prints itself.
/// * **Values made at first use**: `LazyLock`, `OnceLock`, `thread_local!`. The group of the first user pays.
/// * **Buffers of `stdin` and `stdout`**: 8 KiB and 1 KiB, made at first use.
/// * **Pools.** A connection pool keeps the connection that one request opened. A compiled regular expression keeps its caches.
/// * **Callbacks of pressure, and reclaimers.** They run on a thread that charges, in its group.
/// * **Queues of an async runtime** and of channels. They grow when a task in a group is the first to need the room.
///
/// Use [`crate::outside`] for all of them. Run the first use within it, before any group needs the value. Or run each use
/// within it that may keep a block for later users.
///
/// ```
/// # use std::alloc::System;
/// # use bursar_alloc::Charged;
/// # #[global_allocator]
/// # static HEAP: Charged<System> = Charged::new(System);
/// use std::sync::{LazyLock, Mutex};
/// use bursar::{Freshness, Limits, Memory};
/// use bursar_alloc::{GroupExt, outside, panics_charge_nobody};
///
/// static SQUARES: LazyLock<Vec<u64>> = LazyLock::new(|| (0..100_000).map(|n| n * n).collect());
/// static ANSWERS: Mutex<Vec<String>> = Mutex::new(Vec::new());
///
/// panics_charge_nobody();                             // when the program starts
/// outside(|| LazyLock::force(&SQUARES));
///
/// let memory = Memory::host()?;
/// let tenant = memory.root().child("tenant", Limits::max(1 << 20))?;
/// tenant.scope(|| {
///     let sum: u64 = SQUARES.iter().sum();            // the tenant pays for no square
///     let answer = format!("{sum:>50000}");           // and for its answer until it is dropped
///     outside(|| ANSWERS.lock().unwrap().push(answer.clone()));   // but not for the copy that all tenants share
/// });
/// assert!(tenant.read(Freshness::Exact)?.usage().value < 10_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// Each block, charged or not, is eight bytes longer. A charged block also costs a charge and a return (see
/// BENCHMARKS.md). The eight bytes may move a block to the next size class, or add a page. Allocating zeroed memory in
/// a group touches its last page. A group above its limit has no stock, so each block is charged to all groups on the
/// way up: some hundred nanoseconds, and words that all CPUs write. The compiler removes some blocks that a function makes and
/// frees, if it knows the allocator; blocks with labels stay.
///
/// # Guarantees
/// It allocates nothing for itself, takes no lock and calls no callback. So it may be used wherever `A` may: in
/// destructors of thread-locals, before `main`, and in a signal handler if `A` may. If `A` fails, the allocation fails,
/// and nothing is charged. Conservation: a free returns exactly the bytes that were charged for the block.
#[derive(Debug)]
pub struct Charged<A = System, R = UsableByClass> {
    inner: A,
    real: PhantomData<fn() -> R>,
}

impl Charged<System> {
    /// Wraps the system's allocator.
    pub const fn new(system: System) -> Self {
        Self::over(system)
    }
}

impl<A, R: RealSize<A>> Charged<A, R> {
    /// Wraps any allocator. `R` reports the bytes that its blocks really take. For [`System`] that is
    /// [`UsableByClass`], or [`crate::Usable`], which is more exact and slower. For an allocator without a better
    /// answer it is [`crate::ByLayout`].
    ///
    /// ```
    /// use bursar_alloc::{ByLayout, Charged};
    /// # use std::alloc::System as Fast;
    ///
    /// #[global_allocator]
    /// static HEAP: Charged<Fast, ByLayout> = Charged::over(Fast);
    /// ```
    pub const fn over(inner: A) -> Self {
        Self {
            inner,
            real: PhantomData,
        }
    }

    /// Returns the wrapped allocator.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Charges all later allocations that are made in no group to `group`. Applies to all threads, and to all [`Charged`] of the
    /// process. Earlier allocations stay uncharged.
    ///
    /// The group stays until the process ends. It is excluded from [`Group::choose_victim`], because no caller can end it.
    pub fn charge_rest_to(&self, group: &Group) {
        charge_rest_to(group);
    }

    /// Charges a new block and writes its label.
    ///
    /// # Safety
    /// `inner` allocated `block` with `outer`, which has room for `bytes` bytes and a label; the caller owns it.
    #[inline(always)]
    unsafe fn charge(&self, block: *mut u8, bytes: usize, outer: Layout) {
        let label = match payer() {
            None => Label::NOBODY,
            Some(record) => {
                // SAFETY: as the caller says.
                let real = unsafe { R::real_size(&self.inner, block, outer) };
                record.account.charge_nowait(real as u64);
                Label::new(record, real - bytes)
            }
        };
        // SAFETY: as the caller says.
        unsafe { label.put(block, bytes) }
    }

    /// Returns the record that was charged for a block in use, and the bytes charged.
    ///
    /// # Safety
    /// This allocator allocated `block` with `layout`, and the block has not been freed.
    #[inline(always)]
    unsafe fn charged(&self, block: *mut u8, layout: Layout) -> Option<(&'static Record, usize)> {
        // SAFETY: it has a label, as each block.
        let (record, excess) = unsafe { Label::of(block, layout.size()) }.charged()?;
        let bytes = match excess {
            Excess::Bytes(excess) => layout.size() + excess,
            Excess::AskAgain => {
                let outer = with_label(layout)?;
                // SAFETY: that is how it was allocated.
                unsafe { R::real_size(&self.inner, block, outer) }
            }
        };
        Some((record, bytes))
    }
}

// SAFETY: all blocks are the inner allocator's, and larger than asked for by a label that nobody else sees; the inner
// allocator's guarantees are ours. Nothing here unwinds.
unsafe impl<A: GlobalAlloc, R: RealSize<A>> GlobalAlloc for Charged<A, R> {
    // Always inlined, this and `dealloc`: into the function that the compiler makes of each for the program's global allocator. The
    // compiler may inline that function again, into code that makes and frees blocks; labels are safe from this (`label.rs`).
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(outer) = with_label(layout) else {
            return ptr::null_mut();
        };
        // SAFETY: not of size zero.
        let block = unsafe { self.inner.alloc(outer) };
        if !block.is_null() {
            // SAFETY: just allocated.
            unsafe { self.charge(block, layout.size(), outer) };
        }
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(outer) = with_label(layout) else {
            return ptr::null_mut();
        };
        // SAFETY: not of size zero.
        let block = unsafe { self.inner.alloc_zeroed(outer) };
        // Nobody's label is zero already, and its page perhaps not there yet.
        if !block.is_null() && payer().is_some() {
            // SAFETY: just allocated.
            unsafe { self.charge(block, layout.size(), outer) };
        }
        block
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: allocated by us, with a label, as the caller guarantees.
        if let Some((record, bytes)) = unsafe { self.charged(block, layout) } {
            record.account.uncharge_nowait(bytes as u64);
        }
        // SAFETY: as it was allocated, its label included: the same sum did not overflow then.
        unsafe {
            let outer = with_label(layout).unwrap_unchecked();
            self.inner.dealloc(block, outer);
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is good for this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        let (Some(before), Some(after)) = (with_label(layout), with_label(wanted)) else {
            return ptr::null_mut();
        };
        // SAFETY: allocated by us, with a label, as the caller guarantees.
        let charged = unsafe { self.charged(block, layout) };
        // SAFETY: as it was allocated; `after` is a layout, so its size is good.
        let moved = unsafe { self.inner.realloc(block, before, after.size()) };
        if moved.is_null() {
            // The block is as it was, label and all.
            return moved;
        }
        let label = match charged {
            None => Label::NOBODY,
            Some((record, had)) => {
                // SAFETY: just allocated.
                let real = unsafe { R::real_size(&self.inner, moved, after) };
                if real > had {
                    record.account.charge_nowait((real - had) as u64);
                } else if real < had {
                    record.account.uncharge_nowait((had - real) as u64);
                }
                Label::new(record, real - bytes)
            }
        };
        // SAFETY: just allocated with room for it.
        unsafe { label.put(moved, bytes) };
        moved
    }
}
