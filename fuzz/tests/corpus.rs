//! Each file of each corpus passes, without a fuzzer.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;

use bursar_fuzz::targets;

/// The corpora, and what `.ci/fuzz keep` kept of what fuzzers found. One test: the target of C calls has one tree, so its inputs take turns.
#[test]
fn every_input_of_every_corpus_passes() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).join("found");
    let mut failed = Vec::new();
    for (name, target) in targets() {
        let kept = unpacked.join(name);
        let _ = fs::remove_dir_all(&kept);
        fs::create_dir_all(&kept).expect("a directory");
        let archive = fuzz.join("found").join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        let tar = tar.arg("-xzf").arg(&archive).arg("-C").arg(&kept);
        assert!(tar.status().expect("tar exists").success(), "{archive:?}");
        let seeds = files(&fuzz.join("corpus").join(name));
        assert!(!seeds.is_empty(), "{name}: its corpus is empty");
        let fails = |file: &PathBuf| {
            let input = fs::read(file).expect("a file");
            catch_unwind(|| target(&input)).is_err()
        };
        failed.extend(seeds.into_iter().chain(files(&kept)).filter(fails));
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}
