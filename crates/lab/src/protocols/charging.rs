//! Tasks that charge, return and move bytes at random, and the checks that go with them.

use bursar::{Charge, ChargeError, Freshness, Group, MoveError};
use bursar_machine::Machine;

use super::books::{Books, GroupIndex};
use super::truth::{ChargeId, Kind, Truth};
use crate::random::Random;

/// A tree, and what is really charged there.
pub(super) struct Charging<M: Machine> {
    pub(super) books: Books<M>,
    pub(super) truth: Truth,
}

/// Bytes that one task holds.
pub(super) struct Holding<M: Machine> {
    pub(super) charge: Charge<M>,
    id: ChargeId,
    group: GroupIndex,
}

impl<M: Machine> Charging<M> {
    pub(super) fn new(books: Books<M>) -> Self {
        let maxima = books.groups.iter().map(Group::max);
        let truth = Truth::new(&books.shape, maxima);
        Self { books, truth }
    }

    /// The check after each step, if all charges are fallible: nothing is reserved above a limit (one that was lowered
    /// below what is charged lets nothing more in), and what is held is reserved.
    pub(super) fn check(&self) -> impl FnMut() + '_ {
        let mut before = vec![0; self.books.groups.len()];
        move || {
            for (at, group) in self.books.groups.iter().enumerate() {
                let reserved = group.reserved();
                if reserved > before[at] {
                    let (max, path) = (group.max(), &self.books.shape.paths[at]);
                    assert!(
                        reserved <= max,
                        "above the limit: {reserved} bytes reserved in {path}, and the limit is {max}"
                    );
                }
                before[at] = reserved;
                self.check_held(at, reserved);
            }
        }
    }

    /// After each step, whatever is charged: what is held is reserved.
    pub(super) fn check_all_held(&self) {
        for (at, group) in self.books.groups.iter().enumerate() {
            self.check_held(at, group.reserved());
        }
    }

    fn check_held(&self, at: GroupIndex, reserved: u64) {
        let held = self.truth.held(at);
        assert!(
            held <= reserved,
            "lost: {held} bytes are held in {}, and {reserved} reserved",
            self.books.shape.paths[at]
        );
    }

    fn group_at(&self, path: &str) -> GroupIndex {
        let mut paths = self.books.shape.paths.iter();
        paths
            .position(|known| known == path)
            .expect("a refusal names a group")
    }

    fn who(&self, error: &ChargeError) -> GroupIndex {
        match error {
            ChargeError::LimitReached(reached) => self.group_at(&reached.limited),
            other => panic!("refused for no reason: {other}"),
        }
    }

    /// Charges, may wait, may be refused.
    pub(super) fn charge(&self, group: GroupIndex, bytes: u64) -> Option<Holding<M>> {
        let id = self.truth.charging(group, bytes, Kind::Fallible);
        match self.books.groups[group].try_charge(bytes as usize) {
            Ok(charge) => Some(self.hold(charge, id, group)),
            Err(error) => {
                self.truth.refused(id, Some(self.who(&error)));
                None
            }
        }
    }

    /// Charges without waiting; may be refused for no good reason.
    pub(super) fn charge_nowait(&self, group: GroupIndex, bytes: u64) -> Option<Holding<M>> {
        let id = self.truth.charging(group, bytes, Kind::Fallible);
        match self.books.groups[group].try_charge_nowait(bytes as usize) {
            Ok(charge) => Some(self.hold(charge, id, group)),
            Err(_) => {
                self.truth.refused(id, None);
                None
            }
        }
    }

    /// Charges whatever the limits say.
    pub(super) fn charge_anyway(&self, group: GroupIndex, bytes: u64) -> Holding<M> {
        let id = self.truth.charging(group, bytes, Kind::Infallible);
        let charge = self.books.groups[group].charge(bytes as usize);
        assert_eq!(charge.bytes() as u64, bytes, "cut for no reason");
        self.hold(charge, id, group)
    }

    fn hold(&self, charge: Charge<M>, id: ChargeId, group: GroupIndex) -> Holding<M> {
        self.truth.charged(id, group);
        Holding { charge, id, group }
    }

    pub(super) fn uncharge(&self, holding: Holding<M>) {
        self.truth.returning(holding.id, holding.group);
        drop(holding.charge);
        self.truth.returned(holding.id);
    }

    pub(super) fn move_to(&self, holding: &mut Holding<M>, to: GroupIndex) {
        let from = holding.group;
        if from == to {
            return;
        }
        self.truth.moving(holding.id, from, to);
        match holding.charge.move_to(&self.books.groups[to]) {
            Ok(()) => {
                self.truth.moved(holding.id, from, to);
                holding.group = to;
            }
            Err(MoveError::Refused(error)) => {
                let by = self.who(&error);
                self.truth.stays(holding.id, from, to, Some(by));
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads the usage exactly.
    pub(super) fn read(&self, group: GroupIndex) {
        let began = self.truth.reading();
        let reading = self.books.groups[group].read(Freshness::Exact);
        let usage = reading.expect("the policy lets readers flush").usage();
        self.truth.read(began, group, usage.value);
    }

    /// Changes a limit; nobody else may change the same. What is reserved when this returns is held or fits.
    pub(super) fn set_max(&self, group: GroupIndex, max: u64) {
        self.truth.limiting(group, max);
        self.books.groups[group].set_max(max);
        self.truth.limited(group, max);
        let reserved = self.books.groups[group].reserved();
        let most = self.truth.at_most(group);
        assert!(
            reserved <= max.max(most),
            "stock above the limit: {reserved} bytes reserved, limit {max}, {most} held at most"
        );
    }

    /// Charges, adds and returns at random, with `some_charge` for the charges; holds a few at a time.
    pub(super) fn churn(
        &self,
        mut random: Random,
        operations: u64,
        mut some_charge: impl FnMut(&mut Random, &mut Vec<Holding<M>>),
    ) {
        let mut held = Vec::new();
        for _ in 0..operations {
            if !held.is_empty() && random.below(3) == 0 {
                let at = random.below(held.len() as u64) as usize;
                self.uncharge(held.swap_remove(at));
            } else {
                some_charge(&mut random, &mut held);
            }
        }
        held.into_iter().for_each(|holding| self.uncharge(holding));
    }

    /// When nothing runs any more and all is returned.
    pub(super) fn finish(&self) {
        self.truth.judge();
        self.books.check_rows();
        self.books.check_empty();
    }
}

/// Sizes that the stock covers, that need a reservation, and that come near a limit.
pub(super) fn some_bytes(random: &mut Random, max: u64) -> u64 {
    match random.below(4) {
        0 | 1 => 1 + random.below(max / 32),
        2 => 1 + random.below(max / 2),
        _ => 1 + random.below(max),
    }
}
