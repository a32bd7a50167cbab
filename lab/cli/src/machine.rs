//! Machine of a run: `-m`, the experiment's own, and what `-s` changes of it.

use bursar_experiments::document::VariantResult;
use bursar_experiments::experiment::Experiment;
use bursar_experiments::experiment::Values;
use bursar_experiments::machine_info::{MachineInfo, MachineKind, SimInfo};
use bursar_experiments::settings::Point;
use bursar_experiments::{Error, Job, Plan};
use bursar_machine::Host;
use bursar_sim::{CostModel, Settings, Simulator, Topology};

use crate::system;
use bursar_term::failure::Failure;

/// Prefix of the keys of a simulated machine.
const SIM: &str = "sim";
const HOST: &str = "host";
/// Keys that say how large a machine is. Others say how it works; where they are left out, it works like the experiment's own.
const SIZES: [&str; 4] = ["cpus", "nodes", "cluster", "threads"];

/// Keys of a simulated machine and their values, as the command line has them.
type Keys = Vec<(String, String)>;

/// A machine as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Host,
    Sim(Keys),
}

impl Request {
    /// The machine of `-m`, or the experiment's own machine.
    pub fn new(asked: Option<&str>, experiment: &Experiment) -> Result<Self, Failure> {
        let own = Self::parse(&experiment.machine)?;
        let Some(asked) = asked else {
            return Ok(own);
        };
        match (asked, Self::parse(asked)?, own) {
            (SIM, _, own @ Self::Sim(_)) => Ok(own),
            (_, Self::Sim(keys), Self::Sim(own)) => {
                let keys = inherit(keys, own);
                topology(&keys).map(|_| Self::Sim(keys))
            }
            (_, asked, _) => Ok(asked),
        }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        match text.split_once(':') {
            None if text == HOST => Ok(Self::Host),
            None if text == SIM => Ok(Self::Sim(Keys::new())),
            Some((SIM, keys)) => {
                parsed(keys)?;
                check_size(keys)?;
                Ok(Self::Sim(split(keys)))
            }
            _ => Err(Failure::usage(format!(
                "unknown machine `{text}`; there are host, sim, and sim:KEY=VALUE,..."
            ))),
        }
    }

    pub fn kind(&self) -> MachineKind {
        match self {
            Self::Host => MachineKind::Host,
            Self::Sim(_) => MachineKind::Sim,
        }
    }

    /// The machine of a point of a sweep. `ensemble` names the draws of its cost model, if runs use any.
    pub fn at(&self, point: &Point, ensemble: Option<String>) -> Result<Machine, Failure> {
        match self {
            Self::Host => system::host().map(Machine::Host),
            Self::Sim(keys) => {
                let topology = topology(&fitting(with(keys, &point.machine), &point.machine))?;
                let model = ensemble.unwrap_or_else(|| CostModel::default().hash());
                Ok(Machine::Sim(topology, model))
            }
        }
    }
}

/// The keys of simulated machines.
pub fn keys() -> Vec<String> {
    let all = split(&Topology::default().to_string());
    all.into_iter().map(|(key, _)| key).collect()
}

fn split(keys: &str) -> Keys {
    let parts = keys.split(',').filter_map(|part| part.split_once('='));
    parts
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn topology(keys: &Keys) -> Result<Topology, Failure> {
    let parts: Vec<_> = keys.iter().map(|(key, it)| format!("{key}={it}")).collect();
    parsed(&parts.join(","))
}

fn parsed(keys: &str) -> Result<Topology, Failure> {
    keys.parse()
        .map_err(|error| Failure::usage(format!("machine `{SIM}:{keys}`: {error}")))
}

/// Refuses keys that do not say how many CPUs there are: they would not be those of the experiment's machine.
fn check_size(keys: &str) -> Result<(), Failure> {
    const CPUS: &str = "cpus";
    if keys.is_empty() {
        return Err(Failure::usage(format!(
            "machine `{SIM}:{keys}` has no keys; -m {SIM} is the machine of the experiment, -m {SIM}:{CPUS}=8 another one"
        )));
    }
    if value(&split(keys), CPUS).is_some() {
        return Ok(());
    }
    let settings: Vec<_> = keys.split(',').map(|part| format!("-s {part}")).collect();
    Err(Failure::usage(format!(
        "machine `{SIM}:{keys}` does not say how many CPUs it has: add {CPUS}=N, or change the machine of the experiment by \
         -m {SIM} {}",
        settings.join(" ")
    )))
}

fn value<'a>(keys: &'a Keys, key: &str) -> Option<&'a str> {
    let found = keys.iter().find(|(known, _)| known == key);
    found.map(|(_, value)| value.as_str())
}

/// Adds the experiment's keys that are not sizes and that `keys` lacks.
fn inherit(mut keys: Keys, own: Keys) -> Keys {
    let is_size = |key: &String| SIZES.contains(&key.as_str());
    for (key, of_own) in own {
        if !is_size(&key) && value(&keys, &key).is_none() {
            keys.push((key, of_own));
        }
    }
    keys
}

