//! Minimum costs of per-CPU operations on this machine: the yardsticks, in restartable sequences of their own.
//!
//! `crates/machine/src/host/rseq.rs` states the rules that a sequence must keep. These keep the same rules.

use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::{Absent, Arena};

/// Bytes from one CPU's copy to the next, as a shift: as in Bursar.
const STRIDE_SHIFT: usize = 16;
/// CPUs that have a copy.
const CPUS_MAX: usize = 1024;

/// Reserves a copy for each CPU; `None` if sequences do not work here.
fn reserve() -> Result<Option<NonNull<u8>>, Absent> {
    if !sections::start() {
        return Ok(None);
    }
    let arena = Arena::new(CPUS_MAX << STRIDE_SHIFT)?;
    // A huge page would span the copies of 32 CPUs.
    #[cfg(target_os = "linux")]
    // SAFETY: advice about the mapping just made; failure changes nothing.
    unsafe {
        let start = arena.start().as_ptr().cast();
        libc::madvise(start, CPUS_MAX << STRIDE_SHIFT, libc::MADV_NOHUGEPAGE);
    }
    Ok(Some(arena.start()))
}

/// Per-CPU counter without state, group or statistics.
#[derive(Debug)]
pub struct BareCounter(NonNull<u8>);

// SAFETY: shared memory that stays mapped; written only by sequences on the CPU that owns the copy.
unsafe impl Send for BareCounter {}
// SAFETY: as above.
unsafe impl Sync for BareCounter {}

impl BareCounter {
    /// Makes a counter at 0, if sequences work here.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new() -> Result<Option<Self>, Absent> {
        Ok(reserve()?.map(Self))
    }

    /// Adds on the current CPU; returns whether this thread and CPU have sequences.
    #[inline(always)]
    pub fn add(&self, delta: i64) -> bool {
        // SAFETY: a copy for each CPU that sequences run on.
        unsafe { sections::add(self.0.as_ptr(), delta) }
    }

    /// Sum over all CPUs.
    pub fn sum(&self) -> i64 {
        (0..CPUS_MAX)
            .map(|cpu| {
                // SAFETY: inside the mapping, as in `add`; aligned; read whole, as on every x86-64.
                unsafe {
                    self.0
                        .add(cpu << STRIDE_SHIFT)
                        .cast::<i64>()
                        .read_volatile()
                }
            })
            .sum()
    }
}

/// Number of entries of a [`BareStack`] on each CPU.
const STACK_CAPACITY: u64 = 4096;

/// Per-CPU stack of words without counts, and with no bound but its room.
#[derive(Debug)]
pub struct BareStack(NonNull<u8>);

// SAFETY: as for `BareCounter`.
unsafe impl Send for BareStack {}
// SAFETY: as above.
unsafe impl Sync for BareStack {}

