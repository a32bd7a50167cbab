//! Pages of trace buffers from a real kernel (6.18, x86-64, 2 CPUs, a guest), decoded and analysed without privileges.

#![cfg(target_endian = "little")]

use std::fs;
use std::path::{Path, PathBuf};

use bursar_watch::analysis::Analysis;
use bursar_watch::diagnosis::{Answer, diagnose};
use bursar_watch::event::{
    Decoder, Event, FLUSH_EVENTS, Kind, PAGE_EVENTS, TIMER_EVENTS, WAIT_EVENTS, WAITS, WORK_EVENTS,
};
use bursar_watch::figures::Figures;
use bursar_watch::format::EventFormat;
use bursar_watch::page::PageLayout;
use bursar_watch::seen::{BurstKind, LockKind, Machine, Seen, Zone};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(fixture(name)).expect(name)
}

fn layout() -> PageLayout {
    PageLayout::parse(&text("6.18.header_page")).expect("a layout")
}

/// The functions of the recorded kernel that took zones' locks: free_pcppages_bulk and __rmqueue_pcplist.
const ZONE_LOCKERS: [(u64, u64); 2] = [
    (0xffff_ffff_8161_8530, 0xffff_ffff_8161_87d0),
    (0xffff_ffff_8161_c5f0, 0xffff_ffff_8161_d0d0),
];

fn decoder(formats: &str) -> Decoder {
    let text = text(formats);
    let formats = text
        .split("name: ")
        .skip(1)
        .map(|part| format!("name: {part}"));
    let formats: Vec<_> = formats
        .map(|it| EventFormat::parse(&it).expect("a format"))
        .collect();
    let mut decoder = Decoder::default();
    let groups = [
        &WORK_EVENTS[..],
        &TIMER_EVENTS,
        &FLUSH_EVENTS,
        &PAGE_EVENTS,
        &WAIT_EVENTS,
    ];
    for wanted in groups.into_iter().flatten() {
        if let Some(format) = formats.iter().find(|format| format.name == wanted.name) {
            assert_eq!(decoder.learn(wanted, format), Ok(vec![]), "{}", wanted.name);
        }
    }
    if let Some(stack) = formats.iter().find(|format| format.name == "kernel_stack") {
        decoder.learn_stack(stack, ZONE_LOCKERS.to_vec());
    }
    decoder
}

/// Events of both CPUs in order, and the number of bytes that made no sense.
fn events(decoder: &Decoder, pages: &[(u32, Vec<u8>)]) -> (Vec<Event>, usize) {
    let layout = layout();
    let mut events = Vec::new();
    let mut undecoded = 0;
    for (cpu, bytes) in pages {
        for page in bytes.chunks(layout.size) {
            let decode = |time, record: &[u8]| events.extend(decoder.decode(time, *cpu, record));
            undecoded += layout.decode(page, decode).undecoded;
        }
    }
    events.sort_by_key(|event| event.time_ns);
    (events, undecoded)
}

fn pages(mode: &str) -> Vec<(u32, Vec<u8>)> {
    let read = |cpu| {
        (
            cpu,
            fs::read(fixture(&format!("6.18-{mode}-cpu{cpu}.raw"))).expect("pages"),
        )
    };
    [0, 1].map(read).to_vec()
}

fn analysed(events: &[Event], deep: bool) -> Seen {
    let machine = Machine {
        cpus: 2,
        zones: vec![Zone {
            name: "all".to_owned(),
            spanned_pages: u64::MAX,
            pcp_batch: 63,
            ..Zone::default()
        }],
        ..Machine::default()
    };
    let mut analysis = Analysis::new(&machine);
    events.iter().for_each(|event| analysis.take(event));
    let mut seen = Seen {
        machine,
        deep,
        start_ns: events.first().map_or(0, |event| event.time_ns),
        end_ns: events.last().map_or(0, |event| event.time_ns),
        ..Seen::default()
    };
    analysis.finish(&mut seen);
    seen
}

