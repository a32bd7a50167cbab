//! Files that `trace-cmd` 3.1.6 and `perf` 6.1 recorded on a real kernel (6.18, x86-64, 2 CPUs, a guest), read without privileges.
//!
//! The commands are those of `observe/docs/observe.md`, except that the files of the deep mode have no pages of order 0. `trace-cmd` saw
//! a `/proc/kallsyms` with few lines. Records of other processes' mappings and ends were removed from the files of `perf`.

#![cfg(target_endian = "little")]

use std::fs;
use std::io::Cursor;
use std::path::Path;

use bursar_watch::diagnosis::{Answer, Problem, diagnose};
use bursar_watch::figures::Figures;
use bursar_watch::foreign::{self, ForeignError};
use bursar_watch::seen::{HzSource, LockKind, Mode, Seen};
use bursar_watch::symbols::Symbols;

const LIGHT: [&str; 2] = ["6.18-light.trace.dat", "6.18-light.perf.data"];
const DEEP: [&str; 2] = ["6.18-deep.trace.dat", "6.18-deep.perf.data"];

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::read(path.join(name)).expect(name)
}

fn symbols() -> Symbols {
    Symbols::parse(&String::from_utf8(fixture("6.18.kallsyms")).expect("text"))
}

fn read(bytes: &[u8]) -> Result<Seen, ForeignError> {
    foreign::read(Cursor::new(bytes), None)
}

fn seen(name: &str, symbols: Option<Symbols>) -> Seen {
    let read = foreign::read(Cursor::new(fixture(name)), symbols);
    read.expect(name)
}

/// Error of a file whose bytes were changed.
fn refused(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = fixture(name);
    change(&mut bytes);
    read(&bytes).expect_err(name).to_string()
}

fn lacks(seen: &Seen, what: &str) -> bool {
    seen.missing
        .iter()
        .any(|missing| missing.what.contains(what))
}

/// Numbers of calls, of those that followed a timer, of requests, and of flushes: those that other tools count in the files.
#[test]
fn light_files_of_both_programs_have_the_calls_and_flushes_that_other_tools_count() {
    for (name, expected) in LIGHT
        .into_iter()
        .zip([(368, 25, 23, 52, 23), (364, 24, 22, 54, 23)])
    {
        let seen = seen(name, None);
        assert_eq!(seen.machine.kernel, "6.18.44-fc-v669");
        assert_eq!((seen.machine.cpus, seen.machine.hz), (2, Some(250)));
        assert_eq!(seen.machine.hz_source, Some(HzSource::Slope));
        let duration_ns = seen.duration_ns();
        assert!(
            (11_000_000_000..13_000_000_000).contains(&duration_ns),
            "{duration_ns}"
        );
        let timers = seen.upkeep.iter().filter(|it| it.expire_ns.is_some());
        let requests = seen.flushes.iter().filter(|it| it.skipped.is_some());
        let skips = seen.flushes.iter().filter(|it| it.skipped == Some(true));
        let found = (
            seen.losses.events_read,
            seen.upkeep.len(),
            timers.count(),
            requests.count(),
            skips.count(),
        );
        assert_eq!(found, expected, "{name}");
        assert!(
            seen.tasks.iter().any(|task| task.name == "cat"),
            "{:?}",
            seen.tasks
        );
        let [herd, zone, flush] = diagnose(&seen, &Figures::of(&seen)).map(|it| it.answer);
        // Two CPUs are no herd.
        assert_eq!(herd, Answer::Absent, "{name}");
        assert_eq!(
            (zone, flush),
            (Answer::CannotTell, Answer::Absent),
            "{name}"
        );
        // No file of these has the interval.
        assert!(!seen.deep && lacks(&seen, "vm.stat_interval"));
    }
}

#[test]
fn stacks_in_deep_files_name_the_zone_lock() {
    for (name, symbols) in DEEP.into_iter().zip([None, Some(symbols())]) {
        let seen = seen(name, symbols);
        assert!(seen.deep && !seen.bursts.is_empty(), "{name}");
        assert!(
            seen.waits.iter().any(|it| it.lock == LockKind::Zone),
            "{name}"
        );
        assert!(
            seen.waits.iter().any(|it| it.lock == LockKind::Other),
            "{name}"
        );
        assert!(seen.bursts.iter().all(|it| it.zone.is_none()), "{name}");
        assert!(lacks(&seen, "zones"), "{name}");
    }
}