/// The keys with some replaced or added.
fn with(keys: &Keys, changes: &Keys) -> Keys {
    let kept = keys.iter().filter(|(key, _)| value(changes, key).is_none());
    kept.chain(changes).cloned().collect()
}

/// The keys with clusters that are no larger than the nodes, unless their size is set: in a sweep over CPUs the
/// experiment's own may be too large.
fn fitting(keys: Keys, asked: &Keys) -> Keys {
    const CLUSTER: &str = "cluster";
    let number = |key| value(&keys, key)?.parse::<usize>().ok();
    match (number("cpus"), number("nodes"), number(CLUSTER)) {
        (Some(cpus), nodes, Some(cluster)) if value(asked, CLUSTER).is_none() => {
            let of_node = cpus / nodes.unwrap_or(1).max(1);
            let fits = cluster.min(of_node.max(1)).to_string();
            with(&keys, &vec![(CLUSTER.to_owned(), fits)])
        }
        _ => keys,
    }
}

/// A machine that can be run on.
#[derive(Clone, Debug)]
pub enum Machine {
    Host(Host),
    /// With the identity of its cost model.
    Sim(Topology, String),
}

impl Machine {
    /// Description for documents.
    pub fn info(&self) -> MachineInfo {
        match self {
            Self::Host(host) => MachineInfo::Host(system::describe(host)),
            Self::Sim(topology, model) => MachineInfo::Sim(SimInfo {
                cpus: topology.cpus,
                nodes: topology.nodes,
                hz: topology.hz,
                topology: topology.to_string(),
                model: model.clone(),
            }),
        }
    }

    /// Does one run: on a simulated machine on one of its own, with the run's seed.
    pub fn run(&self, plan: &Plan, job: Job) -> Result<VariantResult, Error> {
        match self {
            Self::Host(host) => plan.run(host, job),
            Self::Sim(topology, _) => {
                let mut settings = Settings::new(*topology, job.seed);
                if let Some(values) = plan.costs(job) {
                    settings.costs = costs(values).map_err(Error::File)?;
                }
                let simulator = Simulator::new(settings);
                plan.run(&simulator.machine(), job)
            }
        }
    }

    /// Most runs that are under way at a time. Those on the host would disturb each other; simulated ones have nothing to
    /// do with each other.
    pub fn runs_at_once(&self) -> usize {
        match self {
            Self::Host(_) => 1,
            Self::Sim(..) => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The simulated machine that an experiment's file names.
pub fn own_topology(experiment: &Experiment) -> Result<Topology, Failure> {
    match Request::parse(&experiment.machine)? {
        Request::Sim(keys) => topology(&keys),
        Request::Host => Err(Failure::usage(format!(
            "{} runs on the host, where nothing can be drawn",
            experiment.name
        ))),
    }
}

/// Refuses draws from another cost model than this program's.
pub fn check_model(model: &str, experiment: &str) -> Result<(), Failure> {
    let own = CostModel::default().hash();
    if model == own {
        return Ok(());
    }
    Err(Failure::unavailable(format!(
        "the draws of {experiment} are of cost model {model}, and this program has {own}; `bursar-lab calibrate {experiment}` makes \
         new ones, and -s draws=none does without"
    )))
}

/// The cost model with the constants of a draw.
pub fn costs(values: &Values) -> Result<CostModel, String> {
    let mut costs = CostModel::default();
    for (name, value) in values {
        costs.set(name, *value).map_err(|error| error.to_string())?;
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_replaced_or_added() {
        let with = |keys: &str, changes: &str| with(&split(keys), &split(changes));
        assert_eq!(with("cpus=8,hz=250", ""), split("cpus=8,hz=250"));
        assert_eq!(with("cpus=8,hz=250", "cpus=4"), split("hz=250,cpus=4"));
        assert_eq!(with("", "cpus=4"), split("cpus=4"));
    }

    #[test]
    fn how_a_machine_works_is_inherited_but_not_how_large_it_is() {
        let own = "cpus=384,nodes=2,hz=1000,preempt=kernel";
        let inherit = |keys: &str| inherit(split(keys), split(own));
        assert_eq!(inherit("cpus=8"), split("cpus=8,hz=1000,preempt=kernel"));
        assert_eq!(inherit("hz=250"), split("hz=250,preempt=kernel"));
        assert_eq!(inherit(""), split("hz=1000,preempt=kernel"));
    }

    #[test]
    fn experiments_spell_their_machines_out() {
        for name in bursar_experiments::names() {
            let machine = bursar_experiments::experiment_named(name)
                .expect("its file")
                .machine;
            let keys = machine.strip_prefix("sim:").expect("simulated by default");
            let topology: Topology = keys.parse().expect("a machine");
            assert_eq!(topology.to_string(), keys, "{name}");
        }
    }
}
