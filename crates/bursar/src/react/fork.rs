//! The state of a memory in a forked child.
//!
//! The child has one thread, and a copy of the memory's state from one moment. No other thread was inside an operation then
//! ([`Machine::operation`]): every lock is free, no group is closed, no shard frozen, no flush under way. But async-signal-safe
//! code is no operation. So other threads may have stopped for good at any step of a publication, or of a change of an account
//! by plain atomic operations. The same goes for charges and returns that never wait. The first
//! operation that finds itself in another process than the one before repairs it, before it does anything else.
//!
//! It goes by the bytes charged, in the slots. A charge that its owner may rely on is there, and a charge that is not there can
//! never be returned. All else follows. Stock is given up, so that no cap, no holder and no bound on stock need agree with it.
//! Usage is summed up from the bottom. Each touched shard is published anew, so that the next flush looks at it. Eager
//! statistics are summed up like usage. Bytes that threads that are gone had charged stay charged, also those that they were
//! about to return.
//!
//! Signal handlers may run on the one thread meanwhile. Their charges within limits are refused. A charge whatever the limits
//! say, and an uncharge, change the slot's word alone and note it; then it is repaired once more. So does the
//! program's allocator, if it charges this memory (`bursar-alloc`): the room for the repair is allocated before the first look,
//! and kept until the end. Other threads must not run yet: an operation that is under way on a shard could not be told from one
//! that was under way when the process forked.

use std::sync::atomic::Ordering;

use bursar_machine::{
    AtomicWord, CAP, CHARGED, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State,
};

use super::core::Core;

/// The room that the repair needs.
#[derive(Default)]
struct Scratch {
    /// All groups, each with its parent's position, parents first.
    groups: Vec<(u32, usize)>,
    touched: Vec<(usize, Shard)>,
    /// By position.
    usage: Vec<i64>,
}

/// Room for shards that are touched while room is made: by signal handlers, and by the allocator.
const SPARE: usize = 64;

/// Begins an operation that a fork waits for; see [`Machine::operation`]. Repairs the memory's state after a fork.
pub(crate) fn operation<M: Machine>(core: &Core<M>) -> M::Operation {
    let operation = core.tree().machine.operation();
    if is_forked(core) {
        repair(core);
    }
    operation
}

/// Takes all stock at and below a group back.
pub(super) fn drain<M: Machine>(core: &Core<M>, index: u32) {
    let _operation = operation(core);
    core.counters.drain_closed(index, || ());
}

/// Whether this is a child of the process in which this state was last right. Async-signal-safe.
pub(super) fn is_forked<M: Machine>(core: &Core<M>) -> bool {
    // Relaxed: written when the process had one thread. Starting the other threads made it visible to them.
    core.forks.load(Ordering::Relaxed) != core.tree().machine.forks()
}

/// Charges, or returns, `bytes` while the counters are wrong in any case. Async-signal-safe.
pub(super) fn defer<M: Machine>(core: &Core<M>, index: u32, bytes: i64) {
    core.counters.adjust_anywhere(index, bytes, bytes);
    // Relaxed: the reader is this thread; a signal handler may have interrupted it here.
    core.deferred.fetch_add(1, Ordering::Relaxed);
}

#[cold]
fn repair<M: Machine>(core: &Core<M>) {
    let _repair = core.repair.lock();
    let wrong = core.forks.load(Ordering::Relaxed);
    // Made before a look, and dropped when it is right, because the program's allocator may charge them.
    let mut scratch = Scratch::default();
    while is_forked(core) {
        scratch.groups = core.tree().groups();
        scratch.touched.clear();
        scratch
            .touched
            .reserve(touched_in(core, &scratch.groups).count() + SPARE);
        scratch.usage.clear();
        scratch.usage.resize(scratch.groups.len(), 0);
        let deferred = core.deferred.load(Ordering::Relaxed);
        let touched = touched_in(core, &scratch.groups);
        scratch
            .touched
            .extend(touched.take(scratch.touched.capacity()));
        if scratch.touched.len() == scratch.touched.capacity() {
            // Perhaps not all of them.
            continue;
        }
        recount(core, &mut scratch);
        forget_tasks(core);
        // SeqCst, both: in this order also for a signal handler on this thread. A handler that comes after the store lowers
        // the counters itself. One that came before is seen by the load.
        core.forks
            .store(core.tree().machine.forks(), Ordering::SeqCst);
        if core.deferred.load(Ordering::SeqCst) != deferred {
            core.forks.store(wrong, Ordering::SeqCst);
        }
    }
}

