//! Synthetic recordings: of machines that do not exist, made by rules that are written down here.
//!
//! The rules for timers are the kernel's, written once more and not taken from the library, so that a replay is checked
//! against something else. Durations and pages are plausible and made up.
//!
//! `BURSAR_WRITE_FIXTURES=1 cargo test -p bursar-recording --test synthetic` writes the files anew.

use std::path::{Path, PathBuf};

use bursar_recording::{
    Burst, BurstKind, Cause, End, Event, Events, Flush, Header, Hold, LockKind, Node, Recording,
    StatRead, Upkeep, Wait, Zone,
};

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The clock of a machine.
#[derive(Clone, Copy)]
struct Ticks {
    hz: u64,
    tick_ns: u64,
}

/// Tick at which the clock of events began: jiffies begin five minutes before 2^32.
const FIRST_JIFFY: u64 = (1 << 32) - 300_000;
const START_NS: u64 = 5_000_123_456_789;
const SECOND_NS: u64 = 1_000_000_000;

impl Ticks {
    fn new(hz: u64) -> Self {
        Self {
            hz,
            tick_ns: SECOND_NS / hz,
        }
    }

    fn jiffy(self, at_ns: u64) -> u64 {
        FIRST_JIFFY + at_ns / self.tick_ns
    }

    fn at(self, jiffy: u64) -> u64 {
        (jiffy - FIRST_JIFFY) * self.tick_ns
    }

    /// A second from now, rounded to a whole second less three ticks a CPU.
    fn target(self, now: u64, cpu: u64) -> u64 {
        let skewed = now + self.hz + 3 * cpu;
        let over = skewed % self.hz;
        let rounded = if over < self.hz / 4 {
            skewed - over
        } else {
            skewed - over + self.hz
        };
        match rounded - 3 * cpu {
            target if target > now => target,
            _ => now + self.hz,
        }
    }

    /// The wheel's bucket: levels of 64 buckets, each eight times as coarse as the one before.
    fn slot(self, now: u64, target: u64) -> u64 {
        let mut grain = 1;
        while target - now >= 63 * grain {
            grain *= 8;
        }
        (target / grain + 1) * grain
    }
}

fn zone(node: u32, name: &str, managed_pages: u64, cpus: u64) -> Zone {
    let low_pages = managed_pages / 800;
    Zone {
        node,
        name: name.to_owned(),
        managed_pages,
        min_pages: low_pages * 4 / 5,
        low_pages,
        high_pages: low_pages * 6 / 5,
        pcp_batch: 63,
        pcp_high: (low_pages / cpus).max(252),
        pcp_high_range: None,
    }
}

