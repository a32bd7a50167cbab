//! Records and headers in bytes.
//!
//! Records of one kind are in blocks of their own. Times are steps from the beginning of the record before, and the
//! first of a block from that of the recording. So each block can be read alone.

use crate::block::kind;
use crate::header::{Events, Header, Node, Zone};
use crate::number::{Bad, Input, put, put_step, put_text};
use crate::record::{
    Burst, BurstKind, Cause, CpuChange, End, Flush, Hold, LockKind, StatRead, Upkeep, Wait,
};
use crate::{CPUS_MAX, TIME_NS_MAX};

/// Greatest number of nodes, and of zones.
const PLACES_MAX: u64 = 4_096;
/// Greatest order of a block of pages.
const ORDER_MAX: u64 = 63;

/// Values of the record before, from which the next is coded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    start_ns: u64,
    jiffy: u64,
    cpus_possible: u32,
    /// Greatest place of a zone.
    zones_max: u64,
}

impl Last {
    /// Values at the beginning of a block.
    pub(crate) fn of(header: &Header) -> Self {
        Self {
            start_ns: header.start_ns,
            jiffy: 0,
            cpus_possible: header.cpus_possible,
            zones_max: (header.zones.len() as u64).saturating_sub(1),
        }
    }

    fn put_start(&mut self, out: &mut Vec<u8>, start_ns: u64) {
        put_step(out, self.start_ns, start_ns);
        self.start_ns = start_ns;
    }

    fn start(&mut self, input: &mut Input<'_>) -> Result<u64, Bad> {
        self.start_ns = input.step(self.start_ns)?;
        Ok(self.start_ns)
    }

    fn put_jiffy(&mut self, out: &mut Vec<u8>, jiffy: u64) {
        put_step(out, self.jiffy, jiffy);
        self.jiffy = jiffy;
    }

    fn jiffy(&mut self, input: &mut Input<'_>) -> Result<u64, Bad> {
        self.jiffy = input.step(self.jiffy)?;
        Ok(self.jiffy)
    }

    fn cpu(&self, input: &mut Input<'_>) -> Result<u32, Bad> {
        let most = u64::from(self.cpus_possible) - 1;
        Ok(input.at_most(most, "there is no such CPU")? as u32)
    }
}

/// Record that has blocks of its own.
pub(crate) trait Record: Copy {
    /// Kind of its blocks.
    const KIND: u8;

    fn put(&self, out: &mut Vec<u8>, last: &mut Last);

    fn take(input: &mut Input<'_>, last: &mut Last) -> Result<Self, Bad>;

    /// Returns why a reader would refuse the record, if it would.
    fn refusal(&self, header: &Header) -> Option<&'static str> {
        let mut out = Vec::new();
        self.put(&mut out, &mut Last::of(header));
        let read = Self::take(&mut Input(&out), &mut Last::of(header));
        read.err().map(|bad| bad.0)
    }
}

fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    value.into_iter().for_each(|value| put(out, value));
}

fn option<T>(
    flags: u64,
    bit: u32,
    take: impl FnOnce() -> Result<T, Bad>,
) -> Result<Option<T>, Bad> {
    (flags >> bit & 1 == 1).then(take).transpose()
}

fn flag(is_set: bool, bit: u32) -> u64 {
    u64::from(is_set) << bit
}

/// Takes the length of something that begins at `start_ns`; returns its end.
fn end(input: &mut Input<'_>, start_ns: u64) -> Result<u64, Bad> {
    let most = TIME_NS_MAX - start_ns;
    Ok(start_ns + input.at_most(most, "a time is out of range")?)
}

/// Length from one time to another; 0 for one that is earlier.
fn length(start_ns: u64, end_ns: u64) -> u64 {
    end_ns.saturating_sub(start_ns)
}

impl Record for Upkeep {
    const KIND: u8 = kind::UPKEEPS;

