//! Prints the numbers of the workspace that may fall and not rise, with their bounds.
//!
//! `ratchet [--write]`: with the present numbers as new bounds.

#![forbid(unsafe_code)]

use std::env;
use std::path::Path;
use std::process::ExitCode;

use bursar_check::source::{Bounds, numbers, workspace};

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = here.join("ratchet.txt");
    let arguments: Vec<String> = env::args().skip(1).collect();
    let writes = arguments == ["--write"];
    if !writes && !arguments.is_empty() {
        eprintln!("usage: ratchet [--write]");
        return ExitCode::from(2);
    }
    let numbers = numbers(&workspace(here.parent().expect("the workspace")));
    if writes {
        std::fs::write(&file, Bounds::text(&numbers)).expect("the file of bounds can be written");
    }
    let bounds = Bounds::read(&file);
    println!("{:<36} {:>7} {:>7}", "number", "value", "bound");
    let mut is_held = true;
    for number in &numbers {
        let (bound, value) = (bounds.of(number), number.value);
        is_held &= value <= bound;
        let over = if value > bound { "OVER " } else { "" };
        let (name, places) = (&number.name, &number.places);
        println!("{name:<36} {value:>7} {bound:>7}  {over}{places}");
    }
    if is_held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
