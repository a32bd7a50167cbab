//! Descriptions of experiments, from the files and their comments and from the code of the loads.

use crate::all_experiments::{ALL, Parameters};
use crate::plan::{Error, experiment_named};

/// A parameter of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its name, for `-s NAME=VALUE`.
    pub name: String,
    /// Value where nothing else is set.
    pub default: String,
    /// Least and greatest value of a number with bounds. The bounds may depend on other parameters; these are the
    /// bounds at the defaults.
    pub range: Option<(u64, u64)>,
    /// Description, in one line.
    pub about: String,
}

/// Returns the parameters of an experiment, in the order of its file.
///
/// # Errors
/// If there is no such experiment, or its file is invalid.
pub fn parameters(name: &str) -> Result<Vec<ParameterInfo>, Error> {
    let experiment = experiment_named(name)?;
    let typed = Parameters::read(name, &experiment.parameters).map_err(Error::File)?;
    let ranges = typed.ranges();
    let described = comments(ALL.iter().find(|entry| entry.name == name));
    let info = |(key, about): (&str, &str)| {
        let default = match experiment.parameters.get(key) {
            Some(toml::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let range = ranges.iter().find(|(name, ..)| *name == key);
        ParameterInfo {
            name: key.to_owned(),
            default,
            range: range.map(|(_, _, least, most)| (*least, *most)),
            about: about.to_owned(),
        }
    };
    Ok(described.into_iter().map(info).collect())
}

/// Describes a variant of an experiment in one line; empty if there is no such variant.
///
/// # Errors
/// If there is no such experiment, or its file is invalid.
pub fn variant(name: &str, variant: &str) -> Result<&'static str, Error> {
    let experiment = experiment_named(name)?;
    let typed = Parameters::read(name, &experiment.parameters).map_err(Error::File)?;
    Ok(typed.summary(variant))
}

/// Returns the keys of `[parameters]` with the comment behind each. Neither keys nor their defaults contain a `#`.
fn comments(entry: Option<&crate::all_experiments::Entry>) -> Vec<(&str, &str)> {
    let lines = entry.map_or("", |entry| entry.file).lines();
    let lines = lines.skip_while(|line| *line != "[parameters]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let assigned = lines.filter_map(|line| {
        let (assignment, about) = line.split_once('#').unwrap_or((line, ""));
        let (key, _) = assignment.split_once('=')?;
        Some((key.trim(), about.trim()))
    });
    assigned.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_and_variant_is_described_and_every_number_has_a_range() {
        for name in crate::names() {
            let experiment = experiment_named(name).expect("its file");
            let infos = parameters(name).expect("its parameters");
            assert_eq!(infos.len(), experiment.parameters.len(), "{name}");
            for info in infos {
                assert!(!info.about.is_empty(), "{name} {}", info.name);
                let value = experiment.parameters.get(&info.name);
                let is_number = value.expect("a parameter").is_integer();
                let has_range = info.range.is_some() || info.name == "seed";
                assert_eq!(is_number, has_range, "{name} {}", info.name);
            }
            for each in &experiment.variants {
                assert_ne!(variant(name, each).expect("its file"), "", "{each}");
            }
        }
    }
}
