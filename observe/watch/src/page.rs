//! Pages of a trace buffer, as `trace_pipe_raw` returns them.
//!
//! A page begins with the time of its first event and a word with the number of bytes that are used. Each event is a word with
//! five bits for its length and 27 for the time since the event before, and then its record. Longer pauses, absolute times and
//! unused space are events of special lengths. Two bits of the second word say that events before this page were lost.

use crate::format::{self, Field, FormatError};

/// Events before this page were lost.
const MISSED_EVENTS: u64 = 1 << 31;
/// A word behind the events says how many.
const MISSED_STORED: u64 = 1 << 30;
/// Bits of the second word that hold the number of bytes.
const COMMIT_MASK: u64 = (1 << 20) - 1;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// Bits of an absolute time that an event has no room for.
const STAMP_HIGH: u64 = 0x1f << 59;

/// Layout of a page's header, as the file `events/header_page` states it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageLayout {
    commit: Field,
    data: usize,
    /// Bytes of a whole page.
    pub size: usize,
}

/// Everything about a page but its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSummary {
    /// Whether events before this page were lost.
    pub lost: bool,
    /// Number of events that were lost, if the page says so.
    pub lost_events: Option<u64>,
    /// Bytes that make no sense.
    pub undecoded: usize,
}

impl PageLayout {
    /// Parses the text of `events/header_page`.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let fields: Vec<_> = text
            .lines()
            .filter_map(|it| format::field(it.trim()))
            .collect();
        let named = |name: &str| {
            let found = fields.iter().find(|field| field.name == name).cloned();
            found.ok_or_else(|| FormatError {
                line: format!("no field `{name}`"),
            })
        };
        let [commit, data] = [named("commit")?, named("data")?];
        let size = data
            .offset
            .checked_add(data.size)
            .filter(|&it| it <= 1 << 20);
        let size = size.ok_or_else(|| FormatError {
            line: "a page larger than 1 MiB".to_owned(),
        })?;
        Ok(Self {
            commit,
            data: data.offset,
            size,
        })
    }

    /// Calls `visit` with the time and the record of each event. A page that is cut or makes no sense ends early.
    pub fn decode(&self, page: &[u8], mut visit: impl FnMut(u64, &[u8])) -> PageSummary {
        let undecoded = PageSummary {
            undecoded: page.len(),
            ..PageSummary::default()
        };
        let (Some(first), Some(commit)) = (word64(page, 0), self.commit.number(page)) else {
            return undecoded;
        };
        let used = (commit & COMMIT_MASK) as usize;
        let Some(data) = page.get(self.data..self.data + used) else {
            return undecoded;
        };
        let mut summary = PageSummary {
            lost: commit & MISSED_EVENTS != 0,
            ..PageSummary::default()
        };
        if summary.lost && commit & MISSED_STORED != 0 {
            summary.lost_events = word64(page, self.data + used);
        }
        let left = events(data, first, &mut visit);
        summary.undecoded = left;
        summary
    }
}

/// Bytes that remain where the events end without sense.
fn events(data: &[u8], first: u64, visit: &mut impl FnMut(u64, &[u8])) -> usize {
    let mut time = first;
    let mut at = 0;
    while let Some(header) = word32(data, at) {
        let (kind, delta) = split(header);
        let next = word32(data, at + 4);
        let (start, length) = match (kind, next) {
            // Nothing follows on this page.
            (PADDING, _) if delta == 0 => return 0,
            (PADDING, Some(length)) => {
                time = time.wrapping_add(delta);
                at = match at.checked_add(4 + length as usize) {
                    Some(next) if length >= 4 => next,
                    _ => return data.len() - at,
                };
                continue;
            }
            (TIME_EXTEND, Some(high)) => {
                time = time.wrapping_add(u64::from(high) << DELTA_BITS | delta);
                at += 8;
                continue;
            }
            (TIME_STAMP, Some(high)) => {
                time = time & STAMP_HIGH | u64::from(high) << DELTA_BITS | delta;
                at += 8;
                continue;
            }
            (0, Some(length)) if length >= 4 => (at + 8, length as usize - 4),
            (1..PADDING, _) => (at + 4, kind as usize * 4),
            _ => return data.len() - at,
        };
        time = time.wrapping_add(delta);
        let Some(record) = data.get(start..start.saturating_add(length)) else {
            return data.len() - at;
        };
        visit(time, record);
        at = start + length.next_multiple_of(4);
    }
    data.len().saturating_sub(at)
}

/// Kind and time since the event before. The kernel declares them as bit fields, whose order is that of the bytes.
fn split(header: u32) -> (u32, u64) {
    match cfg!(target_endian = "little") {
        true => (header & 0x1f, u64::from(header >> 5)),
        false => (
            header >> DELTA_BITS,
            u64::from(header & ((1 << DELTA_BITS) - 1)),
        ),
    }
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    const LAYOUT: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    fn page(first: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut page = first.to_ne_bytes().to_vec();
        page.extend(((words.len() as u64 * 4) | flags).to_ne_bytes());
        page.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        page
    }

    fn header(kind: u32, delta: u32) -> u32 {
        delta << 5 | kind
    }

    fn decoded(page: &[u8]) -> (Vec<(u64, usize)>, PageSummary) {
        let layout = PageLayout::parse(LAYOUT).expect("a layout");
        assert_eq!(layout.size, 4096);
        let mut seen = Vec::new();
        let summary = layout.decode(page, |time, record| seen.push((time, record.len())));
        (seen, summary)
    }

    #[test]
    fn times_add_up_over_all_kinds_of_events() {
        let page = page(
            (3 << 59) + 1000,
            0,
            &[
                header(2, 10),
                0,
                0,
                header(TIME_EXTEND, 5),
                1,
                header(0, 7),
                8,
                0,
                header(PADDING, 3),
                8,
                0,
                header(TIME_STAMP, 9),
                2,
                header(1, 1),
                0,
                header(PADDING, 0),
                99,
            ],
        );
        let start = (3 << 59) + 1010;
        let extended = start + (1 << 27) + 5 + 7;
        let stamped = (3 << 59) + (2 << 27) + 9 + 1;
        let (seen, summary) = decoded(&page);
        assert_eq!(seen, [(start, 8), (extended, 4), (stamped, 4)]);
        assert_eq!(summary, PageSummary::default());
    }

    #[test]
    fn losses_are_told() {
        let event = [header(1, 0), 0];
        let (seen, summary) = decoded(&page(0, MISSED_EVENTS, &event));
        assert_eq!(
            (seen.len(), summary.lost, summary.lost_events),
            (1, true, None)
        );
        let mut page = page(0, MISSED_EVENTS | MISSED_STORED, &event);
        page.extend(17_u64.to_ne_bytes());
        assert_eq!(decoded(&page).1.lost_events, Some(17));
    }

    #[test]
    fn a_hostile_page_ends_early() {
        for words in [
            &[header(28, 0), 0][..],
            &[header(0, 0), 3, 0],
            &[header(0, 0), u32::MAX],
            &[header(PADDING, 1), 0],
            &[header(PADDING, 1), u32::MAX],
            &[header(TIME_EXTEND, 1)],
        ] {
            let (seen, summary) = decoded(&page(0, 0, words));
            assert_eq!(seen, [], "{words:?}");
            assert!(summary.undecoded > 0 || words[1] == u32::MAX, "{words:?}");
        }
        let whole = page(0, 0, &[header(1, 0), 0]);
        for length in 0..whole.len() {
            assert_eq!(decoded(&whole[..length]).1.undecoded, length);
        }
    }
}
