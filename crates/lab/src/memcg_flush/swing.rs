//! How the tenants wax and wane: the share of new pages that each of them gets, over time.
//!
//! A tenant's share goes up and down in straight lines, each tenant a part of the period behind the one before, so that the
//! largest tenant is another one all the time. What a tenant holds follows with the delay of a page's life: the oldest pages,
//! mapped while it had more, are freed while it gets less.

use super::parameters::Parameters;
use super::tree::Tree;
use crate::random::Random;

/// Chooses the queries in which workers map pages.
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

    /// How probable it is that a query of `tenant` is taken that was drawn, in thousandths: all at the top of the swing,
    /// `percent` less at the bottom.
    fn weight(self, tenant: usize, at_ns: u64) -> u64 {
        let (tenant, tenants) = (tenant as u64, self.tree.tenants as u64);
        let half_ns = self.period_ns / 2;
        let behind_ns = self.period_ns / tenants * tenant;
        let phase_ns = (at_ns + behind_ns) % self.period_ns;
        let from_top_ns = phase_ns.abs_diff(half_ns);
        1000 - 10 * self.percent * from_top_ns / half_ns
    }

    /// A query, by number, for the next pages of a worker. Without a swing, one draw.
    pub(super) fn choose(self, random: &mut Random, at_ns: u64) -> usize {
        loop {
            let query = random.below(self.tree.all_queries() as u64) as usize;
            if self.percent == 0
                || random.below(1000) < self.weight(self.tree.tenant_of(query), at_ns)
            {
                return query;
            }
        }
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
        let at = |at_ns| [0, 1, 2, 3].map(|tenant| SWING.weight(tenant, at_ns));
        assert_eq!(at(0), [200, 600, 1000, 600]);
        assert_eq!(at(250), [600, 1000, 600, 200]);
        assert_eq!(at(1500), [1000, 600, 200, 600]);
    }

    #[test]
    fn those_at_the_bottom_get_fewer_pages() {
        let mut random = Random::new(1);
        let mut chosen = [0; 4];
        for _ in 0..2400 {
            chosen[SWING.tree.tenant_of(SWING.choose(&mut random, 0))] += 1;
        }
        // 200 : 600 : 1000 : 600
        for (count, expected) in chosen.into_iter().zip([200_i32, 600, 1000, 600]) {
            assert!((count - expected).abs() < 100, "{chosen:?}");
        }
    }

    #[test]
    fn without_a_swing_there_is_one_draw() {
        let still = Swing {
            percent: 0,
            ..SWING
        };
        let (mut one, mut other) = (Random::new(5), Random::new(5));
        for at_ns in 0..100 {
            assert_eq!(still.choose(&mut one, at_ns), other.below(8) as usize);
        }
    }
}
