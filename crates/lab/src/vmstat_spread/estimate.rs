//! How long a run will take: for a word of warning before a sweep of hours, not for a schedule.

use super::parameters::{Parameters, Tasks};

/// Time to simulate a page that is faulted in and unmapped, seconds of a CPU.
const PAGE_SECONDS: f64 = 200e-9;
/// Time to simulate one CPU for a second without pages.
const CPU_SECONDS: f64 = 2e-3;
/// What a task does with a page beside rewriting it, seconds of the machine's time.
const PAGE_OVERHEAD_SECONDS: f64 = 1.5e-6;

/// Seconds of one CPU that a run takes: on a simulated machine of so many CPUs, or on the host, where time is what it is.
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
