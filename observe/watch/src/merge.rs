//! Pages and events of all CPUs, on their way to the analysis.

use std::collections::BTreeMap;

use crate::event::{Event, Kind};
use crate::page::PageLayout;
use crate::seen::Losses;

/// Appends the events of a page, in front of them the loss that the page tells of.
pub(crate) fn take_page(
    layout: &PageLayout,
    cpu: u32,
    page: &[u8],
    events: &mut Vec<Event>,
    losses: &mut Losses,
    mut decode: impl FnMut(u64, &[u8]) -> Option<Event>,
) {
    let first = events.len();
    let summary = layout.decode(page, |time, record| {
        events.extend(decode(time, record));
        losses.events_read += 1;
    });
    losses.bytes_undecoded += summary.undecoded as u64;
    if summary.lost {
        let time_ns = events.get(first).map_or(0, |event| event.time_ns);
        events.insert(first, lost(time_ns, cpu));
    }
}

/// The loss of events of a CPU.
pub(crate) fn lost(time_ns: u64, cpu: u32) -> Event {
    Event {
        time_ns,
        cpu,
        pid: 0,
        kind: Kind::Lost,
    }
}

/// Events of all CPUs in the order of their times.
///
/// A CPU's buffer is read after another's, and may then hold later events. Everything up to the latest time of the look before
/// is complete: it was in the buffers when this look began.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    /// Events since the last look.
    pub(crate) events: Vec<Event>,
    /// Events of earlier looks, by their time and then by their arrival: those of one CPU at one time stay in their order.
    waiting: BTreeMap<(u64, u64), Event>,
    arrived: u64,
    seen_until_ns: u64,
}

impl Merge {
    /// Visits what is complete after a look at all buffers. Its time grows with the new events and the visited ones: a file may have many looks
    /// at events that wait for long.
    pub(crate) fn complete(&mut self, visit: impl FnMut(&Event)) {
        let until = self.seen_until_ns;
        let latest = self.events.iter().map(|event| event.time_ns).max();
        self.seen_until_ns = latest.map_or(until, |latest| latest.max(until));
        self.visit_until(until, visit);
    }

    /// Visits what is left.
    pub(crate) fn rest(&mut self, visit: impl FnMut(&Event)) {
        self.visit_until(u64::MAX, visit);
    }

    fn visit_until(&mut self, until_ns: u64, mut visit: impl FnMut(&Event)) {
        for event in self.events.drain(..) {
            self.waiting.insert((event.time_ns, self.arrived), event);
            self.arrived += 1;
        }
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= until_ns
        {
            visit(&first.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_once_all_buffers_were_read() {
        let mut merge = Merge::default();
        let mut times = Vec::new();
        merge.events = vec![lost(10, 0), lost(12, 1)];
        merge.complete(|event| times.push(event.time_ns));
        assert!(times.is_empty());
        // CPU 0 had an event at 11 after its buffer had been read.
        merge.events.extend([lost(11, 0), lost(20, 0)]);
        merge.complete(|event| times.push(event.time_ns));
        assert_eq!(times, [10, 11, 12]);
        merge.rest(|event| times.push(event.time_ns));
        assert_eq!(times, [10, 11, 12, 20]);
    }

    #[test]
    fn a_look_does_not_touch_what_waits() {
        // For minutes, if it does.
        let mut merge = Merge {
            events: (0..300_000).map(|nth| lost(u64::MAX - nth, 0)).collect(),
            ..Merge::default()
        };
        let mut visited = 0;
        for _ in 0..300_000 {
            merge.visit_until(1, |_| visited += 1);
        }
        assert_eq!(visited, 0);
        merge.rest(|_| visited += 1);
        assert_eq!(visited, 300_000);
    }
}