/// Takes all stock back, and sets the counters to the bytes charged.
fn recount<M: Machine>(core: &Core<M>, scratch: &mut Scratch) {
    core.counters.forget_operations();
    for index in 0..core.tree().records() {
        core.counters.counter(index).put_right(0);
        for shard in touched_shards(core, index) {
            let state = core.tree().node(index).slot.word(shard, STATE);
            // Full, here and below where nothing else is said: pairs with nothing. The child has no other thread.
            state.fetch_and(!State::BUSY, MemoryOrder::Full);
        }
    }
    let Scratch {
        groups,
        touched,
        usage,
    } = scratch;
    let extra = core.tree().extra();
    for &(position, shard) in touched.iter().filter(|(_, shard)| *shard != extra) {
        let state = core.tree().node(groups[position].0).slot.word(shard, STATE);
        // Full: pairs with the fence below and the sections of signal handlers, as in a drain.
        let before = State(state.fetch_or(State::FROZEN, MemoryOrder::Full));
        debug_assert!(!before.is_frozen(), "a drain is an operation");
    }
    core.tree().machine.fence();
    for &(position, shard) in touched.iter() {
        let (index, _) = groups[position];
        let slot = &core.tree().node(index).slot;
        if shard != extra {
            slot.settle(shard);
            // Full: as in a drain.
            slot.word(shard, CAP).store(0, MemoryOrder::Full);
            // Given up with the counter that it was reserved in.
            slot.take_room(shard);
        }
        let charged = slot.word(shard, CHARGED).load_signed(MemoryOrder::Full);
        // A shard's number may wrap, as in `lifetime.rs`.
        usage[position] = usage[position].wrapping_add(charged);
        // Full: pairs with the look at the state that begins each operation, as after a drain.
        slot.word(shard, STATE)
            .fetch_and(!State::FROZEN, MemoryOrder::Full);
        core.tree().publish_anew(index, shard);
    }
    for (position, &(index, parent)) in groups.iter().enumerate().rev() {
        let put_off = core.counters.put_over_return_right(index) as i64;
        if put_off > 0 {
            core.counters.charge_extra(index, -put_off);
            usage[position] = usage[position].wrapping_sub(put_off);
        }
        if usage[position] < 0 {
            // A bug of the parent, by which the child's numbers must not be wrong.
            core.counters
                .note_loss(index, usage[position].unsigned_abs(), None);
            usage[position] = 0;
        }
        core.counters
            .counter(index)
            .put_right(usage[position] as u64);
        core.tree().sum_eager(index);
        if position > 0 {
            usage[parent] += usage[position];
        }
    }
}

/// Forgets tasks that are gone: those that ran reclaimers, stalled, told others of a change, or waited in a queue. A
/// waiting task of this process enters its queue again when it is polled. Watchers of a group whose watchers were being
/// told are told again.
fn forget_tasks<M: Machine>(core: &Core<M>) {
    let me = core.tree().machine.task();
    core.reclaiming.lock().retain(|&task| task == me);
    core.telling.lock().retain(|&(task, _)| task == me);
    for index in 0..core.tree().records() {
        // Full, here and below: pair with nothing. The child has no other thread.
        core.counters
            .counter(index)
            .waits_below
            .store(0, MemoryOrder::Full);
        if let Some(hooks) = core.hooks(index) {
            hooks.forget_tasks(core.tree().machine.now_ns());
            let settings = &core.counters.counter(index).settings;
            settings.waiting.store(0, MemoryOrder::Full);
        }
    }
}

/// The touched shards of all groups, by their position among `groups`.
fn touched_in<'a, M: Machine>(
    core: &'a Core<M>,
    groups: &'a [(u32, usize)],
) -> impl Iterator<Item = (usize, Shard)> + 'a {
    groups
        .iter()
        .enumerate()
        .flat_map(|(position, &(index, _))| {
            let shards = touched_shards(core, index);
            shards.map(move |shard| (position, shard))
        })
}

/// The shards of a record with a word that is not zero: marks may be missing.
fn touched_shards<M: Machine>(core: &Core<M>, index: u32) -> impl Iterator<Item = Shard> + '_ {
    let slot = &core.tree().node(index).slot;
    (0..=core.tree().extra().0)
        .map(Shard)
        .filter(move |&shard| {
            // Full: pairs with nothing, as above.
            (0..core.tree().layout.words)
                .any(|word| slot.word(shard, word).load(MemoryOrder::Full) != 0)
        })
}
