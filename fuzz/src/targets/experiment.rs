//! Files of experiments, and of their draws.

use bursar_experiments::experiment::{Draws, Experiment};
use bursar_experiments::machine_info::{MachineInfo, MachineKind, SimInfo};
use bursar_experiments::{Plan, Request};
use bursar_sim::{CostModel, Topology};

use crate::common::{parts, text};

/// The file, and that of the draws.
pub(super) fn run(input: &[u8]) {
    let [file, draws] = parts(input).map(text);
    let (Some(file), Some(draws)) = (file, draws) else {
        return;
    };
    match Experiment::parse(file, draws) {
        Ok(experiment) => {
            let again = Experiment::parse(file, draws).expect("as before");
            assert_eq!(again.hash, experiment.hash);
            let printed = toml::to_string(&experiment.draws).expect("draws print");
            let again: Draws = toml::from_str(&printed).expect("and parse");
            assert_eq!(toml::to_string(&again).as_ref(), Ok(&printed));
            for machine in [MachineKind::Host, MachineKind::Sim] {
                plan(&experiment, machine, false, &[]);
                plan(&experiment, machine, true, &[]);
            }
        }
        Err(error) => {
            let span = error.span().expect("an error has its place");
            let length = file.len().max(draws.len());
            assert!(span.start <= span.end && span.end <= length, "{error}");
        }
    }
}

/// Makes a plan, and checks everything that is done with it before it runs.
pub(super) fn plan(
    experiment: &Experiment,
    machine: MachineKind,
    is_quick: bool,
    assignments: &[String],
) {
    let request = Request {
        machine,
        machine_keys: &[
            "cpus", "nodes", "cluster", "threads", "hz", "lock", "preempt",
        ],
        assignments,
        is_quick,
        seeds: 2,
    };
    let plan = match Plan::new(experiment.clone(), request) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let seconds = plan.estimated_seconds(|_| Some(8));
    assert!(seconds.is_finite() && seconds >= 0.0, "{seconds} s");
    for job in plan.jobs().into_iter().take(64) {
        assert!(experiment.variants.iter().any(|it| it == plan.variant(job)));
        let _ = (plan.load(job), plan.costs(job), plan.run_ms(job));
    }
    let topology = Topology::default();
    let info = MachineInfo::Sim(SimInfo {
        cpus: topology.cpus,
        nodes: topology.nodes,
        hz: topology.hz,
        topology: topology.to_string(),
        model: CostModel::default().hash(),
    });
    for point in 0..plan.points().len().min(8) {
        let document = plan.document(point, info.clone(), "unknown");
        assert_eq!(document.check(), Ok(()));
        let mut concluded = document.clone();
        concluded.conclude();
        let printed = serde_json::to_string(&document).expect("a document prints");
        let again = serde_json::from_str(&printed);
        assert_eq!(again.ok(), Some(document), "and parses to the same");
    }
}
