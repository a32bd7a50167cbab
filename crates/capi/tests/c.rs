//! Programs in C and C++ against the library, shared and static.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

#[derive(Clone, Copy, PartialEq)]
enum Linked {
    Shared,
    Static,
    No,
}

/// Directory in which Cargo puts the library: beside this test.
fn libraries() -> PathBuf {
    let this = env::current_exe().unwrap();
    this.parent().unwrap().to_owned()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles a program of `tests/c`, and links it.
fn build(source: &str, linked: Linked, flags: &[&str], to: &Path) -> PathBuf {
    let is_cpp = source.ends_with(".cpp");
    let program = to.join(source.replace(['.', '/'], "-"));
    let mut compiler = Command::new(if is_cpp { "c++" } else { "cc" });
    compiler.arg(if is_cpp { "-std=c++17" } else { "-std=c11" });
    compiler.args(WARNINGS).args(flags).arg("-g").arg("-O1");
    compiler.arg("-I").arg(here("include"));
    compiler
        .arg("-o")
        .arg(&program)
        .arg(here("tests/c").join(source));
    match linked {
        Linked::Shared => {
            // By the name that the library has for programs.
            let named = to.join("libbursar.so.1");
            if !named.exists() {
                std::os::unix::fs::symlink(libraries().join("libbursar_capi.so"), &named).unwrap();
            }
            compiler
                .arg(&named)
                .arg(format!("-Wl,-rpath,{}", to.display()));
        }
        Linked::No => {
            compiler.args(["-lpthread", "-ldl"]);
        }
        Linked::Static => {
            compiler
                .arg(libraries().join("libbursar_capi.a"))
                .args(["-lpthread", "-ldl", "-lm"]);
        }
    }
    let output = compiler
        .output()
        .expect("a C and a C++ compiler, such as Debian's g++");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler:?}\n{errors}");
    program
}

fn run(program: &Path, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output, text)
}

fn passes(program: &Path) {
    let (output, text) = run(program, &[]);
    assert!(
        output.status.success() && output.stdout.ends_with(b"passed\n"),
        "{text}"
    );
}

#[test]
fn shared() {
    let to = tempfile::tempdir().unwrap();
    for source in ["interface.c", "arbiter.c", "interface.cpp"] {
        passes(&build(source, Linked::Shared, &[], to.path()));
    }
}

#[test]
fn linked_statically() {
    let to = tempfile::tempdir().unwrap();
    passes(&build("interface.c", Linked::Static, &[], to.path()));
}

/// The program's own code is checked: what it hands in, and what it gets.
#[test]
fn under_sanitizers() {
    let to = tempfile::tempdir().unwrap();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    for source in ["interface.c", "arbiter.c", "interface.cpp"] {
        passes(&build(source, Linked::Shared, &flags, to.path()));
    }
}

/// valgrind has no restartable sequences, so the library uses another backend there. Not with an optimised library, in which valgrind takes a
/// branch on a byte that decides nothing for an error.
#[test]
#[cfg(debug_assertions)]
fn under_valgrind() {
    let Ok(version) = Command::new("valgrind").arg("--version").output() else {
        eprintln!("left out: there is no valgrind");
        return;
    };
    assert!(version.status.success());
    let to = tempfile::tempdir().unwrap();
    let program = build("interface.c", Linked::Static, &[], to.path());
    let mut valgrind = Command::new("valgrind");
    // A search for leaks takes a minute, because a memory reserves much address space and keeps it.
    valgrind.args(["-q", "--leak-check=no", "--error-exitcode=1"]);
    valgrind.arg(program);
    let output = valgrind.arg("one-thread-at-a-time").output().unwrap();
    assert!(
        output.status.success() && output.stdout.ends_with(b"passed\n"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_callback_that_unwinds_aborts_with_a_message() {
    let to = tempfile::tempdir().unwrap();
    let program = build("throws.cpp", Linked::Shared, &[], to.path());
    let foreign = "cannot catch foreign exceptions";
    // The C library ends a thread by unwinding it, and says this if that is stopped.
    let exit = ("exit", "exception not rethrown");
    let throwing = ["reclaim", "pressure", "destroy"].map(|callback| (callback, foreign));
    for (callback, says) in throwing.into_iter().chain([exit]) {
        let (output, text) = run(&program, &[callback]);
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
        assert!(
            text.contains("begun") && !text.contains("not reached"),
            "{callback}: {text}"
        );
        assert!(text.contains(says), "{callback}: {text}");
    }
}

#[test]
fn unloading_leaves_it_in_memory() {
    let to = tempfile::tempdir().unwrap();
    let program = build("unload.c", Linked::No, &[], to.path());
    let library = libraries().join("libbursar_capi.so");
    let output = Command::new(program).arg(library).output().unwrap();
    assert!(
        output.status.success() && output.stdout == b"passed\n",
        "{output:?}"
    );
}

/// The guide's first programs, by its recipe and with its results. Only the paths are this repository's.
#[test]
fn the_guides_programs() {
    let guide = std::fs::read_to_string(here("../../docs/guides/c.md")).unwrap();
    let blocks = guide.split("\n```").skip(1).step_by(2);
    let block = |kind: &str, nth: usize| {
        let begin = format!("{kind}\n");
        let mut found = blocks.clone().filter_map(|it| it.strip_prefix(&begin));
        let text = found.nth(nth).unwrap();
        format!("{text}\n")
    };
    let to = tempfile::tempdir().unwrap();
    let library = libraries().join("libbursar_capi.a").display().to_string();
    let recipe = block("cmake", 0)
        .replace("${BURSAR}/target/release/libbursar_capi.a", &library)
        .replace("/path/to/bursar", &here("../..").display().to_string());
    std::fs::write(to.path().join("CMakeLists.txt"), recipe).unwrap();
    for (kind, file) in [("c", "query.c"), ("cpp", "rows.cpp")] {
        std::fs::write(to.path().join(file), block(kind, 0)).unwrap();
    }
    let cmake = |arguments: &[&str]| {
        let mut command = Command::new("cmake");
        command.current_dir(to.path()).args(arguments).output()
    };
    let Ok(output) = cmake(&["-B", "."]) else {
        eprintln!("left out: there is no CMake");
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let output = cmake(&["--build", "."]).unwrap();
    assert!(output.status.success(), "{output:?}");
    for (nth, program) in ["query", "rows"].into_iter().enumerate() {
        let (output, text) = run(&to.path().join(program), &[]);
        assert!(
            output.status.success() && text == block("text", nth),
            "{text}"
        );
    }
}

/// A program that was built with the first header, which lies beside it, runs with this library.
#[test]
fn a_program_of_the_first_version_runs() {
    let to = tempfile::tempdir().unwrap();
    passes(&build("first/client.c", Linked::Shared, &[], to.path()));
}
