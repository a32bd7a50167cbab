//! Recordings: files come back as they were written, and a bad one is an error.

use bursar_watch::diagnosis::diagnose;
use bursar_watch::figures::Figures;
use bursar_watch::pressure::Pressure;
use bursar_watch::recording::{NUMBER_MAX, RecordingError, parse, redact, write};
use bursar_watch::seen::{Cgroup, Flush, FlushFor, LockKind, Seen, Task, Wait};

const DEEP: &[u8] = include_bytes!("recordings/real-2-cpus-deep.bursar");
const PAGES: &[u8] = include_bytes!("recordings/real-2-cpus-pages.bursar");
const OF_2: &[u8] = include_bytes!("recordings/synthetic-2-cpus.bursar");

fn read(bytes: &[u8]) -> Seen {
    parse(bytes).expect("a recording")
}

fn bytes(seen: &Seen) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(seen, &mut bytes).expect("written");
    bytes
}

fn said(bytes: &[u8]) -> String {
    parse(bytes).expect_err("refused").to_string()
}

#[test]
fn what_is_written_comes_back() {
    for file in [DEEP, PAGES, OF_2] {
        let seen = read(file);
        assert_eq!(read(&bytes(&seen)), seen);
        assert!(seen.records() > 0);
    }
}

#[test]
fn other_and_cut_files_are_refused() {
    for other in [&b""[..], b"[]", b"{}", b"{\"schema\": 1}", b"\x7fELF"] {
        assert!(said(other).contains("no whole recording"));
    }
    let later = String::from_utf8_lossy(OF_2).replace("recording-1", "recording-2");
    assert!(said(later.as_bytes()).contains("its format is not"));
    let cut = said(&OF_2[..OF_2.len() - 20]);
    assert!(cut.contains("EOF") && cut.contains("line 1"), "{cut}");
    let behind = [OF_2, b"x"].concat();
    assert!(said(&behind).contains("trailing"));
}

/// The writer refuses the same values as the reader.
#[test]
fn values_out_of_range_are_named() {
    type Change = fn(&mut Seen);
    let changes: [(&str, Change); 10] = [
        ("upkeep", |it| it.upkeep[0].cpu = u32::MAX),
        ("upkeep", |it| it.upkeep[0].end_ns = 0),
        ("bursts", |it| it.bursts[0].zone = Some(9)),
        ("bursts", |it| it.bursts[0].pages = u64::MAX),
        ("flushes", |it| it.flushes[0].pending = Some(i64::MIN)),
        ("reads", |it| it.reads[0].cpu_ns = u64::MAX),
        ("pressure", |it| {
            it.pressure = Some(Pressure {
                irq_full_us: Some(u64::MAX),
                ..Pressure::default()
            });
        }),
        ("release", |it| it.decay_release.bursts = u64::MAX),
        ("hz", |it| it.machine.hz = Some(0)),
        ("start_ns, end_ns", |it| it.end_ns = NUMBER_MAX + 1),
    ];
    for (name, change) in changes {
        let mut seen = read(DEEP);
        seen.flushes.push(Default::default());
        seen.reads.push(Default::default());
        change(&mut seen);
        let refused = write(&seen, Vec::new()).expect_err(name);
        assert!(matches!(refused, RecordingError::OutOfRange(what) if what == name));
        // Past the check of the writer.
        let file = serde_json::json!({ "format": "bursar-recording-1", "seen": seen });
        assert!(said(file.to_string().as_bytes()).contains(name), "{name}");
    }
}

#[test]
fn lists_are_bounded_while_they_are_read() {
    let text = String::from_utf8_lossy(OF_2);
    let list = format!("\"cpus\":[{}0]", "0,".repeat(2_000_000));
    let long = text.replacen("\"cpus\":[]", &list, 1);
    assert!(said(long.as_bytes()).contains("a list of at most 2000000"));
}

