//! From events in the order of their times to [`Seen`].

mod bursts;
mod contexts;
mod flushes;
mod hz;
mod list;
mod refresh;
mod upkeep;
mod waits;

use crate::event::{CONTEXT, Event, Kind, WAITS, WORK};
use crate::seen::{Context, LockKind, Machine, Missing, Seen};

use bursts::Bursts;
use contexts::Contexts;
use flushes::Flushes;
use hz::Slope;
use refresh::Refreshes;
use upkeep::Upkeeps;
use waits::Waits;

/// State of the analysis.
#[derive(Debug)]
pub struct Analysis {
    upkeeps: Upkeeps,
    refreshes: Refreshes,
    bursts: Bursts,
    contexts: Contexts,
    flushes: Flushes,
    waits: Waits,
    slope: Slope,
}

impl Analysis {
    /// An analysis of nothing yet. The machine's zones say which pages share a lock.
    pub fn new(machine: &Machine) -> Self {
        Self {
            upkeeps: Upkeeps::default(),
            refreshes: Refreshes::default(),
            bursts: Bursts::new(machine),
            contexts: Contexts::default(),
            flushes: Flushes::default(),
            waits: Waits::default(),
            slope: Slope::default(),
        }
    }

    /// Takes an event, no earlier than the event before.
    pub fn take(&mut self, event: &Event) {
        match event.kind {
            Kind::TimerStart { now: Some(now), .. } | Kind::TimerExpire { now, .. } => {
                self.slope.take(event.time_ns, now);
            }
            Kind::PcpuDrain { order, .. } => {
                self.upkeeps
                    .drained(event.cpu, event.pid, 1 << order.min(20))
            }
            Kind::ContentionEnd { lock_addr } if self.waits.is_zone_lock(lock_addr) => {
                self.bursts.got_lock(event);
            }
            Kind::ContendedRelease { lock_addr } if self.waits.is_zone_lock(lock_addr) => {
                self.bursts.released(event);
            }
            Kind::Lost => {
                self.upkeeps.lost(event.cpu);
                self.refreshes.lost(event.cpu);
                self.bursts.lost(event.cpu);
                self.waits.lost(event.cpu);
            }
            _ => {}
        }
        let is_upkeep = self.upkeeps.runs(event.cpu, event.pid);
        self.refreshes.take(event, is_upkeep);
        self.upkeeps.take(event);
        self.contexts.take(event);
        let context = match is_upkeep {
            true => Context::Upkeep,
            false => self.contexts.of(event),
        };
        self.bursts.take(event, context);
        self.flushes.take(event);
        self.waits.take(event);
    }

    /// Fills the lists of `seen`, and what the events tell of the machine. Counts of an event that `seen` lacks are unknown, not 0.
    pub fn finish(self, seen: &mut Seen) {
        seen.upkeep = self.upkeeps.finish();
        if !seen.deep || seen.lacks("mm_page_pcpu_drain") {
            seen.upkeep.iter_mut().for_each(|it| it.pages = None);
        }
        let lists = &mut seen.losses.items_left_out;
        let mut whole = |left_out: u64| *lists += left_out;
        if let Some(hz) = self.slope.hz() {
            seen.machine.hz = Some(hz);
            seen.machine.hz_source = Some(crate::seen::HzSource::Slope);
        }
        let (refreshes, left_out) = self.refreshes.finish();
        whole(left_out);
        seen.refreshes = refreshes;
        let (waits, unnamed, left_out) = self.waits.finish();
        whole(left_out);
        let has_zone = waits.iter().any(|wait| wait.lock == LockKind::Zone);
        // A session takes no more than some thousand stacks.
        if unnamed > 0 && !has_zone && !seen.missing.iter().any(|it| it.removes == WAITS) {
            seen.missing.push(Missing {
                what: format!("stack of {unnamed} of {} waits", waits.len()),
                removes: WAITS.to_owned(),
            });
        }
        let (bursts, [decay_release, release], left_out) = self.bursts.finish(&waits);
        whole(left_out);
        let (flushes, left_out) = self.flushes.finish();
        whole(left_out);
        seen.waits = waits;
        seen.bursts = bursts;
        // Other work of tasks is known only if events show all the rest.
        let is_known = !seen.loses(CONTEXT) && !seen.loses(WORK);
        for burst in seen.bursts.iter_mut().filter(|_| !is_known) {
            burst.context = burst.context.filter(|it| *it != Context::Task);
        }
        seen.release = release;
        seen.decay_release = decay_release;
        seen.flushes = flushes;
    }
}
