//! Settings of an experiment: its parameters with their overrides, and the points of a sweep.

use std::fmt;

use toml::{Table, Value};

use crate::all_experiments::Parameters;
use crate::experiment::{Experiment, Load};
use crate::machine_info::MachineKind;
use crate::name_list::list;

/// Error for a parameter that is out of its range, or does not fit others.
pub(crate) fn range_error(key: &str, problem: String) -> ParameterError {
    ParameterError::Range {
        key: key.to_owned(),
        problem,
    }
}

/// An invalid `-s key=value`, or an invalid default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterError {
    /// It has no `=`.
    NotAssigned(String),
    /// No parameter has this name.
    Unknown {
        /// The given name.
        key: String,
        /// The most similar known name, if one is similar.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// The key is set twice, and only one of the values can be meant.
    Repeated(String),
    /// The key is one of a simulated machine, and this is the host.
    OfSimulatedMachines(String),
    /// The value has another type than the parameter.
    Type {
        /// The parameter.
        key: String,
        /// The given value.
        given: String,
        /// The type that is needed.
        needed: &'static str,
    },
    /// The value is out of range, or does not fit others.
    Range {
        /// The parameter.
        key: String,
        /// A description of the defect.
        problem: String,
    },
    /// The sweep has more points than a run can sensibly have.
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
                let known = list(known.iter().map(String::as_str));
                write!(f, "\n  known parameters:{known}")
            }
            Self::Repeated(key) => {
                write!(
                    f,
                    "`{key}` is set twice; for a sweep over several values write -s {key}=VALUE,VALUE"
                )
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

/// Key that chooses loads.
pub const LOAD: &str = "load";
/// Key that chooses whether draws are used.
const DRAWS: &str = "draws";
/// Key that overrides the list of variants.
const VARIANTS: &str = "variants";
/// Key that `--seeds` sweeps over.
pub(crate) const SEED: &str = "seed";
/// Keys that are no parameters.
const CHOICES: [&str; 3] = [LOAD, VARIANTS, DRAWS];
/// Greatest number of points; more are a mistake.
const POINTS_MAX: usize = 10_000;

/// Whether runs use the accepted draws of uncertain constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawsKind {
    /// Each seed uses its own draw.
    Accepted,
    /// No draws: the model's and the file's own values.
    None,
}

/// One combination of all settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The name of the load; empty in an experiment without loads.
    pub load: String,
    /// Value of each parameter.
    pub parameters: Table,
    /// Parameters that draws do not change, because the load or the user sets them.
    pub fixed: Vec<String>,
    /// Settings of the machine, by key.
    pub machine: Vec<(String, String)>,
    /// Whether the parameters are the load's own, except for the seed.
    pub is_own: bool,
    /// Variants that run, in the file's order.
    pub variants: Vec<String>,
    /// Variants that run with the first few seeds only.
    pub beside: Vec<String>,
}

/// Values of each parameter: one, or several for a sweep.
#[derive(Clone, Debug)]
pub(crate) struct Settings<'a> {
    experiment: &'a Experiment,
    kind: MachineKind,
    machine_keys: &'a [&'a str],
    loads: Vec<Load>,
    variants: Option<Vec<String>>,
    pub(crate) draws: DrawsKind,
    is_quick: bool,
    /// Defaults on this kind of machine, without those of loads.
    defaults: Table,
    /// Settings of the user, in the order of setting.
    set: Vec<(String, Vec<Value>)>,
    machine: Vec<(String, Vec<String>)>,
}

