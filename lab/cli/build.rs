//! Notes the revision that is built, for the documents of `bursar-lab run`.

use std::path::Path;
use std::process::Command;

/// The record that `cargo package` leaves in a package.
const PACKAGED: &str = ".cargo_vcs_info.json";

fn main() {
    // Uncommitted changes are part of the answer, so it is asked again whenever a source or the index changes.
    for path in [
        "../../check",
        "../../crates",
        "../../experiments",
        "../../lab",
        "../../.git/HEAD",
        "../../.git/index",
        PACKAGED,
    ] {
        if Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let revision = match std::fs::read_to_string(PACKAGED) {
        Ok(record) => packaged(&record),
        // A package may lie in the repository of another project, so only a source tree asks Git.
        Err(_) => described(),
    };
    let revision = revision.as_deref().unwrap_or("unknown");
    println!("cargo:rustc-env=BURSAR_REVISION={revision}");
}

/// The first 12 digits of the commit in a package's record.
fn packaged(record: &str) -> Option<String> {
    let (_, after) = record.split_once("\"sha1\"")?;
    let commit = after.split('"').nth(1)?.get(..12)?;
    let dirty = if record.contains("\"dirty\": true") {
        "-dirty"
    } else {
        ""
    };
    Some(format!("{commit}{dirty}"))
}

fn described() -> Option<String> {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output()
        .ok()?;
    let revision = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| revision.trim().to_owned())
}
