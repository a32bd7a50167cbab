//! Tasks that charge, return and move bytes at random, and the checks that go with them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bursar::{Charge, ChargeAsync, ChargeError, EmergencyReserve, Freshness, Group, MoveError};
use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::Books;
use crate::model::charges::{ChargeId, Kind, Truth};
use crate::model::{GroupIndex, judge};
use crate::random::Random;

/// Greatest stock of one (group, CPU), in caps: one as stock, and one in a drain, beside which an operation that began
/// before may fill the shard again. `ranges.rs` checks the cap itself.
const STOCK_CAPS: u64 = 2;

/// A tree, and the bytes that are really charged there.
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

/// Bytes charged as an emergency reserve.
pub(super) struct Spare<M: Machine> {
    pub(super) reserve: EmergencyReserve<M>,
    id: ChargeId,
    group: GroupIndex,
}

impl<M: Machine> Holding<M> {
    pub(super) fn bytes(&self) -> u64 {
        self.charge.bytes()
    }
}

/// Room of a group, and most stock at and below it.
#[derive(Clone, Copy, Default)]
struct Bound {
    room: u64,
    stock: u64,
}

impl<M: Watched> Charging<M> {
    /// Returns whether a check of words and of the log can have another result than when it was `checked` last. Most steps change
    /// neither.
    pub(super) fn has_changed(&self, checked: &mut Option<(u64, u64)>) -> bool {
        let state = (self.books.memory.machine().changes(), self.truth.now());
        checked.replace(state) != Some(state)
    }

    /// Returns the check after each step for fallible charges only. Nothing is reserved above a limit (a limit that was
    /// lowered below the charged bytes lets nothing more in), held bytes are reserved, and stock is within its bound.
    pub(super) fn check(&self) -> impl FnMut() + use<'_, M> {
        self.check_from(vec![0; self.books.groups.len()])
    }

    /// Returns the same check, but allows usage that is above a limit already.
    pub(super) fn check_from_now(&self) -> impl FnMut() + use<'_, M> {
        self.check_from(self.books.groups.iter().map(Group::reserved).collect())
    }

    fn check_from(&self, mut before: Vec<u64>) -> impl FnMut() + use<'_, M> {
        let peak = |group: &Group<M>| group.peak();
        let mut highest: Vec<u64> = self.books.groups.iter().map(peak).collect();
        let mut bounds = vec![Bound::default(); highest.len()];
        let mut checked = None;
        move || {
            if !self.has_changed(&mut checked) {
                return;
            }
            for (at, group) in self.books.groups.iter().enumerate() {
                let (reserved, max) = (group.reserved(), group.limits().max);
                if reserved > before[at] {
                    let path = &self.books.shape.paths[at];
                    assert!(
                        reserved <= max,
                        "above the limit: {reserved} bytes reserved in {path}, and the limit is {max}"
                    );
                }
                before[at] = reserved;
                highest[at] = highest[at].max(max);
                let peak = peak(group);
                assert!(
                    peak <= highest[at],
                    "a peak of {peak} in {}, above all limits",
                    self.books.shape.paths[at]
                );
                self.check_held(at, reserved);
            }
            self.check_stock(&before, &highest, &mut bounds);
        }
    }

    /// Checks the stock: bytes that are reserved, and neither charged nor on the way in or out, are stock, or about to
    /// be. The cap of a CPU is at most a quarter of the room divided by the CPUs. A refill under way has reserved at
    /// most half of that, and a return under way has taken at most half of that out of the stock.
    fn check_stock(&self, reserved: &[u64], highest: &[u64], bounds: &mut [Bound]) {
        let shape = &self.books.shape;
        let cpus = self.books.memory.machine().cpus() as u64;
        let parent = |at: GroupIndex| shape.chain(at).nth(1);
        // Parents come before their children.
        for at in 0..shape.len() {
            let above = parent(at).map_or(u64::MAX, |parent| bounds[parent].room);
            let room = highest[at].min(above);
            let caps = (room / 4).saturating_mul(STOCK_CAPS);
            let in_hands = (room / (8 * cpus)).saturating_mul(self.truth.under_way_at(at));
            let stock = caps.saturating_add(in_hands);
            bounds[at] = Bound { room, stock };
        }
        for at in (0..shape.len()).rev() {
            if let Some(parent) = parent(at) {
                let below = bounds[at].stock;
                bounds[parent].stock = bounds[parent].stock.saturating_add(below);
            }
        }
        for (at, (&reserved, bound)) in reserved.iter().zip(bounds).enumerate() {
            let (stock, bound) = (reserved.saturating_sub(self.truth.present(at)), bound.stock);
            assert!(
                stock <= bound,
                "too much stock: {stock} bytes of {} are reserved for nobody, and {bound} may be",
                shape.paths[at]
            );
        }
    }
}

