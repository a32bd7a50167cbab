//! The steps of sections on x86-64: `rseq.rs` says what each does. The thread pointer is `fs`, each load acquires, and an addition to
//! memory is one instruction.

use core::arch::asm;

/// `asm!`, with the operands that all sections have here.
macro_rules! section_asm {
    ([$($template:expr),+ $(,)?], $($operands:tt)+) => {
        asm!($($template,)+ $($operands)+ options(nostack))
    };
}

#[rustfmt::skip]
macro_rules! step {
    // Without sections there is no rseq area either, and nothing of the thread's may be written.
    (enter $cpu:literal, $copy:literal, $absent:literal) => { concat!(
        "test {limit:e}, {limit:e}\njz ", $absent,
        "\n2: lea {at}, [rip + 3b]\nmov qword ptr fs:[{offset} + {rseq_cs}], {at}",
        "\n4: mov {", $cpu, ":e}, dword ptr fs:[{offset} + {cpu_id}]\ncmp {", $cpu, ":e}, {limit:e}\njae ", $absent,
        $copy, "\nshl {at}, {shift}\nadd {at}, {base}"
    ) };
    (enter at, $absent:literal) => { step!(enter "at", "", $absent) };
    (enter cpu, $absent:literal) => { step!(enter "cpu", "\nmov {at:e}, {cpu:e}", $absent) };
    // The signature is an operand of `ud1`.
    (outside) => { ".pushsection .text.unlikely, \"ax\"\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n9: jmp 2b" };
    (end_outside) => { ".popsection" };
    (exit $label:literal, $status:literal) => { concat!($label, ": mov {status:e}, ", $status, "\njmp 51b") };
    (exit_without_entry $label:literal) => { concat!($label, ": xor {entry:e}, {entry:e}\njmp 51b") };

    (published_or $label:literal) => { concat!("cmp byte ptr [{at}], {published}\njne ", $label) };
    (on_shard_or $label:literal) => { concat!("cmp {cpu:e}, {shard:e}\njne ", $label) };
    (if_at_least $one:literal, $other:literal, $label:literal) => { concat!("cmp {", $one, "}, {", $other, "}\njae ", $label) };
    (if_above $one:literal, $other:literal, $label:literal) => { concat!("cmp {", $one, "}, {", $other, "}\nja ", $label) };
    (new_room_or $label:literal) => { concat!(
        "mov {cpu}, {new_ceiling}\nsub {cpu}, {new_charged}\njs ", $label, "\ncmp {cpu}, qword ptr [{at} + {cap}]\njg ", $label
    ) };

    (copy $to:literal, $from:literal) => { concat!("mov {", $to, "}, {", $from, "}") };
    (add $to:literal, $by:literal) => { concat!("add {", $to, "}, {", $by, "}") };
    (sub $to:literal, $by:literal) => { concat!("sub {", $to, "}, {", $by, "}") };
    (sum $to:literal, $one:literal, $other:literal) => { concat!("lea {", $to, "}, [{", $one, "} + {", $other, "}]") };
    (load $to:literal, $word:literal) => { concat!("mov {", $to, "}, qword ptr [{at} + {", $word, "}]") };
    (add_word $to:literal, $word:literal) => { concat!("add {", $to, "}, qword ptr [{at} + {", $word, "}]") };
    (sub_word $to:literal, $word:literal) => { concat!("sub {", $to, "}, qword ptr [{at} + {", $word, "}]") };

    (load_bound $to:literal, $half:literal) => { concat!("mov {", $to, ":e}, dword ptr [{at} + {", $half, "}]") };
    (load_depth $to:literal) => { concat!("movzx {", $to, ":e}, word ptr [{at}]") };
    (store_entry $entry:literal, $depth:literal) => { concat!("mov qword ptr [{at} + {", $depth, "} * 8 + {entries}], {", $entry, "}") };
    (load_entry $entry:literal) => { concat!("mov {", $entry, "}, qword ptr [{at} + {", $entry, "} * 8 + {entries} - 8]") };
    (address_of_entry $depth:literal) => { concat!("lea {", $depth, "}, [{at} + {", $depth, "} * 8 + {entries}]") };
    (copy_words $to:literal, $from:literal) => { concat!(
        "64: mov {entry}, qword ptr [{", $from, "} + {left} * 8 - 8]\nmov qword ptr [{", $to, "} + {left} * 8 - 8], {entry}",
        "\nsub {left}, 1\njnz 64b"
    ) };

    (commit_add $word:literal, $by:literal) => { concat!("add qword ptr [{at} + {", $word, "}], {", $by, "}\n5:") };
    (commit_sub $word:literal, $by:literal) => { concat!("sub qword ptr [{at} + {", $word, "}], {", $by, "}\n5:") };
    (commit_store $word:literal, $from:literal) => { concat!("mov qword ptr [{at} + {", $word, "}], {", $from, "}\n5:") };
    (commit_pop) => { "add qword ptr [{at}], 0xffff\n5:" };
    (commit_account) => { concat!(
        "movq {pair}, {new_charged}\nmovq {high}, {new_ceiling}\npunpcklqdq {pair}, {high}",
        "\nmovaps xmmword ptr [{at} + {charged}], {pair}\n5:"
    ) };
}

/// A section with a status that ends with `commit_account`.
macro_rules! account_section {
    ([$($body:expr),+ $(,)?], $($operands:tt)+) => {
        status_section!([$($body),+], $($operands)+ pair = out(xmm_reg) _, high = out(xmm_reg) _,)
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
            "mov {cpu:e}, dword ptr fs:[{offset} + {field}]",
            cpu = lateout(reg) cpu,
            offset = in(reg) offset,
            field = const FIELD,
            options(nostack, preserves_flags, readonly),
        );
    }
    cpu
}
