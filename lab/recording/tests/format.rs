//! The format: what is written comes back, and nothing that a file says can do more than fail.

use std::io::{self, Read};

use bursar_recording::{
    BLOCK_BYTES_MAX, Burst, BurstKind, Cause, CpuChange, DamageKind, End, Event, Events, Flush,
    Header, Hold, LockKind, Node, ReadError, Recording, StatRead, TIME_NS_MAX, Upkeep, Wait,
    WriteError, Writer, Zone,
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

    fn option(&mut self, bound: u64) -> Option<u64> {
        (self.below(3) > 0).then(|| self.below(bound))
    }
}

const START_NS: u64 = 86_400_000_000_000;

fn header() -> Header {
    Header {
        kernel_release: "6.12.0-synthetic".to_owned(),
        hz: Some(250),
        is_virtual: true,
        page_bytes: 4_096,
        stat_interval_ms: 1_000,
        cpus_online: 4,
        cpus_possible: 8,
        nodes: vec![Node { node: 0, cpus: 4 }, Node { node: 2, cpus: 0 }],
        zones: vec![
            Zone {
                node: 0,
                name: "Normal".to_owned(),
                managed_pages: 1 << 20,
                min_pages: 7,
                low_pages: 9_000,
                high_pages: 12_000,
                pcp_batch: 63,
                pcp_high: 2_250,
                pcp_high_range: Some((2_250, 32_768)),
            },
            Zone {
                node: 2,
                name: "Movable".to_owned(),
                managed_pages: 5,
                min_pages: 7,
                low_pages: 0,
                high_pages: 0,
                pcp_batch: 1,
                pcp_high: 0,
                pcp_high_range: None,
            },
        ],
        start_ns: START_NS,
        events: Events::of(&Event::ALL),
    }
}

/// A recording with records of all kinds; as many of each as `count`.
fn recording(seed: u64, count: u64) -> Recording {
    let mut random = Random(seed);
    let mut recording = Recording::new(header());
    let second = 1_000_000_000;
    for _ in 0..count {
        let random = &mut random;
        // Not in the order of time: rings of several CPUs are read one after the other.
        let mut time = || START_NS + random.below(20 * second);
        let (start_ns, other_ns) = (time(), time());
        let cpu = random.below(8) as u32;
        let end_ns = start_ns + random.below(second);
        recording.upkeeps.push(Upkeep {
            cpu,
            cause: [
                Cause::Timer,
                Cause::Shepherd,
                Cause::IdleEntry,
                Cause::Unknown,
            ][random.below(4) as usize],
            target_jiffy: random.option(1 << 40),
            slot_jiffy: random.option(1 << 40),
            expire_jiffy: random.option(1 << 40),
            expire_ns: random.option(2 * START_NS),
            start_ns,
            end_ns,
            pages: random.option(1 << 20),
        });
        recording.bursts.push(Burst {
            cpu,
            pid: random.next() as u32,
            zone: random.option(2).map(|zone| zone as u16),
            kind: [BurstKind::Drain, BurstKind::Refill][random.below(2) as usize],
            start_ns,
            end_ns,
            pages: random.below(5_000),
            order: random.option(11).map(|order| order as u8),
            hold: [Hold::Traced, Hold::Proven, Hold::Several, Hold::Unknown]
                [random.below(4) as usize],
        });
        recording.flushes.push(Flush {
            cgroup: random.next(),
            cpu,
            start_ns,
            end_ns,
            wait_ns: random.option(end_ns - start_ns + 1),
            pid: cpu,
            held_ns: random.option(end_ns - start_ns + 1),
            is_skipped: random.option(2).map(|yes| yes == 1),
            is_forced: random.option(2).map(|yes| yes == 1),
            pending_updates: random.option(TIME_NS_MAX),
        });
        recording.stat_reads.push(StatRead {
            pid: random.next() as u32,
            cgroup: random.next(),
            start_ns: other_ns,
            latency_ns: random.below(second),
            staleness_ns: random.option(second),
        });
        recording.waits.push(Wait {
            cpu,
            lock: [LockKind::Zone, LockKind::Rstat, LockKind::Other][random.below(3) as usize],
            start_ns: other_ns,
            end_ns: other_ns + random.below(second),
        });
        recording.cpu_changes.push(CpuChange {
            at_ns: start_ns,
            cpus_online: 1 + random.below(8) as u32,
        });
        recording
            .names
            .processes
            .insert(random.next() as u32, format!("task-{cpu}"));
        recording
            .names
            .cgroups
            .insert(random.next(), "/system.slice/one".to_owned());
    }
    recording.end = Some(End {
        duration_ns: 21 * second,
        lost_events: 3,
        records: recording.records() as u64,
        gap_at_batch_ns: random.option(1_000),
        gap_elsewhere_ns: random.option(1_000),
    });
    recording
}

