//! The rules for a clear difference between figures.
//!
//! The rule compares values of single seeds: shares, and the median, 99th percentile and mean of a distribution of one
//! run. With [`SEEDS_NEEDED`] seeds in common, values of the same seed form pairs. With fewer seeds in common, every
//! value of one document forms a pair with every value of the other. In [`AGREEING`] of the pairs the same side must be
//! greater; a pair of equal values agrees with neither side. Documents with fewer seeds decide nothing.
//!
//! If nothing has changed, eight seeds in common all agree on one given side once in 256 times, and nineteen of twenty
//! once in 50,000. All but three pairs of eight seeds and eight others agree once in 1,800 times. That holds for any
//! distribution, because the rule uses only the order of independent runs. These chances are for one figure;
//! [`false_alarms`] is for many.
//!
//! The values of all seeds together decide nothing, however many there are. The values of one run depend on each other.
//! One run in which readers wait for a slow flush moves a percentile of eight runs to its own value. A rule on such
//! values was tried: a change of at least 5 %, and ranges of 2.5 standard errors to either side that do not meet, as if
//! there were ten times fewer values. Among six simulations of eight seeds each, all of the same policies, it called 67
//! of 5,580 figures clearly better or worse, by up to a factor of eleven. The rule by seed, among four of them, called
//! none of 2,160. So figures without values by seed, such as numbers of events added up over all seeds, are not judged.

use std::collections::BTreeMap;

/// Least number of seeds for a judgement.
pub const SEEDS_NEEDED: usize = 8;
/// Share of the pairs that must agree.
pub const AGREEING: f64 = 0.95;

/// Shift of the second figure against the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Clearly greater.
    Up,
    /// Clearly less.
    Down,
    /// Not clear.
    Unclear,
    /// Too few seeds to say.
    TooFew,
}

/// A shift, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The shift.
    pub shift: Shift,
    /// The reason.
    pub reason: String,
    /// Number of seeds of either document that were looked at.
    pub seeds: usize,
}

/// Applies the rule to values by seed, each seed once.
pub fn by_seed(a: &[(u64, f64)], b: &[(u64, f64)]) -> Finding {
    let of_a: BTreeMap<u64, f64> = a.iter().copied().collect();
    let same_seed = |&(seed, b): &(u64, f64)| Some((*of_a.get(&seed)?, b));
    let paired: Vec<(f64, f64)> = b.iter().filter_map(same_seed).collect();
    if paired.len() >= SEEDS_NEEDED {
        return agreement(&paired, "seeds", paired.len());
    }
    let fewer = a.len().min(b.len());
    if fewer < SEEDS_NEEDED {
        return too_few_seeds(fewer);
    }
    let all = a
        .iter()
        .flat_map(|(_, a)| b.iter().map(move |(_, b)| (*a, *b)));
    agreement(&all.collect::<Vec<_>>(), "pairs of seeds", fewer)
}

fn agreement(pairs: &[(f64, f64)], what: &str, seeds: usize) -> Finding {
    let count = |agrees: fn(&(f64, f64)) -> bool| pairs.iter().filter(|pair| agrees(pair)).count();
    let (up, down) = (count(|(a, b)| b > a), count(|(a, b)| b < a));
    let needed = AGREEING * pairs.len() as f64;
    let (shift, agreeing, side) = match (up, down) {
        (up, _) if up as f64 >= needed => (Shift::Up, up, "greater"),
        (_, down) if down as f64 >= needed => (Shift::Down, down, "less"),
        (up, down) if up >= down => (Shift::Unclear, up, "greater"),
        (_, down) => (Shift::Unclear, down, "less"),
    };
    Finding {
        shift,
        reason: format!("{side} in {agreeing} of {} {what}", pairs.len()),
        seeds,
    }
}

fn too_few_seeds(seeds: usize) -> Finding {
    Finding {
        shift: Shift::TooFew,
        reason: format!("needs {SEEDS_NEEDED} seeds, has {seeds}"),
        seeds,
    }
}

/// Returns the finding for figures without values by seed.
pub fn without_seeds() -> Finding {
    Finding {
        shift: Shift::TooFew,
        reason: "has no values by seed".to_owned(),
        seeds: 0,
    }
}

/// Returns how many of a number of figures are clearly worse by chance, on average and at most, if nothing has changed
/// and both documents have the same seeds. With different seeds there are fewer.
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
