//! The seam costs nothing on the host: code that is generic over the machine compiles to what one writes by hand.
//!
//! Each pair is a function on the library's side of the seam and its counterpart without the seam. Their fast paths must
//! be the same instructions on the same registers, in the same order. What differs from place to place is left out of the
//! comparison: addresses, targets of jumps, how far a field lies from the start of its record, and numbers of more than
//! two bytes (fingerprints). Functions that the compiler found equal and folded into one are the same, too.

use std::hint::black_box;

use bursar::{Charge, ChargeError, Group};
use bursar_machine::host::{Host, HostSlot};
use bursar_machine::{FIRST_STATISTIC, Machine, Outcome, Slot};

use crate::code::{self, Code};
use crate::fast_path::{fast_path_charge, fast_path_stat_add, fast_path_uncharge};
use crate::hand_written::{Held, Record};
use crate::instruction::Instruction;

/// A function on the library's side of the seam, and by hand.
pub struct Pair {
    seam: &'static str,
    hand: &'static str,
    /// The compiler found them equal and made one of them, of which one name may be left.
    is_one: bool,
}

/// Code that does not know its machine, as the library's.
mod generic {
    use super::*;

    #[inline(always)]
    pub(super) fn slot_add<M: Machine>(slot: &M::Slot, delta: i64) -> Outcome {
        slot.add(FIRST_STATISTIC, delta)
    }

    #[inline(always)]
    pub(super) fn slot_charge<M: Machine>(slot: &M::Slot, bytes: u64) -> Outcome {
        slot.charge(bytes)
    }

    #[inline(always)]
    pub(super) fn slot_uncharge<M: Machine>(slot: &M::Slot, bytes: u64) -> Outcome {
        slot.uncharge(bytes)
    }
}

#[inline(never)]
fn seam_slot_add(slot: &HostSlot, delta: i64) -> Outcome {
    generic::slot_add::<Host>(slot, delta)
}

#[inline(never)]
fn hand_slot_add(slot: &HostSlot, delta: i64) -> Outcome {
    slot.add(FIRST_STATISTIC, delta)
}

#[inline(never)]
fn seam_slot_charge(slot: &HostSlot, bytes: u64) -> Outcome {
    generic::slot_charge::<Host>(slot, bytes)
}

#[inline(never)]
fn hand_slot_charge(slot: &HostSlot, bytes: u64) -> Outcome {
    slot.charge(bytes)
}

#[inline(never)]
fn seam_slot_uncharge(slot: &HostSlot, bytes: u64) -> Outcome {
    generic::slot_uncharge::<Host>(slot, bytes)
}

#[inline(never)]
fn hand_slot_uncharge(slot: &HostSlot, bytes: u64) -> Outcome {
    slot.uncharge(bytes)
}

#[inline(never)]
fn hand_group_add(record: &Record, number: u64) {
    record.add(number);
}

#[inline(never)]
fn hand_group_charge(record: &Record, bytes: u64) -> Result<Held, ChargeError> {
    record.try_charge(bytes)
}

#[inline(never)]
fn hand_group_uncharge(held: Held) {
    drop(held);
}

/// All pairs. That this asks for their addresses keeps the functions in the executable, unspecialised: whoever might call
/// them is unknown.
pub fn pairs() -> Vec<Pair> {
    macro_rules! pair {
        ($seam:ident, $hand:ident, $seam_type:ty, $hand_type:ty) => {
            Pair {
                seam: stringify!($seam),
                hand: stringify!($hand),
                is_one: black_box($seam as $seam_type) as usize
                    == black_box($hand as $hand_type) as usize,
            }
        };
        ($seam:ident, $hand:ident, $type:ty) => {
            pair!($seam, $hand, $type, $type)
        };
    }
    vec![
        pair!(seam_slot_add, hand_slot_add, fn(&HostSlot, i64) -> Outcome),
        pair!(
            seam_slot_charge,
            hand_slot_charge,
            fn(&HostSlot, u64) -> Outcome
        ),
        pair!(
            seam_slot_uncharge,
            hand_slot_uncharge,
            fn(&HostSlot, u64) -> Outcome
        ),
        pair!(
            fast_path_stat_add,
            hand_group_add,
            fn(&Group, u64),
            fn(&Record, u64)
        ),
        pair!(
            fast_path_charge,
            hand_group_charge,
            fn(&Group, u64) -> Result<Charge, ChargeError>,
            fn(&Record, u64) -> Result<Held, ChargeError>
        ),
        pair!(
            fast_path_uncharge,
            hand_group_uncharge,
            fn(Charge),
            fn(Held)
        ),
    ]
}

/// Compares all pairs: one line for each, with the difference where there is one, and whether there is none.
///
/// # Errors
/// If a function is missing or has no fast path.
pub fn compare(code: &Code<'_>, pairs: &[Pair]) -> Result<(String, bool), String> {
    let mut text = String::new();
    let mut all_same = true;
    for pair in pairs {
        let (lines, is_same) = compare_pair(code, pair)?;
        text += &lines;
        all_same &= is_same;
    }
    Ok((text, all_same))
}

fn compare_pair(code: &Code<'_>, pair: &Pair) -> Result<(String, bool), String> {
    let &Pair { seam, hand, is_one } = pair;
    if is_one || code.start(seam)? == code.start(hand)? {
        return Ok((format!("{seam}: one function with {hand}\n"), true));
    }
    let shape = |name: &str| -> Result<Vec<String>, String> {
        Ok(code
            .fast_path(name)?
            .iter()
            .map(Instruction::shape)
            .collect())
    };
    Ok(verdict(seam, &shape(seam)?, hand, &shape(hand)?))
}

fn verdict(seam: &str, through: &[String], hand: &str, by_hand: &[String]) -> (String, bool) {
    if through == by_hand {
        let count = through.len();
        return (format!("{seam}: {count}, the same as {hand}\n"), true);
    }
    let (more, fewer) = (through.len(), by_hand.len());
    let mut text = format!("{seam}: {more}, NOT the same as {hand}: {fewer}\n");
    code::difference(&mut text, by_hand, through);
    (text, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instruction_more_is_shown() {
        let lines = |texts: &[&str]| texts.iter().map(|&text| text.into()).collect::<Vec<_>>();
        let (hand, seam) = (
            lines(&["test edi,edi", "ret"]),
            lines(&["test edi,edi", "nop", "ret"]),
        );
        let (text, is_same) = verdict("s", &seam, "h", &hand);
        assert!(!is_same);
        assert_eq!(text, "s: 3, NOT the same as h: 2\n  +nop\n");
        assert!(verdict("s", &hand, "h", &hand).1);
    }
}