/// A busy machine of 72 CPUs, in deep mode: bursts, waits and flushes.
fn synthetic_72_cpus() -> Recording {
    const CPUS: u64 = 72;
    const SECONDS: u64 = 9;
    const PAGE_NS: u64 = 24;
    let ticks = Ticks::new(1_000);
    let mut random = Random(72);
    let mut recording = Recording::new(Header {
        kernel_release: "6.12.0-synthetic".to_owned(),
        hz: Some(1_000),
        page_bytes: 4_096,
        stat_interval_ms: 1_000,
        cpus_online: CPUS as u32,
        cpus_possible: CPUS as u32,
        is_virtual: false,
        nodes: vec![Node { node: 0, cpus: 72 }],
        zones: vec![zone(0, "Normal", 128 << 18, CPUS)],
        start_ns: START_NS,
        events: Events::of(&[
            Event::UpkeepWork,
            Event::TimerTargets,
            Event::TimerSlots,
            Event::Drains,
            Event::Refills,
            Event::LockWaits,
            Event::FlushLocks,
            Event::FlushDecisions,
            Event::StatReads,
        ]),
    });
    // Timers as they were set in the second before, then call after call. All CPUs share the zone's lock.
    let begin = ticks.jiffy(START_NS);
    let mut queue: Vec<(u64, u64, u64)> = (0..CPUS)
        .map(|cpu| {
            let set = begin - random.below(900);
            let target = ticks.target(set, cpu);
            (ticks.slot(set, target), cpu, target)
        })
        .collect();
    let mut lock_free_ns = 0;
    let end_ns = START_NS + SECONDS * SECOND_NS;
    loop {
        queue.sort_unstable();
        let (slot, cpu, target) = queue.remove(0);
        let expire_ns = ticks.at(slot) + 1_500 + random.below(3_000);
        if expire_ns >= end_ns {
            break;
        }
        let start_ns = expire_ns + 2_000 + random.below(20_000);
        let pages = match random.below(10) {
            0..5 => 0,
            5..9 => 63 * (1 + random.below(8)),
            _ => 2_016,
        };
        let mut done_ns = start_ns + 2_400 + random.below(600);
        if pages > 0 {
            if lock_free_ns > done_ns {
                recording.waits.push(Wait {
                    cpu: cpu as u32,
                    lock: LockKind::Zone,
                    start_ns: done_ns,
                    end_ns: lock_free_ns,
                });
            }
            done_ns = done_ns.max(lock_free_ns) + pages * PAGE_NS;
            lock_free_ns = done_ns;
        }
        if expire_ns >= START_NS {
            recording.upkeeps.push(Upkeep {
                cpu: cpu as u32,
                cause: Cause::Timer,
                target_jiffy: Some(target),
                slot_jiffy: Some(slot),
                expire_jiffy: Some(slot),
                expire_ns: Some(expire_ns),
                start_ns,
                end_ns: done_ns,
                pages: Some(pages),
            });
        }
        let set = ticks.jiffy(done_ns);
        let target = ticks.target(set, cpu);
        queue.push((ticks.slot(set, target), cpu, target));
    }
    for number in 0..3_000 {
        let cpu = random.below(CPUS) as u32;
        let start_ns = START_NS + random.below(SECONDS * SECOND_NS);
        let (kind, pages) = match random.below(20) {
            0 => (BurstKind::Drain, 2_016),
            1..10 => (BurstKind::Drain, 63),
            _ => (BurstKind::Refill, 63 << random.below(3)),
        };
        recording.bursts.push(Burst {
            cpu,
            pid: 1_000 + cpu,
            zone: Some(0),
            kind,
            start_ns,
            end_ns: start_ns + pages * (PAGE_NS + random.below(8)),
            pages,
            order: None,
            hold: if pages > 1_000 && number % 8 == 0 {
                Hold::Proven
            } else {
                Hold::Unknown
            },
        });
    }
    add_flushes(&mut recording, &mut random, CPUS, SECONDS);
    finish(recording, SECONDS)
}

/// Readers of `memory.stat`, ten times a second, of twelve groups below two.
fn add_flushes(recording: &mut Recording, random: &mut Random, cpus: u64, seconds: u64) {
    let names = &mut recording.names.cgroups;
    names.insert(1, "/".to_owned());
    for slice in 0..2 {
        names.insert(10 + slice, format!("/slice-{slice}"));
        for group in 0..6 {
            names.insert(
                100 + slice * 10 + group,
                format!("/slice-{slice}/group-{group}"),
            );
        }
    }
    recording.names.processes.insert(900, "exporter".to_owned());
    let mut pending_of = [0; 200];
    for tenth in 0..seconds * 10 {
        for slice in 0..2 {
            for group in 0..6 {
                let cgroup = 100 + slice * 10 + group;
                let start_ns = START_NS + tenth * SECOND_NS / 10 + random.below(SECOND_NS / 11);
                let cpu = random.below(cpus) as u32;
                // Above this, a flush is worth it.
                let threshold = 64 * cpus;
                let pending: &mut u64 = &mut pending_of[cgroup as usize];
                *pending += 1_000 + random.below(7_000);
                let is_skipped = *pending <= threshold;
                let pending = match is_skipped {
                    true => *pending,
                    false => std::mem::take(pending),
                };
                let time_ns = match is_skipped {
                    true => 150 + random.below(100),
                    false => 20_000 + random.below(60_000),
                };
                recording.flushes.push(Flush {
                    cgroup,
                    cpu,
                    pid: 900,
                    start_ns,
                    end_ns: start_ns + time_ns,
                    wait_ns: Some(0),
                    held_ns: Some(if is_skipped { 0 } else { time_ns - 200 }),
                    is_skipped: Some(is_skipped),
                    is_forced: Some(false),
                    pending_updates: Some(pending),
                });
                recording.stat_reads.push(StatRead {
                    pid: 900,
                    cgroup,
                    start_ns: start_ns - 1_000,
                    latency_ns: time_ns + 30_000,
                    staleness_ns: None,
                });
            }
        }
    }
}

