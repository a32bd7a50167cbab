//! Numbers that groups are known to have, in ordinary memory.

use std::sync::Arc;

use bursar::{Charge, Group};
use bursar_check::model::Flow;
use bursar_rig::random::Random;
use bursar_sim::Sim;

use super::{BALANCE, BATCHED, EAGER, ROWS};

/// Numbers that a group is known to have. The simulator runs one task at a time, so this needs no care.
#[derive(Default)]
pub struct Truth {
    pub bytes: Flow,
    pub rows: Flow,
    pub balance: Flow,
}

/// A charge that is in the truth as long as it is held, also when its task is killed.
pub struct Held {
    charge: Option<Charge<Sim>>,
    pub truth: Arc<Truth>,
}

impl Held {
    pub fn new(charge: Charge<Sim>, truth: &Arc<Truth>) -> Self {
        truth.bytes.change(charge.bytes() as i64, || ());
        let truth = truth.clone();
        let charge = Some(charge);
        Self { charge, truth }
    }

    pub fn change(&mut self, target: &Place, work: impl FnOnce(&mut Charge<Sim>) -> bool) {
        let charge = self.charge.as_mut().expect("until dropped");
        let before = charge.bytes() as i64;
        if work(charge) {
            self.truth.bytes.change(-before, || ());
            self.truth = target.truth.clone();
            self.truth.bytes.change(charge.bytes() as i64, || ());
        }
    }

    pub fn release_nowait(mut self) {
        let charge = self.charge.take().expect("until dropped");
        self.truth.bytes.change(-(charge.bytes() as i64), || ());
        charge.release_nowait();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.truth.bytes.change(-(charge.bytes() as i64), || ());
        }
    }
}

/// A group and what is known of it.
#[derive(Clone)]
pub struct Place {
    pub group: Group<Sim>,
    pub truth: Arc<Truth>,
}

impl Place {
    pub fn new(group: Group<Sim>) -> Self {
        let truth = Arc::default();
        Self { group, truth }
    }

    pub fn add(&self, random: &mut Random) {
        let delta = random.below(400) as i64 - 200;
        // Nobody is killed in here: it does not sleep.
        self.group.add(ROWS, 1_u64);
        self.group.add(BALANCE, delta);
        self.group.add(EAGER, delta);
        self.group.add(BATCHED, delta);
        self.truth.rows.change(1, || ());
        self.truth.balance.change(delta, || ());
    }
}
