//! The policies that a replay compares with those of the recorded kernel.

use bursar_kernel::pages::Release;
use bursar_kernel::stats::{Policy, Tunables};

use crate::load::Load;
use crate::measure::Part;
use crate::policy::Policies;
use bursar_experiments::vmstat_spread::firings;

/// Time for which the time-bounded policy holds the zone's lock.
const BOUND_NS: u64 = 5_000;

/// The policies to compare with the recorded kernel's, on a machine with so many CPUs: those that concern anything in
/// the load.
pub fn what_ifs(load: &Load, cpus: usize) -> Vec<Policies> {
    let stock = load.stock().policies;
    let mut all = Vec::new();
    for (name, firing) in firings().filter(|(_, firing)| *firing != stock.firing) {
        all.push(Policies {
            name,
            firing,
            ..stock
        });
    }
    let moves_pages = load.has(Part::Pages);
    for release in Release::ALL
        .into_iter()
        .filter(|_| moves_pages)
        .filter(|it| *it != stock.release)
    {
        all.push(Policies {
            name: release.name(),
            release,
            ..stock
        });
    }
    if let Some(page_ns) = load.page_ns.filter(|_| moves_pages) {
        all.push(Policies {
            name: "bounded-5us",
            release: Release::Batched,
            piece_pages: Some((BOUND_NS / page_ns.max(1)).clamp(1, 2_016) as u32),
            ..stock
        });
    }
    if !load.has_flushes() {
        return all;
    }
    // A kernel since 6.17 has the rule of 6.8, so a prediction must not call that a change which the kernel lacks.
    let is_same =
        |flush: &Policy| *flush == Policy::PerGroupLockless && stock.flush == Policy::Kernel617;
    let tunables = Tunables::of_cpus(cpus);
    for flush in [
        "unified",
        "direct",
        "coalesced",
        "per-group",
        "per-group-lockless",
    ] {
        let Some(flush) =
            Policy::named(flush, tunables).filter(|it| *it != stock.flush && !is_same(it))
        else {
            continue;
        };
        all.push(Policies {
            name: flush.name(),
            flush,
            ..stock
        });
    }
    all
}
