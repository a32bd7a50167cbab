//! Pages and events of all CPUs, on their way to the analysis.

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
    pub(crate) events: Vec<Event>,
    seen_until_ns: u64,
}

impl Merge {
    /// Visits what is complete after a look at all buffers.
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

    fn visit_until(&mut self, until_ns: u64, visit: impl FnMut(&Event)) {
        // Stable: events of one CPU at one time stay in their order.
        self.events.sort_by_key(|event| event.time_ns);
        let complete = self
            .events
            .partition_point(|event| event.time_ns <= until_ns);
        self.events[..complete].iter().for_each(visit);
        self.events.drain(..complete);
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
}
