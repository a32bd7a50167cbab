//! Experiments as files: what is run, with which parameters, what was published and what is expected.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// An experiment's file (`experiments/*.toml`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name on the command line and in results.
    pub name: String,
    /// What it measures, in a few words.
    pub title: String,
    /// Where the question was discussed.
    pub thread: String,
    /// What happens and what is measured, in a paragraph.
    pub about: String,
    /// The variants, in the order in which they run.
    pub variants: Vec<String>,
    /// The parameters and their defaults.
    pub parameters: Table,
    /// What a smoke test changes in `parameters`.
    pub quick: Table,
    /// What must hold on any machine.
    #[serde(rename = "expectation", default)]
    pub expectations: Vec<Expectation>,
    /// Figures from the thread.
    #[serde(default)]
    pub published: Vec<PublishedFigure>,
    /// What counts as reproduced, in words, by subject.
    #[serde(rename = "criterion", default)]
    pub criteria: Table,
    /// Of the whole file; identifies parameters, expectations and criteria in a result.
    #[serde(skip)]
    pub hash: String,
}

/// A bound on a ratio that must hold on any machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Of which variant.
    pub variant: String,
    /// Name of a ratio.
    pub metric: String,
    /// Its largest value.
    pub at_most: f64,
    /// Why it must hold.
    pub reason: String,
}

/// A figure that a thread published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Of which variant.
    pub variant: String,
    /// Name of the metric.
    pub metric: String,
    /// The figure, in the metric's unit.
    pub value: f64,
    /// Machine and load.
    pub load: String,
}

/// One `-s key=value`, or a default, that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterError {
    /// There is no `=` in it.
    NotAssigned(String),
    /// No parameter has this name.
    Unknown {
        /// The name.
        key: String,
        /// The known name that is nearest, if one is near.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// The value has another type than the parameter.
    Type {
        /// The parameter.
        key: String,
        /// What was given.
        given: String,
        /// What is needed.
        needed: &'static str,
    },
    /// The value is out of range, or does not go with others.
    Range {
        /// The parameter.
        key: String,
        /// What is wrong.
        problem: String,
    },
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAssigned(given) => write!(f, "`{given}` is not of the form KEY=VALUE"),
            Self::Unknown {
                key,
                nearest,
                known,
            } => {
                write!(f, "unknown parameter `{key}`")?;
                if let Some(nearest) = nearest {
                    write!(f, "; did you mean `{nearest}`?")?;
                }
                write!(f, "\n  known parameters: {}", known.join(", "))
            }
            Self::Type { key, given, needed } => {
                write!(f, "parameter `{key}` needs {needed}, not `{given}`")
            }
            Self::Range { key, problem } => write!(f, "parameter `{key}` {problem}"),
        }
    }
}

impl std::error::Error for ParameterError {}

/// The name of the key that overrides the list of variants.
const VARIANTS: &str = "variants";

