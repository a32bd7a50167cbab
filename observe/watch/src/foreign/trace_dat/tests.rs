//! Files made byte by byte, whole and damaged.

use std::io::Cursor;

use super::*;
use crate::foreign;
use crate::seen::{LockKind, Seen};

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n";
const KALLSYMS: &str = "ff10 t vmstat_update\n";
const STATISTICS: &str = "CPU: 1\nentries: 9\noverrun: 7\n";
const PAGES: [&[u8]; 2] = [&[7; 64], &[9; 96]];

/// Bytes of a file.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn begin(version: &str) -> Self {
        let mut bytes = Self(MAGIC.to_vec());
        bytes.name(version);
        bytes.0.push(u8::from(cfg!(target_endian = "big")));
        bytes.0.push(8);
        bytes.u32(4_096);
        bytes
    }

    fn u16(&mut self, number: u16) {
        self.0.extend(number.to_ne_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_ne_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend(number.to_ne_bytes());
    }

    fn name(&mut self, name: &str) {
        self.0.extend(name.as_bytes());
        self.0.push(0);
    }

    fn text(&mut self, text: &str) {
        self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    fn headers(&mut self) {
        self.name("header_page");
        self.text(HEADER_PAGE);
        self.name("header_event");
        self.text("event");
    }

    fn formats(&mut self) {
        self.u32(2);
        for system in ["timer", "kmem"] {
            self.name(system);
            self.u32(1);
            self.text(&format!("name: of_{system}\n"));
        }
    }

    /// Appends the pages, and sets their places at `at`.
    fn pages(&mut self, pages: [&[u8]; 2], at: [usize; 2]) {
        for (page, at) in pages.into_iter().zip(at) {
            let (offset, bytes) = (self.0.len() as u64, page.len() as u64);
            self.0[at..at + 8].copy_from_slice(&offset.to_ne_bytes());
            self.0[at + 8..at + 16].copy_from_slice(&bytes.to_ne_bytes());
            self.0.extend(page);
        }
    }

    fn section(&mut self, id: u16, flags: u16) -> u64 {
        let at = self.0.len() as u64;
        self.u16(id);
        self.u16(flags);
        self.u32(0);
        self.u64(0);
        at
    }
}

fn version_6() -> Vec<u8> {
    let mut bytes = Bytes::begin("6");
    bytes.headers();
    bytes.u32(1);
    bytes.text("name: kernel_stack\n");
    bytes.formats();
    finish_6(bytes, KALLSYMS, PAGES)
}

fn finish_6(mut bytes: Bytes, kallsyms: &str, pages: [&[u8]; 2]) -> Vec<u8> {
    for text in [kallsyms, "skipped"] {
        bytes.u32(text.len() as u32);
        bytes.0.extend(text.as_bytes());
    }
    bytes.text("12 kworker\n");
    bytes.u32(2);
    bytes.0.extend(b"options  \0");
    for (id, text) in [
        (option::CLOCK, "local [mono]\0"),
        (99, "?"),
        (option::CPU_STATISTICS, STATISTICS),
        (option::UNAME, "Linux\0"),
    ] {
        bytes.u16(id);
        bytes.u32(text.len() as u32);
        bytes.0.extend(text.as_bytes());
    }
    bytes.u16(option::DONE);
    bytes.0.extend(b"flyrecord\0");
    let at = bytes.0.len();
    bytes.0.extend([0; 32]);
    bytes.pages(pages, [at, at + 16]);
    bytes.0
}

fn version_7(flags: u16) -> Vec<u8> {
    let mut bytes = Bytes::begin("7");
    bytes.name(if flags == 0 { "none" } else { "zstd" });
    bytes.name("1");
    let first = bytes.0.len();
    bytes.u64(0);
    let header_info = bytes.section(option::HEADER_INFO, flags);
    bytes.headers();
    let formats = bytes.section(option::EVENT_FORMATS, flags);
    bytes.formats();
    let kallsyms = bytes.section(option::KALLSYMS, flags);
    bytes.u32(KALLSYMS.len() as u32);
    bytes.0.extend(KALLSYMS.as_bytes());
    let cmdlines = bytes.section(option::CMDLINES, flags);
    bytes.text("12 kworker\n");
    let options = bytes.section(option::DONE, 0);
    bytes.0[first..first + 8].copy_from_slice(&options.to_ne_bytes());
    for (id, offset) in [
        (option::HEADER_INFO, header_info),
        (option::EVENT_FORMATS, formats),
        (option::KALLSYMS, kallsyms),
        (option::CMDLINES, cmdlines),
    ] {
        bytes.u16(id);
        bytes.u32(8);
        bytes.u64(offset);
    }
    bytes.u16(option::DONE);
    bytes.u32(8);
    let next = bytes.0.len();
    bytes.u64(0);
    let options = bytes.section(option::DONE, 0);
    bytes.0[next..next + 8].copy_from_slice(&options.to_ne_bytes());
    bytes.u16(option::UNAME);
    bytes.u32(6);
    bytes.name("Linux");
    bytes.u16(option::CPU_COUNT);
    bytes.u32(4);
    bytes.u32(2);
    bytes.u16(option::CPU_STATISTICS);
    bytes.u32(STATISTICS.len() as u32);
    bytes.0.extend(STATISTICS.as_bytes());
    bytes.u16(option::BUFFER);
    bytes.u32(8 + 1 + 5 + 4 + 4 + 2 * 20);
    bytes.u64(0);
    bytes.name("");
    bytes.name("mono");
    bytes.u32(4_096);
    bytes.u32(2);
    let at = bytes.0.len();
    for cpu in 0..2 {
        bytes.u32(cpu);
        bytes.0.extend([0; 16]);
    }
    bytes.u16(option::DONE);
    bytes.u32(8);
    bytes.u64(0);
    bytes.pages(PAGES, [at + 4, at + 24]);
    bytes.0
}

fn open(bytes: &[u8]) -> Result<TraceDat<Cursor<&[u8]>>, ForeignError> {
    let mut source = Source::new(Cursor::new(bytes))?;
    source.seek(MAGIC.len() as u64)?;
    TraceDat::open(source)
}

#[test]
fn both_versions_have_formats_and_pages() {
    for bytes in [version_6(), version_7(0)] {
        let mut dat = open(&bytes).expect("a file");
        let texts = &dat.texts;
        assert_eq!(texts.header_page, HEADER_PAGE);
        let systems: Vec<&str> = texts.formats.iter().map(|it| &*it.0).collect();
        assert!(systems.ends_with(&["timer", "kmem"]), "{systems:?}");
        assert_eq!(texts.formats.last().expect("formats").1, "name: of_kmem\n");
        assert_eq!(texts.cmdlines, "12 kworker\n");
        assert_eq!(texts.kallsyms, KALLSYMS);
        assert_eq!(dat.clock.as_deref(), Some("mono"));
        assert_eq!(dat.uname.as_deref(), Some("Linux"));
        assert_eq!((dat.cpus, &dat.lost[..]), (2, &[(1, 7)][..]));
        let cpus: Vec<u32> = dat.pages.iter().map(|it| it.cpu).collect();
        assert_eq!(cpus, [0, 1]);
        let mut pages = dat.pages[1];
        let mut page = [0; 64];
        for expected in [64, 32] {
            let bytes = dat.next_page(&mut pages, &mut page).expect("a page");
            assert_eq!(bytes, vec![9; expected]);
        }
        assert!(pages.is_empty());
    }
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let says = |bytes: &[u8], part: &str| {
        let error = open(bytes).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    };
    says(b"", "cut off at byte 0");
    says(&version_7(1), "compressed by zstd");
    let mut other = version_6();
    other[10] = b'8';
    says(&other, "version 8");
    // A terminal obeys neither of these.
    other[10] = 0x1b;
    says(&other, "version ;");
    other = version_7(1);
    let by = other.windows(4).position(|it| it == b"zstd");
    other[by.expect("there")] = 7;
    says(&other, "compressed by std");
    let mut other = version_6();
    other[12] ^= 1;
    says(&other, "order of bytes");
    let mut latency = version_6();
    let at = latency
        .windows(10)
        .position(|it| it == b"flyrecord\0")
        .expect("there");
    latency[at..at + 10].copy_from_slice(b"latency  \0");
    says(&latency, "text");
    let mut shared = version_6();
    let [first, second] = [at + 10, at + 26];
    shared.copy_within(first..first + 8, second);
    says(&shared, "same place");
    let mut empty = version_6();
    empty[first..first + 32].fill(0);
    says(&empty, "no events");
    let mut behind = version_6();
    behind[first + 8..first + 16].fill(0xff);
    says(&behind, "cut off at byte");
}

#[test]
fn options_that_lead_back_end_the_file() {
    let mut bytes = version_7(0);
    let end = bytes.len() - PAGES.concat().len();
    let first = 10 + 2 + 6 + "none\0".len() + "1\0".len();
    let back: [u8; 8] = bytes[first..first + 8].try_into().expect("a place");
    // The last option's place of further options.
    bytes[end - 8..end].copy_from_slice(&back);
    let error = open(&bytes).expect_err("a circle").to_string();
    assert!(error.contains("lead back"), "{error}");
}

#[test]
fn a_file_that_is_cut_off_is_an_error_at_every_length() {
    for bytes in [version_6(), version_7(0)] {
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length]).is_err(), "{length}");
        }
    }
}

