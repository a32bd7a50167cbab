//! Restartable sequences on Linux, through the registration that glibc (2.35 and later) makes for each thread.
//!
//! A section is a run of instructions. If the thread is preempted, migrated or interrupted by a signal inside it, the
//! kernel restarts the section from its abort handler. So its last instruction, the commit, runs only if nothing else
//! ran on this CPU since its first. Earlier stores go only to words that no other code reads before the commit, such as
//! an entry above a stack's depth. The sections below keep these rules:
//!
//! * No call inside a section, and no write to any field of the thread's rseq area except `rseq_cs`.
//! * The CPU number is read inside, and compared unsigned with the number of CPUs that have shards. Threads that are
//!   not registered read a number near 2^32 there and leave.
//! * The jump back is in the abort handler, whose signature (`RSEQ_SIG`) precedes it.
//! * A jump may leave a section: the kernel only checks whether the interrupted instruction lies inside.
//! * No input is changed before the commit, because an aborted section begins again with its inputs.
//!
//! The sections are written once, in steps; `rseq/x86_64.rs` and `rseq/aarch64.rs` have the instructions of each step. `{at}` is this CPU's copy
//! of the slot or list; names in quotes are operands, *l* is a label to go to.
//!
//! | step | does |
//! |---|---|
//! | `enter at, l`, `enter cpu, l` | enters, and goes to *l* where there is no section; `{cpu}` receives the CPU |
//! | `outside` .. `end_outside` | the abort handler, behind its signature; then the exits |
//! | `exit l, n`, `exit_without_entry l` | from *l*: `{status}` = n, or `{entry}` = 0; the end |
//! | `published_or l`, `on_shard_or l` | goes to *l* unless the copy is published (later accesses come after this look), unless `{cpu}` is `{shard}` |
//! | `if_at_least a, b, l`, `if_above a, b, l` | goes to *l* if a >= b, if a > b, unsigned |
//! | `new_room_or l` | goes to *l* unless `{new_ceiling}` - `{new_charged}` is from 0 to the cap, by the sign of the difference; ends the use of `{cpu}` |
//! | `copy a, b`, `add a, b`, `sub a, b`, `sum a, b, c` | a = b, a += b, a -= b, a = b + c |
//! | `load a, w`, `add_word a, w`, `sub_word a, w` | a = the word at offset w, a += it, a -= it |
//! | `load_bound a, w`, `load_depth a` | a = the 32 bits at w (later loads come after it), a = a list's depth |
//! | `store_entry a, d`, `load_entry a` | the entry at depth d = a, a = the entry below depth a |
//! | `address_of_entry d`, `copy_words to, from` | d = the address of the entry at d; copies `{left}` > 0 words by way of `{entry}` |
//! | `commit_add w, a`, `commit_sub w, a`, `commit_store w, a` | the word at w += a, -= a, = a |
//! | `commit_pop`, `commit_account` | a list has one entry less and one pop more; both words of an account at once |
//!
//! A step that commits ends with the label 5. A section ends at the label 51, also without a commit.
//!
//! glibc's symbols are looked up at run time. If they were linked weakly, link-time optimisation might resolve them to
//! null, and older C libraries have none. ABI: `linux/rseq.h`; `rseq_cs` descriptors are 32 bytes, aligned to 32.

use core::arch::asm;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use super::chunk::{LIST_HEADER, LIST_LIMIT, STRIDE_SHIFT};
use crate::slot::{CAP, CEILING, CHARGED};
use crate::{Shard, State};

#[cfg_attr(target_arch = "x86_64", path = "rseq/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "rseq/aarch64.rs")]
#[macro_use]
mod steps;

const CPU_ID: usize = 4;
const RSEQ_CS: usize = 8;
/// Offset of a list's head.
const HEAD: usize = 0;

/// Offset of the thread's rseq area from the thread pointer, and number of CPUs with sections. The limit is 0 while
/// another backend is chosen; then every section leaves at once.
struct Sections {
    offset: AtomicIsize,
    limit: AtomicU32,
}

static SECTIONS: Sections = Sections {
    offset: AtomicIsize::new(0),
    limit: AtomicU32::new(0),
};

/// Status of a section that committed.
pub(super) const DONE: u64 = 0;
/// Status: the state was not "published, not frozen".
pub(super) const UNPUBLISHED: u64 = 1;
/// Status: a bound would have been exceeded.
pub(super) const SHORT: u64 = 2;
/// Status: this thread, or this CPU, has no section.
pub(super) const ABSENT: u64 = 3;
/// Status: not on the CPU that was named.
pub(super) const MOVED: u64 = 4;

