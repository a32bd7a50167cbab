//! The policies of a run, and the one that the recorded kernel had.

use bursar_kernel::pages::Release;
use bursar_kernel::stats::Policy;
use bursar_kernel::upkeep::{Firing, KERNEL_SKEW};
use bursar_watch::changes::{Has, release_each_batch, threshold_of_group, version};
use bursar_watch::seen::{Burst, BurstKind, Context, Hold, Path, Seen};

use crate::measure::Part;
use bursar_experiments::vmstat_spread;
use bursar_experiments::workload::Workload;

/// The policies of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Name of the one that differs from the recorded kernel's; `stock` if none does.
    pub name: &'static str,
    /// Time at which upkeep fires.
    pub firing: Firing,
    /// Use of the zone's lock while pages are given back.
    pub release: Release,
    /// Pages after which locks are released; `None`: a batch.
    pub piece_pages: Option<u32>,
    /// Flushes of statistics.
    pub flush: Policy,
}

/// Policies of the recorded kernel, and the reasons to think so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    /// The policies.
    pub policies: Policies,
    /// A sentence on each, by the part that it is about.
    pub reasons: Vec<(Part, String)>,
}

impl Stock {
    /// Finds the policies of the recorded kernel: by what it did, else by its version.
    pub(crate) fn of(recording: &Seen) -> Self {
        let version = version(&recording.machine.kernel);
        let (frees, why_release) = release(recording, version);
        let decays = release_each_batch(recording, Path::Decay);
        let (release, besides) = match (frees, decays.has_it) {
            (Release::Whole, Has::Yes) => (
                Release::BatchedDecay,
                ", and its upkeep releases the lock after each batch",
            ),
            _ => (frees, ""),
        };
        let (flush, why_flush) = match (threshold_of_group(recording).has_it, version) {
            (Has::No, _) => (
                Policy::Unified,
                "one flush of the whole tree at a time, before 6.8 and 6.6.117",
            ),
            (_, Some(version)) if version < (6, 17, 0) => (
                Policy::PerGroupLockless,
                "a threshold for each group, since 6.8 and 6.6.117",
            ),
            (_, Some(_)) => (
                Policy::Kernel617,
                "a threshold for each group, and updates without locks, since 6.17",
            ),
            (_, None) => (
                Policy::Kernel617,
                "the version is not known, and this is the latest policy",
            ),
        };
        Self {
            policies: Policies {
                name: "stock",
                firing: Firing::RoundJiffies { skew: KERNEL_SKEW },
                release,
                piece_pages: None,
                flush,
            },
            reasons: vec![
                (
                    Part::Upkeep,
                    "Upkeep: rounded to the second, less 3 ticks a CPU, as in all kernels so far."
                        .to_owned(),
                ),
                (
                    Part::Pages,
                    format!(
                        "Page lists: `{}`, because {why_release}{besides}.",
                        release.name()
                    ),
                ),
                (
                    Part::Flushes,
                    format!("Flushes: `{}`: {why_flush}.", flush.name()),
                ),
            ],
        }
    }
}

fn release(recording: &Seen, version: Option<(u32, u32, u32)>) -> (Release, &'static str) {
    /// Gap at multiples of the batch that shows a released lock, in gaps elsewhere.
    const GAPS: u64 = 2;
    let batches = recording.machine.zones.iter().map(|zone| zone.pcp_batch);
    let batch = u64::from(batches.max().unwrap_or(63).max(1));
    // Takes keep the lock in all versions, and upkeep may have a policy of its own.
    let is_long = |burst: &&Burst| {
        let is_free = burst.kind == BurstKind::Drain && burst.context != Some(Context::Upkeep);
        is_free && burst.pages > batch
    };
    let long = || recording.bursts.iter().filter(is_long);
    if long().any(|burst| matches!(burst.hold, Hold::Traced | Hold::Proven)) {
        return (Release::Whole, "a burst of more than a batch was one hold");
    }
    if long().any(|burst| burst.hold == Hold::Refuted) {
        let why = "other CPUs moved pages in the middle of bursts";
        return (Release::Batched, why);
    }
    let gaps = recording.release;
    if let (Some(at_batch_ns), Some(elsewhere_ns)) = (gaps.gap_at_batch_ns, gaps.gap_elsewhere_ns) {
        return match at_batch_ns > GAPS * elsewhere_ns.max(1) {
            true => (
                Release::Batched,
                "bursts have gaps at multiples of the batch",
            ),
            false => (
                Release::Whole,
                "bursts have no gaps at multiples of the batch",
            ),
        };
    }
    match version {
        Some(version) if version < (6, 19, 0) => (Release::Whole, "the kernel is older than 6.19"),
        Some(_) => (Release::Batched, "the kernel is 6.19 or later"),
        None => (
            Release::Batched,
            "the version is not known, and this is the latest policy",
        ),
    }
}

impl Policies {
    /// Describes in one line what differs from the recorded kernel.
    pub fn summary(self, stock: Self) -> String {
        if self.firing != stock.firing {
            vmstat_spread::Parameters::summary(self.name).to_owned()
        } else if self.piece_pages.is_some() {
            let pages = self.piece_pages.unwrap_or_default();
            format!("locks are released after {pages} pages, which took about 5 us as seen")
        } else if self.release != stock.release {
            self.release.summary().to_owned()
        } else if self.flush != stock.flush {
            self.flush.summary().to_owned()
        } else {
            "the recorded kernel's".to_owned()
        }
    }
}
