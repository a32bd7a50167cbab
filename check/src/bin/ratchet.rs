//! Prints the numbers of the workspace that may fall and not rise, with their bounds.
//!
//! `ratchet [--root DIRECTORY] [--write]`: of another checkout; with the present numbers as new bounds.

#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bursar_check::source::{Bounds, numbers, workspace};

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = here.join("ratchet.txt");
    let mut root = here.parent().expect("the workspace").to_owned();
    let mut writes = false;
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--root", Some(directory)) => root = PathBuf::from(directory),
            ("--write", None) => writes = true,
            _ => {
                eprintln!("usage: ratchet [--root DIRECTORY] [--write]");
                return ExitCode::from(2);
            }
        }
    }
    let numbers = numbers(&workspace(&root));
    if writes {
        std::fs::write(&file, Bounds::text(&numbers)).expect("the file of bounds can be written");
    }
    let bounds = Bounds::read(&file);
    println!("{:<36} {:>7} {:>7}", "number", "value", "bound");
    let mut is_held = true;
    for number in &numbers {
        let bound = bounds.of(number);
        let is_over = bound.is_none_or(|bound| number.value > bound);
        is_held &= !is_over;
        println!(
            "{:<36} {:>7} {:>7}  {}{}",
            number.name,
            number.value,
            bound.map_or("-".to_owned(), |bound| bound.to_string()),
            if is_over { "OVER " } else { "" },
            number.places
        );
    }
    if is_held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