impl<'a> Settings<'a> {
    /// Makes the defaults of an experiment on a machine of one kind. `machine_keys` are the keys of simulated machines.
    ///
    /// # Errors
    /// The defect in the file's overrides.
    pub(crate) fn new(
        experiment: &'a Experiment,
        kind: MachineKind,
        machine_keys: &'a [&'a str],
        is_quick: bool,
    ) -> Result<Self, ParameterError> {
        let mut settings = Self {
            experiment,
            kind,
            machine_keys,
            loads: Vec::new(),
            variants: None,
            draws: match kind {
                MachineKind::Sim if !experiment.draws.accepted.is_empty() => DrawsKind::Accepted,
                _ => DrawsKind::None,
            },
            is_quick,
            defaults: experiment.parameters.clone(),
            set: Vec::new(),
            machine: Vec::new(),
        };
        refuse_repetition(VARIANTS, &experiment.variants)?;
        let names: Vec<_> = experiment.loads.iter().map(|load| &load.name).collect();
        refuse_repetition(LOAD, &names)?;
        let mut overrides = experiment.overrides(kind).clone();
        settings.loads = match overrides.remove(LOAD) {
            Some(Value::Array(names)) => {
                let names = names.iter().map(|name| name.as_str().unwrap_or(""));
                settings.loads_named(names.collect())?
            }
            Some(other) => settings.loads_named(vec![other.as_str().unwrap_or("")])?,
            None => vec![Load::default()],
        };
        settings.override_defaults(&overrides)?;
        for load in &experiment.loads {
            let quick = experiment.quick_overrides(kind);
            for table in [&load.parameters, load.overrides(kind), quick, &load.quick] {
                settings.check(table)?;
            }
            for variant in load.variants.iter().flatten().chain(&load.beside) {
                settings.check_variant(variant)?;
            }
        }
        Ok(settings)
    }

    /// Sets one parameter or key of the machine, given as `key=value`, or as `key=value,value` for a sweep.
    /// `variants=a,b` chooses variants, `load=a,b` loads, `draws=none` the model's own values.
    ///
    /// # Errors
    /// If there is no such parameter, or the value has the wrong type.
    pub(crate) fn set(&mut self, assignment: &str) -> Result<(), ParameterError> {
        let (key, given) = assignment
            .split_once('=')
            .ok_or_else(|| ParameterError::NotAssigned(assignment.to_owned()))?;
        let (key, given) = (key.trim(), given.trim());
        let values = || given.split(',').map(str::trim);
        match key {
            VARIANTS => return self.choose_variants(values().collect()),
            LOAD => {
                self.loads = self.loads_named(values().collect())?;
                return Ok(());
            }
            DRAWS => return self.choose_draws(given),
            _ => {}
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
        let values: Vec<Value> = values()
            .map(|value| parse_like(default, value).map_err(type_error))
            .collect::<Result<_, _>>()?;
        refuse_repetition(key, &values)?;
        if key == SEED && values.len() != 1 {
            return Err(ParameterError::Range {
                key: key.to_owned(),
                problem: "is the first of the seeds; --seeds N runs with several".to_owned(),
            });
        }
        self.set.retain(|(set, _)| set != key);
        self.set.push((key.to_owned(), values));
        Ok(())
    }

    /// Refuses a value that the user set and the experiment cannot read: a word that the parameter does not have, or a number too large.
    ///
    /// # Errors
    /// [`ParameterError::Range`].
    pub(crate) fn check_set(&self) -> Result<(), ParameterError> {
        for (key, values) in &self.set {
            for value in values {
                let mut table = self.defaults.clone();
                table.insert(key.clone(), value.clone());
                let read = Parameters::read(&self.experiment.name, &table);
                read.map_err(|error| ParameterError::Range {
                    key: key.clone(),
                    problem: format!("cannot be that: {}", error.lines().next().unwrap_or(&error)),
                })?;
            }
        }
        Ok(())
    }

    /// Returns all combinations of the swept values. The last setting varies fastest, loads slowest.
    ///
    /// # Errors
    /// [`ParameterError::TooManyPoints`].
    pub(crate) fn points(&self) -> Result<Vec<Point>, ParameterError> {
        let count = self
            .machine
            .iter()
            .map(|(_, values)| values.len())
            .chain(self.set.iter().map(|(_, values)| values.len()))
            .fold(self.loads.len(), usize::saturating_mul);
        if count > POINTS_MAX {
            return Err(ParameterError::TooManyPoints(count));
        }
        let mut points: Vec<Point> = self.loads.iter().map(|load| self.own_point(load)).collect();
        for (key, values) in &self.machine {
            points = spread(&points, values, |point, value| {
                point.machine.push((key.clone(), value.clone()));
            });
        }
        for (key, values) in &self.set {
            points = spread(&points, values, |point, value| {
                let old = point.parameters.insert(key.clone(), value.clone());
                let is_drawn = self.experiment.uncertain.contains_key(key);
                let is_same = old.as_ref() == Some(value) && !is_drawn;
                point.is_own &= key == SEED || is_same;
                point.fixed.push(key.clone());
            });
        }
        Ok(points)
    }

    /// Returns the point of a load as the file has it.
    fn own_point(&self, load: &Load) -> Point {
        let mut parameters = self.defaults.clone();
        let mut fixed = Vec::new();
        let quick = self.experiment.quick_overrides(self.kind);
        let mut tables = vec![&load.parameters, load.overrides(self.kind)];
        if self.is_quick {
            tables.extend([quick, &load.quick]);
        }
        for table in tables {
            parameters.extend(table.clone());
            fixed.extend(table.keys().cloned());
        }
        let runs = |name: &&String| match (&self.variants, &load.variants) {
            (Some(chosen), _) => chosen.contains(name),
            (None, Some(own)) => own.contains(name),
            (None, None) => true,
        };
        Point {
            load: load.name.clone(),
            parameters,
            fixed,
            machine: Vec::new(),
            is_own: !self.is_quick,
            variants: self
                .experiment
                .variants
                .iter()
                .filter(runs)
                .cloned()
                .collect(),
            // Variants that the user names run with all seeds.
            beside: match self.variants {
                Some(_) => Vec::new(),
                None => load.beside.clone(),
            },
        }
    }

    fn parameter(&self, key: &str) -> Result<&Value, ParameterError> {
        self.defaults.get(key).ok_or_else(|| self.unknown(key))
    }

    fn override_defaults(&mut self, table: &Table) -> Result<(), ParameterError> {
        self.check(table)?;
        self.defaults.extend(table.clone());
        Ok(())
    }

    /// Checks that each key of a table of the file is a parameter, with a value of the parameter's type.
    fn check(&self, table: &Table) -> Result<(), ParameterError> {
        for (key, value) in table {
            let default = self.parameter(key)?;
            if !value.same_type(default) {
                return Err(ParameterError::Type {
                    key: key.clone(),
                    given: value.to_string(),
                    needed: default.type_str(),
                });
            }
        }
        Ok(())
    }

    fn loads_named(&self, names: Vec<&str>) -> Result<Vec<Load>, ParameterError> {
        refuse_repetition(LOAD, &names)?;
        let all = &self.experiment.loads;
        let named = |name: &str| {
            let load = all.iter().find(|load| load.name == name);
            load.cloned().ok_or_else(|| {
                let known: Vec<_> = all.iter().map(|load| load.name.as_str()).collect();
                none_such(LOAD, name, &known)
            })
        };
        names.into_iter().map(named).collect()
    }

    fn choose_draws(&mut self, given: &str) -> Result<(), ParameterError> {
        self.draws = match given {
            "none" => DrawsKind::None,
            "accepted" if self.kind == MachineKind::Host => {
                return Err(ParameterError::OfSimulatedMachines(DRAWS.to_owned()));
            }
            "accepted" if self.experiment.draws.accepted.is_empty() => {
                return Err(ParameterError::Range {
                    key: DRAWS.to_owned(),
                    problem: "cannot be `accepted`: the experiment has none".to_owned(),
                });
            }
            "accepted" => DrawsKind::Accepted,
            other => return Err(none_such(DRAWS, other, &["accepted", "none"])),
        };
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
        for name in &chosen {
            self.check_variant(name)?;
        }
        self.variants = Some(chosen.into_iter().map(str::to_owned).collect());
        Ok(())
    }

    fn check_variant(&self, name: &str) -> Result<(), ParameterError> {
        let all = &self.experiment.variants;
        if all.iter().any(|variant| variant == name) {
            return Ok(());
        }
        let known: Vec<_> = all.iter().map(String::as_str).collect();
        Err(none_such(VARIANTS, name, &known))
    }

    fn unknown(&self, key: &str) -> ParameterError {
        let of_machine = match self.kind {
            MachineKind::Host => &[],
            MachineKind::Sim => self.machine_keys,
        };
        let known: Vec<String> = self
            .defaults
            .keys()
            .map(String::as_str)
            .chain(CHOICES)
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

fn none_such(key: &str, stranger: &str, known: &[&str]) -> ParameterError {
    let hint = nearest(stranger, known.iter().copied());
    let hint = hint.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    ParameterError::Range {
        key: key.to_owned(),
        problem: format!(
            "has no `{stranger}`{hint}\n  there are:{}",
            list(known.iter().copied())
        ),
    }
}

/// Makes each point once for each value.
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

/// Refuses a value that is given twice, because the same point twice would be one result twice.
fn refuse_repetition<V: PartialEq + fmt::Display>(
    key: &str,
    values: &[V],
) -> Result<(), ParameterError> {
    let repeated = (1..values.len()).find(|place| values[..*place].contains(&values[*place]));
    repeated.map_or(Ok(()), |place| {
        Err(ParameterError::Range {
            key: key.to_owned(),
            problem: format!("is set to {} twice", values[place]),
        })
    })
}

/// Parses `given` as a value of the type that `default` has; on failure returns that type's description.
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

/// Returns the known name that is most similar to `given`, if one is similar enough.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Least similarity for a hint; below it a hint is more often wrong than right (judgement).
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
