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

/// A machine as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Host,
    /// With these keys, as the command line has them.
    Sim(String),
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
                let keys = inherit(&keys, &own);
                topology(&keys).map(|_| Self::Sim(keys))
            }
            (_, asked, _) => Ok(asked),
        }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let request = match text.split_once(':') {
            None if text == HOST => Self::Host,
            None if text == SIM => Self::Sim(String::new()),
            Some((SIM, keys)) => Self::Sim(keys.to_owned()),
            _ => {
                return Err(Failure::usage(format!(
                    "unknown machine `{text}`; there are host, sim, and sim:KEY=VALUE,..."
                )));
            }
        };
        if let Some((SIM, keys)) = text.split_once(':') {
            topology(keys)?;
            check_size(keys)?;
        }
        Ok(request)
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
                let topology = topology(&fitting(&with(keys, &point.machine), &point.machine))?;
                let model = ensemble.unwrap_or_else(|| CostModel::default().hash());
                Ok(Machine::Sim(topology, model))
            }
        }
    }
}

/// The keys of simulated machines.
pub fn keys() -> Vec<String> {
    let all = Topology::default().to_string();
    all.split(',').map(|part| key(part).to_owned()).collect()
}

fn topology(keys: &str) -> Result<Topology, Failure> {
    keys.parse()
        .map_err(|error| Failure::usage(format!("machine `{SIM}:{keys}`: {error}")))
}

/// Refuses keys that do not say how many CPUs there are: they would not be those of the experiment's machine.
fn check_size(keys: &str) -> Result<(), Failure> {
    const CPUS: &str = "cpus";
    let mut given = keys.split(',').filter(|part| !part.is_empty()).peekable();
    if given.peek().is_none() {
        return Err(Failure::usage(format!(
            "machine `{SIM}:{keys}` has no keys; -m {SIM} is the machine of the experiment, -m {SIM}:{CPUS}=8 another one"
        )));
    }
    if given.any(|part| key(part) == CPUS) {
        return Ok(());
    }
    let settings: Vec<_> = keys.split(',').map(|part| format!("-s {part}")).collect();
    Err(Failure::usage(format!(
        "machine `{SIM}:{keys}` does not say how many CPUs it has: add {CPUS}=N, or change the machine of the experiment by \
         -m {SIM} {}",
        settings.join(" ")
    )))
}

fn key(part: &str) -> &str {
    part.split('=').next().unwrap_or(part)
}

/// Adds the experiment's keys that are not sizes and that `keys` lacks.
fn inherit(keys: &str, own: &str) -> String {
    let is_given = |own: &str| keys.split(',').any(|part| key(part) == key(own));
    let inherited = own
        .split(',')
        .filter(|part| !SIZES.contains(&key(part)) && !is_given(part));
    let given = keys.split(',').filter(|part| !part.is_empty());
    let parts: Vec<_> = given.chain(inherited).collect();
    parts.join(",")
}

/// The keys with some replaced or added.
fn with(keys: &str, changes: &[(String, String)]) -> String {
    let is_changed = |part: &&str| changes.iter().any(|(changed, _)| changed == key(part));
    let kept = keys
        .split(',')
        .filter(|part| !part.is_empty() && !is_changed(part));
    let changed = changes.iter().map(|(key, value)| format!("{key}={value}"));
    let parts: Vec<_> = kept.map(str::to_owned).chain(changed).collect();
    parts.join(",")
}

/// The keys with clusters that are no larger than the nodes, unless their size is set: in a sweep over CPUs the
/// experiment's own may be too large.
fn fitting(keys: &str, asked: &[(String, String)]) -> String {
    const CLUSTER: &str = "cluster";
    let number = |name: &str| -> Option<usize> {
        let part = keys.split(',').find(|part| key(part) == name)?;
        part.split_once('=')?.1.parse().ok()
    };
    let is_asked = asked.iter().any(|(key, _)| key == CLUSTER);
    match (number("cpus"), number("nodes"), number(CLUSTER)) {
        (Some(cpus), nodes, Some(cluster)) if !is_asked => {
            let of_node = cpus / nodes.unwrap_or(1).max(1);
            let fits = cluster.min(of_node.max(1)).to_string();
            with(keys, &[(CLUSTER.to_owned(), fits)])
        }
        _ => keys.to_owned(),
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
        let change = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(with("cpus=8,hz=250", &[]), "cpus=8,hz=250");
        assert_eq!(
            with("cpus=8,hz=250", &[change("cpus", "4")]),
            "hz=250,cpus=4"
        );
        assert_eq!(with("", &[change("cpus", "4")]), "cpus=4");
    }

    #[test]
    fn how_a_machine_works_is_inherited_but_not_how_large_it_is() {
        let own = "cpus=384,nodes=2,hz=1000,preempt=kernel";
        assert_eq!(inherit("cpus=8", own), "cpus=8,hz=1000,preempt=kernel");
        assert_eq!(inherit("hz=250", own), "hz=250,preempt=kernel");
        assert_eq!(inherit("", own), "hz=1000,preempt=kernel");
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

    #[test]
    fn every_key_of_a_topology_is_known() {
        assert!(keys().contains(&"cpus".to_owned()) && keys().contains(&"lock".to_owned()));
        let all: Vec<_> = Topology::default()
            .to_string()
            .split(',')
            .map(str::to_owned)
            .collect();
        assert_eq!(all.len(), keys().len());
    }
}
