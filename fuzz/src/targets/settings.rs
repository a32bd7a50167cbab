//! Settings of the command line: `-m`, and `-s` as often as there are lines.

use std::sync::OnceLock;

use bursar_experiments::experiment::Experiment;
use bursar_experiments::machine_info::MachineKind;
use bursar_experiments::settings::Point;
use bursar_experiments::{experiment_named, names};
use bursar_sim::Topology;

use super::experiment;
use crate::common::{parts, text};
use crate::machine::{Machine, Request};

/// Place of the experiment among all, then `-m` and a line for each `-s`.
pub(super) fn run(input: &[u8]) {
    let [place, machine, settings] = parts(input).map(text);
    let (Some(place), Some(machine), Some(settings)) = (place, machine, settings) else {
        return;
    };
    let place = usize::from(place.bytes().next().unwrap_or(0));
    let all = experiments();
    let experiment = &all[place % all.len()];
    if let Some(Ok(topology)) = machine.strip_prefix("sim:").map(str::parse::<Topology>) {
        assert_eq!(topology.to_string().parse(), Ok(topology));
    }
    let asked = (!machine.is_empty()).then_some(machine);
    let Ok(request) = Request::new(asked, experiment) else {
        return;
    };
    let assignments: Vec<String> = settings.lines().map(str::to_owned).collect();
    experiment::plan(experiment, request.kind(), false, &assignments);
    if request.kind() == MachineKind::Sim {
        // The machine of a point that sets keys of it.
        let keys = settings.lines().filter_map(|line| line.split_once('='));
        let point = Point {
            load: String::new(),
            parameters: toml::Table::new(),
            fixed: Vec::new(),
            machine: keys
                .map(|(key, it)| (key.to_owned(), it.to_owned()))
                .collect(),
            is_own: false,
            variants: Vec::new(),
            beside: Vec::new(),
        };
        if let Ok(Machine::Sim(topology, _)) = request.at(&point, None) {
            assert_eq!(topology.to_string().parse(), Ok(topology));
        }
    }
}

/// All experiments. Their files are parsed once: that takes longer than the settings do.
fn experiments() -> &'static [Experiment] {
    static ALL: OnceLock<Vec<Experiment>> = OnceLock::new();
    let named = |name| experiment_named(name).expect("its file");
    ALL.get_or_init(|| names().map(named).collect())
}
