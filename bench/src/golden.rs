//! `golden`: how many instructions the fast paths have, compared with what is checked in.
//!
//! Timings drift with the machine; instructions do not. A change that makes a fast path longer shows as a difference to
//! the files in `golden/`, to be explained and accepted (`--write`), or undone. The rule by which a path is found stands in
//! `code.rs`. The executable of another build may be for 64-bit Arm. Only release builds mean anything here.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::code::{self, Code};
use crate::fast_path;
use crate::instruction::{Architecture, Instruction};

/// Use of the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Print the instructions and the counts.
    Show,
    /// Compare the counts with the golden file.
    Check,
    /// Replace the golden file.
    Write,
}

/// A fast path as the golden file has it.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    mnemonics: Vec<String>,
}

/// Does it, with this executable or another build of it. Returns the text to print, and whether all counts agree with the
/// golden file (also true if they are not compared).
///
/// # Errors
/// If the executable or the golden file cannot be read or written, or this is not the build to look at.
pub fn run(action: Action, executable: Option<&Path>) -> Result<(String, bool), String> {
    if executable.is_none() && !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err("golden: only on x86-64 Linux".to_owned());
    }
    if executable.is_none() && cfg!(debug_assertions) {
        return Err("golden: only in a release build (cargo run --release)".to_owned());
    }
    fast_path::keep();
    let executable = read(executable.unwrap_or(Path::new("/proc/self/exe")))?;
    let code = Code::of(&executable)?;
    let file = file(code.architecture);
    // A path that cannot be followed (an indirect jump on it, say) counts 0, so that it shows in the golden file.
    let paths = fast_path::NAMES.map(|name| (name, code.fast_path(name).unwrap_or_default()));
    let entries: Vec<Entry> = paths.iter().map(|(name, path)| entry(name, path)).collect();
    match action {
        Action::Show => Ok((listing(&paths), true)),
        Action::Write => {
            let text = print(&entries, &code.compilers);
            std::fs::write(&file, &text).map_err(|error| named(&file, &error))?;
            Ok((text, true))
        }
        Action::Check => {
            let golden = read(&file)?;
            let golden = parse(&String::from_utf8_lossy(&golden));
            Ok(compare(&golden, &entries))
        }
    }
}

fn file(architecture: Architecture) -> PathBuf {
    let name = match architecture {
        Architecture::X86 => "x86_64.txt",
        Architecture::Arm => "aarch64.txt",
    };
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn entry(name: &str, path: &[Instruction]) -> Entry {
    Entry {
        name: name.to_owned(),
        mnemonics: path.iter().map(Instruction::mnemonic).collect(),
    }
}

fn listing(paths: &[(&str, Vec<Instruction>)]) -> String {
    let mut text = String::new();
    for (name, path) in paths {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {}", path.len());
        if path.is_empty() {
            let _ = writeln!(
                text,
                "    none found that ends without an indirect jump or a slow function"
            );
        }
        for instruction in path {
            let _ = writeln!(text, "    {}", instruction.text());
        }
    }
    text
}

fn print(entries: &[Entry], compilers: &str) -> String {
    let mut text = format!(
        "# Instructions on the fast paths, release profile; made by `bursar-bench golden --write`.\n\
         # The rule by which a path is followed stands in bench/src/code.rs.\n# {compilers}\n"
    );
    for Entry { name, mnemonics } in entries {
        let _ = writeln!(text, "{name}: {}", mnemonics.len());
        for mnemonic in mnemonics {
            let _ = writeln!(text, "    {mnemonic}");
        }
    }
    text
}

fn parse(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("    "), line.split_once(':')) {
            (Some(mnemonic), _) => {
                if let Some(entry) = entries.last_mut() {
                    entry.mnemonics.push(mnemonic.to_owned());
                }
            }
            (None, Some((name, _))) => entries.push(Entry {
                name: name.to_owned(),
                mnemonics: Vec::new(),
            }),
            (None, None) => {}
        }
    }
    entries
}

/// One line for each path, and the difference where the counts differ.
fn compare(golden: &[Entry], now: &[Entry]) -> (String, bool) {
    let mut text = String::new();
    let mut same = golden.len() == now.len();
    for entry in now {
        let none = Vec::new();
        let before = golden.iter().find(|before| before.name == entry.name);
        let before = before.map_or(&none, |before| &before.mnemonics);
        let (was, is) = (before.len(), entry.mnemonics.len());
        if was == is {
            let _ = writeln!(text, "{}: {is}, as in the golden file", entry.name);
            continue;
        }
        same = false;
        let _ = writeln!(text, "{}: {is}, golden file: {was}", entry.name);
        code::difference(&mut text, before, &entry.mnemonics);
    }
    (text, same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mnemonics: &[&str]) -> Entry {
        Entry {
            name: "f".into(),
            mnemonics: mnemonics.iter().map(|&mnemonic| mnemonic.into()).collect(),
        }
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let entries = [path(&["mov", "ret"]), path(&[])];
        assert_eq!(parse(&print(&entries, "rustc")), entries);
    }

    #[test]
    fn a_longer_path_is_shown_as_a_difference() {
        let (text, same) = compare(&[path(&["mov", "ret"])], &[path(&["mov", "cmp", "ret"])]);
        assert!(!same);
        assert_eq!(text, "f: 3, golden file: 2\n  +cmp\n");
        let (_, same) = compare(&[path(&["mov", "ret"])], &[path(&["lea", "ret"])]);
        assert!(same, "only the count is compared");
        let (_, same) = compare(&[], &[path(&["ret"])]);
        assert!(!same);
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn the_bare_add_is_found_in_this_executable() {
        fast_path::keep();
        let executable = read(Path::new("/proc/self/exe")).unwrap();
        let code = Code::of(&executable).unwrap();
        let path = code.fast_path(fast_path::NAMES[0]).unwrap();
        assert_eq!(path.last().unwrap().mnemonic(), "ret");
        assert!(code.fast_path("no_such_function").is_err());
    }
}