/// Lets sections run on CPUs below `limit`; 0 stops sections.
pub(super) fn enable(offset: isize, limit: u32) {
    // Relaxed: both are set before the first slot exists, and the hand-over of the slot makes them visible.
    SECTIONS.offset.store(offset, Ordering::Relaxed);
    SECTIONS.limit.store(limit, Ordering::Relaxed);
}

/// Offset of glibc's rseq area from the thread pointer, if this thread is registered.
pub(super) fn registration() -> Result<isize, &'static str> {
    // SAFETY: `dlsym` with a literal, NUL-terminated name.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    // SAFETY: as above.
    let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
    if offset.is_null() || size.is_null() {
        // No C library answers `dlsym` in a static program, whichever symbols it has.
        return Err(if cfg!(target_feature = "crt-static") {
            "this program is linked statically, and Bursar cannot look up __rseq_offset there; link it dynamically with glibc 2.35 or later"
        } else {
            "this C library has no __rseq_offset (glibc 2.35 and later have it)"
        });
    }
    // SAFETY: glibc's ABI: `__rseq_size` is an `unsigned int` that never changes after start-up.
    if unsafe { *size.cast::<u32>() } == 0 {
        return Err(
            "the C library did not register rseq (GLIBC_TUNABLES has glibc.pthread.rseq=0, or the kernel has no rseq, as before Linux 4.18)",
        );
    }
    // SAFETY: glibc's ABI: `__rseq_offset` is a `ptrdiff_t` that never changes after start-up.
    Ok(unsafe { *offset.cast::<isize>() })
}

/// CPU on which this thread runs, from its rseq area, if it is below the limit.
#[inline]
pub(super) fn current_cpu() -> Option<Shard> {
    let limit = SECTIONS.limit.load(Ordering::Relaxed);
    if limit == 0 {
        return None;
    }
    // SAFETY: the limit is not 0, so `enable` was given the offset of an area that glibc keeps in every thread's
    // thread control block, registered or not, as long as the thread lives.
    let cpu = unsafe { steps::cpu_id::<CPU_ID>(SECTIONS.offset.load(Ordering::Relaxed)) };
    (cpu < limit).then_some(Shard(cpu))
}

/// Emits one rseq section. `$body` runs with `{at}` pointing to the current CPU's copy of the slot and ends with the
/// commit. Where there is no section, it jumps to `$absent`. `{$cpu}` receives the CPU. `$exits` lie outside of the section, and
/// go back to `51b`.
macro_rules! section {
    (
        cpu $cpu:ident, absent $absent:literal,
        [$($body:expr),+ $(,)?], [$($exits:expr),* $(,)?], $($operands:tt)+
    ) => {
        section_asm!(
            [
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "3:",
                ".long 0, 0",
                ".quad 4f, 5f - 4f, 9f",
                ".popsection",
                step!(enter $cpu, $absent),
                $($body,)+
                "51:",
                step!(outside),
                $($exits,)*
                step!(end_outside),
            ],
            offset = in(reg) SECTIONS.offset.load(Ordering::Relaxed),
            limit = in(reg) SECTIONS.limit.load(Ordering::Relaxed),
            rseq_cs = const RSEQ_CS,
            cpu_id = const CPU_ID,
            shift = const STRIDE_SHIFT,
            at = out(reg) _,
            $($operands)+
        )
    };
}

/// Emits a section that sets `{status}`, and receives the CPU in `{cpu}`. The body may jump to `6f` (unpublished), `7f` (short)
/// and `8f` (moved).
macro_rules! status_section {
    ([$($body:expr),+ $(,)?], $($operands:tt)+) => {
        section!(
            cpu cpu, absent "62f", [$($body),+],
            [step!(exit "6", 1), step!(exit "7", 2), step!(exit "62", 3), step!(exit "8", 4)],
            $($operands)+
        )
    };
}

/// Emits a section without a status, for the fast paths. It jumps to `missed` wherever [`status_section`] would set a status;
/// then nothing was committed. The caller runs the section with a status to learn the reason.
macro_rules! fast_section {
    ([$($body:expr),+ $(,)?], $($operands:tt)+) => {
        section!(
            cpu at, absent "{missed}", [$($body),+], [],
            $($operands)+
            missed = label { return false },
        )
    };
}

