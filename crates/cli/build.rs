//! Notes the revision that is built, for the documents of `bursar run`.

use std::process::Command;

fn main() {
    // Uncommitted changes are part of the answer, so it is asked again whenever a source or the index changes.
    for path in [
        "../../crates",
        "../../experiments",
        "../../.git/HEAD",
        "../../.git/index",
    ] {
        if std::path::Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let revision = match described {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).ok(),
        _ => None,
    };
    let revision = revision.as_deref().map_or("unknown", str::trim);
    println!("cargo:rustc-env=BURSAR_REVISION={revision}");
}
