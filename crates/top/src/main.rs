//! `bursar`: the memory groups of a running server, and how the library works on this machine.
//!
//! Standard output holds the document that was asked for and nothing else; remarks go to standard error.
//!
//! | command | files |
//! |---|---|
//! | `top`, `stat` | `client.rs` asks the socket of `bursar-serve`, `document.rs` is its answer, `model.rs` has the rows, `screen.rs` draws them |
//! | `doctor` | `doctor.rs` |

#![forbid(unsafe_code)]

mod args;
mod client;
mod doctor;
mod document;
mod model;
mod screen;
mod stat;
mod top;

use std::process::ExitCode;

use args::{Args, Command};
use bursar_term::{help, shell};

fn main() -> ExitCode {
    let args: Args = help::parse();
    let ended = match &args.command {
        Command::Top(it) => top::top(it, &args.global),
        Command::Stat(it) => stat::stat(it, &args.global),
        Command::Doctor => doctor::doctor(&args.global),
        Command::Completions(it) => shell::completions::<Args>(it, &args.global),
        Command::Man(it) => shell::man::<Args>(it, &args.global),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
