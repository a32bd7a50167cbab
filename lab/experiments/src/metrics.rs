//! The registry of metrics: name, unit, better side, explanation, and places in tables and pictures.
//!
//! An experiment records by a constant of its module here; tables, pictures, pages and comparison read the entry. So a new
//! metric is one entry. The order of the entries is the order of columns, pictures and explanations.

pub use crate::measure::Of;
use crate::measure::Unit;

/// The better side of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less of it.
    Lower,
    /// More of it.
    Higher,
    /// Neither: the figure describes how work was done, not how well. For example, reads that move from 1-10 ms to 0.1-1 ms
    /// are an improvement, but reads that come there from below 0.1 ms are not.
    Neither,
}

/// Texts of a metric whose values are 0 where nothing happened.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Name of the metric that is the share of values above 0; empty if there is none.
    pub share: &'static str,
    /// Whether the share answers the experiment's question.
    pub is_answer: bool,
    /// Title of the shares.
    pub how_often: &'static str,
    /// Title of the values above 0.
    pub how_much: &'static str,
}

/// Entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// Name in documents.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Better side.
    pub better: Better,
    /// Explanation for a reader who knows neither the thread nor the kernel.
    pub about: &'static str,
    /// Name in a sentence; empty if it is the name with spaces.
    pub title: &'static str,
    /// Columns of the main table: title and number.
    pub columns: &'static [(&'static str, Of)],
    /// Line below the main table, of these columns and sometimes the next; empty if there is none.
    pub legend: &'static str,
    /// Whether another metric says the same, so that the table of further figures leaves it out.
    pub repeats: bool,
    /// Latencies whose share it is: least, and first above, nanoseconds.
    pub range_ns: Option<(u64, u64)>,
    /// Title of its bars on the terminal; empty if there are none.
    pub bars: &'static str,
    /// Title of its lines on a picture, and name of the axis of shares.
    pub line: Option<(&'static str, &'static str)>,
    /// Texts if 0 means that nothing happened.
    pub event: Option<Event>,
    /// Numbers with a plot against a parameter.
    pub sweeps: &'static [Of],
}

impl MetricInfo {
    /// Entry without a place of its own.
    const PLAIN: Self = Self {
        name: "",
        unit: Unit::Count,
        better: Better::Neither,
        about: "",
        title: "",
        columns: &[],
        legend: "",
        repeats: false,
        range_ns: None,
        bars: "",
        line: None,
        event: None,
        sweeps: &[],
    };

    /// Returns the name in a sentence.
    pub fn title(&self) -> String {
        match self.title {
            "" => self.name.replace('_', " "),
            title => title.to_owned(),
        }
    }
}

/// Returns the entries of an experiment; none of an unknown one.
pub fn of_experiment(experiment: &str) -> &'static [MetricInfo] {
    let known = ALL.iter().find(|(name, _)| *name == experiment);
    known.map_or(&[], |(_, metrics)| metrics)
}

/// Returns the entry of a name.
pub fn named(name: &str) -> Option<&'static MetricInfo> {
    let mut all = ALL.iter().flat_map(|(_, metrics)| *metrics);
    all.find(|metric| metric.name == name)
}

/// Returns the better side of a metric. A time without an entry is better low; other strangers have no better side.
pub fn better(metric: &str, unit: Unit) -> Better {
    match (named(metric), unit) {
        (Some(metric), _) => metric.better,
        (None, Unit::Ns) => Better::Lower,
        (None, _) => Better::Neither,
    }
}

/// Defines the entries of each experiment: constants in a module, and a list.
macro_rules! registry {
    ($($experiment:literal $module:ident {
        $($id:ident = $name:literal, $unit:ident, $better:ident, $about:literal $({ $($field:ident: $value:expr),* })?;)*
    })*) => {
        const ALL: &[(&str, &[MetricInfo])] = &[$(($experiment, &[$($module::$id),*])),*];

        $(
            #[doc = concat!("Metrics of `", $experiment, "`.")]
            pub mod $module {
                use super::{Better, MetricInfo};
                #[allow(unused_imports, reason = "not every experiment has all")]
                use super::{Event, Of::*};
                use crate::measure::Unit;

                $(
                    #[doc = concat!("`", $name, "`: ", $about, ".")]
                    pub const $id: MetricInfo = MetricInfo {
                        name: $name,
                        unit: Unit::$unit,
                        better: Better::$better,
                        about: $about,
                        $($($field: $value,)*)?
                        ..MetricInfo::PLAIN
                    };
                )*
            }
        )*
    };
}

