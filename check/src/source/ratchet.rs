//! Numbers that a change may lower and not raise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::file::SourceFile;
use super::module::{Definition, Module, Target};
use super::package::{House, Package};
use super::reference::cycles;

/// More files than this for the `impl` blocks of a type are too many.
const IMPL_FILES: usize = 3;

/// A number, and the places that it counts.
#[derive(Debug)]
pub struct Number {
    /// Name in the file of bounds.
    pub name: String,
    /// Value.
    pub value: usize,
    /// Places, if they are few.
    pub places: String,
}

/// All numbers of a workspace.
pub fn numbers(packages: &[Package]) -> Vec<Number> {
    let mut all = Vec::new();
    let mut add = |name: String, value: usize, places: String| {
        all.push(Number {
            name,
            value,
            places,
        });
    };
    for package in packages {
        let sets = cycles(&package.main_crate().references());
        let files = |set: &Vec<usize>| {
            let names = set.iter().map(|&file| short(package, file));
            names.collect::<Vec<_>>().join(" ")
        };
        let name = &package.name;
        let places: Vec<String> = sets.iter().map(files).collect();
        add(format!("cycles.{name}"), sets.len(), String::new());
        add(
            format!("cycles.{name}.largest"),
            sets.first().map_or(0, Vec::len),
            places.join(" | "),
        );
    }
    if let Some(package) = packages.iter().find(|package| package.name == "bursar") {
        face(package, &mut add);
    }
    for package in packages {
        let scattered: Vec<String> = impl_files(package)
            .into_iter()
            .filter(|(_, files)| files.len() > IMPL_FILES)
            .map(|(of, files)| format!("{} {}", of.name, files.len()))
            .collect();
        let name = format!("scattered-types.{}", package.name);
        add(name, scattered.len(), scattered.join(", "));
    }
    lines(packages, &mut add);
    all
}

/// Names and types that users of the library see.
fn face(package: &Package, add: &mut impl FnMut(String, usize, String)) {
    let library = package.main_crate();
    let mut carriers = BTreeSet::new();
    for index in library.public_modules() {
        let path = library.modules[index].path.join("::");
        let names = library.public_names(index);
        for name in &names {
            for target in library.resolve(index, std::slice::from_ref(name)) {
                if let Target::Item(definition) = target
                    && definition.carries_machine
                {
                    carriers.insert(definition.name);
                }
            }
        }
        let path = if path.is_empty() { "root" } else { &path };
        add(format!("names.{path}"), names.len(), String::new());
    }
    let carriers: Vec<String> = carriers.into_iter().collect();
    add(
        "types-with-machine".to_owned(),
        carriers.len(),
        carriers.join(" "),
    );
    let impls = impls(package).into_iter();
    let group = impls.filter(|(of, ..)| of.name == "Group");
    let methods = group.map(|(_, _, methods)| methods).sum();
    add("methods.Group".to_owned(), methods, String::new());
}

/// Blocks with a type's own methods: type, file, and how many methods are public.
fn impls(package: &Package) -> Vec<(Definition, usize, usize)> {
    let library = package.main_crate();
    let modules = library.modules.iter().enumerate();
    let in_module = |(index, module): (usize, &'_ Module)| {
        let file = module.file;
        let blocks = module.impls.clone().into_iter();
        blocks.flat_map(move |(path, methods)| {
            let found = library.resolve(index, &path).into_iter();
            found.filter_map(move |target| match target {
                Target::Item(definition) => Some((definition, file, methods)),
                Target::Module(_) => None,
            })
        })
    };
    let blocks = modules.filter(|(_, module)| !module.is_test);
    blocks.flat_map(in_module).collect()
}

/// Files with a block of a type's own methods, for each type.
fn impl_files(package: &Package) -> BTreeMap<Definition, BTreeSet<usize>> {
    let mut files: BTreeMap<Definition, BTreeSet<usize>> = BTreeMap::new();
    for (of, file, _) in impls(package) {
        files.entry(of).or_default().insert(file);
    }
    files
}

fn lines(packages: &[Package], add: &mut impl FnMut(String, usize, String)) {
    let mut houses: BTreeMap<Option<House>, [usize; 2]> = BTreeMap::new();
    let mut all = [0; 2];
    for package in packages {
        let sum = |count: fn(&SourceFile) -> usize| package.files.iter().map(count).sum();
        let counts: [usize; 2] = [sum(|file| file.lines), sum(|file| file.test_lines)];
        add(format!("lines.{}", package.name), counts[0], tests(counts));
        for total in [houses.entry(package.house).or_default(), &mut all] {
            for (total, count) in total.iter_mut().zip(counts) {
                *total += count;
            }
        }
    }
    for (house, counts) in houses {
        let name = house.map_or("no house".to_owned(), |house| format!("{house:?}"));
        let name = format!("house.{}", name.to_lowercase());
        add(name, counts[0], tests(counts));
    }
    add("house.all".to_owned(), all[0], tests(all));
}

fn tests(counts: [usize; 2]) -> String {
    format!("tests {}", counts[1])
}

/// Path of a file inside its package's `src`.
fn short(package: &Package, file: usize) -> String {
    let path = &package.files[file].path;
    let prefix = format!("{}/src/", package.directory);
    path.strip_prefix(&prefix).unwrap_or(path).to_owned()
}

/// The most that each number may be.
#[derive(Debug, Default)]
pub struct Bounds(BTreeMap<String, usize>);

impl Bounds {
    /// Reads lines of a name and a number. Panics at any other.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a file of bounds");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let parse = |line: &str| {
            let (name, bound) = line.split_once(' ')?;
            Some((name.to_owned(), bound.trim().parse().ok()?))
        };
        let bounds = lines.map(|line| parse(line).unwrap_or_else(|| panic!("bound: {line}")));
        Self(bounds.collect())
    }

    /// The bound of a number.
    pub fn of(&self, number: &Number) -> Option<usize> {
        self.0.get(&number.name).copied()
    }

    /// Names of bounds that belong to none of these numbers.
    pub fn unused(&self, numbers: &[Number]) -> Vec<&str> {
        let is_used = |name: &str| numbers.iter().any(|number| number.name == name);
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| !is_used(name)).collect()
    }

    /// The file whose bounds are these numbers; of lines, the next hundred, so that a small change needs no new bound.
    pub fn text(numbers: &[Number]) -> String {
        let mut text = String::from(
            "# The most that each number of `cargo run -p bursar-check --bin ratchet` may be; `--write` sets them.\n",
        );
        for number in numbers {
            let is_lines = ["lines.", "house."]
                .iter()
                .any(|kind| number.name.starts_with(kind));
            let step = if is_lines { 100 } else { 1 };
            let bound = number.value.next_multiple_of(step);
            let _ = writeln!(text, "{} {bound}", number.name);
        }
        text
    }
}
