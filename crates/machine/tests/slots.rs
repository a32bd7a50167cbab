//! Operations of slots on the host, on the backend that this process uses (`BURSAR_BACKEND` forces one).

use std::sync::atomic::{AtomicBool, Ordering};

use bursar_machine::host::{Backend, allowed_cpus, pin_to};
use bursar_machine::{
    AtomicWord, CAP, CEILING, CHARGED, FIRST_STATISTIC, Host, Machine, MemoryOrder, Outcome, STATE,
    Shard, Slot, State,
};

fn host() -> Host {
    Host::start().expect("the host starts")
}

fn shards(host: Host) -> impl Iterator<Item = Shard> + Clone {
    (0..=host.cpus() as u32).map(Shard)
}

fn published_slot(host: Host) -> <Host as Machine>::Slot {
    let slot = host.slots(FIRST_STATISTIC + 4).unwrap().remove(0);
    for shard in shards(host) {
        slot.word(shard, STATE)
            .store(State::PUBLISHED, MemoryOrder::Full);
    }
    slot
}

fn sum(host: Host, slot: &<Host as Machine>::Slot, word: usize) -> i64 {
    shards(host)
        .map(|shard| slot.word(shard, word).load_signed(MemoryOrder::Full))
        .sum()
}

/// Retries `operation` while it says that the caller moved.
fn on_this_shard(host: Host, mut operation: impl FnMut(Shard) -> Outcome) -> Outcome {
    loop {
        match operation(host.current_shard()) {
            Outcome::Moved => {}
            outcome => return outcome,
        }
    }
}

