//! The machine code of this executable, and a walk along the fast path of a function.
//!
//! The rule of the walk: start at the function's first instruction; follow unconditional jumps, also those that go by the
//! linker's table of addresses (a function that several crates instantiate); take no conditional branch, unless not taking
//! it leads nowhere; count every instruction met until the function returns. A path leads nowhere if it meets a trap, a
//! jump or call whose target is known only when it runs, an operation that is atomic between CPUs, an address it has been at,
//! if it enters a function that panics or has "slow" in its name, or if it returns without having entered a restartable
//! sequence (which begins with a look for the thread's area). Paths without calls are looked for first; only if
//! there is none are direct calls stepped into.

use std::collections::BTreeMap;
use std::fmt::Write;

use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, SectionKind, SymbolKind, elf};

use crate::instruction::{Architecture, Flow, Instruction, Target};

/// The most instructions that a fast path may have.
const STEPS_MAX: usize = 400;

/// The code of an executable.
pub struct Code<'data> {
    pub architecture: Architecture,
    /// Address and bytes of each section that holds code.
    sections: Vec<(u64, &'data [u8])>,
    /// Demangled names by address; several where functions were folded into one.
    functions: BTreeMap<u64, Vec<String>>,
    /// The linker's table: by the address of a word, the address of this executable that the loader puts there.
    table: BTreeMap<u64, u64>,
    /// The compilers that made it, as it says itself.
    pub compilers: String,
}

/// Whether direct calls may be stepped into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    Forbidden,
    SteppedInto,
}

/// Place of a walk.
#[derive(Default)]
struct Walk {
    taken: Vec<Instruction>,
    /// Addresses to return to.
    callers: Vec<u64>,
    /// Index in `taken` of the first store through the thread pointer.
    section: Option<usize>,
}

