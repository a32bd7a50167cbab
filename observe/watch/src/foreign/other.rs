//! Files of other kinds, which people have in place of those that can be read.

use super::ForeignError;
use super::perf_data;
use crate::event::Problem;
use crate::writer::Writer;

/// First bytes of packed files, and the command that unpacks each.
const PACKED: [(&[u8], &str, &str); 6] = [
    (b"\x1f\x8b", "it is packed by gzip", "gzip -d FILE"),
    (b"\xfd7zXZ\0", "it is packed by xz", "xz -d FILE"),
    (b"\x28\xb5\x2f\xfd", "it is packed by zstd", "zstd -d FILE"),
    (b"BZh", "it is packed by bzip2", "bzip2 -d FILE"),
    (b"\x04\x22\x4d\x18", "it is packed by lz4", "lz4 -d FILE"),
    (b"PK\x03\x04", "it is packed by zip", "unzip FILE"),
];

/// The error of a file that begins with these bytes.
pub(super) fn error(begin: &[u8]) -> ForeignError {
    let refused = |fault, remedy| ForeignError::Recorded { fault, remedy };
    let packed = PACKED.iter().find(|(magic, ..)| begin.starts_with(magic));
    if let Some((_, fault, command)) = packed {
        return refused(fault, format!("unpack it: `{command}`"));
    }
    if begin.starts_with(perf_data::MAGIC_OF_1) {
        let command = Writer::Perf.command(Problem::ZoneLock);
        return refused(
            "it is a perf.data of version 1",
            format!("record with a later `perf`: `{command}`"),
        );
    }
    match is_text_of_events(begin) {
        true => refused(
            "it is the text of a recording, as `perf script` and `trace-cmd report` print it",
            "read the recording itself: `bursar-observe read perf.data`".to_owned(),
        ),
        false => ForeignError::UnknownKind,
    }
}

/// Whether a line has a time with a colon behind it, and an event: `123.456789: sched:sched_switch: ...`.
fn is_text_of_events(begin: &[u8]) -> bool {
    let text = String::from_utf8_lossy(begin);
    let is_time = |word: &str| {
        let time = word.strip_suffix(':').and_then(|it| it.split_once('.'));
        time.is_some_and(|(seconds, rest)| {
            let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
            is_number(seconds) && is_number(rest)
        })
    };
    text.lines().any(|line| {
        let mut words = line.split_whitespace().skip_while(|word| !is_time(word));
        words.nth(1).is_some_and(|event| event.contains(':'))
    })
}
