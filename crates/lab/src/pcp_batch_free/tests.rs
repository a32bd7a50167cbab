//! The experiment in small.

use bursar_machine::Host;
use bursar_sim::{Settings, Sim, Simulator, Topology};

use super::*;

const SMALL: Parameters = Parameters {
    seed: 1,
    duration_ms: 5,
    memory_gib: 4,
    memory_per_cpu_gib: 0,
    swap_gib: 0,
    sized_for_cpus: 0,
    scale: 1,
    batch_pages: 0,
    watchdog_us: 100,
    touch_ns: 1_000,
    unmap_ns: 240,
    rewrite_ns: 400,
    swap_io_ns: 40_000,
    bystanders: 2,
    bystander_pages: 16,
    think_us: 50,
    exiters: 0,
    exiter_mib: 16,
    settle_periods: 0,
    freers: 0,
    list_pages: 4_096,
    drains: 0,
    decay_period_ms: 0,
    listed_pages: 0,
    workers: 0,
    worker_mib: 64,
    rewrites: 2,
    shells: 0,
    processes: 10,
    process_mib: 8,
};

fn loads() -> [(&'static str, Parameters); 6] {
    [
        (
            "exit",
            Parameters {
                exiters: 4,
                ..SMALL
            },
        ),
        ("long", Parameters { freers: 2, ..SMALL }),
        (
            "decay",
            Parameters {
                decay_period_ms: 20,
                duration_ms: 50,
                listed_pages: 8_192,
                ..SMALL
            },
        ),
        (
            "drain",
            Parameters {
                drains: 1,
                listed_pages: 8_192,
                ..SMALL
            },
        ),
        (
            "stress",
            Parameters {
                workers: 3,
                worker_mib: 512 * 64,
                memory_gib: 64,
                swap_gib: 64,
                scale: 64,
                bystanders: 0,
                duration_ms: 40,
                ..SMALL
            },
        ),
        ("boot", Parameters { shells: 2, ..SMALL }),
    ]
}

fn on_sim<R>(cpus: usize, seed: u64, test: impl FnOnce(&Sim) -> R) -> R {
    let simulator = Simulator::new(Settings::new(Topology::new(cpus, 1, 1000), seed));
    test(&simulator.machine())
}

#[test]
fn every_variant_runs_every_load() {
    for variant in Variant::all() {
        for (load, parameters) in loads() {
            parameters.check().expect(load);
            let name = variant.name();
            let on_sim = on_sim(8, 1, |machine| parameters.run(machine, name));
            on_sim.unwrap_or_else(|error| panic!("{load} simulated: {error}"));
            let host = Host::start().expect("the host has a backend");
            let on_host = parameters.run(&host, name);
            on_host.unwrap_or_else(|error| panic!("{load} on the host: {error}"));
        }
    }
}