/// A record of an event, with a number of 8 and one of 4 bytes.
#[derive(Clone, Copy)]
struct Record(u64, u16, u64, u32);

const BEGIN: u16 = 1;
const END: u16 = 2;
const STACK: u16 = 3;
const CONTENDED: u16 = 4;
const LOCKED: u16 = 5;
const UNLOCK: u16 = 6;

/// Reads a file with these records of two CPUs, all of one task.
fn seen_of(records: [&[Record]; 2]) -> Seen {
    let mut bytes = Bytes::begin("6");
    bytes.name("header_page");
    bytes.text(
        "field: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\nfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
         field: char data;\toffset:16;\tsize:1008;\tsigned:0;\n",
    );
    bytes.name("header_event");
    bytes.text("");
    let format = |name: &str, id: u16, long: &str, short: &str| {
        format!(
            "name: {name}\nID: {id}\nfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
             field:long {long};\toffset:8;\tsize:8;\tsigned:0;\nfield:int {short};\toffset:16;\tsize:4;\tsigned:1;\n"
        )
    };
    bytes.u32(1);
    bytes.text(&format("kernel_stack", STACK, "caller", "size"));
    bytes.u32(2);
    bytes.name("lock");
    bytes.u32(2);
    bytes.text(&format("contention_begin", BEGIN, "lock_addr", "flags"));
    bytes.text(&format("contention_end", END, "lock_addr", "ret"));
    bytes.name("cgroup");
    bytes.u32(3);
    for (name, id) in [
        ("cgroup_rstat_lock_contended", CONTENDED),
        ("cgroup_rstat_locked", LOCKED),
        ("cgroup_rstat_unlock", UNLOCK),
    ] {
        bytes.text(&format(name, id, "id", "cpu"));
    }
    let page = |records: &[Record]| {
        let mut page = Bytes::default();
        page.u64(0);
        page.u64(records.len() as u64 * 28);
        let mut before = 0;
        for Record(time, id, long, short) in records {
            // Six words follow.
            let delta = (time - before) as u32;
            page.u32(match cfg!(target_endian = "little") {
                true => delta << 5 | 6,
                false => 6 << 27 | delta,
            });
            before = *time;
            page.u16(*id);
            page.u16(0);
            page.u32(77);
            page.u64(*long);
            page.u32(*short);
            page.u32(0);
        }
        page.0.resize(1_024, 0);
        page.0
    };
    let pages = records.map(page);
    let kallsyms = "1000 t rmqueue_bulk\n1100 t next\n";
    let file = finish_6(bytes, kallsyms, [&pages[0], &pages[1]]);
    let seen = foreign::read(Cursor::new(file), None).expect("a file");
    assert_eq!(seen.losses.bytes_undecoded, 0);
    seen
}