/// Emits a [`fast_section`] that yields `{entry}`, or 0 by a jump to `6f` and where there is no section.
macro_rules! yielding_section {
    ([$($body:expr),+ $(,)?], $($operands:tt)+) => {
        section!(cpu at, absent "6f", [$($body),+], [step!(exit_without_entry "6")], $($operands)+)
    };
}

/// Does [`add`], without a reason if it does nothing.
///
/// # Safety
/// As [`add`].
#[inline(always)]
pub(super) unsafe fn try_add(base: *mut u8, byte: usize, delta: i64) -> bool {
    // SAFETY: as in `add`.
    unsafe {
        fast_section!(
            [
                step!(published_or "{missed}"),
                step!(commit_add "byte", "delta"),
            ],
            base = in(reg) base,
            byte = in(reg) byte,
            delta = in(reg) delta,
            published = const State::PUBLISHED,
        );
    }
    true
}

/// Does [`charge`], without a reason if it does nothing.
///
/// # Safety
/// As [`charge`].
#[inline(always)]
pub(super) unsafe fn try_charge(base: *mut u8, bytes: u64) -> bool {
    // SAFETY: as in `add`.
    unsafe {
        fast_section!(
            [
                step!(published_or "{missed}"),
                step!(load "room", "ceiling"),
                step!(sub_word "room", "charged"),
                step!(if_at_least "less_one", "room", "{missed}"),
                step!(commit_add "charged", "bytes"),
            ],
            base = in(reg) base,
            bytes = in(reg) bytes,
            less_one = in(reg) bytes.wrapping_sub(1),
            published = const State::PUBLISHED,
            charged = const CHARGED * 8,
            ceiling = const CEILING * 8,
            room = out(reg) _,
        );
    }
    true
}

/// Does [`uncharge`], without a reason if it does nothing.
///
/// # Safety
/// As [`charge`].
#[inline(always)]
pub(super) unsafe fn try_uncharge(base: *mut u8, bytes: u64) -> bool {
    // SAFETY: as in `add`.
    unsafe {
        fast_section!(
            [
                step!(published_or "{missed}"),
                step!(load "left", "cap"),
                step!(sub_word "left", "ceiling"),
                step!(add_word "left", "charged"),
                step!(if_above "bytes", "left", "{missed}"),
                step!(commit_sub "charged", "bytes"),
            ],
            base = in(reg) base,
            bytes = in(reg) bytes,
            published = const State::PUBLISHED,
            cap = const CAP * 8,
            charged = const CHARGED * 8,
            ceiling = const CEILING * 8,
            left = out(reg) _,
        );
    }
    true
}

/// Adds `delta` to a word if the state is published.
///
/// # Safety
/// 1. `base` is the slot's copy for CPU 0, with a copy every `1 << STRIDE_SHIFT` bytes for each CPU below the limit.
/// 2. `byte` is the offset of an aligned word inside a copy.
#[inline]
pub(super) unsafe fn add(base: *mut u8, byte: usize, delta: i64) -> (u64, Shard) {
    let mut status = DONE;
    let cpu: u64;
    // SAFETY: the section writes one word of the slot (the caller's contract) on the CPU that it runs on, or none.
    unsafe {
        status_section!(
            [
                step!(published_or "6f"),
                step!(commit_add "byte", "delta"),
            ],
            base = in(reg) base,
            byte = in(reg) byte,
            delta = in(reg) delta,
            published = const State::PUBLISHED,
            cpu = out(reg) cpu,
            status = inout(reg) status,
        );
    }
    (status, Shard(cpu as u32))
}

/// Does [`add`], and returns the sum.
///
/// # Safety
/// As [`add`].
#[inline(always)]
pub(super) unsafe fn add_fetch(base: *mut u8, byte: usize, delta: i64) -> (u64, Shard, i64) {
    let mut status = DONE;
    let mut sum = delta;
    let cpu: u64;
    // SAFETY: as in `add`. `{sum}` is an input that an abort must not lose. So the sum is formed in a scratch register
    // and handed over after the commit, outside the section.
    unsafe {
        status_section!(
            [
                step!(published_or "6f"),
                step!(load "scratch", "byte"),
                step!(add "scratch", "sum"),
                step!(commit_store "byte", "scratch"),
            ],
            base = in(reg) base,
            byte = in(reg) byte,
            sum = in(reg) sum,
            published = const State::PUBLISHED,
            scratch = out(reg) sum,
            cpu = out(reg) cpu,
            status = inout(reg) status,
        );
    }
    (status, Shard(cpu as u32), sum)
}

