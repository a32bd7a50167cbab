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

fn freeze(host: Host, slot: &<Host as Machine>::Slot, shards: &[Shard]) {
    for &shard in shards {
        slot.word(shard, STATE)
            .fetch_or(State::FROZEN, MemoryOrder::Full);
    }
    host.fence();
    shards.iter().for_each(|&shard| slot.settle(shard));
}

fn thaw(slot: &<Host as Machine>::Slot, shards: &[Shard]) {
    for &shard in shards {
        slot.word(shard, STATE)
            .fetch_and(!State::FROZEN, MemoryOrder::Full);
    }
}

/// A slot whose shard of this CPU has bounds, and the shard.
fn bounded_slot(host: Host, charged: i64, cap: u64) -> (<Host as Machine>::Slot, Shard) {
    pin_to(allowed_cpus()[0]).unwrap();
    let (slot, shard) = (published_slot(host), host.current_shard());
    slot.word(shard, CAP).store(cap, MemoryOrder::Full);
    let adjusted = on_this_shard(host, |shard| slot.adjust(shard, charged, cap as i64));
    assert_eq!(adjusted, Outcome::Done);
    (slot, shard)
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
    use Outcome::{Done, Short};
    let host = host();
    assert_eq!(
        published_slot(host).charge(1),
        Short,
        "nothing is there yet"
    );
    let (slot, shard) = bounded_slot(host, 0, 100);
    for (bytes, outcome) in [
        (0, Short),
        (u64::MAX, Short),
        (1 << 63, Short),
        (101, Short),
    ] {
        assert_eq!(slot.charge(bytes), outcome, "{bytes}");
    }
    assert_eq!(
        [60, 40, 1].map(|bytes| slot.charge(bytes)),
        [Done, Done, Short]
    );
    assert_eq!(slot.room(shard), 0);
    assert_eq!([100, 1].map(|bytes| slot.uncharge(bytes)), [Done, Short]);
    assert_eq!(slot.charge(30), Done);
    for beyond in [31, 1 << 63, i64::MAX as u64, u64::MAX - 20, u64::MAX] {
        assert_eq!(slot.uncharge(beyond), Short, "{beyond}");
    }
    assert_eq!(slot.uncharge(30), Done);
    assert_eq!(slot.room(shard), 100);
    // The room would be negative, or exceed the cap.
    for (charged, ceiling) in [(1, -100), (0, 1), (-1, 0), (-50, -40)] {
        let adjusted = slot.adjust(shard, charged, ceiling);
        assert_eq!(adjusted, Short, "{charged} {ceiling}");
    }
    for by in [-50, 50] {
        assert_eq!(slot.adjust(shard, by, by), Done);
    }
    // Any thread may adjust the shard of those without a CPU.
    let extra = Shard(host.cpus() as u32);
    slot.word(extra, STATE)
        .store(State::PUBLISHED, MemoryOrder::Full);
    for by in [7, -7] {
        assert_eq!(slot.adjust(extra, by, by), Done);
    }
    assert_eq!(sum(host, &slot, CHARGED), 0);
}

/// A bug of a caller may move both words of an account beyond the signed range, one before the other. Only their difference counts.
#[test]
fn words_that_wrap_change_no_room() {
    use Outcome::{Done, Short};
    const STEP: i64 = 1 << 62;
    let host = host();
    let (slot, shard) = bounded_slot(host, 0, 100);
    for by in [-STEP, -STEP, -STEP, STEP, STEP, STEP, STEP, STEP] {
        // Both words on either side of the end of the range, and one on each side.
        for near in [-150, 0, 120] {
            assert_eq!(
                slot.adjust(shard, by + near, by + near),
                Done,
                "{by} {near}"
            );
            assert_eq!(slot.room(shard), 100, "{by} {near}");
            assert_eq!([101, 60].map(|bytes| slot.charge(bytes)), [Short, Done]);
            assert_eq!([61, 60].map(|bytes| slot.uncharge(bytes)), [Short, Done]);
            for (charged, ceiling) in [(0, 1), (101, 0), (0, -101), (-1, 0)] {
                let adjusted = slot.adjust(shard, charged, ceiling);
                assert_eq!(adjusted, Short, "{by} {near}: {charged} {ceiling}");
            }
            assert_eq!(slot.adjust(shard, 0, -100), Done, "{by} {near}");
            assert_eq!(slot.adjust(shard, -near, -near), Done, "{by} {near}");
            assert_eq!(slot.adjust(shard, -near, -near), Done, "{by} {near}");
            assert_eq!(slot.adjust(shard, near, near + 100), Done, "{by} {near}");
            assert_eq!(slot.adjust(shard, -by, -by), Done, "{by} {near}");
        }
        assert_eq!(slot.adjust(shard, by, by), Done, "{by}");
    }
    freeze(host, &slot, &[shard]);
    assert_eq!(slot.take_room(shard), 100);
    thaw(&slot, &[shard]);
    assert_eq!(slot.room(shard), 0);
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
    let (slot, shard) = bounded_slot(host, 300, 1000);
    freeze(host, &slot, &[shard]);
    let committed = false;
    let refused = Outcome::Unpublished { shard, committed };
    let outcomes = [slot.charge(1), slot.uncharge(1), slot.adjust(shard, 1, 1)];
    assert_eq!(outcomes, [refused; 3]);
    assert_eq!([(); 2].map(|()| slot.take_room(shard)), [700, 0]);
    thaw(&slot, &[shard]);
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
    let of_cpus: Vec<Shard> = shards(host).take(host.cpus()).collect();
    for &shard in &of_cpus {
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
            freeze(host, &slot, &of_cpus);
            for &shard in &of_cpus {
                assert!(slot.room(shard) >= 0);
                supply += slot.take_room(shard) as i64;
            }
            let charged = sum(host, &slot, CHARGED);
            assert_eq!(charged + supply, BYTES, "while all is frozen");
            thaw(&slot, &of_cpus);
        }
        stop.store(true, Ordering::Relaxed);
        let held: i64 = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum();
        assert_eq!(sum(host, &slot, CHARGED), held);
    });
    // A CPU where more was returned than charged has both words below 0. The room is what must not be.
    assert!(of_cpus.iter().all(|&shard| slot.room(shard) >= 0));
}

