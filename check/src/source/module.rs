//! Modules of a crate, and the file that defines a name.

use std::collections::BTreeMap;
use std::path::Path;

use quote::ToTokens;
use syn::{Item, UseTree, Visibility};

use super::file::{SourceFile, is_test, is_test_attribute};
use super::mention::{Mention, paths};

/// Aliases of aliases that are followed.
const DEPTH: usize = 12;

/// A crate: a tree of modules.
#[derive(Debug)]
pub struct Crate {
    /// The root is the first; a parent comes before its children.
    pub modules: Vec<Module>,
}

/// A module: a file, or a part of one.
#[derive(Debug)]
pub struct Module {
    /// Names from the root to this.
    pub path: Vec<String>,
    /// Index of its file in the package.
    pub file: usize,
    /// Index of the module around it.
    pub parent: Option<usize>,
    /// Compiled for tests alone.
    pub is_test: bool,
    /// Other crates see it.
    pub is_public: bool,
    /// Paths in its code, but for tests.
    pub mentions: Vec<Mention>,
    /// Definitions and aliases by name.
    names: BTreeMap<String, Vec<Named>>,
    /// `use path::*`, with whether others see it.
    globs: Vec<(Vec<String>, bool)>,
}

/// One meaning of a name.
#[derive(Clone, Debug)]
struct Named {
    is_public: bool,
    meaning: Meaning,
}

#[derive(Clone, Debug)]
enum Meaning {
    Module(usize),
    /// An item of this module.
    Item,
    /// `use path as name`.
    Alias(Vec<String>),
}

/// The module that a path leads to, and the name there, if it does not lead to the module itself.
pub type Target = (usize, Option<String>);

impl Crate {
    /// Follows the modules from a file.
    pub fn new(files: &[SourceFile], root: usize) -> Self {
        let mut made = Self {
            modules: Vec::new(),
        };
        let path = Path::new(&files[root].path);
        let directory = path.parent().expect("a directory").to_owned();
        made.add(
            files,
            Module::new(Vec::new(), root, None, false, true),
            &files[root].syntax.items,
            &directory,
        );
        made
    }

    /// Index of the first file.
    pub fn root_file(&self) -> usize {
        self.modules[0].file
    }

    /// Adds a module and those below it. Their files are in `directory`.
    fn add(
        &mut self,
        files: &[SourceFile],
        module: Module,
        items: &[Item],
        directory: &Path,
    ) -> usize {
        let index = self.modules.len();
        self.modules.push(module);
        for item in items {
            if let Item::Mod(inner) = item {
                self.add_inner(files, index, inner, directory);
            } else {
                let this = &mut self.modules[index];
                if this.is_test || !is_test(item) {
                    this.define(item);
                    this.mentions.extend(paths(item));
                }
            }
        }
        index
    }

    fn add_inner(
        &mut self,
        files: &[SourceFile],
        parent: usize,
        inner: &syn::ItemMod,
        directory: &Path,
    ) {
        let name = inner.ident.to_string();
        let outer = &self.modules[parent];
        let mut path = outer.path.clone();
        path.push(name.clone());
        let is_test = outer.is_test || inner.attrs.iter().any(is_test_attribute);
        let is_shown = is_public(&inner.vis) && !is_hidden(&inner.attrs);
        let is_public = outer.is_public && is_shown;
        let mut bodies = Vec::new();
        if let Some((_, items)) = &inner.content {
            bodies.push((outer.file, items, directory.join(&name)));
        } else {
            let own = Path::new(&files[outer.file].path);
            let named = attribute_paths(&inner.attrs);
            let is_named = !named.is_empty();
            let named = named.iter().map(|named| {
                let path = own.with_file_name(named);
                let below = path.parent().expect("a directory").to_owned();
                (path, below)
            });
            let usual = [format!("{name}.rs"), format!("{name}/mod.rs")];
            let usual = usual.map(|path| (directory.join(path), directory.join(&name)));
            let usual = usual.into_iter().filter(|_| !is_named);
            for (path, below) in named.chain(usual) {
                let path = normal(&path);
                if let Some(file) = files.iter().position(|file| file.path == path) {
                    bodies.push((file, &files[file].syntax.items, below));
                }
            }
            // A named file may belong to another package, which has it among its own.
            let is_found = is_named || !bodies.is_empty();
            assert!(is_found, "{}: no file of {name}", own.display());
        }
        for (file, items, below) in bodies {
            let module = Module::new(path.clone(), file, Some(parent), is_test, is_public);
            let index = self.add(files, module, items, &below);
            self.modules[parent].add(name.clone(), is_shown, Meaning::Module(index));
        }
    }

    /// Follows a path that stands in a module; nothing if it leads out of the crate.
    pub fn resolve(&self, module: usize, path: &[String]) -> Vec<Target> {
        self.resolve_to(module, path, DEPTH)
    }

