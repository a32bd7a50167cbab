//! Refusing: other CPUs' stock is available memory, so it is taken back first. The broken version refuses at once.

use std::sync::atomic::{AtomicBool, Ordering};

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, Shard};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

const MAX: u64 = 10;
/// Bytes that a CPU reserves at once.
const BATCH: u64 = 4;

struct Account<M: Machine> {
    machine: M,
    /// Bytes reserved for charges and for stock; changed by slow operations, one at a time.
    reserved: M::Mutex<u64>,
    /// By CPU.
    stock: [M::Word; 2],
}

impl<M: Machine> Account<M> {
    fn stock(&self) -> &M::Word {
        let Shard(shard) = self.machine.current_shard();
        &self.stock[shard as usize]
    }

    fn take_from_stock(&self, bytes: u64) -> bool {
        let stock = self.stock();
        let mut seen = stock.load(MemoryOrder::Full);
        while seen >= bytes {
            match stock.compare_exchange(seen, seen - bytes, MemoryOrder::Full) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    fn try_charge(&self, bytes: u64, version: Version) -> bool {
        if self.take_from_stock(bytes) {
            return true;
        }
        let mut reserved = self.reserved.lock();
        if *reserved + bytes > MAX && version == Version::Mended {
            let stock = self.stock.iter();
            *reserved -= stock
                .map(|stock| stock.swap(0, MemoryOrder::Full))
                .sum::<u64>();
        }
        if *reserved + bytes > MAX {
            return false;
        }
        *reserved += bytes;
        if *reserved + BATCH <= MAX {
            *reserved += BATCH;
            self.stock().fetch_add(BATCH, MemoryOrder::Full);
        }
        true
    }

    fn uncharge(&self, bytes: u64) {
        self.stock().fetch_add(bytes, MemoryOrder::Full);
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let account = Account {
        machine: machine.clone(),
        reserved: M::Mutex::new(0),
        stock: [0; 2].map(M::Word::new),
    };
    let has_returned = AtomicBool::new(false);
    let (account, has_returned) = (&account, &has_returned);
    let small = move |_: Random| {
        if account.try_charge(1, version) {
            account.uncharge(1);
        }
        has_returned.store(true, Ordering::Relaxed);
    };
    let large = move |_: Random| {
        let is_empty = has_returned.load(Ordering::Relaxed);
        let is_charged = account.try_charge(MAX, version);
        assert!(
            is_charged || !is_empty,
            "false refusal: {MAX} bytes of {MAX}, and none were charged"
        );
        if is_charged {
            account.uncharge(MAX);
        }
    };
    run(machine, seed, || (), tasks![small, large]);
}