#[test]
fn an_unpublished_shard_says_so() {
    let host = host();
    let slot = host.slots(FIRST_STATISTIC + 1).unwrap().remove(0);
    match slot.add(FIRST_STATISTIC, 5) {
        Outcome::Unpublished { committed, .. } => {
            assert_eq!(
                sum(host, &slot, FIRST_STATISTIC),
                if committed { 5 } else { 0 }
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_room_bounds_charges_and_the_cap_bounds_uncharges() {
    let host = host();
    pin_to(allowed_cpus()[0]).unwrap();
    let slot = published_slot(host);
    assert_eq!(slot.charge(1), Outcome::Short, "nothing is there yet");
    let shard = host.current_shard();
    slot.word(shard, CAP).store(100, MemoryOrder::Full);
    assert_eq!(
        on_this_shard(host, |shard| slot.adjust(shard, 0, 100)),
        Outcome::Done
    );
    assert_eq!(slot.charge(0), Outcome::Short);
    assert_eq!(slot.charge(u64::MAX), Outcome::Short);
    assert_eq!(slot.charge(1 << 63), Outcome::Short);
    assert_eq!(slot.charge(101), Outcome::Short);
    assert_eq!(slot.charge(60), Outcome::Done);
    assert_eq!(slot.charge(40), Outcome::Done);
    assert_eq!(slot.charge(1), Outcome::Short);
    assert_eq!(slot.room(shard), 0);
    assert_eq!(slot.uncharge(100), Outcome::Done);
    assert_eq!(slot.uncharge(1), Outcome::Short, "beyond the cap");
    assert_eq!(slot.charge(30), Outcome::Done);
    for beyond in [31, 1 << 63, i64::MAX as u64, u64::MAX - 20, u64::MAX] {
        assert_eq!(slot.uncharge(beyond), Outcome::Short, "{beyond}");
    }
    assert_eq!(slot.uncharge(30), Outcome::Done);
    assert_eq!(slot.room(shard), 100);
    assert_eq!(
        slot.adjust(shard, 1, -100),
        Outcome::Short,
        "the room would be negative"
    );
    let beyond = [(0, 1), (-1, 0), (-50, -40)];
    for (charged, ceiling) in beyond {
        let adjusted = slot.adjust(shard, charged, ceiling);
        assert_eq!(adjusted, Outcome::Short, "the room would exceed the cap");
    }
    assert_eq!(slot.adjust(shard, -50, -50), Outcome::Done);
    assert_eq!(slot.adjust(shard, 50, 50), Outcome::Done);
    assert_eq!(sum(host, &slot, CHARGED), 0);
}

/// However many return at once on one CPU, the room stays within the cap.
#[test]
fn returns_at_once_do_not_exceed_the_cap() {
    const CAP_BYTES: u64 = 1000;
    let host = host();
    pin_to(allowed_cpus()[0]).unwrap();
    let slot = &published_slot(host);
    let shard = host.current_shard();
    let threads = if cfg!(target_os = "linux") { 8 } else { 1 };
    std::thread::scope(|scope| {
        slot.word(shard, CAP).store(CAP_BYTES, MemoryOrder::Full);
        for _ in 0..threads {
            scope.spawn(move || {
                pin_to(allowed_cpus()[0]).unwrap();
                for round in 0..20_000_u64 {
                    let bytes = 300 + round % 200;
                    match round % 3 {
                        0 => drop(slot.adjust(shard, 0, bytes as i64)),
                        1 => drop(slot.uncharge(bytes)),
                        _ => drop(slot.charge(bytes)),
                    }
                    // Two words of a shard with sections are read one after the other.
                    if host.report().backend != Backend::Rseq {
                        let room = slot.room(shard);
                        assert!(room <= CAP_BYTES as i64, "{room} bytes");
                    }
                }
            });
        }
    });
    assert!(slot.room(shard) <= CAP_BYTES as i64);
}

#[test]
fn a_frozen_shard_is_the_freezers_alone() {
    let host = host();
    pin_to(allowed_cpus()[0]).unwrap();
    let slot = published_slot(host);
    let shard = host.current_shard();
    slot.word(shard, CAP).store(1000, MemoryOrder::Full);
    assert_eq!(
        on_this_shard(host, |shard| slot.adjust(shard, 300, 1000)),
        Outcome::Done
    );
    slot.word(shard, STATE)
        .fetch_or(State::FROZEN, MemoryOrder::Full);
    host.fence();
    slot.settle(shard);
    let refused = Outcome::Unpublished {
        shard,
        committed: false,
    };
    assert_eq!(slot.charge(1), refused);
    assert_eq!(slot.uncharge(1), refused);
    assert_eq!(slot.adjust(shard, 1, 1), refused);
    assert_eq!(slot.take_room(shard), 700);
    assert_eq!(slot.take_room(shard), 0);
    slot.word(shard, STATE)
        .fetch_and(!State::FROZEN, MemoryOrder::Full);
    assert_eq!(slot.charge(1), Outcome::Short);
    assert_eq!(sum(host, &slot, CHARGED), 300);
}

/// Threads that migrate charge and uncharge while another freezes, takes and gives back: nothing is lost, and no shard
/// ever holds more charges than its ceiling allows.
#[test]
fn freezing_under_fire_conserves() {
    const BYTES: i64 = 1 << 20;
    let host = host();
    let slot = published_slot(host);
    let cpus = allowed_cpus();
    for shard in shards(host).take(host.cpus()) {
        slot.word(shard, CAP)
            .store(u64::MAX >> 1, MemoryOrder::Full);
    }
    let mut supply = BYTES;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (slot, cpus, stop) = (&slot, &cpus, &stop);
                scope.spawn(move || {
                    let mut held = 0_i64;
                    let mut round = worker;
                    while !stop.load(Ordering::Relaxed) {
                        if round % 512 == 0 {
                            pin_to(cpus[round / 512 % cpus.len()]).unwrap();
                        }
                        round += 1;
                        if held < 4096 {
                            held += match slot.charge(64) {
                                Outcome::Done => 64,
                                _ => 0,
                            };
                        }
                        if held > 0 && round % 3 != 0 && slot.uncharge(64) == Outcome::Done {
                            held -= 64;
                        }
                    }
                    held
                })
            })
            .collect();
        for round in 0..400 {
            // Give: what was taken goes to this thread's shard.
            if supply > 0 && host.current_shard().index() < host.cpus() {
                pin_to(cpus[round % cpus.len()]).unwrap();
                let given = supply;
                if on_this_shard(host, |shard| slot.adjust(shard, 0, given)) == Outcome::Done {
                    supply -= given;
                }
            }
            for shard in shards(host).take(host.cpus()) {
                slot.word(shard, STATE)
                    .fetch_or(State::FROZEN, MemoryOrder::Full);
            }
            host.fence();
            for shard in shards(host).take(host.cpus()) {
                slot.settle(shard);
                assert!(slot.room(shard) >= 0);
                supply += slot.take_room(shard) as i64;
            }
            let charged = sum(host, &slot, CHARGED);
            assert_eq!(charged + supply, BYTES, "while all is frozen");
            for shard in shards(host).take(host.cpus()) {
                slot.word(shard, STATE)
                    .fetch_and(!State::FROZEN, MemoryOrder::Full);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let held: i64 = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum();
        assert_eq!(sum(host, &slot, CHARGED), held);
    });
    assert!(slot.word(Shard(0), CEILING).load_signed(MemoryOrder::Full) >= 0);
}

#[test]
fn slots_do_not_overlap() {
    let host = host();
    let slots = host.slots(FIRST_STATISTIC + 5).unwrap();
    assert!(slots.len() > 1);
    for (index, slot) in slots.iter().enumerate() {
        for shard in shards(host) {
            slot.word(shard, FIRST_STATISTIC + 4)
                .store(index as u64 + 1, MemoryOrder::Full);
        }
    }
    for (index, slot) in slots.iter().enumerate() {
        for shard in shards(host) {
            assert_eq!(slot.word(shard, STATE).load(MemoryOrder::Full), 0);
            assert_eq!(
                slot.word(shard, FIRST_STATISTIC + 4)
                    .load(MemoryOrder::Full),
                index as u64 + 1
            );
        }
    }
}