fn bytes(recording: &Recording) -> Vec<u8> {
    let mut file = Vec::new();
    recording.write(&mut file).expect("written");
    file
}

#[test]
fn what_is_written_comes_back() {
    for (seed, count) in [(1, 0), (2, 1), (3, 300), (4, 20_000)] {
        let written = recording(seed, count);
        let (read, damage) = Recording::read(bytes(&written).as_slice()).expect("a recording");
        assert_eq!(damage, None);
        assert_eq!(read, written);
    }
}

#[test]
fn regular_upkeep_needs_few_bytes() {
    let mut recording = Recording::new(header());
    for second in 0..1_000 {
        for cpu in 0..4 {
            let expire_ns = START_NS + second * 1_000_000_000 + u64::from(cpu) * 12_000_000;
            recording.upkeeps.push(Upkeep {
                cpu,
                target_jiffy: Some(4_300_000_000 + second * 250 - 3 * u64::from(cpu)),
                slot_jiffy: Some(4_300_000_000 + second * 250),
                expire_ns: Some(expire_ns),
                start_ns: expire_ns + 9_000,
                end_ns: expire_ns + 12_000,
                ..Upkeep::default()
            });
        }
    }
    let length = bytes(&recording).len();
    assert!(length < 4_000 * 18, "{length}");
}

/// Every beginning of a file gives its records up to a block, or a header that is not whole, and never an end.
#[test]
fn a_file_that_is_cut_off_gives_what_it_has() {
    let written = recording(5, 4_000);
    let file = bytes(&written);
    let mut most = 0;
    let mut random = Random(6);
    let lengths = (0..2_000).chain((0..500).map(|_| random.below(file.len() as u64) as usize));
    for length in lengths {
        match Recording::read(&file[..length]) {
            Ok((read, damage)) => {
                let damage = damage.expect("it is cut off");
                assert_eq!(damage.kind, DamageKind::CutOff, "{length}");
                assert!(damage.offset <= length as u64);
                assert_eq!(read.end, None);
                assert!(written.upkeeps.starts_with(&read.upkeeps));
                assert!(written.bursts.starts_with(&read.bursts));
                most = most.max(read.records());
            }
            Err(ReadError::NotARecording) => assert!(length < 10),
            Err(ReadError::Header(damage)) => assert_eq!(damage.kind, DamageKind::CutOff),
            Err(error) => panic!("{length}: {error}"),
        }
    }
    assert!(most > 0, "some of it was read");
}

/// A changed bit is found, wherever it is.
#[test]
fn every_changed_bit_is_found() {
    let written = recording(7, 12);
    let file = bytes(&written);
    for place in 0..file.len() * 8 {
        let mut changed = file.clone();
        changed[place / 8] ^= 1 << (place % 8);
        if let Ok((_, damage)) = Recording::read(changed.as_slice()) {
            assert!(damage.is_some(), "bit {place}");
        }
    }
}

