//! Allowed dependencies: between crates, and inside this one. ARCHITECTURE.md states the same in prose.

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The workspace's packages that a manifest depends on outside of tests.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or("");
        if section == "[dependencies]" && name.starts_with("bursar") {
            found.push(name);
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn crates_depend_one_way() {
    let allowed: [(&str, &[&str]); 15] = [
        ("crates/machine", &[]),
        ("crates/bursar", &["bursar-machine"]),
        ("crates/alloc", &["bursar", "bursar-machine"]),
        ("crates/datafusion", &["bursar"]),
        // Knows nothing of Bursar.
        ("bench/tpch", &[]),
        ("bench/conditions", &["bursar-machine"]),
        ("lab/recording", &[]),
        ("crates/tower", &["bursar", "bursar-alloc"]),
        ("lab/sim", &["bursar-machine"]),
        (
            "lab/experiments",
            &["bursar", "bursar-machine", "bursar-recording"],
        ),
        ("lab/observe", &[]),
        (
            "lab/cli",
            &[
                "bursar",
                "bursar-check",
                "bursar-conditions",
                "bursar-experiments",
                "bursar-machine",
                "bursar-observe",
                "bursar-recording",
                "bursar-sim",
            ],
        ),
        (
            "check",
            &[
                "bursar",
                "bursar-experiments",
                "bursar-machine",
                "bursar-sim",
            ],
        ),
        // Peers know nothing of Bursar, and nothing else knows of them.
        ("bench/peers", &[]),
        (
            "bench",
            &[
                "bursar",
                "bursar-alloc",
                "bursar-bench-peers",
                "bursar-conditions",
                "bursar-datafusion",
                "bursar-machine",
                "bursar-sim",
            ],
        ),
    ];
    for (directory, allowed) in allowed {
        let manifest = fs::read_to_string(workspace().join(directory).join("Cargo.toml")).unwrap();
        for name in dependencies(&manifest) {
            assert!(allowed.contains(&name), "{directory} depends on {name}");
        }
    }
}

#[test]
fn modules_use_only_those_before_them() {
    // In the order of `lib.rs`.
    let layers = [
        "arena",
        "gate",
        "stats",
        "charge",
        "pages",
        "housekeeping",
        "books",
        "held",
        "group",
        "account",
        "registration",
        "reserve",
        "survey",
        "waiting",
        "memory",
        "page",
        "snapshot",
        "serial",
    ];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (level, layer) in layers.iter().enumerate() {
        let file = source.join(format!("{layer}.rs"));
        let directory = source.join(layer);
        let mut files = Vec::new();
        if file.exists() {
            files.push(file);
        }
        if directory.exists() {
            files.extend(sources(&directory));
        }
        assert!(!files.is_empty(), "{layer}");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for later in &layers[level + 1..] {
                // A charge that moves to a group, and a group that makes charges, are one layer in two files.
                if (*layer, *later) == ("held", "group") {
                    continue;
                }
                let used = text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"))
                    .any(|line| line.contains(&format!("crate::{later}::")));
                assert!(!used, "{} uses {later}", file.display());
            }
        }
    }
}

/// `unsafe`, clocks, threads and the environment stay where ARCHITECTURE.md says.
#[test]
fn the_library_decides_and_the_machine_does() {
    let banned = [
        "unsafe ",
        "std::time::Instant",
        "SystemTime",
        "std::thread",
        "std::env",
        "HashMap",
    ];
    for directory in ["crates/bursar/src", "lab/experiments/src"] {
        for file in sources(&workspace().join(directory)) {
            if file.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for (number, line) in code.lines().enumerate() {
                let line = line.split("//").next().unwrap();
                for word in banned {
                    assert!(
                        !line.contains(word),
                        "{}:{}: {word}",
                        file.display(),
                        number + 1
                    );
                }
            }
        }
    }
}

/// Whoever has an address can do what no token allows: none in the library or in what is built on it.
#[test]
fn addresses_stay_where_unsafe_is() {
    for directory in ["crates/bursar/src", "lab/experiments/src", "lab/cli/src"] {
        for file in sources(&workspace().join(directory)) {
            if file.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for word in ["NonNull", "HostFrames", "bursar_alloc"] {
                let mut code = text.lines().map(|line| line.split("//").next().unwrap());
                let used = code.any(|line| line.contains(word));
                assert!(!used, "{}: {word}", file.display());
            }
        }
    }
}

/// The parameter for the machine must not spread: at most about a dozen public types carry it.
#[test]
fn few_public_types_carry_the_machine() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let carriers: Vec<String> = sources(&source)
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let public = text
                .lines()
                .filter(|line| line.starts_with("pub struct") || line.starts_with("pub enum"))
                .filter(|line| line.contains("<M: Machine"));
            public.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert!(carriers.len() <= 15, "{carriers:#?}");
}
