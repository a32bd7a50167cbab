//! Protection, reclaim, refusals and events: worked out from the bottom of the tree, while no CPU holds stock.

use std::cmp::Reverse;

use bursar::{Limits, Reason};

use super::tree::{Counts, Tree};

#[derive(Clone, Copy, Default)]
struct Round {
    asked: bool,
    freed: u64,
}

/// Rounds after which a charge gives up.
const TRIES: u32 = 16;

impl Tree {
    /// Returns all groups below `at` in the order in which the library finds them, which decides between equals: all children of
    /// one group, then those of the last of them.
    pub fn below(&self, at: usize) -> Vec<usize> {
        let (mut found, mut next) = (Vec::new(), vec![at]);
        while let Some(parent) = next.pop() {
            let children = self.children(parent);
            found.extend(&children);
            next.extend(&children);
        }
        found
    }

    /// Returns the bytes of `at` that are protected when `scope` runs short; `setting` is its `min` or its `low`.
    pub fn protection(&self, scope: usize, at: usize, setting: fn(&Limits) -> u64) -> u64 {
        let wanted = |at: usize| setting(&self.nodes[&at].limits);
        let claim = |at: usize| wanted(at).min(self.usage(at));
        let parent = self.nodes[&at].parent.expect("below the scope");
        if parent == scope {
            return if self.usage(at) == 0 { 0 } else { wanted(at) };
        }
        let given = u128::from(self.protection(scope, parent, setting));
        let siblings = self.children(parent);
        let claims: u128 = siblings.iter().map(|at| u128::from(claim(*at))).sum();
        let (mine, used) = (u128::from(claim(at)), u128::from(self.usage(at)));
        let others = u128::from(self.usage(parent)) - claims;
        let share = if claims > given {
            given * mine / claims
        } else {
            let more = (given - claims) * (used - mine);
            mine + more.checked_div(others).unwrap_or(0)
        };
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Counts an event of a group.
    pub fn count(&mut self, at: usize, add: impl Fn(&mut Counts)) {
        add(&mut self.node(at).counts);
        for at in self.way(at) {
            add(&mut self.node(at).total);
        }
    }

    fn ask(&mut self, at: usize, target: u64, reason: Reason, scope: &str, round: &mut Round) {
        let mut left = target;
        for one in 0..self.nodes[&at].reclaimers.len() {
            if left == 0 {
                return;
            }
            let node = self.nodes.get_mut(&at).expect("a group");
            let reclaimer = &mut node.reclaimers[one];
            self.asked
                .push((reclaimer.number, left, reason, scope.to_owned()));
            let mut freed = 0;
            while freed < left
                && let Some(page) = reclaimer.pages.pop()
            {
                freed += page;
            }
            self.count(at, |counts| counts.reclaimed += freed);
            round.asked = true;
            round.freed += freed;
            left = left.saturating_sub(freed);
        }
    }

    fn round(&mut self, scope: usize, target: u64, reason: Reason) -> Round {
        let mut round = Round::default();
        if target == 0 {
            return round;
        }
        let path = self.path(scope);
        self.ask(scope, target, reason, &path, &mut round);
        for beyond_low in [true, false] {
            if round.freed >= target {
                break;
            }
            let mut candidates = Vec::new();
            for at in self.below(scope) {
                if self.nodes[&at].reclaimers.is_empty() {
                    continue;
                }
                let min = self.protection(scope, at, |limits| limits.min);
                let low = self.protection(scope, at, |limits| limits.low);
                let kept = if beyond_low { low.max(min) } else { min };
                candidates.push((at, kept, low));
            }
            candidates.sort_by_key(|&(at, kept, _)| Reverse(self.usage(at).saturating_sub(kept)));
            for (at, kept, low) in candidates {
                let usage = self.usage(at);
                let wanted = target.saturating_sub(round.freed);
                let wanted = wanted.min(usage.saturating_sub(kept));
                if wanted == 0 {
                    continue;
                }
                if !beyond_low && usage <= low {
                    self.count(at, |counts| counts.low += 1);
                }
                self.ask(at, wanted, reason, &path, &mut round);
            }
        }
        round
    }

    /// Asks reclaimers for bytes; returns the bytes that they gave back.
    pub fn reclaim(&mut self, at: usize, target: u64) -> u64 {
        let mut freed = 0;
        for _ in 0..TRIES {
            let round = self.round(at, target.saturating_sub(freed), Reason::Asked);
            if round.freed == 0 {
                break;
            }
            freed += round.freed;
        }
        freed
    }

    /// Asks for the bytes above a limit that was set.
    pub fn reclaim_down_to(&mut self, at: usize, limit: u64, reason: Reason) {
        for _ in 0..TRIES {
            let over = self.usage(at).saturating_sub(limit);
            if self.round(at, over, reason).freed == 0 {
                break;
            }
        }
    }

    /// Returns the bytes that reclaimers may be asked for when `scope` runs short, at most.
    fn freeable(&self, scope: usize) -> u64 {
        let has_any = |at: &usize| !self.nodes[at].reclaimers.is_empty();
        if has_any(&scope) {
            return u64::MAX;
        }
        let above_min = |at: usize| {
            let protected = self.protection(scope, at, |limits| limits.min);
            self.usage(at).saturating_sub(protected)
        };
        self.below(scope)
            .into_iter()
            .filter(has_any)
            .map(above_min)
            .sum()
    }

    /// Returns whether bytes fit, after reclaim, or the group that refuses them. Charges nothing.
    pub fn make_room(&mut self, at: usize, bytes: u64) -> Result<(), usize> {
        let mut way = self.way(at).into_iter();
        if let Some(limited) = way.find(|at| self.nodes[at].limits.max < bytes) {
            self.count(limited, |counts| counts.max += 1);
            return Err(limited);
        }
        let mut tries = TRIES;
        loop {
            let Some(limiting) = self.limiting(at, None, bytes) else {
                return Ok(());
            };
            self.count(limiting, |counts| counts.max += 1);
            let over = self.usage(limiting) + bytes - self.nodes[&limiting].limits.max;
            let mut round = Round::default();
            if tries > 0 && self.freeable(limiting) >= over {
                round = self.round(limiting, over, Reason::Max);
            }
            if !round.asked {
                return Err(limiting);
            }
            tries = if round.freed == 0 { 0 } else { tries - 1 };
        }
    }

    fn reach(&mut self, at: usize, more: u64) {
        let usage = self.usage(at) + more;
        let peak = &mut self.node(at).peak;
        *peak = usage.max(*peak);
    }

    /// Follows a charge: high-water marks, requests because of a `high`, and the debt for usage that stays above.
    pub fn charged(&mut self, at: usize, bytes: u64, asks: bool) {
        let way: Vec<usize> = self.way(at);
        for &above in &way {
            self.reach(above, 0);
            if self.over_high(above) > 0 {
                self.count(above, |counts| counts.high += 1);
            }
        }
        let is_over = |tree: &Self| way.iter().any(|&above| tree.over_high(above) > 0);
        for _ in 0..TRIES {
            if !asks || !is_over(self) {
                break;
            }
            let mut freed = 0;
            for &above in &way {
                let over = self.over_high(above);
                freed += self.round(above, over, Reason::High).freed;
            }
            if freed == 0 {
                break;
            }
        }
        if is_over(self) {
            self.node(at).debt += bytes;
        }
    }

    fn over_high(&self, at: usize) -> u64 {
        self.usage(at).saturating_sub(self.nodes[&at].limits.high)
    }
}