/// Numbers, names and structure changed at random: an error, or a recording with which everything can be computed.
#[test]
fn hostile_files_do_no_more_than_fail() {
    let mut state = 1_u64;
    let mut below = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % bound
    };
    let mut read = 0;
    for case in 0..500 {
        let mut file = [OF_2, DEEP][case % 2].to_vec();
        for _ in 0..=below(3) {
            let place = below(file.len());
            let number = file[place..].iter().position(u8::is_ascii_digit);
            let put: &[u8] = match below(8) {
                0 => b"2305843009213693952",
                1 => b"18446744073709551615",
                2 => b"-1",
                3 => b"1e999",
                4 => b"null",
                5 => b"[[[",
                6 => b"\\u202e\xff",
                _ => b"0",
            };
            let place = place + number.unwrap_or(0);
            let digits = file[place..].iter().take_while(|it| it.is_ascii_digit());
            let end = place + digits.count();
            file.splice(place..end, put.iter().copied());
        }
        if let Ok(seen) = parse(&file[..]) {
            let figures = Figures::of(&seen);
            diagnose(&seen, &figures);
            write(&seen, Vec::new()).expect("what was read can be written");
            read += 1;
        }
    }
    assert!(read > 20, "{read}");
}

/// Workers of the kernel are known by their names, which a redacted recording does not have.
#[test]
fn removals_stay_apart_in_redacted_recordings() {
    let mut seen = read(OF_2);
    let flush = |pid, cgroup| Flush {
        pid,
        cgroup,
        ..Flush::default()
    };
    seen.flushes = vec![flush(7, 5), flush(7, 1), flush(8, 5)];
    let task = |pid, name: &str| Task {
        pid,
        name: name.to_owned(),
    };
    seen.tasks = vec![task(7, "kworker/0:1-cgroup_release"), task(8, "cat")];
    let mut named = read(&bytes(&seen));
    redact(&mut named);
    let redacted = read(&bytes(&named));
    let of: Vec<_> = redacted.flushes.iter().map(Flush::beneficiary).collect();
    assert_eq!(of, [FlushFor::Removal, FlushFor::Period, FlushFor::Reader]);
}

#[test]
fn texts_lose_what_a_terminal_would_obey() {
    let mut seen = read(OF_2);
    let name = format!("a\u{1b}[31m\u{202e}{}", "é".repeat(4_096));
    seen.tasks = vec![Task { pid: 1, name }];
    let name = &read(&bytes(&seen)).tasks[0].name;
    assert!(name.starts_with("a\u{fffd}[31m\u{fffd}é") && name.chars().count() < 4_096);
}

/// Names and release are what a company may want to keep; addresses tell where the kernel is.
#[test]
fn shared_recordings_have_no_names_and_no_addresses() {
    let mut seen = read(OF_2);
    seen.machine.kernel = "6.12.0-acme+1".to_owned();
    let task = |(pid, name): (i32, &str)| Task {
        pid,
        name: name.to_owned(),
    };
    seen.tasks = [(1, "init"), (7, "secret"), (9, "secret")].map(task).into();
    let cgroup = |(id, path): (u64, &str)| Cgroup {
        id,
        path: path.to_owned(),
    };
    let paths = [(1, "/"), (2, "/acme.slice"), (3, "/acme.slice/db")];
    seen.cgroups = paths.map(cgroup).into();
    seen.waits = vec![Wait {
        cpu: 0,
        pid: 7,
        lock: LockKind::Zone,
        address: 0xffff_8880_1234,
        start_ns: 1,
        end_ns: 2,
    }];
    assert!(!String::from_utf8_lossy(&bytes(&seen)).contains("address"));
    assert_eq!(read(&bytes(&seen)).waits[0].address, 0);
    redact(&mut seen);
    let text = String::from_utf8(bytes(&seen)).expect("text");
    assert!(
        !["acme", "secret", "init"]
            .iter()
            .any(|it| text.contains(it))
    );
    let redacted = read(text.as_bytes());
    assert!(redacted.is_redacted && redacted.machine.kernel == "6.12.0");
    let names: Vec<&str> = redacted.tasks.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["process-1", "process-2", "process-2"]);
    let paths: Vec<&str> = redacted.cgroups.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/", "/cgroup-1", "/cgroup-1/cgroup-2"]);
}
