//! Merging parts of one run, as `bursar-lab report` does with the results of shards.
//!
//! Parts belong together if all but their seeds is the same. The first difference is an error, because figures of two
//! cost models, two revisions or two machines have no common percentile.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

use crate::document::{Document, Metrics};

/// A result file: its name, for messages, and its documents.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name.
    pub name: String,
    /// One document for each experiment and point.
    pub documents: Vec<Document>,
}

/// Reason why results are not parts of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// A property that must be the same differs.
    Differs {
        /// The property.
        what: String,
        /// A file, and its value.
        one: (String, String),
        /// Another file, and its value.
        other: (String, String),
    },
    /// Both files have a run of a variant with the same seed.
    SeedTwice {
        /// The variant.
        variant: String,
        /// The seed.
        seed: u64,
        /// The files; the same name twice if one file has both runs.
        files: (String, String),
    },
    /// A metric has another kind or unit in one of the files.
    Unlike {
        /// The metric, with its variant.
        metric: String,
        /// The file whose metric differs from the files before it.
        file: String,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs {
                what,
                one: (one, value),
                other: (other, other_value),
            } => write!(
                f,
                "{one} and {other} are not parts of one run: {what} is\n  {value} in {one}\n  {other_value} in {other}"
            ),
            Self::SeedTwice {
                variant,
                seed,
                files: (one, other),
            } => {
                if one == other {
                    write!(f, "`{variant}` has seed {seed} twice in {one}")
                } else {
                    write!(f, "`{variant}` has seed {seed} in {one} and in {other}")
                }
            }
            Self::Unlike { metric, file } => {
                write!(f, "{file}: {metric} is not what it is in the files before")
            }
        }
    }
}

impl std::error::Error for MergeError {}

/// Merges the documents of each experiment and point into one. They keep the order of the file with most points.
///
/// # Errors
/// The first difference that shows that they are not parts of one run.
pub fn merge(sources: &[Source]) -> Result<Vec<Document>, MergeError> {
    let all = || sources.iter().flat_map(|source| &source.documents);
    let mut experiments: Vec<&str> = Vec::new();
    for document in all() {
        if !experiments.contains(&document.experiment.as_str()) {
            experiments.push(&document.experiment);
        }
    }
    let merged = experiments
        .iter()
        .map(|experiment| merge_experiment(sources, experiment));
    Ok(merged.collect::<Result<Vec<_>, _>>()?.concat())
}

fn merge_experiment(sources: &[Source], experiment: &str) -> Result<Vec<Document>, MergeError> {
    let documents = |source: &'_ Source| -> Vec<Document> {
        let mine = |document: &&Document| document.experiment == experiment;
        source.documents.iter().filter(mine).cloned().collect()
    };
    let of_files: Vec<(&str, Vec<Document>)> = sources
        .iter()
        .map(|source| (source.name.as_str(), documents(source)))
        .collect();
    let most = of_files.iter().map(|(_, documents)| documents.len()).max();
    let Some((first_name, first)) = of_files
        .iter()
        .find(|(_, documents)| Some(documents.len()) == most)
    else {
        return Ok(Vec::new());
    };
    let mut wholes: Vec<Whole> = Vec::new();
    for document in first {
        // The same point twice in one file is found as its seeds twice.
        if !wholes
            .iter()
            .any(|whole| same_point(&whole.document, document))
        {
            wholes.push(Whole::of_nothing(document));
        }
    }
    for (name, documents) in &of_files {
        for document in documents {
            let place = find(&wholes, (first_name, &first[0]), (name, document))?;
            wholes[place].add(first_name, name, document)?;
        }
    }
    Ok(wholes.into_iter().map(Whole::conclude).collect())
}

/// Parts of one point that were found so far.
struct Whole {
    document: Document,
    /// File that has a variant's seed.
    owners: BTreeMap<(String, u64), String>,
}

impl Whole {
    fn of_nothing(part: &Document) -> Self {
        let mut document = part.clone();
        document.interrupted = false;
        for variant in &mut document.variants {
            variant.ran_seeds.clear();
            variant.metrics = Metrics::default();
        }
        Self {
            document,
            owners: BTreeMap::new(),
        }
    }