    fn put(&self, out: &mut Vec<u8>, last: &mut Last) {
        let flags = self.cause as u64
            | flag(self.target_jiffy.is_some(), 2)
            | flag(self.slot_jiffy.is_some(), 3)
            | flag(self.expire_jiffy.is_some(), 4)
            | flag(self.expire_ns.is_some(), 5)
            | flag(self.pages.is_some(), 6);
        put(out, flags);
        put(out, self.cpu.into());
        last.put_start(out, self.start_ns);
        put(out, length(self.start_ns, self.end_ns));
        for jiffy in [self.target_jiffy, self.slot_jiffy, self.expire_jiffy]
            .into_iter()
            .flatten()
        {
            last.put_jiffy(out, jiffy);
        }
        if let Some(expire_ns) = self.expire_ns {
            put_step(out, self.start_ns, expire_ns);
        }
        put_option(out, self.pages);
    }

    fn take(input: &mut Input<'_>, last: &mut Last) -> Result<Self, Bad> {
        let flags = input.at_most(0b111_1111, "unknown flags")?;
        let cause = match flags & 3 {
            0 => Cause::Timer,
            1 => Cause::Shepherd,
            2 => Cause::IdleEntry,
            _ => Cause::Unknown,
        };
        let cpu = last.cpu(input)?;
        let start_ns = last.start(input)?;
        Ok(Self {
            cpu,
            cause,
            start_ns,
            end_ns: end(input, start_ns)?,
            target_jiffy: option(flags, 2, || last.jiffy(input))?,
            slot_jiffy: option(flags, 3, || last.jiffy(input))?,
            expire_jiffy: option(flags, 4, || last.jiffy(input))?,
            expire_ns: option(flags, 5, || input.step(start_ns))?,
            pages: option(flags, 6, || input.number())?,
        })
    }
}

impl Record for Burst {
    const KIND: u8 = kind::BURSTS;

    fn put(&self, out: &mut Vec<u8>, last: &mut Last) {
        let flags = self.kind as u64
            | (self.hold as u64) << 1
            | flag(self.order.is_some(), 3)
            | flag(self.zone.is_some(), 4);
        put(out, flags);
        put(out, self.cpu.into());
        put(out, self.pid.into());
        last.put_start(out, self.start_ns);
        put(out, length(self.start_ns, self.end_ns));
        put(out, self.pages);
        put_option(out, self.order.map(u64::from));
        put_option(out, self.zone.map(u64::from));
    }

    fn take(input: &mut Input<'_>, last: &mut Last) -> Result<Self, Bad> {
        let flags = input.at_most(0b1_1111, "unknown flags")?;
        let hold = match flags >> 1 & 3 {
            0 => Hold::Traced,
            1 => Hold::Proven,
            2 => Hold::Several,
            _ => Hold::Unknown,
        };
        let cpu = last.cpu(input)?;
        let pid = input.u32()?;
        let start_ns = last.start(input)?;
        Ok(Self {
            cpu,
            pid,
            kind: match flags & 1 {
                0 => BurstKind::Drain,
                _ => BurstKind::Refill,
            },
            hold,
            start_ns,
            end_ns: end(input, start_ns)?,
            pages: input.number()?,
            order: option(flags, 3, || {
                input.at_most(ORDER_MAX, "an order is too large")
            })?
            .map(|order| order as u8),
            zone: option(flags, 4, || {
                input.at_most(last.zones_max, "there is no such zone")
            })?
            .map(|zone| zone as u16),
        })
    }
}

/// A yes or no that may be unknown, in two bits.
fn put_maybe(value: Option<bool>, bit: u32) -> u64 {
    flag(value.is_some(), bit) | flag(value == Some(true), bit + 1)
}

fn maybe(flags: u64, bit: u32) -> Option<bool> {
    (flags >> bit & 1 == 1).then_some(flags >> (bit + 1) & 1 == 1)
}

impl Record for Flush {
    const KIND: u8 = kind::FLUSHES;