impl Experiment {
    /// Reads an experiment's file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let mut experiment: Self = toml::from_str(text)?;
        experiment.hash = format!("fnv1a64:{:016x}", fnv1a64(text.as_bytes()));
        Ok(experiment)
    }

    /// The same experiment with the parameters of its smoke test.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.parameters.extend(self.quick.clone());
        self
    }

    /// Replaces one parameter, given as `key=value`. `variants=a,b` chooses variants.
    ///
    /// # Errors
    /// If there is no such parameter or the value has the wrong type.
    pub fn set(&mut self, assignment: &str) -> Result<(), ParameterError> {
        let (key, given) = assignment
            .split_once('=')
            .ok_or_else(|| ParameterError::NotAssigned(assignment.to_owned()))?;
        let (key, given) = (key.trim(), given.trim());
        if key == VARIANTS {
            return self.choose_variants(given);
        }
        let Some(value) = self.parameters.get_mut(key) else {
            return Err(self.unknown(key));
        };
        *value = parse_like(value, given).map_err(|needed| ParameterError::Type {
            key: key.to_owned(),
            given: given.to_owned(),
            needed,
        })?;
        Ok(())
    }

    /// The parameters in the experiment's own type.
    ///
    /// # Errors
    /// If the file's defaults are not what the experiment needs.
    pub fn parameters<P: DeserializeOwned>(&self) -> Result<P, toml::de::Error> {
        self.parameters.clone().try_into()
    }

    fn choose_variants(&mut self, given: &str) -> Result<(), ParameterError> {
        let chosen: Vec<String> = given
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect();
        if let Some(stranger) = chosen.iter().find(|name| !self.variants.contains(name)) {
            return Err(ParameterError::Range {
                key: VARIANTS.to_owned(),
                problem: format!(
                    "has no `{stranger}`; there are {}",
                    self.variants.join(", ")
                ),
            });
        }
        self.variants.retain(|name| chosen.contains(name));
        Ok(())
    }

    fn unknown(&self, key: &str) -> ParameterError {
        let known: Vec<String> = self
            .parameters
            .keys()
            .map(String::as_str)
            .chain([VARIANTS])
            .map(str::to_owned)
            .collect();
        let near = |name: &&String| strsim::jaro_winkler(name, key) > 0.75;
        let nearest = known
            .iter()
            .filter(near)
            .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
        ParameterError::Unknown {
            key: key.to_owned(),
            nearest: nearest.cloned(),
            known,
        }
    }
}

/// Reads `given` as a value of the type that `default` has; on failure says what that is.
fn parse_like(default: &Value, given: &str) -> Result<Value, &'static str> {
    match default {
        Value::Integer(_) => {
            let digits = given.replace('_', "");
            let number = digits.parse::<i64>().map_err(|_| "a whole number");
            number.and_then(|number| {
                if number < 0 {
                    Err("a number that is not negative")
                } else {
                    Ok(Value::Integer(number))
                }
            })
        }
        Value::Float(_) => given.parse().map(Value::Float).map_err(|_| "a number"),
        Value::Boolean(_) => given
            .parse()
            .map(Value::Boolean)
            .map_err(|_| "true or false"),
        _ => Ok(Value::String(given.to_owned())),
    }
}

/// FNV-1a, 64 bits: an identity, not a protection.
fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> Experiment {
        Experiment::parse(
            r#"
            name = "x"
            title = "x"
            thread = "x"
            about = "x"
            variants = ["one", "two"]
            [parameters]
            readers = 4
            read_interval_ms = 10
            [quick]
            readers = 1
            "#,
        )
        .expect("the file above")
    }

    #[test]
    fn a_known_key_is_replaced() {
        let mut experiment = experiment();
        experiment.set("readers=1_000").unwrap();
        assert_eq!(experiment.parameters["readers"].as_integer(), Some(1_000));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_and_all_others() {
        let error = experiment().set("reader=3").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown parameter `reader`; did you mean `readers`?\n  known parameters: read_interval_ms, readers, variants"
        );
    }

    #[test]
    fn a_key_like_no_other_gets_no_suggestion() {
        let error = experiment().set("zzz=3").unwrap_err();
        assert!(matches!(
            error,
            ParameterError::Unknown { nearest: None, .. }
        ));
    }

    #[test]
    fn values_are_checked_for_their_type() {
        for wrong in [
            "readers=many",
            "readers=1.5",
            "readers=",
            "readers=-1",
            "readers=99999999999999999999",
        ] {
            let error = experiment().set(wrong).unwrap_err();
            assert!(
                matches!(error, ParameterError::Type { .. }),
                "{wrong}: {error}"
            );
        }
        assert!(matches!(
            experiment().set("readers"),
            Err(ParameterError::NotAssigned(_))
        ));
    }

    #[test]
    fn variants_are_chosen_by_name() {
        let mut experiment = experiment();
        assert!(experiment.set("variants=three").is_err());
        experiment.set("variants=two").unwrap();
        assert_eq!(experiment.variants, ["two"]);
    }

    #[test]
    fn a_file_with_an_unknown_key_is_refused() {
        assert!(Experiment::parse("nmae = \"x\"").is_err());
    }

    #[test]
    fn the_hash_follows_the_published_test_vector() {
        assert_eq!(fnv1a64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
