//! Estimate of a run's time, for a warning before a sweep of hours, not for a schedule.

use super::parameters::{Parameters, Tasks};

/// Time to simulate a page that is faulted in and unmapped, seconds of a CPU: measured on one core of a server.
const PAGE_SECONDS: f64 = 500e-9;
/// Time to simulate one CPU for a second without pages.
const CPU_SECONDS: f64 = 5e-3;
/// Time of a task for a page besides rewriting it, seconds of the machine's time.
const PAGE_OVERHEAD_SECONDS: f64 = 1.5e-6;

/// Estimates the seconds of one CPU that a run takes: on a simulated machine of so many CPUs, or on the host, in real
/// time.
pub(super) fn estimated_seconds(parameters: &Parameters, simulated_cpus: Option<usize>) -> f64 {
    let duration = (parameters.warm_up_ms + parameters.duration_ms) as f64 / 1e3;
    let Some(cpus) = simulated_cpus else {
        return duration;
    };
    let idle = cpus as f64 * duration * CPU_SECONDS;
    if parameters.tasks == Tasks::Idle || parameters.pages_of_task(cpus) == 0 {
        return idle;
    }
    let rewriting = parameters.rewrites as f64 * parameters.rewrite_page_ns as f64 / 1e9;
    let pages = cpus as f64 * duration / (rewriting + PAGE_OVERHEAD_SECONDS);
    idle + pages * PAGE_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn parameters() -> Parameters {
        let experiment = crate::experiment_named("vmstat-spread").expect("the file");
        Parameters::read(&experiment.parameters).expect("its parameters")
    }

    #[test]
    fn the_host_takes_the_time_it_is_given() {
        let parameters = parameters();
        let seconds = (parameters.warm_up_ms + parameters.duration_ms) as f64 / 1e3;
        assert_eq!(estimated_seconds(&parameters, None), seconds);
    }

    #[test]
    fn pages_that_come_and_go_more_often_take_longer_to_simulate() {
        let seldom = parameters();
        let often = Parameters {
            rewrites: 1,
            ..seldom
        };
        let idle = Parameters {
            tasks: Tasks::Idle,
            ..seldom
        };
        let [seldom, often, idle] =
            [seldom, often, idle].map(|parameters| estimated_seconds(&parameters, Some(72)));
        assert!(idle < seldom && seldom < often);
    }
}