/// As of `perf record -e 'lock:*'`: the other events have no record.
#[test]
fn files_with_lock_events_alone_have_a_verdict() {
    let gone = ["mm_page_pcpu_drain", "mm_page_alloc_zone_locked"];
    for name in DEEP {
        let alone = unrecorded(&fixture(name), &gone);
        let read = |symbols| foreign::read(Cursor::new(&alone), symbols).expect(name);
        let seen = read(Some(symbols()));
        assert_eq!((seen.mode(), seen.bursts.len()), (Mode::Locks, 0), "{name}");
        let [herd, zone, memcg] = diagnose(&seen, &Figures::of(&seen));
        assert_eq!([herd.answer, memcg.answer], [Answer::CannotTell; 2]);
        assert!(zone.why.contains(" for a zone lock: "), "{}", zone.why);
        assert!(!zone.why.contains("mm_page_pcpu_drain"), "{}", zone.why);
    }
}

#[test]
fn losses_of_perf_are_told() {
    let losses = seen(DEEP[1], None).losses;
    assert_eq!((losses.events_read, losses.events_lost), (422, 45));
    assert_eq!(losses.cpus, [1]);
}

/// A wait whose lock nothing names must not count as a wait for another lock than a zone's.
#[test]
fn without_addresses_of_functions_nothing_is_guessed() {
    let seen = seen(DEEP[1], None);
    assert!(lacks(&seen, "stacks of waiters"));
    assert!(seen.waits.iter().all(|it| it.lock == LockKind::Other));
    let [_, zone, _] = diagnose(&seen, &Figures::of(&seen));
    assert_eq!(zone.answer, Answer::CannotTell);
    // With the filter by name in its command, the other file needs none. Without, it does.
    let mut unfiltered = fixture(LIGHT[1]);
    let name = b"vmstat_update";
    while let Some(at) = unfiltered.windows(name.len()).position(|it| it == name) {
        unfiltered[at..at + name.len()].fill(b'x');
    }
    let seen = read(&unfiltered).expect("a file");
    assert_eq!(seen.upkeep.len(), 0);
    assert!(lacks(&seen, "workqueue_execute_start"));
    assert_eq!(seen.machine.hz, Some(250));
    let seen = foreign::read(Cursor::new(unfiltered), Some(symbols())).expect("a file");
    assert_eq!(seen.upkeep.len(), 24);
}

/// `trace-cmd` filters in the kernel. Here the function of the filter is another one, as in a file without filters.
#[test]
fn calls_of_other_functions_do_not_count() {
    let mut other = symbols();
    other.vmstat_update = other.vmstat_update.map(|address| address + 8);
    assert_eq!(seen(LIGHT[0], Some(other)).upkeep.len(), 0);
}

