//! What an experiment is run with: its parameters as they are overridden, and the points of a sweep.

use std::fmt;

use toml::{Table, Value};

use crate::experiment::Experiment;
use crate::machine_info::MachineKind;

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
    /// The key is one of a simulated machine, and this is the host.
    OfSimulatedMachines(String),
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
    /// A sweep with more points than anyone can mean.
    TooManyPoints(usize),
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
            Self::OfSimulatedMachines(key) => {
                write!(
                    f,
                    "`{key}` is a key of simulated machines, and cannot be set on the host"
                )
            }
            Self::Type { key, given, needed } => {
                write!(f, "parameter `{key}` needs {needed}, not `{given}`")
            }
            Self::Range { key, problem } => write!(f, "parameter `{key}` {problem}"),
            Self::TooManyPoints(points) => {
                write!(
                    f,
                    "a sweep over {points} points, and there may be {POINTS_MAX}"
                )
            }
        }
    }
}

impl std::error::Error for ParameterError {}

/// The name of the key that overrides the list of variants.
const VARIANTS: &str = "variants";
/// The name of the key that `--seeds` sweeps over.
const SEED: &str = "seed";
/// More points than this are a mistake.
const POINTS_MAX: usize = 10_000;

/// One combination of all that is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// A value for each parameter.
    pub parameters: Table,
    /// What is set of the machine, by key.
    pub machine: Vec<(String, String)>,
}

/// What each parameter is set to: one value, or several to sweep over.
#[derive(Clone, Debug)]
pub(crate) struct Settings<'a> {
    kind: MachineKind,
    machine_keys: &'a [&'a str],
    /// All that can be chosen: those of the file come first.
    all_variants: Vec<String>,
    pub(crate) variants: Vec<String>,
    parameters: Table,
    sweeps: Vec<(String, Vec<Value>)>,
    machine: Vec<(String, Vec<String>)>,
}