    fn add(&mut self, first: &str, name: &str, part: &Document) -> Result<(), MergeError> {
        let names = |document: &Document| {
            let names: Vec<_> = document.variants.iter().map(|v| v.name.as_str()).collect();
            names.join(", ")
        };
        same(
            "the list of variants",
            (first, names(&self.document)),
            (name, names(part)),
        )?;
        for (sum, variant) in self.document.variants.iter_mut().zip(&part.variants) {
            for &seed in &variant.ran_seeds {
                let owner = self
                    .owners
                    .insert((variant.name.clone(), seed), name.to_owned());
                if let Some(owner) = owner {
                    return Err(MergeError::SeedTwice {
                        variant: variant.name.clone(),
                        seed,
                        files: (owner, name.to_owned()),
                    });
                }
            }
            sum.merge(variant).map_err(|metric| MergeError::Unlike {
                metric: format!("`{metric}` of `{}`", variant.name),
                file: name.to_owned(),
            })?;
        }
        self.document.interrupted |= part.interrupted;
        keep_first_seed(&mut self.document, part);
        // A part in which a variant has not run has none of its expectations and verdicts.
        add_missing(&mut self.document.expectations, &part.expectations, |it| {
            (it.variant.clone(), it.metric.clone())
        });
        add_missing(&mut self.document.verdicts, &part.verdicts, |it| {
            (it.variant.clone(), it.metric.clone())
        });
        Ok(())
    }

    fn conclude(mut self) -> Document {
        self.document.conclude();
        self.document
    }
}

/// Adds the elements of `part` whose key `sum` does not have.
fn add_missing<T: Clone, K: PartialEq>(sum: &mut Vec<T>, part: &[T], key: impl Fn(&T) -> K) {
    for item in part {
        if !sum.iter().any(|other| key(other) == key(item)) {
            sum.push(item.clone());
        }
    }
}

/// Name of the parameter in which parts may differ.
const SEED: &str = "seed";

/// Keeps the least first seed in the parameters.
fn keep_first_seed(sum: &mut Document, part: &Document) {
    let seed = |document: &Document| document.parameters.get(SEED).and_then(Value::as_integer);
    if let (Some(kept), Some(other)) = (seed(sum), seed(part))
        && other < kept
    {
        sum.parameters.insert(SEED.to_owned(), other.into());
    }
}

fn same(what: &str, one: (&str, String), other: (&str, String)) -> Result<(), MergeError> {
    if one.1 == other.1 {
        return Ok(());
    }
    let owned = |(file, value): (&str, String)| (file.to_owned(), value);
    Err(MergeError::Differs {
        what: what.to_owned(),
        one: owned(one),
        other: owned(other),
    })
}

/// Finds the whole that `part` belongs to, or the difference that shows that it belongs to none.
fn find(
    wholes: &[Whole],
    (first_name, first): (&str, &Document),
    (name, part): (&str, &Document),
) -> Result<usize, MergeError> {
    let both = |what: &str, value: &dyn Fn(&Document) -> String| {
        same(what, (first_name, value(first)), (name, value(part)))
    };
    both("the experiment's file", &|document| {
        document.experiment_hash.clone()
    })?;
    both("the revision", &|document| document.revision.clone())?;
    both("the cost model", &|document| {
        document.machine.cost_model().unwrap_or("none").to_owned()
    })?;
    let place = wholes
        .iter()
        .position(|whole| same_point(&whole.document, part));
    if let Some(place) = place {
        return Ok(place);
    }
    let like = wholes
        .iter()
        .find(|whole| whole.document.machine == part.machine);
    let differs = |what: String, one: String, other: String| MergeError::Differs {
        what,
        one: (first_name.to_owned(), one),
        other: (name.to_owned(), other),
    };
    let Some(like) = like else {
        let machines = [&first.machine, &part.machine].map(ToString::to_string);
        let [one, other] = machines;
        return Err(differs("the machine".to_owned(), one, other));
    };
    let (one, other) = (&like.document.parameters, &part.parameters);
    let key = one
        .keys()
        .chain(other.keys())
        .find(|key| *key != SEED && one.get(*key) != other.get(*key))
        .map_or(SEED, String::as_str);
    let value = |parameters: &Table| {
        let value = parameters.get(key).map(Value::to_string);
        value.unwrap_or_else(|| "not there".to_owned())
    };
    Err(differs(
        format!("parameter `{key}`"),
        value(one),
        value(other),
    ))
}

fn same_point(one: &Document, other: &Document) -> bool {
    let parameters = |document: &Document| {
        let mut parameters = document.parameters.clone();
        parameters.remove(SEED);
        parameters
    };
    one.machine == other.machine && parameters(one) == parameters(other)
}

#[cfg(test)]
mod tests;
