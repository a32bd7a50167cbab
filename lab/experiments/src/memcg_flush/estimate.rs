//! Estimate of a run's time, for a warning before a sweep of hours, not for a schedule.

use super::parameters::Parameters;

/// Time to simulate one read, seconds of a CPU. Measured on one core of a server: 2 to 16 us, by policy.
const READ_SECONDS: f64 = 5e-6;
/// Time to simulate one page of a worker: 3 us, measured likewise.
const PAGE_SECONDS: f64 = 3e-6;
/// Time to simulate one segment of a stream, at both ends: 20 us, measured likewise.
const SEGMENT_SECONDS: f64 = 20e-6;
/// Time of a worker for a page besides computing, seconds of the machine's time.
const PAGE_OVERHEAD_SECONDS: f64 = 2e-6;

/// Estimates the seconds of one CPU that a run takes: on a simulated machine of so many CPUs, or on the host, in real
/// time.
pub fn estimated_seconds(parameters: &Parameters, simulated_cpus: Option<usize>) -> f64 {
    let duration = parameters.duration_ms as f64 / 1e3;
    let Some(cpus) = simulated_cpus else {
        return duration;
    };
    let reads = parameters.readers as f64 * duration / (parameters.read_interval_ms as f64 / 1e3);
    let running = parameters.workers.min(cpus as u64) as f64;
    let pages = running * duration / (parameters.compute_ns as f64 / 1e9 + PAGE_OVERHEAD_SECONDS);
    let segments = parameters.streams as f64 * duration / (parameters.segment_ns as f64 / 1e9);
    reads * READ_SECONDS + pages * PAGE_SECONDS + segments * SEGMENT_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        let experiment = crate::experiment_named("memcg-flush").expect("the file");
        experiment.parameters.try_into().expect("its parameters")
    }

    #[test]
    fn the_host_takes_the_time_it_is_given() {
        let parameters = parameters();
        let seconds = estimated_seconds(&parameters, None);
        assert_eq!(seconds, parameters.duration_ms as f64 / 1e3);
    }

    #[test]
    fn ten_times_the_readers_take_longer_to_simulate() {
        let few = parameters();
        let many = Parameters {
            readers: few.readers * 10,
            ..few
        };
        let [few, many] = [few, many].map(|parameters| estimated_seconds(&parameters, Some(384)));
        assert!(few < many && many < few * 10.0);
    }
}
