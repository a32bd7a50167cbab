//! Files, and which parts of them are tests.

use std::fs;
use std::path::Path;

use proc_macro2::TokenStream;
use syn::{Attribute, Item};

use super::mention::words_of;

/// A file of Rust.
pub struct SourceFile {
    /// Path, from the workspace.
    pub path: String,
    /// Content as tokens, without comments.
    pub tokens: TokenStream,
    /// Content.
    pub syntax: syn::File,
}

impl SourceFile {
    pub(super) fn read(root: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a file of text");
        let parsed = text.parse().map_err(syn::Error::from);
        let parsed =
            parsed.and_then(|tokens: TokenStream| Ok((syn::parse2(tokens.clone())?, tokens)));
        let (syntax, tokens) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        Self {
            path: relative(root, path),
            tokens,
            syntax,
        }
    }
}

pub(super) fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).expect("a path in the workspace");
    path.to_string_lossy().into_owned()
}

/// Whether an item is compiled for tests alone.
pub fn is_test(item: &Item) -> bool {
    let attributes = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(is_test_attribute)
}

/// Whether an attribute is `cfg(test)` or `cfg(doctest)`, alone or with others.
pub fn is_test_attribute(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let mut words = Vec::new();
    words_of(list.tokens.clone(), &mut words);
    let has = |word: &str| words.iter().any(|path| path == &[word]);
    attribute.path().is_ident("cfg") && (has("test") || has("doctest")) && !has("not")
}