/// Contents that no writer makes, with right checksums: decoding must return, within its bounds.
#[test]
fn hostile_contents_do_no_more_than_fail() {
    let mut random = Random(8);
    let seeds = [bytes(&recording(9, 3)), bytes(&recording(10, 40))];
    let (mut read_whole, mut refused) = (0, 0);
    for case in 0..60_000 {
        let mut file = seeds[case % seeds.len()].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut file, &mut random);
        }
        // Otherwise the checksum would stop most of them.
        mend(&mut file);
        match Recording::read(file.as_slice()) {
            Ok((read, damage)) => {
                check_bounds(&read);
                match damage {
                    None => read_whole += 1,
                    Some(_) => refused += 1,
                }
                // What was read can be written again.
                let again = bytes(&read);
                assert!(Recording::read(again.as_slice()).is_ok());
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    // Otherwise the cases are too tame, or too wild.
    assert!(
        read_whole > 1_000 && refused > 1_000,
        "{read_whole} {refused}"
    );
}

fn mutate(file: &mut Vec<u8>, random: &mut Random) {
    if file.is_empty() {
        return;
    }
    let place = random.below(file.len() as u64) as usize;
    match random.below(6) {
        0 => file[place] ^= 1 << random.below(8),
        1 => file[place] = random.next() as u8,
        2 => file[place] = 0xff,
        3 => file.truncate(place),
        4 => {
            let end = (place + random.below(40) as usize).min(file.len());
            file.drain(place..end);
        }
        _ => {
            let end = (place + random.below(40) as usize).min(file.len());
            let copy = file[place..end].to_vec();
            file.splice(place..place, copy);
        }
    }
}

/// Sets the checksums of all blocks as far as their lengths lead, and the lengths of some that lead too far.
fn mend(file: &mut [u8]) {
    const FRAME: usize = 13;
    let mut at = 10;
    while at + FRAME <= file.len() {
        let four = [5, 6, 7, 8].map(|byte| file[at + byte]);
        let left = file.len() - at - FRAME;
        let length = (u32::from_le_bytes(four) as usize).min(left);
        file[at + 5..at + 9].copy_from_slice(&(length as u32).to_le_bytes());
        let crc = {
            let covered = file[at..at + 9].iter();
            let contents = file[at + FRAME..at + FRAME + length].iter();
            crc(covered.chain(contents))
        };
        file[at + 9..at + FRAME].copy_from_slice(&crc.to_le_bytes());
        at += FRAME + length;
    }
}

/// CRC-32, bit by bit.
fn crc<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

fn check_bounds(read: &Recording) {
    let header = &read.header;
    assert!(header.cpus_online <= header.cpus_possible);
    for upkeep in &read.upkeeps {
        assert!(upkeep.cpu < header.cpus_possible);
        assert!(upkeep.start_ns <= upkeep.end_ns && upkeep.end_ns <= TIME_NS_MAX);
    }
    for burst in &read.bursts {
        assert!(burst.cpu < header.cpus_possible && burst.start_ns <= burst.end_ns);
        assert!(burst.pages <= TIME_NS_MAX && burst.end_ns <= TIME_NS_MAX);
    }
    for flush in &read.flushes {
        assert!(flush.wait_ns.unwrap_or(0) <= flush.end_ns - flush.start_ns);
    }
    for stat_read in &read.stat_reads {
        assert!(stat_read.start_ns + stat_read.latency_ns <= TIME_NS_MAX);
    }
    let names = read
        .names
        .processes
        .values()
        .chain(read.names.cgroups.values());
    for name in names {
        assert!(!name.chars().any(char::is_control), "{name:?}");
    }
    assert!(read.duration_ns() <= TIME_NS_MAX);
}

#[test]
fn other_files_are_refused_by_what_they_are() {
    assert!(matches!(
        Recording::read(&b""[..]),
        Err(ReadError::NotARecording)
    ));
    assert!(matches!(
        Recording::read(&b"{\"schema\": 1}"[..]),
        Err(ReadError::NotARecording)
    ));
    let mut later = bytes(&recording(11, 1));
    later[8] = 2;
    let error = Recording::read(later.as_slice()).expect_err("a later version");
    assert!(matches!(error, ReadError::UnknownVersion { version: 2 }));
    assert!(error.to_string().contains("version 2"));
}

#[test]
fn a_block_that_claims_to_be_long_is_refused_before_it_is_read() {
    /// Zeros without an end, counted.
    struct Endless(usize);
    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            into.fill(0);
            self.0 += into.len();
            Ok(into.len())
        }
    }
    let mut file = bytes(&recording(12, 1));
    let end_block = file.len() - 13 - 5;
    file.truncate(end_block);
    let mut frame = [0xff; 13];
    frame[0] = 3;
    file.extend_from_slice(&frame);
    let mut endless = Endless(0);
    let (_, damage) = Recording::read(file.as_slice().chain(&mut endless)).expect("its beginning");
    let kind = damage.expect("too long").kind;
    assert!(
        matches!(kind, DamageKind::TooLong { .. } | DamageKind::Checksum),
        "{kind:?}"
    );
    assert!(endless.0 <= BLOCK_BYTES_MAX);
}