impl<'a> Settings<'a> {
    /// The defaults of an experiment on a machine of one kind. `machine_keys` are the keys of simulated machines.
    ///
    /// # Errors
    /// What is wrong with the file's overrides.
    pub(crate) fn new(
        experiment: &Experiment,
        kind: MachineKind,
        machine_keys: &'a [&'a str],
    ) -> Result<Self, ParameterError> {
        let mut settings = Self {
            kind,
            machine_keys,
            all_variants: experiment.variants.clone(),
            variants: experiment.variants.clone(),
            parameters: experiment.parameters.clone(),
            sweeps: Vec::new(),
            machine: Vec::new(),
        };
        for (key, value) in experiment.overrides(kind) {
            let values = match value {
                Value::Array(values) => values.clone(),
                single => vec![single.clone()],
            };
            let default = settings.parameter(key)?;
            if values.is_empty() {
                return Err(ParameterError::Range {
                    key: key.clone(),
                    problem: "has an empty list of values".to_owned(),
                });
            }
            if let Some(wrong) = values.iter().find(|value| !value.same_type(default)) {
                return Err(ParameterError::Type {
                    key: key.clone(),
                    given: wrong.to_string(),
                    needed: default.type_str(),
                });
            }
            settings.set_parameter(key, values)?;
        }
        Ok(settings)
    }

    /// Lets variants be chosen that the file does not name.
    pub(crate) fn offer(&mut self, variants: impl Iterator<Item = &'static str>) {
        for name in variants {
            if !self.all_variants.iter().any(|other| other == name) {
                self.all_variants.push(name.to_owned());
            }
        }
    }

    /// Replaces one parameter or key of the machine, given as `key=value`, or as `key=value,value` for a sweep.
    /// `variants=a,b` chooses variants.
    ///
    /// # Errors
    /// If there is no such parameter or the value has the wrong type.
    pub(crate) fn set(&mut self, assignment: &str) -> Result<(), ParameterError> {
        let (key, given) = assignment
            .split_once('=')
            .ok_or_else(|| ParameterError::NotAssigned(assignment.to_owned()))?;
        let (key, given) = (key.trim(), given.trim());
        let values = || given.split(',').map(str::trim);
        if key == VARIANTS {
            return self.choose_variants(values().collect());
        }
        if self.machine_keys.contains(&key) {
            // `4` and `04` are one machine.
            let plain = |value: &str| match value.parse::<u64>() {
                Ok(number) => number.to_string(),
                Err(_) => value.to_owned(),
            };
            return self.set_machine(key, values().map(plain).collect());
        }
        let default = self.parameter(key)?;
        let type_error = |needed| ParameterError::Type {
            key: key.to_owned(),
            given: given.to_owned(),
            needed,
        };
        let values = values()
            .map(|value| parse_like(default, value).map_err(type_error))
            .collect::<Result<_, _>>()?;
        self.set_parameter(key, values)
    }

    /// All combinations of what is swept; what was set last varies fastest.
    ///
    /// # Errors
    /// [`ParameterError::TooManyPoints`].
    pub(crate) fn points(&self) -> Result<Vec<Point>, ParameterError> {
        let count = self
            .machine
            .iter()
            .map(|(_, values)| values.len())
            .chain(self.sweeps.iter().map(|(_, values)| values.len()))
            .fold(1_usize, usize::saturating_mul);
        if count > POINTS_MAX {
            return Err(ParameterError::TooManyPoints(count));
        }
        let mut points = vec![Point {
            parameters: self.parameters.clone(),
            machine: Vec::new(),
        }];
        for (key, values) in &self.machine {
            points = spread(&points, values, |point, value| {
                point.machine.push((key.clone(), value.clone()));
            });
        }
        for (key, values) in &self.sweeps {
            points = spread(&points, values, |point, value| {
                point.parameters.insert(key.clone(), value.clone());
            });
        }
        Ok(points)
    }

    fn parameter(&self, key: &str) -> Result<&Value, ParameterError> {
        self.parameters.get(key).ok_or_else(|| self.unknown(key))
    }

    fn set_parameter(&mut self, key: &str, mut values: Vec<Value>) -> Result<(), ParameterError> {
        refuse_repetition(key, &values)?;
        self.sweeps.retain(|(swept, _)| swept != key);
        if values.len() != 1 {
            if key == SEED {
                return Err(ParameterError::Range {
                    key: key.to_owned(),
                    problem: "is the first of the seeds; --seeds N runs with several".to_owned(),
                });
            }
            self.sweeps.push((key.to_owned(), values));
        } else if let Some(value) = values.pop() {
            self.parameters.insert(key.to_owned(), value);
        }
        Ok(())
    }

    fn set_machine(&mut self, key: &str, values: Vec<String>) -> Result<(), ParameterError> {
        if self.kind == MachineKind::Host {
            return Err(ParameterError::OfSimulatedMachines(key.to_owned()));
        }
        refuse_repetition(key, &values)?;
        self.machine.retain(|(set, _)| set != key);
        self.machine.push((key.to_owned(), values));
        Ok(())
    }

    fn choose_variants(&mut self, chosen: Vec<&str>) -> Result<(), ParameterError> {
        let known = |name: &&str| self.all_variants.iter().any(|variant| variant == name);
        if let Some(stranger) = chosen.iter().find(|name| !known(name)) {
            return Err(ParameterError::Range {
                key: VARIANTS.to_owned(),
                problem: format!(
                    "has no `{stranger}`; there are {}",
                    self.all_variants.join(", ")
                ),
            });
        }
        self.variants = self.all_variants.clone();
        self.variants.retain(|name| chosen.contains(&name.as_str()));
        Ok(())
    }

    fn unknown(&self, key: &str) -> ParameterError {
        let of_machine = match self.kind {
            MachineKind::Host => &[],
            MachineKind::Sim => self.machine_keys,
        };
        let known: Vec<String> = self
            .parameters
            .keys()
            .map(String::as_str)
            .chain([VARIANTS])
            .chain(of_machine.iter().copied())
            .map(str::to_owned)
            .collect();
        let nearest = nearest(key, known.iter().map(String::as_str)).map(str::to_owned);
        ParameterError::Unknown {
            key: key.to_owned(),
            nearest,
            known,
        }
    }
}

/// Each point once for each value.
fn spread<V>(points: &[Point], values: &[V], set: impl Fn(&mut Point, &V)) -> Vec<Point> {
    let each = |point: &Point| {
        let with = |value| {
            let mut point = point.clone();
            set(&mut point, value);
            point
        };
        values.iter().map(with).collect::<Vec<_>>()
    };
    points.iter().flat_map(each).collect()
}

/// The same point twice would be one result twice.
fn refuse_repetition<V: PartialEq + fmt::Display>(
    key: &str,
    values: &[V],
) -> Result<(), ParameterError> {
    let repeated = (1..values.len()).find(|place| values[..*place].contains(&values[*place]));
    repeated.map_or(Ok(()), |place| {
        Err(ParameterError::Range {
            key: key.to_owned(),
            problem: format!("is to be {} twice", values[place]),
        })
    })
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

/// The known name that is most like `given`, if any is.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this, a hint is more often wrong than right: judgement.
    const ALIKE: f64 = 0.75;
    let likeness = |name| (strsim::jaro_winkler(name, given), name);
    let alike = known
        .map(likeness)
        .filter(|(likeness, _)| *likeness > ALIKE);
    alike
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
