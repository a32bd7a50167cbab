//! Taking a CPU's stock from another CPU: freeze, fence, settle, take, thaw. The broken version looks and clears.

use std::sync::atomic::Ordering;

use bursar_machine::{AtomicWord, CEILING, CHARGED, Machine, MemoryOrder, Shard, Slot};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::protocols::quiesce::Stock;
use crate::random::Random;

/// Does the same as [`Slot::take_room`], on a shard that was not frozen.
fn take<M: Machine>(stock: &Stock<M>, shard: Shard) {
    let room = stock.slot.room(shard);
    let charged = stock
        .slot
        .word(shard, CHARGED)
        .load_signed(MemoryOrder::Full);
    let ceiling = stock.slot.word(shard, CEILING);
    // Without sections, the word is the room itself.
    let is_room = ceiling.load_signed(MemoryOrder::Full) == room;
    ceiling.store(if is_room { 0 } else { charged as u64 }, MemoryOrder::Full);
    stock.taken.fetch_add(room, Ordering::Relaxed);
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let stock = Stock::new(machine);
    let all = &stock;
    let charge = move |random: Random| all.churn(random, 4);
    let drain = move |_: Random| {
        for shard in 0..2 {
            match version {
                Version::Broken => take(all, Shard(shard)),
                Version::Mended => all.drain(Shard(shard)),
            }
        }
    };
    run(machine, seed, || (), tasks![charge, charge, drain]);
    stock.check();
}
