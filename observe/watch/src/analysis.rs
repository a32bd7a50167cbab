//! From events in the order of their times to [`Seen`].

mod bursts;
mod contexts;
mod flushes;
mod hz;
mod list;
mod refresh;
mod upkeep;
mod waits;

use crate::diagnosis::WAIT_SHARE_MIN;
use crate::event::{CONTEXT, Event, Kind, WAITS, WORK};
use crate::figures::cpu_share;
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

    /// Tasks that flush now or did so last.
    pub fn flushing(&self) -> impl Iterator<Item = i32> {
        self.flushes.pids()
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
                self.flushes.lost();
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
        let (upkeep, mut all_left_out) = self.upkeeps.finish();
        seen.upkeep = upkeep;
        if !seen.deep || seen.lacks("mm_page_pcpu_drain") {
            seen.upkeep.iter_mut().for_each(|it| it.pages = None);
        }
        if let Some(hz) = self.slope.hz() {
            seen.machine.hz = Some(hz);
            seen.machine.hz_source = Some(crate::seen::HzSource::Slope);
        }
        let (refreshes, left_out) = self.refreshes.finish();
        all_left_out += left_out;
        seen.refreshes = refreshes;
        let found = self.waits.finish();
        all_left_out += found.left_out;
        let waits = found.waits;
        let has_zone = waits.iter().any(|wait| wait.lock == LockKind::Zone);
        // A session takes no more than some thousand stacks. Beside zones that are known, waits without one matter if they are long, and
        // if the zones do not tell their waits themselves.
        let tells_itself = waits
            .iter()
            .any(|it| it.lock == LockKind::Zone && it.address == 0);
        let are_long = cpu_share(found.unnamed_ns, seen) >= WAIT_SHARE_MIN;
        let matters = !has_zone || are_long && !tells_itself;
        let is_known = seen.missing.iter().any(|it| it.removes == WAITS);
        if found.unnamed > 0 && matters && !is_known {
            seen.missing.push(Missing {
                what: format!("stack of {} of {} waits", found.unnamed, waits.len()),
                removes: WAITS.to_owned(),
            });
        }
        let (bursts, [decay_release, release], left_out) = self.bursts.finish(&waits);
        all_left_out += left_out;
        let (flushes, left_out) = self.flushes.finish();
        all_left_out += left_out;
        seen.losses.items_left_out += all_left_out;
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
