//! When a figure is clearly another: the rules.
//!
//! Values of single seeds are compared: shares, and the median, 99th percentile and mean of a distribution of one run. With
//! [`SEEDS_NEEDED`] seeds in common, values of the same seed form pairs; with other seeds, every value of the one forms a
//! pair with every value of the other. In [`AGREEING`] of the pairs the same side must be greater; a pair of equals agrees
//! with neither. With fewer seeds there are not enough runs to say.
//!
//! If nothing has changed, eight seeds in common all agree on one given side once in 256 times, nineteen of twenty once in
//! 50,000; all but three pairs of eight seeds and eight others once in 1,800. That holds for any distribution, since only
//! the order of independent runs is used. It is of one figure: [`false_alarms`] is for many.
//!
//! The values of all seeds together say nothing, however many there are. Those of one run depend on each other, and one
//! run in which readers wait for a slow flush moves a percentile of eight runs to where it was in that one. A rule on them
//! was tried: 5 % as the least change, and ranges that do not meet, 2.5 standard errors to either side as if there were ten
//! times fewer values. Among six simulations of eight seeds each, all of the same policies, it called 67 of 5,580 figures
//! clearly better or worse, by up to a factor of eleven; the rule by seed, among four of them, none of 2,160. So what a
//! document has without values by seed, as numbers of events, which are added up over all of them, is not judged.

use std::collections::BTreeMap;

/// Fewer seeds than this decide nothing.
pub const SEEDS_NEEDED: usize = 8;
/// The part of the pairs that must agree.
pub const AGREEING: f64 = 0.95;

/// Where the second figure is clearly, beside the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// It is greater.
    Up,
    /// It is less.
    Down,
    /// That is not clear.
    Unclear,
    /// There is too little to say.
    TooFew,
}

/// A shift, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The shift.
    pub shift: Shift,
    /// Why.
    pub reason: String,
}

impl Finding {
    fn new(shift: Shift, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { shift, reason }
    }
}

/// The rule: seeds and their values, each seed once.
pub fn by_seed(a: &[(u64, f64)], b: &[(u64, f64)]) -> Finding {
    let of_a: BTreeMap<u64, f64> = a.iter().copied().collect();
    let same_seed = |&(seed, b): &(u64, f64)| Some((*of_a.get(&seed)?, b));
    let paired: Vec<(f64, f64)> = b.iter().filter_map(same_seed).collect();
    if paired.len() >= SEEDS_NEEDED {
        return agreement(&paired, "seeds");
    }
    let fewer = a.len().min(b.len());
    if fewer < SEEDS_NEEDED {
        return too_few_seeds(fewer);
    }
    let all = a
        .iter()
        .flat_map(|(_, a)| b.iter().map(move |(_, b)| (*a, *b)));
    agreement(&all.collect::<Vec<_>>(), "pairs of seeds")
}

fn agreement(pairs: &[(f64, f64)], what: &str) -> Finding {
    let count = |agrees: fn(&(f64, f64)) -> bool| pairs.iter().filter(|pair| agrees(pair)).count();
    let (up, down) = (count(|(a, b)| b > a), count(|(a, b)| b < a));
    let needed = AGREEING * pairs.len() as f64;
    let (shift, agreeing, side) = match (up, down) {
        (up, _) if up as f64 >= needed => (Shift::Up, up, "greater"),
        (_, down) if down as f64 >= needed => (Shift::Down, down, "less"),
        (up, down) if up >= down => (Shift::Unclear, up, "greater"),
        (_, down) => (Shift::Unclear, down, "less"),
    };
    Finding::new(
        shift,
        format!("{side} in {agreeing} of {} {what}", pairs.len()),
    )
}

fn too_few_seeds(seeds: usize) -> Finding {
    let reason = format!("needs {SEEDS_NEEDED} seeds, has {seeds}");
    Finding::new(Shift::TooFew, reason)
}

/// What is found where there are no values by seed.
pub fn without_seeds() -> Finding {
    Finding::new(Shift::TooFew, "has no values by seed")
}

/// How many of a number of figures are clearly worse by chance, on average and at most, if nothing has changed and both
/// documents have the same seeds; with others there are fewer.
pub fn false_alarms(figures: usize, seeds: usize) -> f64 {
    let agreeing = (AGREEING * seeds as f64).ceil();
    // C(seeds, 0) + ... + C(seeds, seeds - agreeing), of 2^seeds.
    let mut ways = 1.0;
    let mut sum = 0.0;
    for disagreeing in 0..=(seeds as f64 - agreeing) as usize {
        sum += ways;
        ways *= (seeds - disagreeing) as f64 / (disagreeing + 1) as f64;
    }
    figures as f64 * sum / 2_f64.powi(seeds.min(1_000) as i32)
}