/// An idle virtual machine of 2 CPUs, in light mode: durations and timers, no pages. CPU 1 sleeps for long.
fn synthetic_2_cpus() -> Recording {
    const SECONDS: u64 = 20;
    let ticks = Ticks::new(250);
    let mut random = Random(2);
    let mut recording = Recording::new(Header {
        kernel_release: "6.1.0-synthetic".to_owned(),
        hz: Some(250),
        page_bytes: 4_096,
        stat_interval_ms: 1_000,
        cpus_online: 2,
        cpus_possible: 2,
        is_virtual: true,
        nodes: vec![Node { node: 0, cpus: 2 }],
        zones: vec![zone(0, "DMA32", 3 << 18, 2), zone(0, "Normal", 1 << 18, 2)],
        start_ns: START_NS,
        events: Events::of(&[Event::UpkeepWork, Event::TimerTargets, Event::TimerSlots]),
    });
    for cpu in 0..2 {
        let mut set = ticks.jiffy(START_NS) - 100;
        loop {
            let target = ticks.target(set, cpu);
            let slot = ticks.slot(set, target);
            // A sleeping CPU runs its timer when something else wakes it.
            let late_ns = match cpu == 1 && random.below(3) == 0 {
                true => random.below(400) * 1_000_000,
                false => 0,
            };
            let expire_ns = ticks.at(slot) + late_ns + 2_000 + random.below(5_000);
            if expire_ns >= START_NS + SECONDS * SECOND_NS {
                break;
            }
            let start_ns = expire_ns + 5_000 + random.below(30_000);
            let end_ns = start_ns + 3_000 + random.below(4_000) + random.below(100) / 97 * 90_000;
            if expire_ns >= START_NS {
                recording.upkeeps.push(Upkeep {
                    cpu: cpu as u32,
                    cause: Cause::Timer,
                    target_jiffy: Some(target),
                    slot_jiffy: Some(slot),
                    expire_jiffy: Some(ticks.jiffy(expire_ns)),
                    expire_ns: Some(expire_ns),
                    start_ns,
                    end_ns,
                    pages: None,
                });
            }
            set = ticks.jiffy(end_ns);
        }
    }
    finish(recording, SECONDS)
}

fn finish(mut recording: Recording, seconds: u64) -> Recording {
    recording.sort();
    recording.end = Some(End {
        duration_ns: seconds * SECOND_NS,
        records: recording.records() as u64,
        ..End::default()
    });
    recording
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

#[test]
fn the_files_are_what_the_rules_make() {
    for (name, recording) in [
        ("synthetic-2-cpus.bursar", synthetic_2_cpus()),
        ("synthetic-72-cpus.bursar", synthetic_72_cpus()),
    ] {
        let path = fixture(name);
        let mut bytes = Vec::new();
        recording.write(&mut bytes).expect("written");
        if std::env::var_os("BURSAR_WRITE_FIXTURES").is_some() {
            std::fs::write(&path, &bytes).expect("a file");
        }
        let file = std::fs::read(&path).expect("the fixture");
        assert!(
            file == bytes,
            "{} is not what its rules make",
            path.display()
        );
        assert_eq!(
            Recording::read(file.as_slice()).expect(name),
            (recording, None)
        );
    }
}