    fn put(&self, out: &mut Vec<u8>, last: &mut Last) {
        let flags = flag(self.wait_ns.is_some(), 0)
            | flag(self.held_ns.is_some(), 1)
            | flag(self.pending_updates.is_some(), 2)
            | put_maybe(self.is_skipped, 3)
            | put_maybe(self.is_forced, 5);
        put(out, flags);
        put(out, self.cgroup);
        put(out, self.cpu.into());
        put(out, self.pid.into());
        last.put_start(out, self.start_ns);
        put(out, length(self.start_ns, self.end_ns));
        put_option(out, self.wait_ns);
        put_option(out, self.held_ns);
        put_option(out, self.pending_updates);
    }

    fn take(input: &mut Input<'_>, last: &mut Last) -> Result<Self, Bad> {
        let flags = input.at_most(0b111_1111, "unknown flags")?;
        let cgroup = input.any()?;
        let cpu = last.cpu(input)?;
        let pid = input.u32()?;
        let start_ns = last.start(input)?;
        let end_ns = end(input, start_ns)?;
        let most = end_ns - start_ns;
        let mut part = |bit| {
            let take = || input.at_most(most, "a part is longer than its flush");
            option(flags, bit, take)
        };
        Ok(Self {
            cgroup,
            cpu,
            pid,
            start_ns,
            end_ns,
            wait_ns: part(0)?,
            held_ns: part(1)?,
            pending_updates: option(flags, 2, || input.number())?,
            is_skipped: maybe(flags, 3),
            is_forced: maybe(flags, 5),
        })
    }
}

impl Record for StatRead {
    const KIND: u8 = kind::STAT_READS;

    fn put(&self, out: &mut Vec<u8>, last: &mut Last) {
        put(out, flag(self.staleness_ns.is_some(), 0));
        put(out, self.pid.into());
        put(out, self.cgroup);
        last.put_start(out, self.start_ns);
        put(out, self.latency_ns);
        put_option(out, self.staleness_ns);
    }

    fn take(input: &mut Input<'_>, last: &mut Last) -> Result<Self, Bad> {
        let flags = input.at_most(1, "unknown flags")?;
        let pid = input.u32()?;
        let cgroup = input.any()?;
        let start_ns = last.start(input)?;
        Ok(Self {
            pid,
            cgroup,
            start_ns,
            latency_ns: end(input, start_ns)? - start_ns,
            staleness_ns: option(flags, 0, || input.number())?,
        })
    }
}

impl Record for Wait {
    const KIND: u8 = kind::WAITS;

    fn put(&self, out: &mut Vec<u8>, last: &mut Last) {
        put(out, self.lock as u64);
        put(out, self.cpu.into());
        last.put_start(out, self.start_ns);
        put(out, length(self.start_ns, self.end_ns));
    }

    fn take(input: &mut Input<'_>, last: &mut Last) -> Result<Self, Bad> {
        let lock = match input.at_most(2, "unknown kind of lock")? {
            0 => LockKind::Zone,
            1 => LockKind::Rstat,
            _ => LockKind::Other,
        };
        let cpu = last.cpu(input)?;
        let start_ns = last.start(input)?;
        Ok(Self {
            cpu,
            lock,
            start_ns,
            end_ns: end(input, start_ns)?,
        })
    }
}

impl Record for CpuChange {
    const KIND: u8 = kind::CPU_CHANGES;

    fn put(&self, out: &mut Vec<u8>, last: &mut Last) {
        last.put_start(out, self.at_ns);
        put(out, self.cpus_online.into());
    }

    fn take(input: &mut Input<'_>, last: &mut Last) -> Result<Self, Bad> {
        Ok(Self {
            at_ns: last.start(input)?,
            cpus_online: input.at_most(last.cpus_possible.into(), "more CPUs than are possible")?
                as u32,
        })
    }
}

pub(crate) fn put_end(out: &mut Vec<u8>, end: &End) {
    put(
        out,
        flag(end.gap_at_batch_ns.is_some(), 0) | flag(end.gap_elsewhere_ns.is_some(), 1),
    );
    for number in [end.duration_ns, end.lost_events, end.records] {
        put(out, number);
    }
    put_option(out, end.gap_at_batch_ns);
    put_option(out, end.gap_elsewhere_ns);
}

