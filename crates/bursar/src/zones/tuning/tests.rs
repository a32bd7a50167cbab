//! Worked cases of 754 GiB and 316 CPUs, where `high_min` is 714 and `high_max` 78,186.

use super::*;

const LIMITS: Limits = Limits {
    batch: 63,
    high_min: 714,
    high_max: 78_186,
};
const UNTUNED: Limits = Limits {
    high_min: 252,
    high_max: 252,
    ..LIMITS
};

fn with_high(high: u32, free_count: u32) -> Tuning {
    Tuning {
        high,
        free_count,
        ..Tuning::new(&LIMITS)
    }
}

fn refill(tuning: &mut Tuning, limits: &Limits) -> u32 {
    tuning.nr_alloc(limits, Order::ZERO, 0, Shortage::None)
}

#[test]
fn refills_double_up_to_2016_pages() {
    let mut tuning = Tuning::new(&LIMITS);
    let refills: Vec<_> = (0..8).map(|_| refill(&mut tuning, &LIMITS)).collect();
    assert_eq!(refills, [63, 126, 252, 504, 1_008, 2_016, 2_016, 2_016]);
    assert_eq!(LIMITS.scaled_batch_max(), 2_016);
    // Each refill lets the list keep more.
    assert_eq!(tuning.high, 714 + refills.iter().sum::<u32>());
    for _ in 0..100 {
        refill(&mut tuning, &LIMITS);
    }
    assert_eq!(tuning.high, 78_186);
}

#[test]
fn a_refill_leaves_room_for_a_batch_of_frees() {
    let mut tuning = Tuning::new(&UNTUNED);
    let refills: Vec<_> = (0..5).map(|_| refill(&mut tuning, &UNTUNED)).collect();
    assert_eq!(refills, [63, 126, 189, 189, 189]);
    // A capped refill does not double.
    assert_eq!((tuning.alloc_factor, tuning.high), (2, 252));
    // A full list still gets a batch.
    let pages = tuning.nr_alloc(&UNTUNED, Order::ZERO, 10_000, Shortage::None);
    assert_eq!(pages, 63);
}

#[test]
fn a_list_does_not_grow_while_its_zone_is_short() {
    for shortage in [Shortage::BelowHigh, Shortage::Reclaim] {
        let mut tuning = Tuning::new(&LIMITS);
        let pages = tuning.nr_alloc(&LIMITS, Order::ZERO, 0, shortage);
        assert_eq!((pages, tuning.high), (63, 714));
    }
}

#[test]
fn large_blocks_are_taken_by_batches_of_pages_and_two_at_least() {
    let mut tuning = with_high(714, 0);
    tuning.alloc_factor = 5;
    let mut blocks = |order| tuning.nr_alloc(&LIMITS, Order::new(order), 0, Shortage::None);
    assert_eq!([1, 2, 3, 9].map(&mut blocks), [31, 15, 7, 2]);
    assert_eq!((tuning.alloc_factor, tuning.high), (5, 714 + 4 * 63));
}

#[test]
fn a_list_without_room_for_a_batch_is_none() {
    let off = Limits {
        high_min: 0,
        high_max: 0,
        ..LIMITS
    };
    let mut tuning = Tuning::new(&off);
    assert_eq!(refill(&mut tuning, &off), 1);
    assert_eq!(tuning.nr_free(&off, 0), 1);
}

#[test]
fn a_full_list_gives_back_what_was_freed_in_a_row() {
    for (free_count, high, pages) in [
        (0, 714, 63),
        (100, 714, 100),
        (2_016, 714, 651),
        (2_016, 78_186, 2_016),
        (2_016, 252, 189),
    ] {
        let tuning = with_high(high, free_count);
        let returned = tuning.nr_free(&LIMITS, high);
        assert_eq!(returned, pages, "{free_count} freed, limit {high}");
    }
}

#[test]
fn frees_in_a_row_raise_what_is_kept_from_the_next_time_on() {
    let mut tuning = with_high(714, 2_016);
    let high = tuning.nr_high(&LIMITS, 714, Shortage::None);
    assert_eq!((high, tuning.high), (714, 2_079));
    let tight = Limits {
        high_max: 1_000,
        ..LIMITS
    };
    let mut tuning = with_high(714, 2_016);
    tuning.nr_high(&tight, 714, Shortage::None);
    assert_eq!(tuning.high, 1_000);
    // Not while there is room.
    let mut tuning = with_high(714, 2_016);
    let high = tuning.nr_high(&LIMITS, 713, Shortage::None);
    assert_eq!((high, tuning.high), (714, 714));
    let mut tuning = Tuning {
        free_count: 2_016,
        ..Tuning::new(&UNTUNED)
    };
    let high = tuning.nr_high(&UNTUNED, 252, Shortage::None);
    assert_eq!((high, tuning.high), (252, 252));
}

#[test]
fn a_short_zone_lowers_what_is_kept() {
    let high = |shortage, free_count, count| {
        let mut tuning = with_high(5_000, free_count);
        let high = tuning.nr_high(&LIMITS, count, shortage);
        (high, tuning.high)
    };
    assert_eq!(high(Shortage::BelowHigh, 100, 40), (714, 4_900));
    assert_eq!(high(Shortage::BelowHigh, 0, 3_000), (3_000, 4_937));
    assert_eq!(high(Shortage::Reclaim, 100, 3_000), (252, 4_900));
    assert_eq!(high(Shortage::Reclaim, 2_016, 3_000), (252, 2_984));
}

#[test]
fn what_is_kept_decays_by_an_eighth_in_36_steps_from_the_most_to_the_least() {
    let mut tuning = with_high(LIMITS.high_max, 0);
    let mut steps = 1;
    while let Some(surplus) = tuning.decay(&LIMITS, 0) {
        assert_eq!(surplus, 0);
        steps += 1;
    }
    assert_eq!((steps, tuning.high), (36, 714));
}

#[test]
fn a_full_list_decays_by_2016_pages_at_a_time() {
    let mut tuning = with_high(LIMITS.high_max, 0);
    assert_eq!(tuning.decay(&LIMITS, LIMITS.high_max), Some(2_016));
    assert_eq!(tuning.high, 76_170);
    // An eighth of 8,000 is less than 2,016.
    let mut tuning = with_high(8_000, 0);
    assert_eq!(tuning.decay(&LIMITS, 8_000), Some(1_000));
    // A list at its minimum gives back the pages above it, and then nothing.
    let mut tuning = with_high(714, 0);
    assert_eq!(tuning.decay(&LIMITS, 800), Some(86));
    assert_eq!(tuning.decay(&LIMITS, 714), None);
}

#[test]
fn an_allocation_halves_what_counts_as_freed_in_a_row() {
    let mut tuning = with_high(714, 100);
    let counts = [50, 25, 12].map(|_| {
        tuning.allocated();
        tuning.free_count
    });
    assert_eq!(counts, [50, 25, 12]);
}
