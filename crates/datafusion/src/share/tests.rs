//! The share as a function of plain numbers.

use super::*;

fn standing(limit: u64, others: u64, held: &[u64]) -> Standing {
    let spillable = held.iter().sum();
    let active = held.iter().filter(|&&held| held > 0).count() as u64;
    Standing {
        limit,
        used: others + spillable,
        spillable,
        active,
        idle: held.len() as u64 - active,
    }
}

/// A generator of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn worked_cases() {
    // Limit, what others use, what spillers hold, and the share of each that holds bytes.
    let cases: [(u64, u64, &[u64], u64); 9] = [
        (1200, 0, &[1], 1200),
        // One of eight has half of it.
        (1200, 0, &[1, 0, 0, 0, 0, 0, 0, 0], 600),
        (1200, 0, &[1, 1, 0, 0, 0, 0, 0, 0], 400),
        // All hold bytes: FairSpillPool's share.
        (1200, 0, &[1, 1, 1, 1, 1, 1, 1, 1], 150),
        (1200, 200, &[1, 1], 500),
        (1200, 1200, &[1, 1], 0),
        (1200, 5000, &[1, 1], 0),
        (0, 0, &[1], 0),
        // Nobody: nothing is divided by 0.
        (1200, 0, &[], 1200),
    ];
    for (limit, others, held, share) in cases {
        let standing = standing(limit, others, held);
        assert_eq!(standing.share(), share, "{standing:?}");
    }
}

#[test]
fn who_holds_nothing_is_counted_in() {
    let one_of_three = standing(1200, 0, &[600, 0, 0]);
    assert!(one_of_three.allows(0, 400));
    assert!(!one_of_three.allows(0, 401));
    // The other may have no more: what is free is a newcomer's.
    assert!(!one_of_three.allows(600, 1));
    let last_of_three = standing(1200, 0, &[400, 400, 0]);
    assert!(last_of_three.allows(0, 400));
    assert!(!last_of_three.allows(400, 1));
}

#[test]
fn without_a_limit_all_is_allowed() {
    assert!(standing(u64::MAX, 0, &[5, 0]).allows(u64::MAX, u64::MAX));
    // And numbers that cannot be are only refused.
    assert!(!standing(1200, 0, &[5, 0]).allows(u64::MAX, u64::MAX));
}

#[test]
fn shares_never_exceed_what_is_left() {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    for _ in 0..100_000 {
        let count = numbers.below(20) as usize;
        let held: Vec<u64> = (0..count)
            .map(|_| numbers.below(3) * numbers.below(500))
            .collect();
        let standing = standing(numbers.below(5000), numbers.below(3000), &held);
        let others = standing.used - standing.spillable;
        let left = standing.limit.saturating_sub(others);
        let (active, share) = (standing.active, standing.share());
        // Those who hold bytes, and one who begins.
        assert!(
            share * (active + standing.idle.min(1)) <= left,
            "{standing:?}"
        );
        // No less than FairSpillPool's.
        assert!(
            share >= left / (active + standing.idle).max(1),
            "{standing:?}"
        );
        if standing.idle == 0 && active > 0 {
            assert_eq!(share, left / active, "{standing:?}");
        }
    }
}

#[test]
fn who_comes_last_finds_an_even_share_free() {
    // Each takes all it may, byte by byte, before the next begins. None has to spill.
    for count in 1..40_usize {
        let (limit, others) = (100_000, 1_234);
        let mut held = vec![0; count];
        for one in 0..count {
            while standing(limit, others, &held).allows(held[one], 1) {
                held[one] += 1;
            }
            let free = limit - others - held.iter().sum::<u64>();
            assert!(held[one] > 0);
            if one + 1 < count {
                let even = (limit - others) / (one as u64 + 2);
                assert!(free >= even, "{free} are free after {held:?}, not {even}");
            }
        }
    }
}