/// Signals come inside of sections, and their handler changes the same words. Each section that a signal cut happens once, as a whole.
#[test]
#[cfg(target_os = "linux")]
fn signals_inside_of_sections_lose_nothing() {
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicI64;

    const COUNT: usize = FIRST_STATISTIC;
    static SLOT: OnceLock<<Host as Machine>::Slot> = OnceLock::new();
    static STOP: AtomicBool = AtomicBool::new(false);
    static ADDED: AtomicI64 = AtomicI64::new(0);
    static ADJUSTED: AtomicI64 = AtomicI64::new(0);
    /// Bytes that were adjusted on shards that hold stock.
    static WITH_STOCK: AtomicI64 = AtomicI64::new(0);

    /// Adds to one word, and to both words of the account.
    fn change() {
        let slot = SLOT.get().unwrap();
        assert_eq!(slot.add(COUNT, 1), Outcome::Done);
        ADDED.fetch_add(1, Ordering::Relaxed);
        let shard = host().current_shard();
        if slot.adjust(shard, 1, 1) == Outcome::Done {
            ADJUSTED.fetch_add(1, Ordering::Relaxed);
            WITH_STOCK.fetch_add(i64::from(shard.index() < host().cpus()), Ordering::Relaxed);
        }
    }
    extern "C" fn handle(_: libc::c_int) {
        change();
    }

    let host = host();
    let slot = SLOT.get_or_init(|| published_slot(host));
    let handler = handle as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler calls functions that signal handlers may call.
    let before = unsafe { libc::signal(libc::SIGUSR1, handler) };
    assert_ne!(before, libc::SIG_ERR);
    let workers = [0, 1].map(|cpu| {
        std::thread::spawn(move || {
            let cpus = allowed_cpus();
            let _ = pin_to(cpus[cpu % cpus.len()]);
            while !STOP.load(Ordering::Relaxed) {
                (0..100).for_each(|_| change());
            }
        })
    });
    for _ in 0..20_000 {
        for worker in &workers {
            // SAFETY: the thread lives until it is joined below.
            let sent = unsafe { libc::pthread_kill(worker.as_pthread_t(), libc::SIGUSR1) };
            assert_eq!(sent, 0);
        }
    }
    STOP.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().unwrap();
    }
    let added = ADDED.load(Ordering::Relaxed);
    assert!(added > 10_000, "{added}");
    assert_eq!(sum(host, slot, COUNT), added);
    let adjusted = ADJUSTED.load(Ordering::Relaxed);
    assert_eq!(sum(host, slot, CHARGED), adjusted);
    if host.report().backend == Backend::Rseq {
        assert_eq!(sum(host, slot, CEILING), WITH_STOCK.load(Ordering::Relaxed));
    }
}

#[test]
fn slots_do_not_overlap() {
    const LAST: usize = FIRST_STATISTIC + 4;
    let host = host();
    let slots = host.slots(LAST + 1).unwrap();
    assert!(slots.len() > 1);
    for (number, slot) in (1..).zip(&slots) {
        for shard in shards(host) {
            slot.word(shard, LAST).store(number, MemoryOrder::Full);
        }
    }
    for (number, slot) in (1..).zip(&slots) {
        for shard in shards(host) {
            let words = [STATE, LAST].map(|word| slot.word(shard, word).load(MemoryOrder::Full));
            assert_eq!(words, [0, number]);
        }
    }
}

/// Sections have a short form, and the other backends have none.
#[test]
fn the_short_forms_charge_where_there_are_sections() {
    let host = host();
    let (slot, shard) = bounded_slot(host, 0, 100);
    let is_short = host.report().backend == Backend::Rseq;
    assert_eq!(
        [101, 100, 1].map(|bytes| slot.charge_at_once(bytes)),
        [false, is_short, false]
    );
    assert_eq!(slot.room(shard), if is_short { 0 } else { 100 });
    assert_eq!(
        [101, 60, 41].map(|bytes| slot.uncharge_at_once(bytes)),
        [false, is_short, false]
    );
    assert_eq!(slot.room(shard), if is_short { 60 } else { 100 });
}