#[test]
fn blocks_of_later_programs_are_passed_over() {
    let written = recording(13, 2);
    let file = bytes(&written);
    let mut block = vec![200, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    block.extend_from_slice(b"new!");
    // Behind the header.
    let header_bytes = u32::from_le_bytes([file[15], file[16], file[17], file[18]]) as usize;
    let at = 10 + 13 + header_bytes;
    let mut with_block = file.clone();
    with_block.splice(at..at, block);
    mend(&mut with_block);
    let (read, damage) = Recording::read(with_block.as_slice()).expect("a recording");
    assert_eq!((read, damage), (written, None));
}

#[test]
fn a_missing_block_is_noticed() {
    let written = recording(14, 2);
    let file = bytes(&written);
    let four = |at: usize| {
        u32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]]) as usize
    };
    // The block of upkeep.
    let mut at = 10;
    while file[at] != 2 {
        at += 13 + four(at + 5);
    }
    let end = at + 13 + four(at + 5);
    let mut without = file.clone();
    without.drain(at..end);
    let (read, damage) = Recording::read(without.as_slice()).expect("a recording");
    let kind = damage.expect("miscounted").kind;
    assert!(matches!(kind, DamageKind::Miscounted { .. }), "{kind:?}");
    assert!(read.upkeeps.is_empty() && read.bursts == written.bursts);
}

#[test]
fn a_record_that_no_reader_takes_is_not_written() {
    let mut writer = Writer::new(Vec::new(), &header()).expect("a header");
    let bad = Upkeep {
        cpu: 8,
        start_ns: START_NS,
        end_ns: START_NS,
        ..Upkeep::default()
    };
    let error = writer.upkeep(&bad).expect_err("there are 8 CPUs");
    assert!(matches!(error, WriteError::OutOfRange(_)), "{error}");
    writer
        .upkeep(&Upkeep { cpu: 7, ..bad })
        .expect("the last CPU");
    let file = writer.finish(End::default()).expect("written");
    let (read, damage) = Recording::read(file.as_slice()).expect("a recording");
    assert_eq!((read.upkeeps.len(), damage), (1, None));
    let no_cpus = Header {
        cpus_online: 0,
        ..header()
    };
    assert!(Writer::new(Vec::new(), &no_cpus).is_err());
}

#[test]
fn errors_of_the_source_are_errors() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let file = bytes(&recording(15, 1));
    let error = Recording::read(file[..40].chain(Broken)).expect_err("no file");
    assert!(error.to_string().contains("the disk is gone"));
}

#[test]
fn redaction_leaves_no_name() {
    let mut named = recording(16, 3);
    named.header.kernel_release = "6.12.3-acme+".to_owned();
    let redacted = named.redacted();
    assert_eq!(redacted.header.kernel_release, "6.12.3");
    let text = String::from_utf8_lossy(&bytes(&redacted)).into_owned();
    for name in ["acme", "task-", "system.slice"] {
        assert!(!text.contains(name), "{name}");
    }
    assert_eq!(redacted.upkeeps, named.upkeeps);
}
