//! Files that refer to each other.

use std::collections::{BTreeMap, BTreeSet};

use super::module::Crate;

/// A file that uses a definition of its crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Index of the file in the package.
    pub file: usize,
    /// Index of the module in the crate.
    pub module: usize,
    /// Index of the file with the definition.
    pub to_file: usize,
    /// Index of its module.
    pub to: usize,
    /// Its name there.
    pub name: String,
}

impl Crate {
    /// All uses of a definition by the code of another file, but for tests. A name that a module only shows on (`pub use` of
    /// something below it) is no use.
    pub fn references(&self) -> BTreeSet<Reference> {
        let mut found = BTreeSet::new();
        for (index, module) in self.modules.iter().enumerate() {
            if module.is_test {
                continue;
            }
            for mention in &module.mentions {
                for (to, name) in self.resolve(index, &mention.path) {
                    let Some(name) = name else {
                        continue;
                    };
                    let (file, to_file) = (module.file, self.modules[to].file);
                    let is_below = self.modules[to].path.starts_with(&module.path);
                    if to_file != file && !(mention.is_export && is_below) {
                        found.insert(Reference {
                            file,
                            module: index,
                            to_file,
                            to,
                            name,
                        });
                    }
                }
            }
        }
        found
    }
}

/// Sets of files of which each refers to each other, by way of others of the set: the largest first.
pub fn circles(references: &BTreeSet<Reference>) -> Vec<Vec<usize>> {
    let mut next: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for reference in references {
        let to = next.entry(reference.file).or_default();
        to.insert(reference.to_file);
    }
    let reach = |from: usize| {
        let mut reached = BTreeSet::new();
        let mut left = vec![from];
        while let Some(file) = left.pop() {
            for &to in next.get(&file).into_iter().flatten() {
                if reached.insert(to) {
                    left.push(to);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<usize, BTreeSet<usize>> =
        next.keys().map(|&file| (file, reach(file))).collect();
    let mut sets: BTreeSet<Vec<usize>> = BTreeSet::new();
    for (&file, files) in &reached {
        if files.contains(&file) {
            let returns = |other: &&usize| reached.get(*other).is_some_and(|it| it.contains(&file));
            sets.insert(files.iter().filter(returns).copied().collect());
        }
    }
    let mut sets: Vec<Vec<usize>> = sets.into_iter().collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    sets
}
