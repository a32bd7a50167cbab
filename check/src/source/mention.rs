//! Paths in code.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A path in code.
#[derive(Clone, Debug)]
pub struct Mention {
    /// Its names, without arguments.
    pub path: Vec<String>,
    /// A `pub use`: it shows a name to others.
    pub is_export: bool,
}

/// All paths in an item.
pub fn paths(item: &Item) -> Vec<Mention> {
    let mut paths = Paths(Vec::new());
    paths.visit_item(item);
    paths.0
}

struct Paths(Vec<Mention>);

impl Paths {
    fn add(&mut self, path: Vec<String>, is_export: bool) {
        self.0.push(Mention { path, is_export });
    }

    fn add_use(&mut self, tree: &UseTree, mut path: Vec<String>, is_export: bool) {
        match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.add_use(&inner.tree, path, is_export);
            }
            UseTree::Group(group) => {
                for inner in &group.items {
                    self.add_use(inner, path.clone(), is_export);
                }
            }
            UseTree::Glob(_) => self.add(path, is_export),
            UseTree::Name(syn::UseName { ident })
            | UseTree::Rename(syn::UseRename { ident, .. }) => {
                if ident != "self" {
                    path.push(ident.to_string());
                }
                self.add(path, is_export);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_export = !matches!(item.vis, Visibility::Inherited);
        self.add_use(&item.tree, Vec::new(), is_export);
    }

    // The path of `pub(in path)` is no use of it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter();
            self.add(names.map(|name| name.ident.to_string()).collect(), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let mut words = Vec::new();
        words_of(called.tokens.clone(), &mut words);
        for path in words {
            self.add(path, false);
        }
        visit::visit_macro(self, called);
    }
}

/// Paths among tokens: names with `::` between them.
pub fn words_of(tokens: TokenStream, found: &mut Vec<Vec<String>>) {
    let mut colons = 0;
    let mut after_name = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                match found.last_mut() {
                    Some(path) if after_name && colons == 2 => path.push(name),
                    _ => found.push(vec![name]),
                }
                (after_name, colons) = (true, 0);
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                words_of(group.stream(), found);
                (after_name, colons) = (false, 0);
            }
            // `$crate` is `crate`.
            TokenTree::Punct(punct) if punct.as_char() == '$' => {}
            _ => (after_name, colons) = (false, 0),
        }
    }
}
