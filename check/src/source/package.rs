//! Packages of a workspace, and their files.

use std::fs;
use std::path::{Path, PathBuf};

use super::file::{SourceFile, relative};
use super::module::Crate;

/// Part of the repository that a package belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum House {
    /// Code that users compile.
    Product,
    /// Experiments and their tool.
    Lab,
    /// Observation of kernels, and its tool.
    Observe,
    /// Tests that stand apart from the crate that they test.
    Check,
    /// Benchmarks.
    Bench,
    /// Fuzzers of all houses.
    Fuzz,
}

/// The house of each package. A package that is missing here belongs to none, which is an error.
#[rustfmt::skip]
const HOUSES: [(House, &[&str]); 6] = [
    (House::Product, &["bursar-machine", "bursar", "bursar-arbiter", "bursar-alloc", "bursar-tower", "bursar-cache", "bursar-arrow", "bursar-datafusion",
        "bursar-prometheus", "bursar-serve", "bursar-capi", "bursar-term", "bursar-top"]),
    (House::Lab, &["bursar-rig", "bursar-sim", "bursar-kernel", "bursar-experiments", "bursar-lab"]),
    (House::Observe, &["bursar-watch", "bursar-replay", "bursar-observe"]),
    (House::Check, &["bursar-check"]),
    (House::Bench, &["bursar-bench", "bursar-bench-peers", "bursar-conditions", "bursar-tpch", "bursar-example-server",
        "bursar-example-distributed", "bursar-example-engines", "bursar-example-sql-server"]),
    (House::Fuzz, &["bursar-fuzz"]),
];

/// A package of the workspace.
pub struct Package {
    /// Name in its manifest.
    pub name: String,
    /// Directory, from the workspace.
    pub directory: String,
    /// Part of the repository, if it is named in the table.
    pub house: Option<House>,
    /// Packages of the workspace on which it depends outside of tests.
    pub dependencies: Vec<String>,
    /// All files of Rust.
    pub files: Vec<SourceFile>,
    /// Library, programs, tests and examples: each a tree of modules over the files.
    pub crates: Vec<Crate>,
}

/// Reads all packages below a directory. Panics if a file cannot be read or parsed.
pub fn workspace(root: &Path) -> Vec<Package> {
    let mut manifests = Vec::new();
    find(root, &mut manifests, &|path| path.ends_with("Cargo.toml"));
    let mut packages: Vec<Package> = manifests
        .iter()
        .filter_map(|manifest| Package::read(root, manifest))
        .collect();
    packages.sort_by(|a, b| a.directory.cmp(&b.directory));
    packages
}

impl Package {
    fn read(root: &Path, path: &Path) -> Option<Self> {
        let manifest = fs::read_to_string(path).expect("a manifest");
        let name = key(&manifest, "package", "name")?;
        let directory = path.parent().expect("a directory");
        let mut files = Vec::new();
        let mut nested = Vec::new();
        find(directory, &mut nested, &|path| path.ends_with("Cargo.toml"));
        nested.retain(|other| other != path);
        find(directory, &mut files, &|path| {
            path.extension().is_some_and(|extension| extension == "rs")
        });
        files.retain(|file| {
            let inside = |other: &PathBuf| file.starts_with(other.parent().expect("a directory"));
            !nested.iter().any(inside)
        });
        files.sort();
        let files: Vec<SourceFile> = files
            .iter()
            .map(|file| SourceFile::read(root, file))
            .collect();
        let directory = relative(root, directory);
        let house = HOUSES
            .iter()
            .find(|(_, names)| names.contains(&name.as_str()))
            .map(|(house, _)| *house);
        let crates = roots(&directory, &files)
            .into_iter()
            .map(|root| Crate::new(&files, root))
            .collect();
        Some(Self {
            dependencies: dependencies(&manifest, &name),
            name,
            directory,
            house,
            files,
            crates,
        })
    }

    /// The library, or the program if there is none.
    pub fn main_crate(&self) -> &Crate {
        let root = |name: &str| {
            let path = format!("{}/src/{name}", self.directory);
            let is_it = |made: &&Crate| self.files[made.root_file()].path == path;
            self.crates.iter().find(is_it)
        };
        root("lib.rs")
            .or_else(|| root("main.rs"))
            .expect("a library or a program")
    }
}

/// Adds the files below a directory that are wanted. Build directories and hidden ones are left out.
fn find(directory: &Path, found: &mut Vec<PathBuf>, wanted: &dyn Fn(&Path) -> bool) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name == "target" || name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            find(&path, found, wanted);
        } else if wanted(&path) {
            found.push(path);
        }
    }
}

/// Files at which a crate begins, by Cargo's rules for directories.
fn roots(directory: &str, files: &[SourceFile]) -> Vec<usize> {
    let is_root = |path: &str| {
        let Some(inside) = path.strip_prefix(&format!("{directory}/")) else {
            return false;
        };
        let parts: Vec<&str> = inside.split('/').collect();
        match parts[..] {
            ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] => true,
            ["tests" | "examples" | "benches", file] => file.ends_with(".rs"),
            ["tests" | "examples" | "benches", _, "main.rs"] | ["src", "bin", _, "main.rs"] => true,
            _ => false,
        }
    };
    let indices = 0..files.len();
    indices.filter(|&file| is_root(&files[file].path)).collect()
}

/// A value of a section of a manifest.
fn key(manifest: &str, section: &str, key: &str) -> Option<String> {
    let lines = manifest.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| *line != format!("[{section}]"));
    lines.next()?;
    let value = lines
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// Packages of the workspace that a manifest depends on outside of tests.
fn dependencies(manifest: &str, own: &str) -> Vec<String> {
    let mut is_wanted = false;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        let name = if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let (before, last) = section.rsplit_once('.').unwrap_or(("", section));
            is_wanted = last == "dependencies" || last == "build-dependencies";
            let of_one = before == "dependencies" || before.ends_with(".dependencies");
            if of_one { last } else { "" }
        } else if is_wanted {
            line.split(['.', ' ', '=']).next().unwrap_or("")
        } else {
            ""
        };
        if name.starts_with("bursar") && name != own {
            found.push(name.to_owned());
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