impl BareStack {
    /// Makes an empty stack, if sequences work here.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new() -> Result<Option<Self>, Absent> {
        Ok(reserve()?.map(Self))
    }

    /// Pushes on the current CPU; returns `false` if there is no room, or no sequence.
    #[inline(always)]
    pub fn push(&self, entry: NonZeroU64) -> bool {
        // SAFETY: a copy has room for the depth and 4,096 entries.
        unsafe { sections::push(self.0.as_ptr(), entry, STACK_CAPACITY) }
    }

    /// Pops on the current CPU; `None` if the stack is empty, or there is no sequence.
    #[inline(always)]
    pub fn pop(&self) -> Option<NonZeroU64> {
        // SAFETY: as in `push`.
        unsafe { sections::pop(self.0.as_ptr()) }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod sections {
    use std::arch::asm;
    use std::num::NonZeroU64;
    use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

    use super::{CPUS_MAX, STRIDE_SHIFT};

    const CPU_ID: usize = 4;
    const RSEQ_CS: usize = 8;

    /// Offset of the thread's rseq area from the thread pointer, and number of CPUs with sequences: 0 until they start.
    struct Sections {
        offset: AtomicIsize,
        limit: AtomicU32,
    }

    static SECTIONS: Sections = Sections {
        offset: AtomicIsize::new(0),
        limit: AtomicU32::new(0),
    };

    /// Lets sequences run where the C library has registered its threads. Returns whether it has.
    pub(super) fn start() -> bool {
        // SAFETY: `dlsym` with literal, NUL-terminated names.
        let [offset, size] = [c"__rseq_offset", c"__rseq_size"]
            .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
        // SAFETY: glibc's ABI: an `unsigned int` that never changes after start-up.
        if offset.is_null() || size.is_null() || unsafe { *size.cast::<u32>() } == 0 {
            return false;
        }
        // Relaxed: both are set before the first copy exists, and its hand-over makes them visible.
        // SAFETY: glibc's ABI: a `ptrdiff_t` that never changes after start-up.
        let offset = unsafe { *offset.cast::<isize>() };
        SECTIONS.offset.store(offset, Ordering::Relaxed);
        SECTIONS.limit.store(CPUS_MAX as u32, Ordering::Relaxed);
        true
    }

    /// Emits one sequence. `$body` runs with `{at}` pointing to the current CPU's copy and ends with the commit. A jump to
    /// `$missed` does nothing; `$after` is code out of the way.
    macro_rules! section {
        ($missed:literal, [$($body:literal),+ $(,)?], [$($after:literal),*], $($operands:tt)+) => {
            asm!(
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "3:",
                ".long 0, 0",
                ".quad 4f, 5f - 4f, 9f",
                ".popsection",
                "test {limit:e}, {limit:e}",
                concat!("jz ", $missed),
                "2:",
                "lea {at}, [rip + 3b]",
                "mov qword ptr fs:[{offset} + {rseq_cs}], {at}",
                "4:",
                "mov {at:e}, dword ptr fs:[{offset} + {cpu_id}]",
                "cmp {at:e}, {limit:e}",
                concat!("jae ", $missed),
                "shl {at}, {shift}",
                "add {at}, {base}",
                $($body,)+
                "5:",
                ".pushsection .text.unlikely, \"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "9: jmp 2b",
                $($after,)*
                ".popsection",
                offset = in(reg) SECTIONS.offset.load(Ordering::Relaxed),
                limit = in(reg) SECTIONS.limit.load(Ordering::Relaxed),
                rseq_cs = const RSEQ_CS,
                cpu_id = const CPU_ID,
                shift = const STRIDE_SHIFT,
                at = out(reg) _,
                $($operands)+
                options(nostack),
            )
        };
    }

    /// # Safety
    /// `base` is CPU 0's copy of a word, with a copy every `1 << STRIDE_SHIFT` bytes for each of `CPUS_MAX` CPUs.
    #[inline(always)]
    pub(super) unsafe fn add(base: *mut u8, delta: i64) -> bool {
        // SAFETY: the sequence writes one word (the caller's contract) on the CPU that it runs on, or none.
        unsafe {
            section!(
                "{missed}",
                ["add qword ptr [{at}], {delta}"],
                [],
                base = in(reg) base,
                delta = in(reg) delta,
                missed = label { return false },
            );
        }
        true
    }

    /// # Safety
    /// As [`add`], for a depth and `capacity` entries behind it.
    #[inline(always)]
    pub(super) unsafe fn push(base: *mut u8, entry: NonZeroU64, capacity: u64) -> bool {
        // SAFETY: as in `add`; the entry above the depth is read by no other code.
        unsafe {
            section!(
                "{missed}",
                [
                    "mov {depth}, qword ptr [{at}]",
                    "cmp {depth}, {capacity}",
                    "jae {missed}",
                    "mov qword ptr [{at} + {depth} * 8 + 8], {entry}",
                    "add qword ptr [{at}], 1",
                ],
                [],
                base = in(reg) base,
                entry = in(reg) entry.get(),
                capacity = in(reg) capacity,
                depth = out(reg) _,
                missed = label { return false },
            );
        }
        true
    }

    /// # Safety
    /// As [`push`].
    #[inline(always)]
    pub(super) unsafe fn pop(base: *mut u8) -> Option<NonZeroU64> {
        let entry: u64;
        // SAFETY: as in `push`; the sequence reads one entry below the depth.
        unsafe {
            section!(
                "6f",
                [
                    "mov {entry}, qword ptr [{at}]",
                    "test {entry}, {entry}",
                    "jz 6f",
                    "mov {entry}, qword ptr [{at} + {entry} * 8]",
                    "sub qword ptr [{at}], 1",
                ],
                ["6: xor {entry:e}, {entry:e}", "jmp 5b"],
                base = in(reg) base,
                entry = out(reg) entry,
            );
        }
        NonZeroU64::new(entry)
    }
}

/// No sequences: each call does nothing.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod sections {
    use std::num::NonZeroU64;

    pub(super) fn start() -> bool {
        false
    }

    pub(super) unsafe fn add(_: *mut u8, _: i64) -> bool {
        false
    }

    pub(super) unsafe fn push(_: *mut u8, _: NonZeroU64, _: u64) -> bool {
        false
    }

    pub(super) unsafe fn pop(_: *mut u8) -> Option<NonZeroU64> {
        None
    }
}
