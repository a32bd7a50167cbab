//! Restartable sequences on x86-64 Linux, through the registration that glibc (2.35 and later) makes for each thread.
//!
//! A section is a run of instructions. If the thread is preempted, migrated or interrupted by a signal inside it, the
//! kernel restarts the section from its abort handler. So its last instruction, the commit, runs only if nothing else
//! ran on this CPU since its first. Earlier stores go only to words that no other code reads before the commit, such as
//! an entry above a stack's depth. The sections below keep these rules:
//!
//! * No call inside a section, and no write to any field of the thread's rseq area except `rseq_cs`.
//! * The CPU number is read inside, and compared unsigned with the number of CPUs that have shards. Threads that are
//!   not registered read a number near 2^32 there and leave.
//! * The jump back is in the abort handler, whose signature (`RSEQ_SIG` as an operand of `ud1`) precedes it.
//! * A jump may leave a section: the kernel only checks whether the interrupted instruction lies inside.
//!
//! glibc's symbols are looked up at run time. If they were linked weakly, link-time optimisation might resolve them to
//! null, and older C libraries have none. ABI: `linux/rseq.h`; `rseq_cs` descriptors are 32 bytes, aligned to 32.

use core::arch::asm;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use super::chunk::{LIST_HEADER, LIST_LIMIT, STRIDE_SHIFT};
use crate::slot::{CAP, CEILING, CHARGED};
use crate::{Shard, State};

const CPU_ID: usize = 4;
const RSEQ_CS: usize = 8;

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
        return Err("this C library offers no __rseq_offset (glibc 2.35 and later do)");
    }
    // SAFETY: glibc's ABI: `__rseq_size` is an `unsigned int` that never changes after start-up.
    if unsafe { *size.cast::<u32>() } == 0 {
        return Err("the C library did not register rseq (glibc.pthread.rseq=0, or an old kernel)");
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
    let cpu: u32;
    // SAFETY: the limit is not 0, so `enable` was given the offset of an area that glibc keeps in every thread's
    // thread control block, registered or not, as long as the thread lives; the field is only read.
    unsafe {
        asm!(
            "mov {cpu:e}, dword ptr fs:[{offset} + {field}]",
            cpu = lateout(reg) cpu,
            offset = in(reg) SECTIONS.offset.load(Ordering::Relaxed),
            field = const CPU_ID,
            options(nostack, preserves_flags, readonly),
        );
    }
    (cpu < limit).then_some(Shard(cpu))
}