#[test]
fn files_that_cannot_be_read_say_why_and_what_to_do() {
    let says = |error: &str, parts: [&str; 2]| {
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let [dat, perf] = LIGHT;
    let unknown = |bytes: &[u8]| matches!(read(bytes), Err(ForeignError::UnknownKind));
    assert!(unknown(b"") && unknown(b"PERFILE2") && unknown(b"BURSAREC and more"));
    let patch = |bytes: &mut Vec<u8>, at: usize, with: &[u8]| {
        bytes[at..at + with.len()].copy_from_slice(with);
    };
    let clock = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(6).position(|it| it == b"\0mono\0");
        patch(bytes, at.expect("a buffer") + 1, b"ppc_");
    };
    says(&refused(dat, clock), ["clock `ppc_`", "-C mono"]);
    says(
        &refused(perf, |it| patch(it, 0, b"2ELIFREP")),
        ["order of bytes", "such a machine"],
    );
    says(
        &refused(perf, |it| patch(it, 8, &[16, 0])),
        ["pipe", "`perf record -o FILE`"],
    );
    says(
        &refused(perf, |it| patch(it, 72, &[0; 32])),
        ["no formats", "let `perf record` end"],
    );
    says(
        &refused(perf, |it| patch(it, 0, b"PERFFILE")),
        ["perf.data of version 1", "`sudo perf record -a "],
    );
    // Samples by time: all events are of software.
    let profile = |it: &mut Vec<u8>| {
        let number = |at: usize| u64::from_le_bytes(it[at..at + 8].try_into().expect("a place"));
        let (bytes, at, length) = (number(16), number(24), number(32));
        for event in (at..at + length).step_by(bytes as usize) {
            patch(it, event as usize, &[1, 0, 0, 0]);
        }
    };
    says(
        &refused(perf, profile),
        ["it is a profile", "-e lock:contention_begin/call-graph=fp"],
    );
    for (name, magic) in [
        ("gzip", &b"\x1f\x8b\x08\0"[..]),
        ("xz", b"\xfd7zXZ\0"),
        ("zstd", b"\x28\xb5\x2f\xfd"),
    ] {
        let packed = [magic, &[0; 100]].concat();
        let said = read(&packed).expect_err(name).to_string();
        let command = format!("`{name} -d FILE`");
        says(&said, ["packed by", &command]);
    }
    for text in [
        "perf 25292 [000]   521.812443: sched:sched_switch: prev_comm=perf\n",
        "cpus=2\n   cat-94 [001]   81.123456: memcg_flush_stats:    id=7 force=0\n",
    ] {
        let said = read(text.as_bytes()).expect_err("text").to_string();
        says(
            &said,
            ["the text of a recording", "`bursar-observe read perf.data`"],
        );
    }
    let records = |bytes: &[u8]| {
        let place = bytes[40..48].try_into().expect("a place");
        u64::from_le_bytes(place) as usize
    };
    let first = |with: [u8; 4]| {
        move |it: &mut Vec<u8>| {
            let at = records(it);
            patch(it, at, &with);
        }
    };
    says(
        &refused(perf, first([81, 0, 0, 0])),
        ["compressed by zstd", "without `-z`"],
    );
    for bytes in [[7, 0], [0xff, 0xff]] {
        let length = |it: &mut Vec<u8>| {
            let at = records(it);
            patch(it, at + 6, &bytes);
        };
        says(&refused(perf, length), ["at byte 1544", "length"]);
    }
}

/// Moves events to numbers that no record has, as in a file with the formats of all events, of which few were recorded.
fn unrecorded(file: &[u8], events: &[&str]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for event in events {
        let before = format!("name: {event}\nID: ").into_bytes();
        let at = bytes.windows(before.len()).position(|it| it == before);
        let digits = &mut bytes[at.expect("the event") + before.len()..];
        let digits = digits.iter_mut().take_while(|it| it.is_ascii_digit());
        digits.for_each(|digit| *digit = b'9');
    }
    bytes
}

/// Events that each answer needs.
const NEEDED: [&[&str]; 3] = [
    &[
        "workqueue_execute_start",
        "workqueue_execute_end",
        "timer_start",
        "timer_expire_entry",
    ],
    &["contention_begin", "contention_end"],
    &["cgroup_rstat_locked"],
];

#[test]
fn no_answer_is_absent_without_records_of_its_events() {
    const FLUSHES: [&str; 3] = [
        "memcg_flush_stats",
        "cgroup_rstat_lock_contended",
        "cgroup_rstat_unlock",
    ];
    const PAGES: [&str; 2] = ["mm_page_pcpu_drain", "mm_page_alloc_zone_locked"];
    let light: Vec<_> = [NEEDED[0], NEEDED[2], &FLUSHES].concat();
    let deep: Vec<_> = [NEEDED[1], &PAGES].concat();
    let files = LIGHT.map(|name| (name, &light)).into_iter();
    let mut absent = [0; 3];
    for (name, events) in files.chain(DEEP.map(|name| (name, &deep))) {
        let file = fixture(name);
        for subset in 0..1_u32 << events.len() {
            let (kept, gone): (Vec<_>, Vec<_>) =
                (0..events.len()).partition(|event| subset >> event & 1 == 1);
            let [kept, gone]: [Vec<&str>; 2] =
                [kept, gone].map(|it| it.iter().map(|at| events[*at]).collect());
            let bytes = unrecorded(&file, &gone);
            let mut seen = foreign::read(Cursor::new(bytes), Some(symbols())).expect(name);
            // Nothing else excuses a missing wait: neither a guest nor lost events.
            seen.machine.virtualized = Some(false);
            seen.losses.events_lost = 0;
            let verdicts = diagnose(&seen, &Figures::of(&seen));
            for ((verdict, needed), absent) in verdicts.iter().zip(NEEDED).zip(&mut absent) {
                if verdict.answer == Answer::Absent {
                    *absent += 1;
                    let has_all = needed.iter().all(|event| kept.contains(event));
                    assert!(has_all, "{name} with {kept:?}: {verdict:?}");
                }
            }
        }
    }
    assert!(absent.iter().all(|count| *count > 0), "{absent:?}");
}