impl<M: Machine> Charging<M> {
    pub(super) fn new(books: Books<M>) -> Self {
        let maxima = books.groups.iter().map(|group| group.limits().max);
        let truth = Truth::new(&books.shape, maxima);
        Self { books, truth }
    }

    /// Checks after each step, with any kind of charge, that held bytes are reserved.
    pub(super) fn check_all_held(&self) {
        for (at, group) in self.books.groups.iter().enumerate() {
            if self.truth.held(at) > 0 {
                self.check_held(at, group.reserved());
            }
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

    /// Returns the group whose limit refused; `None` for a group that was removed.
    fn who(&self, error: &ChargeError) -> Option<GroupIndex> {
        match error {
            ChargeError::LimitReached(reached) => Some(self.group_at(&reached.limited)),
            ChargeError::Removed { .. } => None,
            other => panic!("refused for no reason: {other}"),
        }
    }

    /// Charges; may wait, and may be refused.
    pub(super) fn charge(&self, group: GroupIndex, bytes: u64) -> Option<Holding<M>> {
        self.charge_below(&self.books.groups[group], group, bytes)
    }

    /// Charges a group that comes and goes below `noted_at`, and records the charge there.
    pub(super) fn charge_below(
        &self,
        group: &Group<M>,
        noted_at: GroupIndex,
        bytes: u64,
    ) -> Option<Holding<M>> {
        let id = self.truth.charging(noted_at, bytes, Kind::Fallible);
        match group.try_charge(bytes) {
            Ok(charge) => Some(self.hold(charge, id, noted_at)),
            Err(error) => {
                self.truth.refused(id, self.who(&error));
                None
            }
        }
    }

    /// Charges without waiting; may be refused although there is room.
    pub(super) fn charge_nowait(&self, group: GroupIndex, bytes: u64) -> Option<Holding<M>> {
        let id = self.truth.charging(group, bytes, Kind::Fallible);
        match self.books.groups[group].engine().try_charge_nowait(bytes) {
            Ok(charge) => Some(self.hold(charge, id, group)),
            Err(_) => {
                self.truth.refused(id, None);
                None
            }
        }
    }

    /// Polls a waiting charge. A charge that a poll does not complete never happened.
    pub(super) fn poll(
        &self,
        future: &mut ChargeAsync<M>,
        group: GroupIndex,
        bytes: u64,
        context: &mut Context<'_>,
    ) -> Poll<Option<Holding<M>>> {
        let id = self.truth.charging(group, bytes, Kind::Fallible);
        match Pin::new(future).poll(context) {
            Poll::Ready(Ok(charge)) => Poll::Ready(Some(self.hold(charge, id, group))),
            Poll::Ready(Err(error)) => {
                self.truth.refused(id, self.who(&error));
                Poll::Ready(None)
            }
            Poll::Pending => {
                self.truth.refused(id, None);
                Poll::Pending
            }
        }
    }

    /// Charges regardless of limits.
    pub(super) fn charge_anyway(&self, group: GroupIndex, bytes: u64) -> Holding<M> {
        let id = self.truth.charging(group, bytes, Kind::Infallible);
        let charge = self.books.groups[group].charge(bytes);
        assert_eq!(charge.bytes(), bytes, "cut for no reason");
        self.hold(charge, id, group)
    }

    /// Charges regardless of limits, without waiting.
    pub(super) fn charge_anyway_nowait(&self, group: GroupIndex, bytes: u64) -> Holding<M> {
        let id = self.truth.charging(group, bytes, Kind::Infallible);
        let charge = self.books.groups[group].engine().charge_nowait(bytes);
        assert_eq!(charge.bytes(), bytes, "cut for no reason");
        self.hold(charge, id, group)
    }

    fn hold(&self, charge: Charge<M>, id: ChargeId, group: GroupIndex) -> Holding<M> {
        self.truth.charged(id, group);
        Holding { charge, id, group }
    }

    /// Charges an emergency reserve, before any other task charges.
    pub(super) fn reserve(&self, group: GroupIndex, bytes: u64) -> Spare<M> {
        let id = self.truth.charging(group, bytes, Kind::Fallible);
        let reserve = self.books.groups[group].emergency_reserve(bytes);
        self.truth.charged(id, group);
        Spare {
            reserve: reserve.expect("nobody else charges"),
            id,
            group,
        }
    }

    pub(super) fn unreserve(&self, spare: Spare<M>) {
        self.truth.returning(spare.id, spare.group);
        drop(spare.reserve);
        self.truth.returned(spare.id);
    }

    pub(super) fn uncharge(&self, holding: Holding<M>) {
        self.truth.returning(holding.id, holding.group);
        drop(holding.charge);
        self.truth.returned(holding.id);
    }

    pub(super) fn uncharge_all(&self, holdings: impl IntoIterator<Item = Holding<M>>) {
        holdings.into_iter().for_each(|one| self.uncharge(one));
    }

    /// Returns bytes, and notifies no task.
    pub(super) fn uncharge_nowait(&self, holding: Holding<M>) {
        self.truth.returning(holding.id, holding.group);
        holding.charge.release_nowait();
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
                self.truth.stays(holding.id, from, to, by);
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

    /// Changes a limit. Bytes that are reserved when this returns are held or fit.
    pub(super) fn set_max(&self, group: GroupIndex, max: u64) {
        self.truth.limiting(group, max);
        self.books.groups[group].set_max(max);
        // Limits that others set meanwhile are in force too. Nothing happens between a look and its record.
        let now = self.books.groups[group].limits().max;
        self.truth.limited(group, now);
        let reserved = self.books.groups[group].reserved();
        let max = self.truth.max_at_most(group);
        let most = self.truth.present(group);
        assert!(
            reserved <= max.max(most),
            "stock above the limit: {reserved} bytes reserved, limit {max}, {most} held at most"
        );
    }

    /// Charges, adds and returns at random, with `some_charge` for the charges. Holds a few charges at a time, and none
    /// in the end.
    pub(super) fn churn(
        &self,
        random: Random,
        operations: u64,
        some_charge: impl FnMut(&mut Random, &mut Vec<Holding<M>>),
    ) {
        let held = self.churn_keeping(random, operations, some_charge);
        self.uncharge_all(held);
    }

    /// Does the same as [`Charging::churn`], and keeps what it holds in the end.
    pub(super) fn churn_keeping(
        &self,
        mut random: Random,
        operations: u64,
        mut some_charge: impl FnMut(&mut Random, &mut Vec<Holding<M>>),
    ) -> Vec<Holding<M>> {
        let mut held = Vec::new();
        for _ in 0..operations {
            if !held.is_empty() && random.below(3) == 0 {
                let at = random.below(held.len() as u64) as usize;
                self.uncharge(held.swap_remove(at));
            } else {
                some_charge(&mut random, &mut held);
            }
        }
        held
    }

    /// Finishes, after all tasks have ended and all bytes are returned.
    pub(super) fn finish(&self) {
        judge(&self.truth);
        self.books.check_rows();
        self.books.check_empty();
    }
}

/// Returns a random size: one that stock covers, one that needs a reservation, or one near a limit.
pub(super) fn some_bytes(random: &mut Random, max: u64) -> u64 {
    match random.below(4) {
        0 | 1 => 1 + random.below(max / 32),
        2 => 1 + random.below(max / 2),
        _ => 1 + random.below(max),
    }
}
