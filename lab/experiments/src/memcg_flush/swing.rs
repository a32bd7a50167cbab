//! Growing and shrinking of the tenants: the part of its working set that each worker of a tenant uses, over time.
//!
//! A tenant's part goes up and down in straight lines, each tenant a part of the period behind the one before, so that
//! the largest tenant keeps changing. The tenant's memory follows: its workers give up the anonymous pages beyond their
//! part.

use super::parameters::Parameters;
use super::tree::Tree;

/// Computes how much of their pages the workers of a tenant use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swing {
    tree: Tree,
    percent: u64,
    period_ns: u64,
}

impl Swing {
    pub(super) fn new(parameters: &Parameters) -> Self {
        Self {
            tree: parameters.tree(),
            percent: parameters.swing_percent,
            period_ns: parameters.swing_ms * 1_000_000,
        }
    }

    /// Returns the part of their pages that workers of `tenant` use, in thousandths: all at the top of the swing,
    /// `percent` less at the bottom.
    pub(super) fn part(self, tenant: usize, at_ns: u64) -> u64 {
        let (tenant, tenants) = (tenant as u64, self.tree.tenants as u64);
        let half_ns = self.period_ns / 2;
        let behind_ns = self.period_ns / tenants * tenant;
        let phase_ns = (at_ns + behind_ns) % self.period_ns;
        let from_top_ns = phase_ns.abs_diff(half_ns);
        1000 - 10 * self.percent * from_top_ns / half_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWING: Swing = Swing {
        tree: Tree {
            tenants: 4,
            queries: 2,
            ancestors: 2,
        },
        percent: 80,
        period_ns: 1000,
    };

    #[test]
    fn tenants_follow_each_other_from_bottom_to_top() {
        let at = |at_ns| [0, 1, 2, 3].map(|tenant| SWING.part(tenant, at_ns));
        assert_eq!(at(0), [200, 600, 1000, 600]);
        assert_eq!(at(250), [600, 1000, 600, 200]);
        assert_eq!(at(1500), [1000, 600, 200, 600]);
    }

    #[test]
    fn without_a_swing_all_is_used_all_the_time() {
        let still = Swing {
            percent: 0,
            ..SWING
        };
        assert!((0..2000).all(|at_ns| still.part(3, at_ns) == 1000));
    }
}