impl<'data> Code<'data> {
    /// Reads an executable.
    ///
    /// # Errors
    /// If it is not an object file of x86-64 or 64-bit Arm, or has no symbols.
    pub fn of(executable: &'data [u8]) -> Result<Self, String> {
        let file = object::File::parse(executable).map_err(|error| error.to_string())?;
        let architecture = match file.architecture() {
            object::Architecture::X86_64 => Architecture::X86,
            object::Architecture::Aarch64 => Architecture::Arm,
            other => return Err(format!("code of {other:?} is not known")),
        };
        let text = file
            .sections()
            .filter(|section| section.kind() == SectionKind::Text);
        let sections = text.filter_map(|section| Some((section.address(), section.data().ok()?)));
        let mut functions = BTreeMap::<u64, Vec<String>>::new();
        let texts = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text);
        for symbol in texts {
            if let Ok(name) = symbol.name() {
                let name = format!("{:#}", rustc_demangle::demangle(name));
                functions.entry(symbol.address()).or_default().push(name);
            }
        }
        if functions.is_empty() {
            return Err("the executable has no symbols".to_owned());
        }
        let relocations = file.dynamic_relocations().into_iter().flatten();
        let got = file.section_by_name(".got");
        let got = got.map_or(0..0, |got| got.address()..got.address() + got.size());
        let of_executable = relocations.filter(|(word, relocation)| {
            let r_type = match architecture {
                Architecture::X86 => elf::R_X86_64_RELATIVE,
                Architecture::Arm => elf::R_AARCH64_RELATIVE,
            };
            got.contains(word) && relocation.flags() == RelocationFlags::Elf { r_type }
        });
        let table = of_executable.map(|(word, relocation)| (word, relocation.addend() as u64));
        let comment = file.section_by_name(".comment");
        let comment = comment
            .and_then(|section| section.data().ok())
            .unwrap_or_default();
        let rustc = comment
            .split(|&byte| byte == 0)
            .map(String::from_utf8_lossy)
            .find(|part| part.starts_with("rustc"));
        Ok(Self {
            architecture,
            sections: sections.collect(),
            functions,
            table: table.collect(),
            compilers: rustc.unwrap_or("rustc unknown".into()).into_owned(),
        })
    }

    /// Address of the function whose name ends with `name`; of one that only jumps to another, the other's.
    ///
    /// # Errors
    /// If there is no such function.
    fn start(&self, name: &str) -> Result<u64, String> {
        let ending = format!("::{name}");
        let mut functions = self.functions.iter();
        let (&start, _) = functions
            .find(|(_, names)| names.iter().any(|name| name.ends_with(&ending)))
            .ok_or_else(|| format!("no function {name} in the executable"))?;
        let first = self.decode(start);
        let jumps = |first: Instruction| match first.flow {
            Flow::Jump(target) => self.address(target),
            _ => None,
        };
        Ok(first
            .and_then(jumps)
            .filter(|target| self.functions.contains_key(target))
            .unwrap_or(start))
    }

    /// The instructions on the fast path of the function whose name ends with `name`.
    ///
    /// # Errors
    /// If there is no such function or no path through it.
    pub fn fast_path(&self, name: &str) -> Result<Vec<Instruction>, String> {
        let start = self.start(name)?;
        for calls in [Calls::Forbidden, Calls::SteppedInto] {
            let mut walk = Walk::default();
            if self.walk(start, calls, &mut walk) {
                return Ok(walk.taken);
            }
        }
        Err(format!("no fast path through {name}"))
    }

    fn decode(&self, address: u64) -> Option<Instruction> {
        let (start, bytes) = self
            .sections
            .iter()
            .find(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&address))?;
        let bytes = &bytes[(address - start) as usize..];
        Instruction::decode(self.architecture, bytes, address)
    }

    /// Walks on from `address`; whether that leads to the end. If not, `walk` is as it was.
    fn walk(&self, address: u64, calls: Calls, walk: &mut Walk) -> bool {
        let been_here = walk.taken.iter().any(|before| before.address == address);
        if walk.taken.len() >= STEPS_MAX || been_here && calls == Calls::Forbidden {
            return false;
        }
        let Some(instruction) = self.decode(address) else {
            return false;
        };
        if instruction.is_atomic() || self.begins_slow_function(address) {
            return false;
        }
        walk.taken.push(instruction);
        if instruction.enters_section() && walk.section.is_none() {
            walk.section = Some(walk.taken.len() - 1);
        }
        let arrived = match instruction.flow {
            Flow::Next => self.walk(instruction.next, calls, walk),
            Flow::Jump(target) => self
                .address(target)
                .is_some_and(|target| self.walk(target, calls, walk)),
            Flow::Branch(target) => {
                self.walk(instruction.next, calls, walk) || self.walk(target, calls, walk)
            }
            Flow::Call(target) if calls == Calls::SteppedInto => {
                self.step_into(target, instruction.next, walk)
            }
            Flow::Return => match walk.callers.pop() {
                None => walk.section.is_some(),
                Some(caller) => {
                    let arrived = self.walk(caller, calls, walk);
                    walk.callers.push(caller);
                    arrived
                }
            },
            _ => false,
        };
        if !arrived {
            walk.taken.pop();
            walk.section = walk.section.filter(|&at| at < walk.taken.len());
        }
        arrived
    }

    fn step_into(&self, target: Target, next: u64, walk: &mut Walk) -> bool {
        let Some(target) = self.address(target) else {
            return false;
        };
        walk.callers.push(next);
        let arrived = self.walk(target, Calls::SteppedInto, walk);
        walk.callers.pop();
        arrived
    }

    /// Target of a jump or a call, if that is known before it runs.
    fn address(&self, target: Target) -> Option<u64> {
        match target {
            Target::Address(address) => Some(address),
            Target::InWord(word) => self.table.get(&word).copied(),
            Target::Unknown => None,
        }
    }

    fn begins_slow_function(&self, address: u64) -> bool {
        let names = self.functions.get(&address);
        names.into_iter().flatten().any(|name| {
            // The last is the compiler's, for atomic operations.
            let mut parts = ["panic", "slow", "__aarch64_"].iter();
            parts.any(|part| name.contains(part))
        })
    }
}

/// Lines that remain of two lists without their common beginning and end.
pub fn difference(text: &mut String, before: &[String], after: &[String]) {
    let pairs = || before.iter().zip(after);
    let head = pairs().take_while(|(one, other)| one == other).count();
    let shorter = before.len().min(after.len()) - head;
    let backwards = before.iter().rev().zip(after.iter().rev()).take(shorter);
    let tail = backwards.take_while(|(one, other)| one == other).count();
    for removed in &before[head..before.len() - tail] {
        let _ = writeln!(text, "  -{removed}");
    }
    for added in &after[head..after.len() - tail] {
        let _ = writeln!(text, "  +{added}");
    }
}
