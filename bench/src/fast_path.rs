//! The fast paths as functions of their own, for `golden` to find in the executable.
//!
//! Their symbols contain these names. Each is what a user's program would hold once inlined, plus the return.

use std::hint::black_box;
use std::num::NonZeroU64;

use bursar::pages::{Order, Zeroed};
use bursar::{AllocPagesError, Charge, ChargeError, Group, Page};
use bursar_bench_peers::{BareCounter, BareStack};

use crate::tree::ROWS;

/// Names of the functions below, in the order of the golden file.
pub const NAMES: [&str; 8] = [
    "fast_path_bare_add",
    "fast_path_stat_add",
    "fast_path_charge",
    "fast_path_uncharge",
    "fast_path_bare_push",
    "fast_path_bare_pop",
    "fast_path_page_alloc",
    "fast_path_page_free",
];

#[inline(never)]
fn fast_path_bare_add(counter: &BareCounter, number: i64) -> bool {
    counter.add(number)
}

#[inline(never)]
fn fast_path_stat_add(group: &Group, number: u64) {
    group.add(ROWS, number);
}

#[inline(never)]
fn fast_path_charge(group: &Group, bytes: u64) -> Result<Charge, ChargeError> {
    group.try_charge(bytes)
}

#[inline(never)]
fn fast_path_uncharge(charge: Charge) {
    drop(charge);
}

#[inline(never)]
fn fast_path_bare_push(stack: &BareStack, entry: NonZeroU64) -> bool {
    stack.push(entry)
}

#[inline(never)]
fn fast_path_bare_pop(stack: &BareStack) -> Option<NonZeroU64> {
    stack.pop()
}

#[inline(never)]
fn fast_path_page_alloc(group: &Group) -> Result<Page, AllocPagesError> {
    group.alloc_pages(Order::ZERO, Zeroed::No)
}

#[inline(never)]
fn fast_path_page_free(page: Page) {
    drop(page);
}

/// Keeps the functions in the executable, unspecialised: the callers of these pointers are unknown.
pub fn keep() {
    black_box(fast_path_bare_add as fn(&BareCounter, i64) -> bool);
    black_box(fast_path_stat_add as fn(&Group, u64));
    black_box(fast_path_charge as fn(&Group, u64) -> Result<Charge, ChargeError>);
    black_box(fast_path_uncharge as fn(Charge));
    black_box(fast_path_bare_push as fn(&BareStack, NonZeroU64) -> bool);
    black_box(fast_path_bare_pop as fn(&BareStack) -> Option<NonZeroU64>);
    black_box(fast_path_page_alloc as fn(&Group) -> Result<Page, AllocPagesError>);
    black_box(fast_path_page_free as fn(Page));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::tree;

    #[test]
    fn they_do_what_their_names_say() {
        let memory = tree::memory();
        let group = tree::leaves(&memory, 3, 1).remove(0);
        fast_path_stat_add(&group, 2);
        let charge = fast_path_charge(&group, 4096).unwrap();
        fast_path_uncharge(charge);
        assert_eq!(group.outstanding(), 0);
        fast_path_page_free(fast_path_page_alloc(&group).unwrap());
        assert_eq!(group.outstanding(), 0);
        if let Some(stack) = BareStack::new().unwrap() {
            let entry = NonZeroU64::new(5).unwrap();
            assert!(fast_path_bare_push(&stack, entry));
            assert_eq!(fast_path_bare_pop(&stack), Some(entry));
        }
        if let Some(counter) = BareCounter::new().unwrap() {
            assert!(fast_path_bare_add(&counter, 3));
            assert_eq!(counter.sum(), 3);
        }
    }
}