/// Adds `bytes` to the account if the room covers them. The comparison uses `bytes - 1`, so that 0 and numbers beyond
/// the signed range are short without a test of their own.
///
/// # Safety
/// As [`add`], and the slot has an account.
#[inline]
pub(super) unsafe fn charge(base: *mut u8, bytes: u64) -> (u64, Shard) {
    let mut status = DONE;
    let cpu: u64;
    // SAFETY: as in `add`.
    unsafe {
        status_section!(
            [
                step!(published_or "6f"),
                step!(load "room", "ceiling"),
                step!(sub_word "room", "charged"),
                step!(if_at_least "less_one", "room", "7f"),
                step!(commit_add "charged", "bytes"),
            ],
            base = in(reg) base,
            bytes = in(reg) bytes,
            less_one = in(reg) bytes.wrapping_sub(1),
            published = const State::PUBLISHED,
            charged = const CHARGED * 8,
            ceiling = const CEILING * 8,
            room = out(reg) _,
            cpu = out(reg) cpu,
            status = inout(reg) status,
        );
    }
    (status, Shard(cpu as u32))
}

/// Takes `bytes` off the account if the room does not grow beyond the cap. The cap is at least the room, so the rest of
/// the cap is compared as unsigned, and numbers beyond the signed range are short.
///
/// # Safety
/// As [`charge`].
#[inline]
pub(super) unsafe fn uncharge(base: *mut u8, bytes: u64) -> (u64, Shard) {
    let mut status = DONE;
    let cpu: u64;
    // SAFETY: as in `add`.
    unsafe {
        status_section!(
            [
                step!(published_or "6f"),
                step!(load "left", "cap"),
                step!(sub_word "left", "ceiling"),
                step!(add_word "left", "charged"),
                step!(if_above "bytes", "left", "7f"),
                step!(commit_sub "charged", "bytes"),
            ],
            base = in(reg) base,
            bytes = in(reg) bytes,
            published = const State::PUBLISHED,
            cap = const CAP * 8,
            charged = const CHARGED * 8,
            ceiling = const CEILING * 8,
            left = out(reg) _,
            cpu = out(reg) cpu,
            status = inout(reg) status,
        );
    }
    (status, Shard(cpu as u32))
}

/// Adds to the bytes charged and to the ceiling with one store. Does nothing unless this is CPU `shard` and the new
/// room is neither negative nor above the cap.
///
/// # Safety
/// As [`charge`].
#[inline(never)]
pub(super) unsafe fn adjust(base: *mut u8, shard: Shard, charged: i64, ceiling: i64) -> u64 {
    let mut status = DONE;
    // SAFETY: as in `add`; the commit is one aligned 16-byte store to the two adjacent words of the account. Other CPUs
    // read each 8-byte half whole.
    unsafe {
        account_section!(
            [
                step!(on_shard_or "8f"),
                step!(published_or "6f"),
                step!(load "new_charged", "charged"),
                step!(add "new_charged", "charged_delta"),
                step!(load "new_ceiling", "ceiling"),
                step!(add "new_ceiling", "ceiling_delta"),
                step!(new_room_or "7f"),
                step!(commit_account),
            ],
            base = in(reg) base,
            shard = in(reg) shard.0,
            charged_delta = in(reg) charged,
            ceiling_delta = in(reg) ceiling,
            published = const State::PUBLISHED,
            cap = const CAP * 8,
            charged = const CHARGED * 8,
            ceiling = const CEILING * 8,
            new_charged = out(reg) _,
            new_ceiling = out(reg) _,
            cpu = out(reg) _,
            status = inout(reg) status,
        );
    }
    status
}

/// Pushes an entry onto the current CPU's list if its depth is below the limit. Returns whether it did.
///
/// # Safety
/// 1. `list` is CPU 0's copy of a list, with a copy every `1 << STRIDE_SHIFT` bytes for each CPU below the limit of
///    sections.
/// 2. A list is a header of 64 bytes and as many entries as its bounds ever allow, which its depth never exceeds.
///
/// Here and below the bounds are read before the depth, because a thaw passes no fence. Otherwise a section that began
/// while the list was frozen could meet the old depth with the new bounds.
#[inline(always)]
pub(super) unsafe fn try_push(list: *mut u8, entry: NonZeroU64) -> bool {
    // SAFETY: the section writes one entry above the depth, which no other code reads, and commits with the depth.
    unsafe {
        fast_section!(
            [
                step!(load_bound "limit_now", "limit_at"),
                step!(load_depth "depth"),
                step!(if_at_least "depth", "limit_now", "{missed}"),
                step!(store_entry "entry", "depth"),
                step!(commit_add "head", "one"),
            ],
            base = in(reg) list,
            entry = in(reg) entry.get(),
            limit_at = const LIST_LIMIT,
            entries = const LIST_HEADER,
            head = const HEAD,
            one = const 1,
            limit_now = out(reg) _,
            depth = out(reg) _,
        );
    }
    true
}