registry! {
"memcg-flush" memcg_flush {
    READ_LATENCY = "read_latency", Ns, Lower,
        "from asking for a group's statistics to having them, including any flush on the way" {
        columns: &[("read p50", P50), ("read p99", P99), ("read max", Max)],
        legend: "read: from asking for a group's statistics to having them, including any flush on the way",
        bars: "How long reads took (bars grow with the logarithm of the number of reads)",
        line: Some(("How long reads took", "share of reads")),
        sweeps: &[P99]
    };
    READS_UNDER_100US = "reads_under_100us", Ratio, Higher, "share of reads that took less than 100 us" {
        title: "reads under 100 us",
        range_ns: Some((0, 100_000))
    };
    READS_100US_TO_1MS = "reads_100us_to_1ms", Ratio, Neither, "share of reads that took at least 100 us and less than 1 ms" {
        title: "reads 100 us to 1 ms",
        range_ns: Some((100_000, 1_000_000))
    };
    READS_1MS_TO_10MS = "reads_1ms_to_10ms", Ratio, Neither, "share of reads that took at least 1 ms and less than 10 ms" {
        title: "reads 1 ms to 10 ms",
        range_ns: Some((1_000_000, 10_000_000))
    };
    READS_10MS_TO_100MS = "reads_10ms_to_100ms", Ratio, Neither, "share of reads that took at least 10 ms and less than 100 ms" {
        title: "reads 10 ms to 100 ms",
        range_ns: Some((10_000_000, 100_000_000))
    };
    READS_OVER_100MS = "reads_over_100ms", Ratio, Lower, "share of reads that took at least 100 ms" {
        title: "reads over 100 ms",
        range_ns: Some((100_000_000, u64::MAX))
    };
    BROKEN_READS = "broken_reads", Ratio, Lower, "reads that missed an update that had completed before the read began" {
        title: "stale reads",
        columns: &[("stale reads", Value)],
        legend: "stale reads: missed an update (a page fault) that had completed before the read began"
    };
    READS_BEYOND_NEED = "reads_beyond_need", Ratio, Lower, "reads whose answer was older than the reader had asked for" { title: "reads older than asked for" };
    STALENESS = "staleness", Ns, Lower, "age of the oldest update that a read missed, at least; 0 if it missed none" {
        title: "age of missed updates",
        columns: &[("staleness p99", P99)],
        legend: "staleness: age of the oldest update that a read missed, at least; 0 if it missed none",
        bars: "How old what they missed was (0 ns: nothing was missed)",
        line: Some(("How old what reads missed was (0: nothing was missed)", "share of reads")),
        event: Some(Event {
            share: BROKEN_READS.name,
            is_answer: true,
            how_often: "Reads that missed a completed update",
            how_much: "Age of the oldest missed update, of the reads that missed one",
        })
    };
    MISSING_UPDATES = "missing_updates", Count, Lower, "how many updates, of a page each, a read missed" {
        title: "pages missed by a read",
        columns: &[("missed p99", P99)],
        legend: "missed: faults, of a page each, that a read missed",
        repeats: true
    };
    WORKER_RUNTIME = "worker_runtime", Ns, Neither,
        "from one page fault of a worker to its next; longer where pages take longer, and where fewer of them are missing" {
        title: "time from fault to fault",
        bars: "How long it took from one fault of a worker to its next"
    };
    PAGE_NS = "page_ns", Ns, Lower, "time of a worker for one page that it accesses, in the mean" {
        title: "page time",
        columns: &[("page", Value)],
        legend: "page: time of a worker for one page that it accesses, in the mean; a missing one is charged, reclaimed for, read and accounted",
        sweeps: &[Value]
    };
    FLUSHES = "flushes", Count, Lower, "how often per-CPU numbers were brought together, in the mean over the seeds" {
        columns: &[("flushes", Value)],
        legend: "flushes bring per-CPU numbers together; skips went without one that was due; waits are reads that waited for a \
                 flush of another; lock waits found the one flush lock taken (-: there is none)"
    };
    FLUSHES_ROOT = "flushes_root", Count, Neither, "those of the whole tree" { title: "flushes of the whole tree", repeats: true };
    FLUSHES_SUBTREE = "flushes_subtree", Count, Neither, "those of a part of it" { title: "flushes of a part of the tree", repeats: true };
    SKIPS = "skips", Count, Neither, "reads that went without a flush that was due" { title: "skipped flushes", columns: &[("skips", Value)] };
    WAITS = "waits", Count, Neither, "reads that waited for a flush of another" { title: "reads that waited", columns: &[("waits", Value)] };
    LOCK_WAITS = "lock_waits", Count, Lower, "how often the one flush lock was taken already" { title: "waits for the flush lock", columns: &[("lock waits", Value)] };
    FENCES = "fences", Count, Lower, "fences that interrupt all CPUs of the program";
    LIMIT_REFUSALS = "limit_refusals", Count, Neither,
        "charges that met their group's limit, and made their worker free its oldest pages";
    PAGES_PER_SECOND = "pages_per_second", PerSecond, Higher, "pages that all workers access in a second";
    FLUSH_SITE_SHARE = "flush_site_share", Ratio, Lower, "share of the workers' time in which reclaim flushes";
    PAGE_FAULTS = "page_faults", Count, Neither, "accesses to pages that were not in memory";
    RECLAIM_ROUNDS = "reclaim_rounds", Count, Neither, "rounds of reclaim, of workers and of reclaimers";
    REFAULTS = "refaults", Count, Neither, "faults on pages that reclaim had evicted";
    SWAP_OUTS = "swap_outs", Count, Neither, "pages written to the swap device";
    ZSWAP_OUTS = "zswap_outs", Count, Neither, "pages compressed into memory";
    OOMS = "ooms", Count, Neither, "charges for which reclaim found nothing" { title: "charges without memory" };
    RECLAIM_ROUND = "reclaim_round", Ns, Lower, "how long a worker's round of reclaim took";
    RECLAIMER_ROUND = "reclaimer_round", Ns, Lower, "how long a reclaimer's round of reclaim took";
    WRONG_VICTIMS = "wrong_victims", Ratio, Lower, "decisions whose victim was not the largest tenant, or nearly so";
    DECISION_LATENCY = "decision_latency", Ns, Lower, "how long the choice of a victim took" { title: "time to choose a victim" };
    VICTIM_SHORTFALL_PAGES = "victim_shortfall_pages", Count, Lower, "pages that the largest tenant had more than the victim" { title: "pages short of the largest tenant" };
    PAIR_LATENCY = "pair_latency", Ns, Lower, "how long a read of all tenants took" { title: "time to read all tenants" };
    PAIR_ERROR_PAGES = "pair_error_pages", Count, Lower, "pages by which a tenant's usage and statistics differed" { title: "pages between usage and statistics" };
    OVERHEAD_ERROR_PAGES = "overhead_error_pages", Count, Lower, "pages by which the root and the sum of the tenants differed" { title: "pages between root and tenants" };
    OVERHEAD_CURRENT_PAGES = "overhead_current_pages", Count, Lower, "pages by which the memory in use and the sum of the tenants' usage differed" {
        title: "pages between memory in use and usage"
    };
    PROACTIVE_STEPS = "proactive_steps", Count, Neither, "steps of proactive reclaim";
    STOPPED_EARLY = "stopped_early", Ratio, Lower, "loops of reclaim that old numbers stopped too early" { title: "loops stopped too early" };
    STEPS_UNTIL_STOP = "steps_until_stop", Count, Neither, "steps of a loop of reclaim until it stopped";
    THROUGHPUT_SERVER = "throughput_mbps_server", MbitPerSecond, Higher, "bits that receivers took in a second" { title: "throughput, receivers" };
    THROUGHPUT_CLIENT = "throughput_mbps_client", MbitPerSecond, Higher, "bits that senders sent in a second" { title: "throughput, senders" };
    CHARGE_SHARE = "charge_share", Ratio, Lower, "share of a segment's time that charging and counting take";
    DISTURBED_SEGMENTS = "disturbed_segments", Ratio, Neither, "segments that are left out of that share, because their task lost its CPU";
    UPDATE_NS = "update_ns", Ns, Lower, "time to charge and count a segment" { title: "time to charge and count" };
    STATISTIC_UPDATE_NS = "statistic_update_ns", Ns, Lower, "time to count a segment" { title: "time to count" };
}
"vmstat-spread" vmstat_spread {
    REFRESH = "refresh", Ns, Lower,
        "each call that folds a CPU's counters and decays its page lists: periodic and on the way into idleness" {
        title: "upkeep call",
        columns: &[("refresh p50", P50), ("refresh p99", P99), ("refresh max", Max), ("refresh mean", Mean)],
        legend: "refresh: each call that folds a CPU's counters and decays its page lists, periodic ones and those on the way into idleness",
        bars: "How long calls took (bars grow with the logarithm of the number of calls)",
        line: Some(("How long calls of the refresh took", "share of calls")),
        sweeps: &[P99, Mean]
    };
    REFRESH_PERIODIC = "refresh_periodic", Ns, Lower, "the periodic calls alone" { title: "periodic upkeep call" };
    REFRESH_IDLE = "refresh_idle", Ns, Lower, "those on the way into idleness alone" { title: "upkeep call before idleness" };
    REFRESH_FOLD = "refresh_fold", Ns, Lower, "of a periodic call: folding counters" { title: "upkeep: folding counters" };
    REFRESH_PAGES = "refresh_pages", Ns, Lower, "of a periodic call: work on page lists" { title: "upkeep: page lists" };
    REFRESH_LOCK_WAIT = "refresh_lock_wait", Ns, Lower, "of a periodic call: waiting for zone locks" {
        title: "upkeep: wait for zone locks",
        columns: &[("lock wait p99", P99)],
        legend: "lock wait: the part of a periodic call that waits for a zone lock; run queue: for its CPU"
    };
    REFRESH_RUN_QUEUE_WAIT = "refresh_run_queue_wait", Ns, Lower, "of a periodic call: waiting for its CPU" {
        title: "upkeep: wait for its CPU",
        columns: &[("run queue p99", P99)]
    };
    REFRESH_MEAN = "refresh_mean", Ns, Lower, "mean of all calls" { repeats: true };
    REFRESH_P50 = "refresh_p50", Ns, Lower, "median of all calls" { repeats: true };
    REFRESH_P99 = "refresh_p99", Ns, Lower, "99th percentile of all calls" { repeats: true };
    REFRESH_SAMPLES_PER_CPU_SECOND = "refresh_samples_per_cpu_second", PerSecond, Neither, "calls on each CPU in a second";
    START_LATENESS = "start_lateness", Ns, Lower, "from when a timer was due to when its call began";
    HERD = "herd", Count, Lower, "CPUs whose upkeep fired on one tick, as each of them sees it" {
        title: "CPUs on one tick",
        columns: &[("herd mean", Mean), ("herd max", Max)],
        legend: "herd: CPUs whose upkeep fires on one tick, as each of them sees it; instants: ticks in a second on which any fires",
        bars: "How many CPUs' upkeep fired on one tick, as each CPU saw it",
        line: Some(("CPUs on one tick, as each CPU sees it", "share of firings"))
    };
    HERD_MEAN = "herd_mean", Count, Lower, "the mean of them" { title: "CPUs on one tick, mean", repeats: true };
    HERD_MAX = "herd_max", Count, Lower, "the most of them on one tick" { title: "CPUs on one tick, most", repeats: true, sweeps: &[Value] };
    INSTANTS_PER_SECOND = "instants_per_second", PerSecond, Neither, "ticks in a second on which any CPU's upkeep fired" {
        title: "ticks with upkeep",
        columns: &[("instants", Value)]
    };
    CPUS_PER_INSTANT = "cpus_per_instant", Count, Neither,
        "CPUs that share an instant at the least, because the interval or the timer wheel has no more instants" { title: "CPUs per tick at the least", repeats: true };
    PERIOD = "period", Ns, Neither, "from one firing of a CPU to its next";
    DRIFT = "drift", Ns, Neither, "how much later than its interval a CPU's upkeep comes again, in the mean" {
        columns: &[("drift", Value)],
        legend: "drift: how much later than its interval a CPU's upkeep comes again, in the mean; apart: how much CPUs differ in it"
    };
    DRIFT_APART = "drift_apart", Ns, Lower, "how much the CPUs differ in it" { title: "drift between CPUs", columns: &[("apart", Value)] };
    WAKEUPS_PER_CPU_SECOND = "wakeups_per_cpu_second", PerSecond, Lower, "of a CPU, by upkeep and by other rounded timers" {
        title: "wake-ups of a CPU",
        columns: &[("wake-ups", Value)],
        legend: "wake-ups: of a CPU in a second, by timers of upkeep and by other rounded ones; shared: firings for which one of the others had just woken their CPU"
    };
    WAKEUPS_SHARED = "wakeups_shared", Ratio, Higher, "firings of upkeep whose CPU was awake for another rounded timer anyway" {
        title: "shared wake-ups",
        columns: &[("shared", Value)]
    };
    ZONE_LOCK_WAIT = "zone_lock_wait", Ns, Lower, "how long allocations and frees waited for a zone lock" {
        line: Some(("How long others waited for a zone lock (0: not at all)", "share of waits")),
        event: Some(Event {
            share: "",
            is_answer: false,
            how_often: "Allocations and frees that waited for a zone lock",
            how_much: "How long allocations and frees waited, of those that waited",
        })
    };
    DECAYS_CONTENDED = "decays_contended", PerSecond, Lower, "bulk frees of decaying lists that waited for a zone lock";
    DECAYS_CONTENDED_WAIT = "decays_contended_wait", Ns, Lower, "how long they waited in a second, all together";
    DECAYS_CONTENDED_MAX = "decays_contended_max", Ns, Lower, "the longest of their waits";
    FREES_CONTENDED = "frees_contended", PerSecond, Lower, "bulk frees of tasks that waited for a zone lock";
    FREES_CONTENDED_WAIT = "frees_contended_wait", Ns, Lower, "how long they waited in a second, all together";
    FREES_CONTENDED_MAX = "frees_contended_max", Ns, Lower, "the longest of their waits";
    STRESS_OPS_PER_SECOND = "stress_ops_per_second", PerSecond, Higher, "passes of all tasks over their pages" { title: "passes of tasks" };
    PAGES_SWAPPED = "pages_swapped", Count, Neither, "pages that tasks gave up because memory was short";
    PAGES_REFUSED = "pages_refused", Count, Neither, "pages that tasks did not get";
    HERD_TIMELINE = "herd_timeline", Timeline, Neither, "moments in the last second when each CPU's upkeep fired" { repeats: true };
}
"pcp-batch-free" pcp_batch_free {
    PAGES_PER_HOLD = "pages_per_hold", Count, Neither, "pages that were freed under one hold of the zone's lock" {
        title: "pages a hold",
        columns: &[("pages a hold p50", P50), ("pages p99", P99), ("pages max", Max)],
        legend: "pages a hold: freed under one hold of the zone's lock; hold: how long one lasted",
        bars: "Pages freed under one hold (bars grow with the logarithm of the number of holds)",
        line: Some(("Pages freed under one hold of the zone's lock", "share of holds"))
    };
    HOLD = "hold", Ns, Lower, "how long such a hold lasted" { title: "time of a hold", columns: &[("hold p99", P99), ("hold max", Max)], sweeps: &[Max] };
    BYSTANDER_WAIT = "bystander_wait", Ns, Lower,
        "wait for locks of a task that takes or frees a few pages, the zone's and the list's together" {
        title: "bystanders' wait",
        columns: &[("bystander p50", P50), ("bystander p99", P99), ("bystander max", Max)],
        legend: "bystander: wait for locks of a task that takes or frees a few pages, the zone's and the list's together",
        bars: "How long bystanders waited (0 ns: not at all)",
        line: Some(("How long bystanders waited (0: not at all)", "share of waits")),
        event: Some(Event {
            share: BYSTANDER_WAITS_SHARE.name,
            is_answer: false,
            how_often: "Operations of bystanders that waited for a lock",
            how_much: "How long bystanders waited, of the operations that waited",
        }),
        sweeps: &[P99]
    };
    BYSTANDER_ALLOC_WAIT = "bystander_alloc_wait", Ns, Lower, "the same, of bystanders that want pages" { title: "wait of bystanders that take" };
    BYSTANDER_FREE_WAIT = "bystander_free_wait", Ns, Lower, "the same, of bystanders that free pages" { title: "wait of bystanders that free" };
    BYSTANDER_ZONE_WAIT = "bystander_zone_wait", Ns, Lower, "for the zone's lock alone" { title: "bystanders' wait for the zone's lock" };
    BYSTANDER_LIST_WAIT = "bystander_list_wait", Ns, Lower, "for the list's lock alone" { title: "bystanders' wait for the list's lock" };
    BYSTANDER_WAITS_SHARE = "bystander_waits_share", Ratio, Lower, "operations of bystanders that had to wait for a lock" { title: "bystanders that waited" };
    BYSTANDER_OPERATION = "bystander_operation", Ns, Lower, "how long such an operation took in all" { title: "bystanders' operation" };
    LOCK_WAIT = "lock_wait", Ns, Lower, "wait for the zone's lock of tasks that free in bulk" { title: "bulk frees' wait for the zone's lock" };
    LONGEST_FREE = "longest_free", Ns, Lower, "how long a bulk free took, from its begin to its end" { title: "time of a bulk free" };
    DECAY_CALL = "decay_call", Ns, Lower, "how long one call took that gives old pages back" { title: "time of a decay call" };
    RUN_QUEUE_WAIT = "run_queue_wait", Ns, Lower, "how long tasks waited for their CPU";
    HOLDS = "holds", Count, Neither, "holds of the zone's lock to free pages";
    HOLDS_OVER_1000 = "holds_over_1000", Count, Lower, "holds that freed more than 1,000 pages" {
        title: "holds over 1,000 pages",
        columns: &[("holds > 1,000", Value)],
        legend: "holds > 1,000: holds that freed more than 1,000 pages; stalls: waits for the zone's lock that took too long"
    };
    LONG_HOLD_SHARE = "long_hold_share", Ratio, Lower, "share of the holds that freed more than 1,000 pages" { title: "share of holds over 1,000 pages" };
    STALLS = "stalls", Count, Lower, "waits for the zone's lock that took longer than `watchdog_us`" { columns: &[("stalls", Value)] };
    STALL_RATE = "stall_rate", PerSecond, Lower, "stalls in a second";
    OPERATIONS = "operations", Count, Neither, "work of all tasks: pages freed, operations of a stress test, or else operations of bystanders";
    OPS_PER_SECOND = "ops_per_second", PerSecond, Higher,
        "work of all tasks in a second: pages freed, operations of a stress test, or else operations of bystanders" {
        columns: &[("ops/s", Value)],
        legend: "ops/s: what the load does, all tasks together: pages given back, operations of a stress test, or else those of bystanders",
        sweeps: &[Value]
    };
    BYSTANDER_PAGES_PER_SECOND = "bystander_pages_per_second", PerSecond, Higher, "pages that bystanders took or freed in a second" {
        columns: &[("bystanders' pages/s", Value)],
        legend: "bystanders' pages/s: what bystanders took or freed meanwhile; all pages/s: that and what the load freed"
    };
    ALL_PAGES_PER_SECOND = "all_pages_per_second", PerSecond, Higher, "pages that bystanders took or freed, and that the load freed, in a second" {
        columns: &[("all pages/s", Value)]
    };
    OPS_PER_CPU_SECOND = "ops_per_cpu_second", PerSecond, Higher, "the same, for each second of a CPU's work";
    SYSTEM_TIME_PER_PAGE = "system_time_per_page", Ns, Lower, "time of the kernel for each page of a process, from its fault to its free, waits for locks included";
    PAGES_SWAPPED_OUT = "pages_swapped_out", Count, Neither, "pages that workers wrote to swap";
    TAKEN_PAGES = "taken_pages", Count, Neither, "pages that refills and single takes moved under the zone's lock";
    TAKES_OVER_1000 = "takes_over_1000", Count, Lower, "holds of refills and single takes that moved 1,001 to 2,000 pages";
    TAKES_OVER_2000 = "takes_over_2000", Count, Lower, "holds of refills and single takes that moved more than 2,000 pages";
    TAKES_THAT_WAITED = "takes_that_waited", Count, Lower, "holds of refills and single takes that had to wait for the zone's lock";
    TAKES_WAITED = "takes_waited", Ns, Lower, "waits of refills and single takes for the zone's lock, all together";
    TAKE_WAITED_MAX = "take_waited_max", Ns, Lower, "longest wait of refills and single takes for the zone's lock";
    FREED_PAGES = "freed_pages", Count, Neither, "pages that frees of tasks moved under the zone's lock";
    FREES_OVER_1000 = "frees_over_1000", Count, Lower, "holds of frees of tasks that moved 1,001 to 2,000 pages";
    FREES_OVER_2000 = "frees_over_2000", Count, Lower, "holds of frees of tasks that moved more than 2,000 pages";
    FREES_THAT_WAITED = "frees_that_waited", Count, Lower, "holds of frees of tasks that had to wait for the zone's lock";
    FREES_WAITED = "frees_waited", Ns, Lower, "waits of frees of tasks for the zone's lock, all together";
    FREE_WAITED_MAX = "free_waited_max", Ns, Lower, "longest wait of frees of tasks for the zone's lock";
    DECAYED_PAGES = "decayed_pages", Count, Neither, "pages that decay moved under the zone's lock";
    DECAYS_OVER_1000 = "decays_over_1000", Count, Lower, "holds of decay that moved 1,001 to 2,000 pages";
    DECAYS_OVER_2000 = "decays_over_2000", Count, Lower, "holds of decay that moved more than 2,000 pages";
    DECAYS_THAT_WAITED = "decays_that_waited", Count, Lower, "holds of decay that had to wait for the zone's lock";
    DECAYS_WAITED = "decays_waited", Ns, Lower, "waits of decay for the zone's lock, all together";
    DECAY_WAITED_MAX = "decay_waited_max", Ns, Lower, "longest wait of decay for the zone's lock";
    DRAINED_PAGES = "drained_pages", Count, Neither, "pages that drains moved under the zone's lock";
    DRAINS_OVER_1000 = "drains_over_1000", Count, Lower, "holds of drains that moved 1,001 to 2,000 pages";
    DRAINS_OVER_2000 = "drains_over_2000", Count, Lower, "holds of drains that moved more than 2,000 pages";
    DRAINS_THAT_WAITED = "drains_that_waited", Count, Lower, "holds of drains that had to wait for the zone's lock";
    DRAINS_WAITED = "drains_waited", Ns, Lower, "waits of drains for the zone's lock, all together";
    DRAIN_WAITED_MAX = "drain_waited_max", Ns, Lower, "longest wait of drains for the zone's lock";
}
"memcg-stock" memcg_stock {
    CHARGES_PER_SECOND = "charges_per_second", PerSecond, Higher, "charges of all tasks in a second" {
        columns: &[("charges/s", Value)],
        legend: "charges/s: charges of all tasks in a second; charge: how long one took, its drains included",
        sweeps: &[Value]
    };
    CHARGE_TIME = "charge_time", Ns, Lower, "how long a charge took, with the drain and the second try of one that was refused" {
        title: "time of a charge",
        columns: &[("charge p50", P50), ("charge p99", P99), ("charge max", Max)],
        line: Some(("How long charges took", "share of charges")),
        sweeps: &[P99]
    };
    TRANSFERS_PER_CHARGE = "transfers_per_charge", Count, Lower, "cache lines that went from one CPU to another, for each charge and its return" {
        columns: &[("lines a charge", Value)],
        legend: "lines a charge: cache lines that went from one CPU to another, for each charge and its return",
        sweeps: &[Value]
    };
    WALKS_PER_CHARGE = "walks_per_charge", Count, Lower, "walks up the tree of counters, for each charge and its return" { columns: &[("walks a charge", Value)] };
    EVICTIONS_PER_CHARGE = "evictions_per_charge", Count, Lower, "slots of stock that a group took from another, for each charge";
    STRANDED_PAGES = "stranded_pages", Count, Lower, "pages that were charged and that no task held: stock" {
        columns: &[("stranded p50", P50), ("stranded max", Max)],
        legend: "stranded: pages that were charged ahead and that no task held",
        sweeps: &[P50]
    };
    REFUSED_EARLY = "refused_early", Ratio, Lower, "charges that a limit refused at first though what tasks held left room" {
        columns: &[("refused early", Value)],
        legend: "refused early: charges that a limit refused at first, though what tasks held left room"
    };
    REFUSED_IN_SPITE = "refused_in_spite", Ratio, Lower, "charges that were refused again after a drain though there was room";
    DRAIN_TIME = "drain_time", Ns, Lower, "how long it took to take the stock of all CPUs back" { title: "time of a drain" };
}
"arbitration" arbitration {
    WORK = "work_done", Ratio, Higher, "CPU time of the queries that were done, as if each had been alone, of the time of all CPUs" {
        columns: &[("work done", Value)],
        legend: "work done: CPU time of the queries that were done, as if each had been alone, of the time of all CPUs",
        sweeps: &[Value]
    };
    QUERIES_PER_SECOND = "queries_per_second", PerSecond, Higher, "queries that were done in a second" { columns: &[("queries/s", Value)] };
    HIGH_TIME = "high_time", Ns, Lower, "from sending a query of the high score to its last row, all tries included" {
        title: "time of a query of the high score",
        columns: &[("high p50", P50), ("high p99", P99)],
        legend: "high, low: from sending a query of that score to its last row, all tries included",
        line: Some(("How long queries of the high score took", "share of queries")),
        sweeps: &[P99]
    };
    LOW_TIME = "low_time", Ns, Lower, "from sending a query of the low score to its last row, all tries included" {
        title: "time of a query of the low score",
        columns: &[("low p50", P50), ("low p99", P99)],
        line: Some(("How long queries of the low score took", "share of queries"))
    };
    THROWN_AWAY = "thrown_away", Ratio, Lower, "CPU time of tries that ended without a result, of all" { columns: &[("thrown away", Value)], sweeps: &[Value] };
    FAILED = "failed_queries", Ratio, Lower, "queries whose last try failed, of all that ended" { columns: &[("failed", Value)], sweeps: &[Value] };
    STOPPED = "stopped_queries", Count, Neither, "queries that were told to stop" { columns: &[("stopped", Value)] };
    SPILLED = "spilled_mib_per_second", Count, Neither, "MiB that were written to disk in a second" { columns: &[("spilled MiB/s", Value)] };
    LEFT_AGE = "left_age", Ns, Lower, "age of the queries that were not done when the run ended" { columns: &[("oldest left", Max)], legend: "oldest left: age of the oldest query that was not done when the run ended" };
    STARVED = "starved_clients", Count, Lower, "clients whose first query never ended" { columns: &[("starved", Value)] };
    OVER_LIMIT = "over_limit_mib_seconds", Count, Lower, "MiB above the limit, times the seconds that they were" { columns: &[("over the limit, MiB s", Value)] };
    STALL = "longest_stall", Ns, Lower, "longest time in which no query had a batch done" { columns: &[("longest stall", Max)] };
}
}