#[test]
fn only_spin_locks_count_and_only_a_stack_right_behind_a_wait_is_its_own() {
    let (takes_zone_lock, other) = (0x1050, 9);
    let seen = seen_of([
        &[
            Record(10, BEGIN, 0xa, 1),
            Record(11, STACK, takes_zone_lock, 0),
            Record(20, END, 0xa, 0),
            // A mutex.
            Record(30, BEGIN, 0xb, 32),
            Record(31, STACK, takes_zone_lock, 0),
            Record(40, END, 0xb, 0),
            Record(50, BEGIN, 0xc, 1),
            Record(51, other, 0, 0),
            Record(52, STACK, takes_zone_lock, 0),
            Record(60, END, 0xc, 0),
        ],
        &[],
    ]);
    let waits: Vec<_> = seen
        .waits
        .iter()
        .map(|it| (it.address, it.lock, it.start_ns, it.end_ns))
        .collect();
    use LockKind::{Other, Zone};
    assert_eq!(waits, [(0xa, Zone, 11, 20), (0xc, Other, 50, 60)]);
    assert_eq!((seen.start_ns, seen.end_ns), (10, 60));
}

/// The task waits on CPU 1 and gets the lock on CPU 0, whose pages come first in the file.
#[test]
fn events_of_all_cpus_are_taken_in_the_order_of_time() {
    let seen = seen_of([
        &[Record(20, LOCKED, 5, 0), Record(35, UNLOCK, 5, 0)],
        &[Record(8, CONTENDED, 5, 0), Record(90, BEGIN, 1, 1)],
    ]);
    let flushes: Vec<_> = seen
        .flushes
        .iter()
        .map(|it| (it.wait_ns, it.held_ns, it.cpu))
        .collect();
    assert_eq!(flushes, [(12, 15, 1)]);
}

/// A lock whose event does not say whether it was waited for shows no absence of waits.
#[test]
fn a_lock_without_a_record_of_waits_may_have_been_waited_for() {
    let seen = seen_of([&[Record(20, LOCKED, 5, 0), Record(35, UNLOCK, 5, 0)], &[]]);
    assert!(seen.lacks("cgroup_rstat_lock_contended"));
    assert!(!seen.lacks("cgroup_rstat_locked") && seen.lacks("memcg_flush_stats"));
}