/// Pops an entry of the current CPU's list and counts it as popped, if its depth is above the floor.
///
/// # Safety
/// As [`try_push`].
#[inline(always)]
pub(super) unsafe fn try_pop(list: *mut u8) -> Option<NonZeroU64> {
    let entry: u64;
    // SAFETY: the section reads one entry below the depth and commits with the depth and the count of pops.
    unsafe {
        yielding_section!(
            [
                step!(load_bound "floor", "floor_at"),
                step!(load_depth "entry"),
                step!(if_at_least "floor", "entry", "6f"),
                step!(load_entry "entry"),
                step!(commit_pop),
            ],
            base = in(reg) list,
            entry = out(reg) entry,
            floor = out(reg) _,
            floor_at = const LIST_LIMIT + 4,
            entries = const LIST_HEADER,
        );
    }
    NonZeroU64::new(entry)
}

/// Pushes `count` entries onto the current CPU's list if all fit. Returns whether it did.
///
/// # Safety
/// As [`try_push`], and `from` points to `count > 0` entries.
#[inline(never)]
pub(super) unsafe fn push_many(list: *mut u8, from: *const u64, count: usize) -> bool {
    // SAFETY: as in `try_push`.
    unsafe {
        fast_section!(
            [
                step!(load_bound "entry", "limit_at"),
                step!(load_depth "to"),
                step!(sum "left", "to", "count"),
                step!(if_above "left", "entry", "{missed}"),
                step!(address_of_entry "to"),
                step!(copy "left", "count"),
                step!(copy_words "to", "from"),
                step!(commit_add "head", "count"),
            ],
            base = in(reg) list,
            from = in(reg) from,
            count = in(reg) count,
            head = const HEAD,
            limit_at = const LIST_LIMIT,
            entries = const LIST_HEADER,
            to = out(reg) _,
            left = out(reg) _,
            entry = out(reg) _,
        );
    }
    true
}

/// Pops `count` entries of the current CPU's list, the deepest first, if at least as many as the floor remain. Returns
/// whether it did.
///
/// # Safety
/// As [`try_push`], and `to` points to room for `count > 0` entries. They are written whole or in part even if the
/// result is `false`.
#[inline(never)]
pub(super) unsafe fn pop_many(list: *mut u8, to: *mut u64, count: usize) -> bool {
    // SAFETY: as in `try_pop`; room for the entries by the caller's contract.
    unsafe {
        fast_section!(
            [
                step!(load_bound "left", "floor_at"),
                step!(load_depth "from"),
                step!(add "left", "count"),
                step!(if_above "left", "from", "{missed}"),
                step!(sub "from", "count"),
                step!(address_of_entry "from"),
                step!(copy "left", "count"),
                step!(copy_words "to", "from"),
                step!(commit_sub "head", "count"),
            ],
            base = in(reg) list,
            to = in(reg) to,
            count = in(reg) count,
            head = const HEAD,
            floor_at = const LIST_LIMIT + 4,
            entries = const LIST_HEADER,
            from = out(reg) _,
            left = out(reg) _,
            entry = out(reg) _,
        );
    }
    true
}

/// Registers this process for the fence below.
pub(super) fn register_membarrier() -> bool {
    membarrier_command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)
}

/// Ends (by abort) every section that runs on any CPU of this process, with full barriers there and here.
pub(super) fn membarrier() -> bool {
    membarrier_command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ)
}

fn membarrier_command(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes three integers and touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_pass_where_the_kernel_has_them() {
        // SAFETY: as in `membarrier_command`; the kernel only tells which commands it has.
        let commands =
            unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
        let fence = libc::c_long::from(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ);
        let has_fence = commands > 0 && commands & fence != 0;
        assert_eq!([register_membarrier(), membarrier()], [has_fence; 2]);
    }
}
