//! Files of other programs: `trace.dat` and `perf.data`.

use std::io::Cursor;

use bursar_watch::foreign::read;

use super::recording;
use crate::common::assert_harmless;
use crate::meter;

/// First bytes of a `trace.dat`.
const TRACE_DAT: &[u8] = b"\x17\x08\x44tracing";
/// First bytes of a `perf.data`.
const PERF_DATA: &[u8] = b"PERFILE2";

/// Memory of a reader: a constant for texts, which may be named many times, and for tables; and a multiple of the file's length. A part of
/// 8 bytes may be an event, which is an item of some hundred bytes in several lists. Lists double when they grow.
const BYTES: usize = 96 << 20;
const BYTES_A_BYTE: usize = 400;

pub(super) fn trace_dat(input: &[u8]) {
    if input.starts_with(TRACE_DAT) {
        file(input);
    }
}

pub(super) fn perf_data(input: &[u8]) {
    if input.starts_with(PERF_DATA) {
        file(input);
    }
}

fn file(input: &[u8]) {
    let bytes_max = BYTES + BYTES_A_BYTE * input.len();
    match meter::within(bytes_max, || read(Cursor::new(input), None)) {
        Ok(seen) => recording::check(&seen),
        Err(error) => assert_harmless(&error.to_string()),
    }
}
