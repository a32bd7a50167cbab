//! Fuzzers of all code that takes input from outside. `docs/hardening.md` says how to run them, and what they found.
//!
//! A target is a function of bytes that panics if the code under test breaks a promise. The binary `fuzz` hands it to libFuzzer;
//! `tests/corpus.rs` hands it each file of its corpus. Inputs of several parts have NUL bytes between them.
//!
//! | target | input from outside | promises, besides no panic |
//! |---|---|---|
//! | `answer` | HTTP answers to `bursar top` and `stat` | an answer in pieces is the same; an error is harmless |
//! | `capi` | C calls | the books agree with exact reads, no byte is left, callbacks end once; AddressSanitizer is quiet |
//! | `cgroup` | files of `/proc` and of cgroups | a limit is one of the files'; an error names a file |
//! | `experiment` | experiments and draws | draws print and parse to the same; an error has its place; a plan can be made and reported |
//! | `format` | formats of tracefs, pages, records | a format prints and parses to the same; records lie inside their page |
//! | `http` | requests to `bursar-serve` | no cut of a request changes its meaning; a refusal is one harmless line; answers parse |
//! | `live` | documents that `bursar top` and `stat` read | texts and screens have no control character |
//! | `name` | names of groups | the rules refuse, and nothing else; a group is found and shown by its name; nothing is left |
//! | `perf-data` | `perf.data` | memory is bounded by the file's length; what was read can be written and read as a recording |
//! | `recording` | recordings | memory is bounded; prints and parses to the same, also redacted; figures and a load can be made |
//! | `result` | documents of `bursar-lab run` | prints and parses to the same; equals itself in a comparison |
//! | `settings` | `-s` and `-m` | a machine prints and parses to the same; an error names what was given |
//! | `trace-dat` | `trace.dat` | as `perf-data` |
//! | `users` | users' files of the SQL server | prints and parses to the same; an error has its line and column |

#[cfg(feature = "c")]
mod capi;
#[cfg(feature = "parsers")]
mod common;
#[cfg(feature = "parsers")]
mod meter;
#[cfg(feature = "parsers")]
mod targets;

/// Declares modules of programs, which have no library. They name each other from the root.
macro_rules! programs {
    ($($path:literal $name:ident),*) => {
        $(
            #[cfg(feature = "parsers")]
            #[path = $path]
            #[allow(dead_code, reason = "targets use a part")]
            mod $name;
        )*
    };
}

programs! {
    "../../crates/top/src/args.rs" args,
    "../../crates/top/src/client.rs" client,
    "../../crates/top/src/document.rs" document,
    "../../lab/cli/src/machine.rs" machine,
    "../../crates/top/src/model.rs" model,
    "../../crates/serve/src/request.rs" request,
    "../../lab/cli/src/result_file.rs" result_file,
    "../../crates/top/src/screen.rs" screen,
    "../../crates/top/src/stat.rs" stat,
    "../../lab/cli/src/system.rs" system,
    "../../examples/sql-server/src/users.rs" users
}

use std::sync::OnceLock;

/// Function that checks the promises of one piece of code with any bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora.
pub fn targets() -> impl Iterator<Item = (&'static str, Target)> {
    let none: [(_, Target); 0] = [];
    let all = none.into_iter();
    #[cfg(feature = "c")]
    let all = all.chain([("capi", capi::run as Target)]);
    #[cfg(feature = "parsers")]
    let all = all.chain(targets::PARSERS);
    all
}

/// Target of the environment variable `BURSAR_FUZZ`.
pub fn chosen() -> Target {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("BURSAR_FUZZ").unwrap_or_default();
        let found = targets().find(|(known, _)| *known == name);
        found
            .unwrap_or_else(|| panic!("BURSAR_FUZZ={name}: there is no such target"))
            .1
    })
}
