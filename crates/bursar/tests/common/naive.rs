//! Naive reference of limits and reclaim: a walk of the tree adds up usage, and protection is worked out from the
//! bottom.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bursar::{Limits, Reason};

/// What a reclaimer was asked for: its number, bytes, why, for whom.
pub type Asked = (u64, u64, Reason, String);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub low: u64,
    pub high: u64,
    pub max: u64,
    pub refused: u64,
    pub overshot: u64,
    pub reclaimed: u64,
}

pub struct Reclaimer {
    pub number: u64,
    pub order: i32,
    /// What it can give back, the last first.
    pub pages: Vec<u64>,
}

pub struct Node {
    pub name: String,
    pub parent: Option<usize>,
    pub limits: Limits,
    /// Charged to itself, without pages.
    pub own: u64,
    pub peak: u64,
    pub debt: u64,
    pub counts: Counts,
    pub total: Counts,
    /// In the order in which they are asked.
    pub reclaimers: Vec<Reclaimer>,
}

#[derive(Default)]
pub struct Naive {
    pub nodes: BTreeMap<usize, Node>,
    pub asked: Vec<Asked>,
}

#[derive(Clone, Copy, Default)]
struct Round {
    asked: bool,
    freed: u64,
}

/// At how many rounds a charge gives up.
const TRIES: u32 = 16;

impl Naive {
    pub fn add(&mut self, at: usize, parent: Option<usize>, name: &str, limits: Limits) {
        let node = Node {
            name: name.to_owned(),
            parent,
            limits,
            own: 0,
            peak: 0,
            debt: 0,
            counts: Counts::default(),
            total: Counts::default(),
            reclaimers: Vec::new(),
        };
        self.nodes.insert(at, node);
    }

    pub fn way(&self, at: usize) -> Vec<usize> {
        std::iter::successors(Some(at), |at| self.nodes[at].parent).collect()
    }

    pub fn path(&self, at: usize) -> String {
        let mut way = self.way(at);
        way.pop();
        if way.is_empty() {
            return "/".to_owned();
        }
        let names = way
            .iter()
            .rev()
            .map(|at| format!("/{}", self.nodes[at].name));
        names.collect()
    }

    /// By name.
    pub fn children(&self, at: usize) -> Vec<usize> {
        let mut children: Vec<usize> = self.nodes.keys().copied().collect();
        children.retain(|child| self.nodes[child].parent == Some(at));
        children.sort_by_key(|child| &self.nodes[child].name);
        children
    }

    pub fn usage(&self, at: usize) -> u64 {
        let node = &self.nodes[&at];
        let pages = node.reclaimers.iter().flat_map(|one| &one.pages);
        let below = self.children(at).into_iter().map(|child| self.usage(child));
        node.own + pages.sum::<u64>() + below.sum::<u64>()
    }

    /// All below `at` in the order in which the library comes by them, which decides between equals: all children of one
    /// group, then those of the last of them.
    pub fn below(&self, at: usize) -> Vec<usize> {
        let (mut found, mut next) = (Vec::new(), vec![at]);
        while let Some(parent) = next.pop() {
            let children = self.children(parent);
            found.extend(&children);
            next.extend(&children);
        }
        found
    }

    /// How much of `at` is protected when `scope` runs short; `setting` is its `min` or its `low`.
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

    pub fn count(&mut self, at: usize, add: impl Fn(&mut Counts)) {
        add(&mut self.nodes.get_mut(&at).unwrap().counts);
        for at in self.way(at) {
            add(&mut self.nodes.get_mut(&at).unwrap().total);
        }
    }

    fn ask(&mut self, at: usize, target: u64, reason: Reason, scope: &str, round: &mut Round) {
        let mut left = target;
        for one in 0..self.nodes[&at].reclaimers.len() {
            if left == 0 {
                return;
            }
            let reclaimer = &mut self.nodes.get_mut(&at).unwrap().reclaimers[one];
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

    /// After a limit was set: asks for what is above it.
    pub fn reclaim_down_to(&mut self, at: usize, limit: u64, reason: Reason) {
        for _ in 0..TRIES {
            let over = self.usage(at).saturating_sub(limit);
            if self.round(at, over, reason).freed == 0 {
                break;
            }
        }
    }

    /// Says who refuses to reserve.
    pub fn limiting(&self, at: usize, bytes: u64) -> Option<usize> {
        let refuses = |at: &usize| self.usage(*at) + bytes > self.nodes[at].limits.max;
        self.way(at).into_iter().find(refuses)
    }

    /// Whether it fits, after reclaim; who refuses it if not. Charges nothing.
    pub fn make_room(&mut self, at: usize, bytes: u64) -> Result<(), usize> {
        let mut tries = TRIES;
        loop {
            let Some(limiting) = self.limiting(at, bytes) else {
                return Ok(());
            };
            self.count(limiting, |counts| counts.max += 1);
            let over = self.usage(limiting) + bytes - self.nodes[&limiting].limits.max;
            let mut round = Round::default();
            if tries > 0 {
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
        let peak = &mut self.nodes.get_mut(&at).unwrap().peak;
        *peak = usage.max(*peak);
    }

    /// After a charge was booked: high-water marks, who is asked because of a `high`, and what is owed for what stays above.
    pub fn charged(&mut self, at: usize, bytes: u64, asks: bool) {
        let way: Vec<usize> = self.way(at);
        for &above in &way {
            self.reach(above, 0);
            if self.over_high(above) > 0 {
                self.count(above, |counts| counts.high += 1);
            }
        }
        let is_over = |naive: &Self| way.iter().any(|&above| naive.over_high(above) > 0);
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
            self.nodes.get_mut(&at).unwrap().debt += bytes;
        }
    }

    fn over_high(&self, at: usize) -> u64 {
        self.usage(at).saturating_sub(self.nodes[&at].limits.high)
    }
}