pub(crate) fn take_end(input: &mut Input<'_>, header: &Header) -> Result<End, Bad> {
    let flags = input.at_most(0b11, "unknown flags")?;
    let most = TIME_NS_MAX - header.start_ns;
    Ok(End {
        duration_ns: input.at_most(most, "its length is out of range")?,
        lost_events: input.number()?,
        records: input.number()?,
        gap_at_batch_ns: option(flags, 0, || input.number())?,
        gap_elsewhere_ns: option(flags, 1, || input.number())?,
    })
}

pub(crate) fn put_header(out: &mut Vec<u8>, header: &Header) {
    put_text(out, &header.kernel_release);
    put(out, flag(header.is_virtual, 0));
    for number in [
        header.hz.unwrap_or(0).into(),
        header.page_bytes.into(),
        header.stat_interval_ms,
        header.cpus_online.into(),
        header.cpus_possible.into(),
        header.start_ns,
        header.events.0,
    ] {
        put(out, number);
    }
    put(out, header.nodes.len() as u64);
    for node in &header.nodes {
        put(out, node.node.into());
        put(out, node.cpus.into());
    }
    put(out, header.zones.len() as u64);
    for zone in &header.zones {
        put(out, flag(zone.pcp_high_range.is_some(), 0));
        put(out, zone.node.into());
        put_text(out, &zone.name);
        for number in [
            zone.managed_pages,
            zone.min_pages,
            zone.low_pages,
            zone.high_pages,
            zone.pcp_batch,
            zone.pcp_high,
        ] {
            put(out, number);
        }
        if let Some((least, most)) = zone.pcp_high_range {
            put(out, least);
            put(out, most);
        }
    }
}

pub(crate) fn take_header(input: &mut Input<'_>) -> Result<Header, Bad> {
    let kernel_release = input.text()?;
    let is_virtual = input.at_most(1, "unknown flags")? == 1;
    let hz = input.at_most(10_000, "HZ is above 10000")? as u32;
    let page_bytes = input.u32()?;
    let stat_interval_ms = input.at_most(86_400_000, "the interval is above a day")?;
    let cpus_online = input.at_most(CPUS_MAX.into(), "too many CPUs")? as u32;
    let cpus_possible = input.at_most(CPUS_MAX.into(), "too many CPUs")? as u32;
    let start_ns = input.number()?;
    let events = Events(input.any()?);
    if page_bytes == 0 || stat_interval_ms == 0 {
        return Err(Bad("the size of a page or the interval is 0"));
    }
    if cpus_online == 0 || cpus_online > cpus_possible {
        return Err(Bad("no CPU is online, or more than are possible"));
    }
    let nodes = (0..input.at_most(PLACES_MAX, "too many nodes")?)
        .map(|_| {
            Ok(Node {
                node: input.u32()?,
                cpus: input.at_most(CPUS_MAX.into(), "too many CPUs")? as u32,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let zones = (0..input.at_most(PLACES_MAX, "too many zones")?)
        .map(|_| take_zone(input))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Header {
        kernel_release,
        is_virtual,
        hz: (hz > 0).then_some(hz),
        page_bytes,
        stat_interval_ms,
        cpus_online,
        cpus_possible,
        nodes,
        zones,
        start_ns,
        events,
    })
}

fn take_zone(input: &mut Input<'_>) -> Result<Zone, Bad> {
    let flags = input.at_most(1, "unknown flags")?;
    Ok(Zone {
        node: input.u32()?,
        name: input.text()?,
        managed_pages: input.number()?,
        min_pages: input.number()?,
        low_pages: input.number()?,
        high_pages: input.number()?,
        pcp_batch: input.number()?,
        pcp_high: input.number()?,
        pcp_high_range: option(flags, 0, || Ok((input.number()?, input.number()?)))?,
    })
}
