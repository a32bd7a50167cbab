//! Files of cgroups, and those that lead to them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bursar_machine::host::CgroupMemory;

use crate::common::parts;

/// Stands in a `mountinfo` for the directory of the fake files.
const HERE: &[u8] = b"HERE";
/// The kernel's pages, of which version 1 counts at most `i64::MAX` bytes.
const FILES: [&str; 6] = [
    "memory.max",
    "memory.high",
    "memory.current",
    "memory.pressure",
    "memory.limit_in_bytes",
    "cgroup.controllers",
];

/// `/proc/self/cgroup`, `mountinfo`, then the files of the group `/a` below the mount point `HERE`, and its controllers.
pub(super) fn run(input: &[u8]) {
    // One directory for all threads of a test.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let here = here();
    let group = here.join("a");
    let [cgroup, mounts, files @ ..] = parts::<8>(input);
    fs::create_dir_all(&group).expect("a directory");
    fs::write(here.join("cgroup"), cgroup).expect("a file");
    fs::write(here.join("mountinfo"), replaced(mounts, &here)).expect("a file");
    for (name, bytes) in FILES.iter().zip(files) {
        fs::write(group.join(name), bytes).expect("a file");
    }
    fs::write(here.join(FILES[5]), files[5]).expect("a file");
    let found = match CgroupMemory::find(&here) {
        Ok(found) => found,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(found.directory().is_dir());
    match found.read() {
        Ok(limits) => {
            let given = |text: &[u8]| {
                let text = std::str::from_utf8(text.trim_ascii()).ok()?;
                text.parse::<u64>().ok()
            };
            if limits.limited_by.as_deref() == Some(&group) {
                let least = [given(files[0]), given(files[4])];
                assert!(least.contains(&limits.max), "{limits:?}");
            }
        }
        Err(error) => assert!(error.to_string().contains('/'), "{error} names a file"),
    }
    if let Ok(Some(percent)) = found.stall_percent() {
        assert!((0.0..=100.0).contains(&percent));
    }
}

fn here() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let directory = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    directory.join(format!("bursar-fuzz-{}", std::process::id()))
}

fn replaced(text: &[u8], here: &Path) -> Vec<u8> {
    let mut whole = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(HERE.len()).position(|it| it == HERE) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(here.as_os_str().as_encoded_bytes());
        rest = &rest[at + HERE.len()..];
    }
    whole.extend_from_slice(rest);
    whole
}
