//! Completions and man pages: what shells and `man` accept.

mod common;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use common::*;

/// Every command, as the help of the program lists them.
const COMMANDS: [&str; 8] = [
    "run",
    "report",
    "compare",
    "explore",
    "calibrate",
    "list",
    "completions",
    "man",
];

/// Runs another program with this text on its standard input; nothing if it is not installed.
fn fed(program: &str, arguments: &[&str], text: &[u8]) -> Option<Output> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.ok()?;
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may have seen enough.
    let _ = stdin.write_all(text);
    drop(stdin);
    child.wait_with_output().ok()
}

#[test]
fn completions_are_scripts_that_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = bursar(&["completions", shell]);
        succeeded(&output);
        for command in COMMANDS {
            assert!(stdout(&output).contains(command), "{shell}: {command}");
        }
        if let Some(checked) = fed(shell, &["-n"], &output.stdout)
            && ["bash", "zsh", "fish"].contains(&shell)
        {
            assert!(checked.status.success(), "{shell}: {}", stderr(&checked));
        }
    }
    assert_refused(&["completions", "csh"], 2, "possible values: bash");
    assert_refused(&["completions"], 2, "SHELL");
}

#[test]
fn man_pages_are_accepted_by_man() {
    let pages = COMMANDS.iter().map(|command| vec!["man", *command]);
    for arguments in pages.chain([vec!["man"]]) {
        let page = succeeded(&bursar(&arguments));
        let name = arguments
            .get(1)
            .map_or("bursar-lab".to_owned(), |it| format!("bursar-lab-{it}"));
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        let Some(shown) = fed("man", &["-l", "-"], page.as_bytes()) else {
            continue;
        };
        if shown.status.success() {
            assert!(stderr(&shown).is_empty(), "{name}: {}", stderr(&shown));
            assert!(stdout(&shown).contains("SYNOPSIS"), "{}", stdout(&shown));
        }
    }
    assert!(
        stdout(&bursar(&["man", "run"])).contains("bursar\\-lab run memcg\\-flush \\-\\-quick")
    );
    assert_refused(
        &["man", "sun"],
        2,
        "unknown command `sun`; there are run, report",
    );
}
