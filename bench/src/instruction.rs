//! An instruction of x86-64 or of 64-bit Arm, as far as the walk along a fast path needs it.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, IntelFormatter, Mnemonic, OpKind, Register,
};
use yaxpeax_arch::{Decoder as _, U8Reader};

const MODE_BITS: u32 = 64;

/// The machines whose code can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    X86,
    Arm,
}

/// Target of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    /// Nowhere else than there.
    Jump(Target),
    /// There, or to the next.
    Branch(u64),
    Call(Target),
    Return,
    /// A trap, or a system's matter.
    Nowhere,
}

/// Target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Address(u64),
    /// To the address in the word at this address.
    InWord(u64),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum Decoded {
    X86(iced_x86::Instruction),
    Arm(u32),
}

/// An instruction at its address.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub address: u64,
    pub next: u64,
    pub flow: Flow,
    decoded: Decoded,
}

impl Instruction {
    /// Decodes the instruction that `bytes` begin with.
    pub fn decode(architecture: Architecture, bytes: &[u8], address: u64) -> Option<Self> {
        match architecture {
            Architecture::X86 => {
                let decoder = Decoder::with_ip(MODE_BITS, bytes, address, DecoderOptions::NONE);
                let instruction = { decoder }.decode();
                (!instruction.is_invalid()).then(|| Self {
                    address,
                    next: instruction.next_ip(),
                    flow: x86_flow(&instruction),
                    decoded: Decoded::X86(instruction),
                })
            }
            Architecture::Arm => {
                let word = u32::from_le_bytes(*bytes.first_chunk()?);
                Some(Self {
                    address,
                    next: address + 4,
                    flow: arm_flow(word, address),
                    decoded: Decoded::Arm(word),
                })
            }
        }
    }

    /// Whether it is atomic between CPUs.
    pub fn is_atomic(&self) -> bool {
        match self.decoded {
            Decoded::X86(instruction) => instruction.has_lock_prefix(),
            // Exclusive loads and stores, those of LSE, and compare-and-swap.
            Decoded::Arm(word) => {
                word & 0x3f80_0000 == 0x0800_0000
                    || word & 0x3b20_0c00 == 0x3820_0000
                    || word & 0x3fa0_7c00 == 0x08a0_7c00
            }
        }
    }

    /// Whether it looks for the thread's area: on x86-64 a store to memory through the thread pointer, on Arm the load of that pointer.
    pub fn enters_section(&self) -> bool {
        match self.decoded {
            Decoded::X86(instruction) => {
                instruction.mnemonic() == Mnemonic::Mov
                    && instruction.op0_kind() == OpKind::Memory
                    && instruction.memory_segment() == Register::FS
            }
            Decoded::Arm(word) => word & !31 == 0xd53b_d040,
        }
    }

    /// As text.
    pub fn text(&self) -> String {
        match &self.decoded {
            Decoded::X86(instruction) => {
                let mut text = String::new();
                IntelFormatter::new().format(instruction, &mut text);
                text
            }
            Decoded::Arm(word) => {
                let decoder = yaxpeax_arm::armv8::a64::InstDecoder::default();
                let decoded = decoder.decode(&mut U8Reader::new(&word.to_le_bytes()));
                decoded.map_or_else(|_| format!(".inst {word:#x}"), |it| it.to_string())
            }
        }
    }

    /// Its name, without operands.
    pub fn mnemonic(&self) -> String {
        match &self.decoded {
            Decoded::X86(instruction) => format!("{:?}", instruction.mnemonic()).to_lowercase(),
            Decoded::Arm(_) => {
                let text = self.text();
                text.split(' ').next().unwrap_or_default().to_owned()
            }
        }
    }
}

fn x86_flow(instruction: &iced_x86::Instruction) -> Flow {
    let target = match instruction.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::Call => {
            Target::Address(instruction.near_branch_target())
        }
        _ if instruction.is_ip_rel_memory_operand() => {
            Target::InWord(instruction.ip_rel_memory_address())
        }
        _ => Target::Unknown,
    };
    match instruction.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Flow::Jump(target),
        FlowControl::ConditionalBranch => Flow::Branch(instruction.near_branch_target()),
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call(target),
        FlowControl::Return => Flow::Return,
        _ => Flow::Nowhere,
    }
}

/// By the encodings of branches in the Arm Architecture Reference Manual (DDI 0487), C4.1.
fn arm_flow(word: u32, address: u64) -> Flow {
    // The target of a branch has `bits` bits from `low` on, in words.
    let to = |low: u32, bits: u32| {
        let words = (word << (32 - low - bits)) as i32 >> (32 - bits);
        address.wrapping_add_signed(i64::from(words) * 4)
    };
    match word {
        _ if word & 0xfc00_0000 == 0x1400_0000 => Flow::Jump(Target::Address(to(0, 26))),
        _ if word & 0xfc00_0000 == 0x9400_0000 => Flow::Call(Target::Address(to(0, 26))),
        // `b.cond`; then `cbz` and `cbnz`; then `tbz` and `tbnz`.
        _ if word & 0xff00_0010 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 => {
            Flow::Branch(to(5, 19))
        }
        _ if word & 0x7e00_0000 == 0x3600_0000 => Flow::Branch(to(5, 14)),
        _ if word & 0xffff_fc1f == 0xd65f_0000 => Flow::Return,
        _ if word & 0xffff_fc1f == 0xd61f_0000 => Flow::Jump(Target::Unknown),
        _ if word & 0xffff_fc1f == 0xd63f_0000 => Flow::Call(Target::Unknown),
        // Exceptions (`svc`, `brk`), and what is no instruction.
        _ if word & 0xff00_0000 == 0xd400_0000 || word >> 16 == 0 => Flow::Nowhere,
        _ => Flow::Next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_of_arm_are_followed() {
        let decoded = |word: u32| {
            Instruction::decode(Architecture::Arm, &word.to_le_bytes(), 0x1000).unwrap()
        };
        let there = |offset| Target::Address(0x1000_u64.wrapping_add_signed(offset));
        // b . - 4; bl . + 8; b.ne . + 16; cbz x0, . - 8; tbnz w0, #3, . + 4; ret; br x1; brk #0; nop.
        for (word, mnemonic, flow) in [
            (0x17ff_ffff, "b", Flow::Jump(there(-4))),
            (0x9400_0002, "bl", Flow::Call(there(8))),
            (0x5400_0081, "b.ne", Flow::Branch(0x1010)),
            (0xb4ff_ffc0, "cbz", Flow::Branch(0xff8)),
            (0x3718_0020, "tbnz", Flow::Branch(0x1004)),
            (0xd65f_03c0, "ret", Flow::Return),
            (0xd61f_0020, "br", Flow::Jump(Target::Unknown)),
            (0xd420_0000, "brk", Flow::Nowhere),
            (0xd503_201f, "nop", Flow::Next),
        ] {
            let instruction = decoded(word);
            assert_eq!(
                (&*instruction.mnemonic(), instruction.flow),
                (mnemonic, flow)
            );
        }
        // ldadd, ldxr, casal; and ldr, ldar, which are not.
        for (word, is_atomic) in [
            (0xf820_0020, true),
            (0xc85f_7c20, true),
            (0xc8e0_fc41, true),
            (0xf940_0020, false),
            (0x88df_fc20, false),
        ] {
            assert_eq!(
                decoded(word).is_atomic(),
                is_atomic,
                "{}",
                decoded(word).text()
            );
        }
    }
}