    fn resolve_to(&self, module: usize, path: &[String], depth: usize) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else {
            return vec![(module, None)];
        };
        if depth == 0 {
            return Vec::new();
        }
        match first.as_str() {
            "crate" => self.resolve_to(0, rest, depth),
            "self" => self.resolve_to(module, rest, depth),
            "super" => match self.modules[module].parent {
                Some(parent) => self.resolve_to(parent, rest, depth),
                None => Vec::new(),
            },
            name => self
                .lookup(module, name, depth)
                .into_iter()
                .flat_map(|target| match target {
                    (module, None) => self.resolve_to(module, rest, depth - 1),
                    item => vec![item],
                })
                .collect(),
        }
    }

    /// The meanings of a name in a module.
    fn lookup(&self, module: usize, name: &str, depth: usize) -> Vec<Target> {
        let this = &self.modules[module];
        if let Some(named) = this.names.get(name) {
            let follow = |named: &Named| match &named.meaning {
                Meaning::Module(index) => vec![(*index, None)],
                Meaning::Item => vec![(module, Some(name.to_owned()))],
                // An alias of an outer crate's name, such as `use serde::self`, leads to itself.
                Meaning::Alias(path) if path.len() == 1 && path[0] == name => Vec::new(),
                Meaning::Alias(path) => self.resolve_to(module, path, depth - 1),
            };
            return named.iter().flat_map(follow).collect();
        }
        let mut found = Vec::new();
        for (glob, _) in &this.globs {
            for target in self.resolve_to(module, glob, depth - 1) {
                if let (other, None) = target
                    && other != module
                    && depth > 1
                {
                    found.extend(self.lookup(other, name, depth - 1));
                }
            }
        }
        found
    }

    /// Names that a module shows to other crates.
    pub fn public_names(&self, module: usize) -> Vec<String> {
        let this = &self.modules[module];
        let is_shown = |named: &Vec<Named>| named.iter().any(|named| named.is_public);
        let mut names: Vec<String> = this
            .names
            .iter()
            .filter(|(_, named)| is_shown(named))
            .map(|(name, _)| name.clone())
            .collect();
        for (glob, _) in this.globs.iter().filter(|(_, is_public)| *is_public) {
            for target in self.resolve(module, glob) {
                if let (other, None) = target {
                    names.extend(self.public_names(other));
                }
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// Public modules, the root among them.
    pub fn public_modules(&self) -> impl Iterator<Item = usize> + '_ {
        let indices = 0..self.modules.len();
        indices.filter(|&index| self.modules[index].is_public && !self.modules[index].is_test)
    }
}

impl Module {
    fn new(
        path: Vec<String>,
        file: usize,
        parent: Option<usize>,
        is_test: bool,
        is_public: bool,
    ) -> Self {
        Self {
            path,
            file,
            parent,
            is_test,
            is_public,
            mentions: Vec::new(),
            names: BTreeMap::new(),
            globs: Vec::new(),
        }
    }

    fn define(&mut self, item: &Item) {
        let (ident, visibility, attributes) = match item {
            Item::Use(item) => {
                if item.leading_colon.is_none() {
                    let is_shown = is_public(&item.vis) && !is_hidden(&item.attrs);
                    self.import(&item.tree, Vec::new(), is_shown);
                }
                return;
            }
            Item::Struct(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Union(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Type(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Trait(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Fn(item) => (&item.sig.ident, &item.vis, &item.attrs),
            Item::Const(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Static(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Macro(item) => {
                if let Some(ident) = &item.ident {
                    let exported = item.attrs.iter().any(|a| a.path().is_ident("macro_export"));
                    self.add(ident.to_string(), exported, Meaning::Item);
                }
                return;
            }
            _ => return,
        };
        let is_shown = is_public(visibility) && !is_hidden(attributes);
        self.add(ident.to_string(), is_shown, Meaning::Item);
    }

    fn add(&mut self, name: String, is_public: bool, meaning: Meaning) {
        let named = Named { is_public, meaning };
        self.names.entry(name).or_default().push(named);
    }

    fn import(&mut self, tree: &UseTree, mut path: Vec<String>, is_public: bool) {
        match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.import(&inner.tree, path, is_public);
            }
            UseTree::Group(group) => {
                for inner in &group.items {
                    self.import(inner, path.clone(), is_public);
                }
            }
            UseTree::Glob(_) => self.globs.push((path, is_public)),
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = path.last() {
                    self.add(last.clone(), is_public, Meaning::Alias(path.clone()));
                }
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.add(name.ident.to_string(), is_public, Meaning::Alias(path));
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                self.add(rename.rename.to_string(), is_public, Meaning::Alias(path));
            }
        }
    }
}

pub(super) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "hidden")
    })
}

/// Values of `path = "file"`, also those under a condition.
fn attribute_paths(attributes: &[syn::Attribute]) -> Vec<String> {
    let mut found = Vec::new();
    for attribute in attributes {
        let text = match &attribute.meta {
            syn::Meta::NameValue(pair) => pair.to_token_stream().to_string(),
            syn::Meta::List(list) if list.path.is_ident("cfg_attr") => list.tokens.to_string(),
            _ => continue,
        };
        let path = text.rsplit(',').next().unwrap_or_default().trim();
        let path = path.strip_prefix("path = \"");
        found.extend(
            path.and_then(|path| path.strip_suffix('"'))
                .map(str::to_owned),
        );
    }
    found
}

/// A path without `..`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part.as_os_str().to_string_lossy().as_ref() {
            ".." => {
                parts.pop();
            }
            "." => {}
            part => parts.push(part.to_owned()),
        }
    }
    parts.join("/")
}