/// Emits one rseq section. `$body` runs with `{at}` pointing to the current CPU's copy of the slot and ends with the
/// commit. Where there is no section, it jumps to `$absent`. `$cpu` receives the CPU. `$exits` lie outside of the section, and
/// go back to `5b`.
macro_rules! section {
    (
        cpu $cpu:literal $($copy:literal)?, absent $absent:literal,
        [$($body:literal),+ $(,)?], [$($exits:literal),* $(,)?], $($operands:tt)+
    ) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "3:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 9f",
            ".popsection",
            // Without sections there is no rseq area either, and nothing of the thread's may be written.
            "test {limit:e}, {limit:e}",
            concat!("jz ", $absent),
            "2:",
            "lea {at}, [rip + 3b]",
            "mov qword ptr fs:[{offset} + {rseq_cs}], {at}",
            "4:",
            concat!("mov ", $cpu, ", dword ptr fs:[{offset} + {cpu_id}]"),
            concat!("cmp ", $cpu, ", {limit:e}"),
            concat!("jae ", $absent),
            $($copy,)?
            "shl {at}, {shift}",
            "add {at}, {base}",
            $($body,)+
            "5:",
            ".pushsection .text.unlikely, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "9: jmp 2b",
            $($exits,)*
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

/// Emits a section that sets `{status}`, and receives the CPU in `{cpu}`. The body may jump to `6f` (unpublished), `7f` (short)
/// and `8f` (moved).
macro_rules! status_section {
    ([$($body:literal),+ $(,)?], $($operands:tt)+) => {
        section!(
            cpu "{cpu:e}" "mov {at:e}, {cpu:e}", absent "62f",
            [$($body),+],
            [
                "6: mov {status:e}, 1",
                "jmp 5b",
                "7: mov {status:e}, 2",
                "jmp 5b",
                "8: mov {status:e}, 4",
                "jmp 5b",
                "62: mov {status:e}, 3",
                "jmp 5b",
            ],
            $($operands)+
        )
    };
}

/// Emits a section without a status, for the fast paths. It jumps to `missed` wherever [`status_section`] would set a status;
/// then nothing was committed. The caller runs the section with a status to learn the reason.
macro_rules! fast_section {
    ([$($body:literal),+ $(,)?], $($operands:tt)+) => {
        section!(
            cpu "{at:e}", absent "{missed}", [$($body),+], [],
            $($operands)+
            missed = label { return false },
        )
    };
}

/// Emits a [`fast_section`] that yields `{entry}`, or 0 by a jump to `6f` and where there is no section.
macro_rules! yielding_section {
    ([$($body:literal),+ $(,)?], $($operands:tt)+) => {
        section!(
            cpu "{at:e}", absent "6f", [$($body),+], ["6: xor {entry:e}, {entry:e}", "jmp 5b"],
            $($operands)+
        )
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
                "cmp byte ptr [{at}], {published}",
                "jne {missed}",
                "add qword ptr [{at} + {byte}], {delta}",
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
                "cmp byte ptr [{at}], {published}",
                "jne {missed}",
                "mov {room}, qword ptr [{at} + {ceiling}]",
                "sub {room}, qword ptr [{at} + {charged}]",
                "cmp {less_one}, {room}",
                "jae {missed}",
                "add qword ptr [{at} + {charged}], {bytes}",
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
                "cmp byte ptr [{at}], {published}",
                "jne {missed}",
                "mov {left}, qword ptr [{at} + {cap}]",
                "sub {left}, qword ptr [{at} + {ceiling}]",
                "add {left}, qword ptr [{at} + {charged}]",
                "cmp {bytes}, {left}",
                "ja {missed}",
                "sub qword ptr [{at} + {charged}], {bytes}",
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
                "cmp byte ptr [{at}], {published}",
                "jne 6f",
                "add qword ptr [{at} + {byte}], {delta}",
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
                "cmp byte ptr [{at}], {published}",
                "jne 6f",
                "lea {at}, [{at} + {byte}]",
                "mov {scratch}, qword ptr [{at}]",
                "add {scratch}, {sum}",
                "mov qword ptr [{at}], {scratch}",
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
                "cmp byte ptr [{at}], {published}",
                "jne 6f",
                "mov {room}, qword ptr [{at} + {ceiling}]",
                "sub {room}, qword ptr [{at} + {charged}]",
                "cmp {less_one}, {room}",
                "jae 7f",
                "add qword ptr [{at} + {charged}], {bytes}",
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
                "cmp byte ptr [{at}], {published}",
                "jne 6f",
                "mov {left}, qword ptr [{at} + {cap}]",
                "sub {left}, qword ptr [{at} + {ceiling}]",
                "add {left}, qword ptr [{at} + {charged}]",
                "cmp {bytes}, {left}",
                "ja 7f",
                "sub qword ptr [{at} + {charged}], {bytes}",
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
        status_section!(
            [
                "cmp {cpu:e}, {shard:e}",
                "jne 8f",
                "cmp byte ptr [{at}], {published}",
                "jne 6f",
                "mov {new_charged}, qword ptr [{at} + {charged}]",
                "add {new_charged}, {charged_delta}",
                "mov {new_ceiling}, qword ptr [{at} + {ceiling}]",
                "add {new_ceiling}, {ceiling_delta}",
                "mov {cpu}, {new_ceiling}",
                "sub {cpu}, {new_charged}",
                "jl 7f",
                "cmp {cpu}, qword ptr [{at} + {cap}]",
                "jg 7f",
                "movq {pair}, {new_charged}",
                "movq {high}, {new_ceiling}",
                "punpcklqdq {pair}, {high}",
                "movaps xmmword ptr [{at} + {charged}], {pair}",
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
            pair = out(xmm_reg) _,
            high = out(xmm_reg) _,
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
                "mov {limit_now:e}, dword ptr [{at} + {limit_at}]",
                "movzx {depth:e}, word ptr [{at}]",
                "cmp {depth:e}, {limit_now:e}",
                "jae {missed}",
                "mov qword ptr [{at} + {depth} * 8 + {entries}], {entry}",
                "add qword ptr [{at}], 1",
            ],
            base = in(reg) list,
            entry = in(reg) entry.get(),
            limit_at = const LIST_LIMIT,
            entries = const LIST_HEADER,
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
                "mov {floor:e}, dword ptr [{at} + {floor_at}]",
                "movzx {entry:e}, word ptr [{at}]",
                "cmp {entry:e}, {floor:e}",
                "jbe 6f",
                "mov {entry}, qword ptr [{at} + {entry} * 8 + {entries} - 8]",
                "add qword ptr [{at}], 0xffff",
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
                "mov {entry:e}, dword ptr [{at} + {limit_at}]",
                "movzx {to:e}, word ptr [{at}]",
                "lea {left}, [{to} + {count}]",
                "cmp {left}, {entry}",
                "ja {missed}",
                "lea {to}, [{at} + {to} * 8 + {entries}]",
                "mov {left}, {count}",
                "64:",
                "mov {entry}, qword ptr [{from} + {left} * 8 - 8]",
                "mov qword ptr [{to} + {left} * 8 - 8], {entry}",
                "sub {left}, 1",
                "jnz 64b",
                "add qword ptr [{at}], {count}",
            ],
            base = in(reg) list,
            from = in(reg) from,
            count = in(reg) count,
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
                "mov {left:e}, dword ptr [{at} + {floor_at}]",
                "movzx {from:e}, word ptr [{at}]",
                "add {left}, {count}",
                "cmp {from}, {left}",
                "jb {missed}",
                "sub {from}, {count}",
                "lea {from}, [{at} + {from} * 8 + {entries}]",
                "mov {left}, {count}",
                "64:",
                "mov {entry}, qword ptr [{from} + {left} * 8 - 8]",
                "mov qword ptr [{to} + {left} * 8 - 8], {entry}",
                "sub {left}, 1",
                "jnz 64b",
                "sub qword ptr [{at}], {count}",
            ],
            base = in(reg) list,
            to = in(reg) to,
            count = in(reg) count,
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
