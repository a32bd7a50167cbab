//! Numbers that a change may lower and not raise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use syn::Item;

use super::module::is_public;
use super::package::Package;
use super::reference::circles;

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

/// All numbers of a workspace: files in circles for each package, and the face of the library.
pub fn numbers(packages: &[Package]) -> Vec<Number> {
    let mut all: Vec<Number> = packages.iter().map(files_in_circles).collect();
    if let Some(package) = packages.iter().find(|package| package.name == "bursar") {
        all.extend(face(package));
    }
    all
}

fn files_in_circles(package: &Package) -> Number {
    let sets = circles(&package.main_crate().references());
    let files = |set: &Vec<usize>| {
        let names = set.iter().map(|&file| short(package, file));
        names.collect::<Vec<_>>().join(" ")
    };
    let places: Vec<String> = sets.iter().map(files).collect();
    Number {
        name: format!("circles.{}", package.name),
        value: sets.iter().map(Vec::len).sum(),
        places: places.join(" | "),
    }
}

/// Names that users of the library see: in each public module, types with the parameter for the machine, methods of a group.
fn face(package: &Package) -> Vec<Number> {
    let number = |name: String, value, places| Number {
        name,
        value,
        places,
    };
    let library = package.main_crate();
    let mut all = Vec::new();
    let mut public = BTreeSet::new();
    for index in library.public_modules() {
        let path = library.modules[index].path.join("::");
        let names = library.public_names(index);
        let path = if path.is_empty() { "root" } else { &path };
        all.push(number(format!("names.{path}"), names.len(), String::new()));
        public.extend(names);
    }
    let sources: BTreeSet<usize> = library.modules.iter().map(|module| module.file).collect();
    let items = || {
        let files = sources.iter().map(|&file| &package.files[file]);
        files.flat_map(|file| &file.syntax.items)
    };
    let carriers: BTreeSet<String> = items().filter_map(type_with_machine).collect();
    let carriers: Vec<String> = carriers.intersection(&public).cloned().collect();
    let places = carriers.join(" ");
    all.push(number("types-with-machine".into(), carriers.len(), places));
    let methods = items().map(public_methods_of_group).sum();
    all.push(number("methods.Group".into(), methods, String::new()));
    all
}

/// The name of a public type with the parameter for the machine, by name or by bound.
fn type_with_machine(item: &Item) -> Option<String> {
    let (visibility, ident, generics) = match item {
        Item::Struct(item) => (&item.vis, &item.ident, &item.generics),
        Item::Enum(item) => (&item.vis, &item.ident, &item.generics),
        Item::Union(item) => (&item.vis, &item.ident, &item.generics),
        Item::Type(item) => (&item.vis, &item.ident, &item.generics),
        _ => return None,
    };
    let is_machine = |bound: &syn::TypeParamBound| {
        matches!(bound, syn::TypeParamBound::Trait(bound)
            if bound.path.segments.last().is_some_and(|last| last.ident == "Machine"))
    };
    let mut parameters = generics.type_params();
    let carries = parameters.any(|it| it.ident == "M" || it.bounds.iter().any(is_machine));
    (carries && is_public(visibility)).then(|| ident.to_string())
}

fn public_methods_of_group(item: &Item) -> usize {
    let Item::Impl(block) = item else {
        return 0;
    };
    let is_group = matches!(&*block.self_ty, syn::Type::Path(of)
        if of.path.segments.last().is_some_and(|last| last.ident == "Group"));
    if block.trait_.is_some() || !is_group {
        return 0;
    }
    let is_shown =
        |item: &&syn::ImplItem| matches!(item, syn::ImplItem::Fn(method) if is_public(&method.vis));
    block.items.iter().filter(is_shown).count()
}

/// Path of a file inside its package's `src`.
fn short(package: &Package, file: usize) -> String {
    let path = &package.files[file].path;
    let prefix = format!("{}/src/", package.directory);
    path.strip_prefix(&prefix).unwrap_or(path).to_owned()
}

/// The most that each number may be: 0 if the file has no bound.
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
    pub fn of(&self, number: &Number) -> usize {
        self.0.get(&number.name).copied().unwrap_or(0)
    }

    /// Names of bounds that belong to none of these numbers.
    pub fn unused(&self, numbers: &[Number]) -> Vec<&str> {
        let is_used = |name: &str| numbers.iter().any(|number| number.name == name);
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| !is_used(name)).collect()
    }

    /// The file whose bounds are these numbers.
    pub fn text(numbers: &[Number]) -> String {
        let mut text = String::from(
            "# The most that each number of `cargo run -p bursar-check --bin ratchet` may be; 0 if it is missing. `--write` sets them.\n",
        );
        for number in numbers.iter().filter(|number| number.value > 0) {
            let _ = writeln!(text, "{} {}", number.name, number.value);
        }
        text
    }
}
