//! Recordings of `bursar-observe`.

use bursar_replay::Load;
use bursar_watch::diagnosis::diagnose;
use bursar_watch::figures::Figures;
use bursar_watch::recording::{parse, redact, write};
use bursar_watch::seen::Seen;

use crate::common::assert_harmless;
use crate::meter;

/// Memory of a reader, and for each byte of the file: an item has some hundred bytes, and a list that grows has twice as many.
const BYTES: usize = 1 << 20;
const BYTES_A_BYTE: usize = 64;

pub(super) fn run(input: &[u8]) {
    let bytes_max = BYTES + BYTES_A_BYTE * input.len();
    match meter::within(bytes_max, || parse(input)) {
        Ok(seen) => check(&seen),
        Err(error) => assert_harmless(&error.to_string()),
    }
}

/// Checks everything that the tool does with what it has read.
pub(super) fn check(seen: &Seen) {
    let figures = Figures::of(seen);
    for verdict in diagnose(seen, &figures) {
        assert_harmless(&serde_json::to_string(&verdict).expect("a verdict prints"));
    }
    if let Ok(load) = Load::of(seen) {
        assert!(load.cpus() > 0 && load.seconds() > 0.0 && load.hz() > 0);
        load.unknown().iter().for_each(|it| assert_harmless(it));
    }
    let printed = print(seen);
    let again = parse(printed.as_slice()).expect("a written recording can be read");
    // Of the program that recorded, a recording has nothing.
    assert_eq!(print(&again), printed, "it prints as before");
    let mut hidden = again;
    redact(&mut hidden);
    assert!(
        hidden
            .tasks
            .iter()
            .all(|it| it.name.starts_with("process-"))
    );
    let printed = print(&hidden);
    let hidden = parse(printed.as_slice()).expect("a redacted recording can be read");
    assert_eq!(print(&hidden), printed, "a redacted one prints as before");
}

fn print(seen: &Seen) -> Vec<u8> {
    let mut printed = Vec::new();
    write(seen, &mut printed).expect("a recording can be written");
    printed
}
