//! Quiesce on the words themselves: set `FROZEN`, pass the fence, settle, take the room, thaw, while others charge and
//! return on these CPUs. Nothing commits between settle and thaw; no byte is lost or made. For some seeds a task also moves both words of
//! an account to the ends of their range, as a tenant does who returns far too much: the room stays as it is.

use std::sync::atomic::{AtomicI64, Ordering};

use bursar_machine::{
    AtomicWord, CAP, CEILING, CHARGED, Lock, Machine, MemoryOrder, Outcome, STATE, Shard, Slot,
    State,
};
use bursar_rig::Watched;

use super::books::run;
use crate::random::Random;

/// Room of each shard at the start.
const ROOM: u64 = 100;
/// Four of these come round to where they began.
const QUARTER: i64 = 1 << 62;

/// A slot whose shards have room, and the places of the bytes. Not the machine's words: recording costs no step.
pub(super) struct Stock<M: Machine> {
    pub(super) machine: M,
    pub(super) slot: M::Slot,
    /// Held by charges.
    pub(super) held: AtomicI64,
    /// Taken out of the shards, or returned past them.
    pub(super) taken: AtomicI64,
    /// Added to both words of an account, modulo 2^64.
    shifted: AtomicI64,
}

impl<M: Machine> Stock<M> {
    pub(super) fn new(machine: &M) -> Self {
        let slot = machine.slots(8).expect("a few words").swap_remove(0);
        for shard in 0..machine.cpus() as u32 {
            let word = |word| slot.word(Shard(shard), word);
            word(STATE).store(State::PUBLISHED, MemoryOrder::Full);
            word(CAP).store(2 * ROOM, MemoryOrder::Full);
            word(CEILING).store(ROOM, MemoryOrder::Full);
        }
        Self {
            machine: machine.clone(),
            slot,
            held: AtomicI64::new(0),
            taken: AtomicI64::new(0),
            shifted: AtomicI64::new(0),
        }
    }

    /// Moves both words of this CPU's account by a quarter of their range, and nearly back, some times.
    fn shift(&self, mut random: Random) {
        for _ in 0..4 {
            let some = random.below(2 * ROOM) as i64 - ROOM as i64;
            let by = some.wrapping_add([QUARTER, -QUARTER][random.below(2) as usize]);
            let shard = self.machine.current_shard();
            match self.slot.adjust(shard, by, by) {
                Outcome::Done => drop(self.shifted.fetch_add(by, Ordering::Relaxed)),
                Outcome::Short => panic!("a room that stays is refused"),
                // Frozen, or elsewhere.
                Outcome::Unpublished { .. } | Outcome::Moved => {}
            }
        }
    }

    /// Charges and returns at random.
    pub(super) fn churn(&self, mut random: Random, operations: u64) {
        let mut charges = Vec::new();
        for _ in 0..operations {
            let bytes = 1 + random.below(ROOM / 2);
            if random.below(2) == 0 {
                if self.slot.charge(bytes) == Outcome::Done {
                    self.held.fetch_add(bytes as i64, Ordering::Relaxed);
                    charges.push(bytes);
                }
            } else if let Some(bytes) = charges.pop() {
                self.uncharge(bytes);
            }
        }
    }

    fn uncharge(&self, bytes: u64) {
        if self.slot.uncharge(bytes) != Outcome::Done {
            // Frozen, or over the cap: past the stock.
            self.slot.add_extra(CHARGED, -(bytes as i64));
            self.taken.fetch_add(bytes as i64, Ordering::Relaxed);
        }
        self.held.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Quiesces a shard, and empties it.
    pub(super) fn drain(&self, shard: Shard) {
        let state = self.slot.word(shard, STATE);
        state.fetch_or(State::FROZEN, MemoryOrder::Full);
        self.machine.fence();
        self.slot.settle(shard);
        let look = || {
            let charged = self.slot.word(shard, CHARGED).load(MemoryOrder::Full);
            (charged, self.slot.room(shard))
        };
        let before = look();
        assert_eq!(before, look(), "something commits in a frozen shard");
        let room = self.slot.take_room(shard);
        assert_eq!(room as i64, before.1, "the room is not what it was");
        self.taken.fetch_add(room as i64, Ordering::Relaxed);
        assert_eq!(look(), (before.0, 0), "a shard that was emptied has room");
        state.fetch_and(!State::FROZEN, MemoryOrder::Full);
    }

    /// Checks everything, after all tasks have ended.
    pub(super) fn check(&self) {
        let shards = || (0..self.machine.cpus() as u32).map(Shard);
        let rooms = shards().map(|shard| self.slot.room(shard));
        let room: i64 = rooms
            .inspect(|&room| assert!(room >= 0, "room {room}"))
            .sum();
        let charged: i64 = shards()
            .chain([Shard(self.machine.cpus() as u32)])
            .map(|shard| {
                self.slot
                    .word(shard, CHARGED)
                    .load_signed(MemoryOrder::Full)
            })
            .fold(0, i64::wrapping_add);
        let sums = [&self.held, &self.taken, &self.shifted];
        let [held, taken, shifted] = sums.map(|sum| sum.load(Ordering::Relaxed));
        assert_eq!(
            charged.wrapping_sub(shifted),
            held,
            "bytes charged, and held"
        );
        let all = ROOM as i64 * self.machine.cpus() as i64;
        assert_eq!(room + held + taken, all, "bytes were lost or made");
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let stock = Stock::new(machine);
    let cpus = machine.cpus() as u64;
    // Each shard has one freezer at a time.
    let slow = <M::Mutex<()> as Lock<()>>::new(());
    let (all, slow) = (&stock, &slow);
    let charge = move |random: Random| all.churn(random, 6);
    let shift = move |random: Random| match seed % 2 {
        0 => all.shift(random),
        _ => all.churn(random, 6),
    };
    let freeze = move |mut random: Random| {
        for _ in 0..2 {
            let _slow = slow.lock();
            all.drain(Shard(random.below(cpus) as u32));
        }
    };
    run(
        machine,
        seed,
        || (),
        tasks![charge, charge, shift, freeze, freeze],
    );
    stock.check();
}
