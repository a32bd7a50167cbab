//! The steps of sections on 64-bit Arm, little-endian: `rseq.rs` says what each does. `{area}` is the thread's rseq area until the CPU is
//! known, and then free for use by each step.
//!
//! Accesses pass one another here, so the looks at the state and at a list's bounds acquire: a section that sees a thawed copy sees what its
//! freezer left. They pair with the exchange that clears FROZEN, and with the one that thaws a list. Commits release nothing. A reader on
//! another CPU that needs the order of a copy's words passes the fence. A write that must come before a commit is `Full`
//! and has a fence of its own. `docs/arm.md` has the argument.
//!
//! Outside means a subsection of the function's own section: a conditional branch reaches 1 MiB, and linkers do not lengthen it.

use core::arch::asm;

/// `asm!`, with the operands that all sections have here.
macro_rules! section_asm {
    ([$($template:expr),+ $(,)?], $($operands:tt)+) => {
        asm!($($template,)+ $($operands)+ area = out(reg) _, options(nostack))
    };
}

#[rustfmt::skip]
macro_rules! step {
    // Without sections there is no rseq area either, and nothing of the thread's may be written.
    (enter $cpu:literal, $absent:literal) => { concat!(
        "cbz {limit:w}, ", $absent,
        "\n2: mrs {area}, tpidr_el0\nadd {area}, {area}, {offset}",
        "\nadrp {at}, 3b\nadd {at}, {at}, :lo12:3b\nstr {at}, [{area}, {rseq_cs}]",
        "\n4: ldr {", $cpu, ":w}, [{area}, {cpu_id}]\ncmp {", $cpu, ":w}, {limit:w}\nb.hs ", $absent,
        "\nadd {at}, {base}, {", $cpu, "}, lsl {shift}"
    ) };
    (enter at, $absent:literal) => { step!(enter "at", $absent) };
    (enter cpu, $absent:literal) => { step!(enter "cpu", $absent) };
    // The signature is a `brk`.
    (outside) => { ".subsection 1\n.inst 0xd428bc00\n9: b 2b" };
    (end_outside) => { ".previous" };
    (exit $label:literal, $status:literal) => { concat!($label, ": mov {status:w}, ", $status, "\nb 51b") };
    (exit_without_entry $label:literal) => { concat!($label, ": mov {entry}, 0\nb 51b") };

    (published_or $label:literal) => { concat!("ldarb {area:w}, [{at}]\ncmp {area:w}, {published}\nb.ne ", $label) };
    (on_shard_or $label:literal) => { concat!("cmp {cpu:w}, {shard:w}\nb.ne ", $label) };
    (if_at_least $one:literal, $other:literal, $label:literal) => { concat!("cmp {", $one, "}, {", $other, "}\nb.hs ", $label) };
    (if_above $one:literal, $other:literal, $label:literal) => { concat!("cmp {", $one, "}, {", $other, "}\nb.hi ", $label) };
    (new_room_or $label:literal) => { concat!(
        "subs {cpu}, {new_ceiling}, {new_charged}\nb.mi ", $label, "\nldr {area}, [{at}, {cap}]\ncmp {cpu}, {area}\nb.gt ", $label
    ) };

    (copy $to:literal, $from:literal) => { concat!("mov {", $to, "}, {", $from, "}") };
    (add $to:literal, $by:literal) => { step!(sum $to, $to, $by) };
    (sub $to:literal, $by:literal) => { concat!("sub {", $to, "}, {", $to, "}, {", $by, "}") };
    (sum $to:literal, $one:literal, $other:literal) => { concat!("add {", $to, "}, {", $one, "}, {", $other, "}") };
    (load $to:literal, $word:literal) => { concat!("ldr {", $to, "}, [{at}, {", $word, "}]") };
    (add_word $to:literal, $word:literal) => { concat!("ldr {area}, [{at}, {", $word, "}]\nadd {", $to, "}, {", $to, "}, {area}") };
    (sub_word $to:literal, $word:literal) => { concat!("ldr {area}, [{at}, {", $word, "}]\nsub {", $to, "}, {", $to, "}, {area}") };

    (load_bound $to:literal, $half:literal) => { concat!("add {area}, {at}, {", $half, "}\nldar {", $to, ":w}, [{area}]") };
    (load_depth $to:literal) => { concat!("ldrh {", $to, ":w}, [{at}]") };
    (store_entry $entry:literal, $depth:literal) => { concat!(
        "add {area}, {at}, {", $depth, "}, lsl 3\nstr {", $entry, "}, [{area}, {entries}]"
    ) };
    (load_entry $entry:literal) => { concat!("add {area}, {at}, {", $entry, "}, lsl 3\nldr {", $entry, "}, [{area}, {entries} - 8]") };
    (address_of_entry $depth:literal) => { concat!(
        "add {", $depth, "}, {at}, {", $depth, "}, lsl 3\nadd {", $depth, "}, {", $depth, "}, {entries}"
    ) };
    (copy_words $to:literal, $from:literal) => { concat!(
        "64: sub {left}, {left}, 1\nldr {entry}, [{", $from, "}, {left}, lsl 3]\nstr {entry}, [{", $to, "}, {left}, lsl 3]",
        "\ncbnz {left}, 64b"
    ) };

    (commit $operation:literal, $word:literal, $by:literal) => { concat!(
        "ldr {area}, [{at}, {", $word, "}]\n", $operation, " {area}, {area}, {", $by, "}\nstr {area}, [{at}, {", $word, "}]\n5:"
    ) };
    (commit_add $word:literal, $by:literal) => { step!(commit "add", $word, $by) };
    (commit_sub $word:literal, $by:literal) => { step!(commit "sub", $word, $by) };
    (commit_store $word:literal, $from:literal) => { concat!("str {", $from, "}, [{at}, {", $word, "}]\n5:") };
    (commit_pop) => { "ldr {area}, [{at}]\nadd {area}, {area}, 16, lsl 12\nsub {area}, {area}, 1\nstr {area}, [{at}]\n5:" };
    // A store of a pair (`stp`) would not do: an interrupt may come between its halves, and the section would begin again with one of them
    // written. The exclusive store is whole on every processor. If it fails, nothing was written, and the section begins again.
    (commit_account) => { concat!(
        "add {area}, {at}, {charged}\nldxp {at}, {cpu}, [{area}]",
        "\nstxp {at:w}, {new_charged}, {new_ceiling}, [{area}]\n5: cbnz {at:w}, 2b"
    ) };
}

/// A section with a status that ends with `commit_account`.
macro_rules! account_section {
    ([$($body:expr),+ $(,)?], $($operands:tt)+) => {
        status_section!([$($body),+], $($operands)+)
    };
}

/// Number of the CPU on which this thread runs, at `FIELD` in its rseq area.
///
/// # Safety
/// `offset` is that of an area that glibc keeps in each thread's control block.
#[inline(always)]
pub(super) unsafe fn cpu_id<const FIELD: usize>(offset: isize) -> u32 {
    let cpu: u32;
    // SAFETY: the caller's contract; the field is only read.
    unsafe {
        asm!(
            "mrs {area}, tpidr_el0",
            "add {area}, {area}, {offset}",
            "ldr {cpu:w}, [{area}, {field}]",
            cpu = lateout(reg) cpu,
            area = out(reg) _,
            offset = in(reg) offset,
            field = const FIELD,
            options(nostack, preserves_flags, readonly),
        );
    }
    cpu
}