#[test]
fn eight_idle_seconds_have_their_upkeep_and_flushes() {
    let (events, undecoded) = events(&decoder("6.18-light.formats"), &pages("light"));
    assert_eq!(undecoded, 0);
    // As many as a look at the file with other tools finds: 61 and 81.
    assert_eq!(events.len(), 142);
    let seen = analysed(&events, false);
    assert_eq!(seen.machine.hz, Some(250));
    let of_cpu = |cpu| seen.upkeep.iter().filter(|it| it.cpu == cpu).count();
    assert_eq!([of_cpu(0), of_cpu(1)], [8, 9]);
    let with_timer: Vec<_> = seen
        .upkeep
        .iter()
        .filter(|it| it.target_jiffy.is_some())
        .collect();
    assert!(with_timer.len() >= 12, "{:?}", seen.upkeep);
    for upkeep in with_timer {
        let [target, slot, tick] =
            [upkeep.target_jiffy, upkeep.slot_jiffy, upkeep.expire_jiffy].map(Option::unwrap);
        // The wheel rounds up to the next multiple of 8 ticks, also from a multiple.
        assert!(
            target < slot && slot <= tick && slot <= target + 8,
            "{upkeep:?}"
        );
        assert!(
            upkeep.expire_ns.unwrap() <= upkeep.start_ns && upkeep.start_ns < upkeep.end_ns,
            "{upkeep:?}"
        );
    }
    // The periodic flusher, every two seconds, on each of two CPUs.
    assert_eq!(seen.flushes.len(), 4);
    assert!(
        seen.flushes
            .iter()
            .all(|it| it.holds == 2 && it.forced == Some(true) && it.wait_ns == 0)
    );
}

#[test]
fn a_loaded_moment_has_bursts_and_waits() {
    let (events, undecoded) = events(&decoder("6.18-deep.formats"), &pages("deep"));
    assert_eq!(undecoded, 0);
    let seen = analysed(&events, true);
    let pages_of = |kind| {
        seen.bursts
            .iter()
            .filter(|it| it.kind == kind)
            .map(|it| it.pages)
            .sum::<u64>()
    };
    let events_of =
        |is: fn(&Kind) -> bool| events.iter().filter(|event| is(&event.kind)).count() as u64;
    assert!(pages_of(BurstKind::Drain) >= events_of(|it| matches!(it, Kind::PcpuDrain { .. })));
    assert!(
        pages_of(BurstKind::Refill) >= events_of(|it| matches!(it, Kind::AllocZoneLocked { .. }))
    );
    assert!(
        seen.bursts
            .iter()
            .all(|burst| burst.pages <= 63 << 5 && burst.start_ns <= burst.end_ns)
    );
    assert!(!seen.waits.is_empty() && seen.waits.iter().all(|wait| wait.start_ns <= wait.end_ns));
    let figures = Figures::of(&seen);
    assert!(figures.bursts.len() <= 2 && !figures.waits.is_empty());
}

#[test]
fn stacks_name_the_zone_lock() {
    let page = fs::read(fixture("6.18-stacks-cpu1.raw")).expect("a page");
    let (events, undecoded) = events(&decoder("6.18-deep.formats"), &[(1, page)]);
    assert_eq!(undecoded, 0);
    let named = |wanted| {
        let is = |event: &&Event| {
            event.kind
                == Kind::Stack {
                    names_zone_lock: wanted,
                }
        };
        events.iter().filter(is).count()
    };
    assert_eq!([named(true), named(false)], [3, 0]);
    let seen = analysed(&events, true);
    assert!(seen.waits.iter().any(|wait| wait.lock == LockKind::Zone));
    assert!(!seen.loses(WAITS));
    // As after the last stack that a session takes: waits, and nothing that names their locks.
    let unnamed = events
        .iter()
        .filter(|event| !matches!(event.kind, Kind::Stack { .. }));
    let mut seen = analysed(&unnamed.copied().collect::<Vec<_>>(), true);
    assert!(!seen.waits.is_empty() && seen.loses(WAITS));
    seen.machine.virtualized = Some(false);
    let [_, zone, _] = diagnose(&seen, &Figures::of(&seen));
    assert_eq!(zone.answer, Answer::CannotTell);
}

/// Damaged pages may lose events. They must neither stop the tool nor make it use much memory.
#[test]
fn damaged_pages_are_survived() {
    for mode in ["light", "deep"] {
        let decoder = decoder(&format!("6.18-{mode}.formats"));
        let whole = pages(mode);
        let most = events(&decoder, &whole).0.len();
        for at in (0..4096).step_by(37) {
            for damage in [0xff, 0x01, 0x80] {
                let mut pages = whole.clone();
                pages[0].1[at] ^= damage;
                let (events, _) = events(&decoder, &pages);
                assert!(events.len() <= most + 4096, "{at} {damage}");
                analysed(&events, mode == "deep");
            }
            let mut cut = whole.clone();
            cut[0].1.truncate(at);
            events(&decoder, &cut);
        }
    }
}