/// A file of few events names the others, and the command that would have recorded them. Its mode is that of its records.
#[test]
fn a_file_of_few_events_names_what_it_lacks_and_how_to_record_it() {
    let [work, _, flush] = NEEDED;
    let gone = [work, flush, &["cgroup_rstat_lock_contended"]].concat();
    let deep = ["mm_page_alloc_zone_locked"];
    for (file, gone, has_drains, by) in [
        (LIGHT[0], &gone[..], false, "sudo trace-cmd record "),
        (LIGHT[1], &gone, false, "sudo perf record "),
        (
            DEEP[0],
            &[NEEDED[1], &deep].concat(),
            true,
            "sudo trace-cmd record ",
        ),
        (
            DEEP[1],
            &[NEEDED[1], &deep].concat(),
            true,
            "sudo perf record ",
        ),
    ] {
        let seen = read(&unrecorded(&fixture(file), gone)).expect(file);
        assert_eq!(
            (seen.deep, !seen.bursts.is_empty()),
            (has_drains, has_drains)
        );
        for verdict in diagnose(&seen, &Figures::of(&seen)) {
            let event = match verdict.problem {
                Problem::UpkeepHerd => "workqueue:workqueue_execute_start",
                Problem::ZoneLock => "lock:contention_begin",
                Problem::MemcgFlush => "cgroup:cgroup_rstat_locked",
            };
            assert_eq!(verdict.answer, Answer::CannotTell, "{file}: {verdict:?}");
            let named = |it: &str| it.contains(event) && it.ends_with(" in the file.");
            let has_why = verdict
                .why
                .split("No record of ")
                .skip(1)
                .any(|it| named(it.trim_end()));
            assert!(has_why, "{verdict:?}");
            assert!(verdict.advice.contains(by), "{verdict:?}");
            assert!(
                verdict.advice.contains(&format!(" -e {event}")),
                "{verdict:?}"
            );
        }
    }
}

/// Version 7 ends with a section that nothing needs.
#[test]
fn a_file_that_is_cut_off_is_an_error_that_says_where() {
    for name in LIGHT.into_iter().chain(DEEP) {
        let whole = fixture(name);
        for length in (16..whole.len()).step_by(331) {
            match read(&whole[..length]) {
                Ok(seen) => assert!(seen == self::seen(name, None), "{name}: {length}"),
                Err(error) => {
                    let said = error.to_string();
                    let part = format!("cut off at byte {length}");
                    assert!(said.contains(&part), "{name}: {said}");
                }
            }
        }
        assert!(read(&whole[..whole.len() * 3 / 4]).is_err(), "{name}");
    }
}

/// Random changes may lose what was recorded. They must neither stop the tool nor make it take more memory than files of this
/// size may.
#[test]
fn hostile_files_do_no_more_than_fail() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let bound = Some(2 << 30);
        let limit = Rlimit {
            current: bound,
            maximum: bound,
        };
        setrlimit(Resource::As, limit).expect("a limit of memory");
    }
    let mut random = 1_u64;
    let mut next = |bound: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % bound
    };
    let (mut whole, mut failed) = (0, 0);
    for name in LIGHT.into_iter().chain(DEEP) {
        let file = fixture(name);
        for case in 0..500 {
            let mut bytes = file.clone();
            for _ in 0..=next(8) {
                // Every other change is where lengths and places are.
                let at = match case % 2 {
                    0 => next(bytes.len()),
                    _ => next(1_600),
                };
                match next(4) {
                    0 => bytes[at] ^= 1 << next(8),
                    1 => bytes[at] = 0xff,
                    2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
                    _ => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0),
                }
            }
            match foreign::read(Cursor::new(&bytes), Some(symbols())) {
                Ok(seen) => {
                    diagnose(&seen, &Figures::of(&seen));
                    whole += 1;
                }
                Err(error) => failed += usize::from(!error.to_string().is_empty()),
            }
        }
    }
    assert!(whole > 200 && failed > 200, "{whole} {failed}");
}
