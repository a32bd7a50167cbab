//! Calls of `vmstat_update`, each with the timer that led to it.
//!
//! The timer lies behind the work item in one structure. How far behind depends on the kernel's options, so the distance is
//! learned from the first timer that is set during a call.

use std::collections::BTreeMap;

use crate::event::{Event, Kind};
use crate::seen::Upkeep;

/// The timer is in the same structure as its work, which is no larger than this.
const STRUCTURE_BYTES: u64 = 256;
/// Timers that are kept in mind, those of other work among them.
const TIMERS: usize = 65_536;

#[derive(Clone, Copy, Debug, Default)]
struct Timer {
    target: Option<u64>,
    bucket: Option<u64>,
    expired: Option<Expired>,
}

#[derive(Clone, Copy, Debug)]
struct Expired {
    time_ns: u64,
    jiffy: u64,
    slot: Option<u64>,
}

/// Calls of all CPUs.
#[derive(Debug, Default)]
pub struct Upkeeps {
    timers: BTreeMap<u64, Timer>,
    distance: Option<u64>,
    /// The call that runs on a CPU, with its work and task.
    running: BTreeMap<u32, (u64, i32, Upkeep)>,
    done: Vec<Upkeep>,
    left_out: u64,
}

impl Upkeeps {
    pub fn take(&mut self, event: &Event) {
        match event.kind {
            Kind::TimerStart {
                timer,
                expires,
                bucket_expiry,
                ..
            } => {
                self.learn(event, timer);
                self.set(
                    timer,
                    Timer {
                        target: Some(expires),
                        bucket: bucket_expiry,
                        expired: None,
                    },
                );
            }
            Kind::TimerExpire {
                timer,
                now,
                baseclk,
            } => {
                let set = self.timers.get(&timer).copied().unwrap_or_default();
                let expired = Some(Expired {
                    time_ns: event.time_ns,
                    jiffy: now,
                    slot: baseclk,
                });
                self.set(timer, Timer { expired, ..set });
            }
            Kind::WorkStart { work } => {
                let timer = self.distance.and_then(|it| work.checked_add(it));
                let led = timer.and_then(|timer| self.timers.get(&timer).copied());
                let mut upkeep = Upkeep {
                    cpu: event.cpu,
                    start_ns: event.time_ns,
                    pages: Some(0),
                    ..Upkeep::default()
                };
                // A timer that is set and has not expired did not lead to this call: the shepherd queued it.
                if let (Some(timer), Some(led)) = (timer, led)
                    && let Some(expired) = led.expired
                {
                    upkeep.target_jiffy = led.target;
                    upkeep.slot_jiffy = expired.slot.or(led.bucket);
                    upkeep.expire_jiffy = Some(expired.jiffy);
                    upkeep.expire_ns = Some(expired.time_ns);
                    self.timers.remove(&timer);
                }
                self.running.insert(event.cpu, (work, event.pid, upkeep));
            }
            Kind::WorkEnd { work } => {
                if let Some((started, _, upkeep)) = self.running.remove(&event.cpu)
                    && started == work
                {
                    let upkeep = Upkeep {
                        end_ns: event.time_ns,
                        ..upkeep
                    };
                    if !super::list::add(&mut self.done, upkeep) {
                        self.left_out += 1;
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether this task of this CPU is in a call.
    pub fn runs(&self, cpu: u32, pid: i32) -> bool {
        self.running
            .get(&cpu)
            .is_some_and(|(_, worker, _)| *worker == pid)
    }

    /// A page left a list of this CPU.
    pub fn drained(&mut self, cpu: u32, pid: i32, pages: u64) {
        if let Some((_, worker, upkeep)) = self.running.get_mut(&cpu)
            && *worker == pid
            && let Some(count) = &mut upkeep.pages
        {
            *count += pages;
        }
    }

    /// Events of this CPU are missing.
    pub fn lost(&mut self, cpu: u32) {
        self.running.remove(&cpu);
    }

    /// Learns how far behind its work the timer lies.
    fn learn(&mut self, event: &Event, timer: u64) {
        if self.distance.is_some() {
            return;
        }
        let Some((work, worker, _)) = self.running.get(&event.cpu) else {
            return;
        };
        let distance = timer.wrapping_sub(*work);
        if *worker == event.pid && (1..STRUCTURE_BYTES).contains(&distance) {
            self.distance = Some(distance);
        }
    }

    fn set(&mut self, address: u64, timer: Timer) {
        // Most are of other work, which may be gone. The next call of each CPU has its timer again.
        if self.timers.len() >= TIMERS && !self.timers.contains_key(&address) {
            self.timers.clear();
        }
        self.timers.insert(address, timer);
    }

    /// All calls, and the number of those that had no room.
    pub fn finish(mut self) -> (Vec<Upkeep>, u64) {
        self.done
            .sort_by_key(|upkeep| (upkeep.start_ns, upkeep.cpu));
        (self.done, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, pid: i32, kind: Kind) -> Event {
        Event {
            time_ns,
            cpu: 3,
            pid,
            kind,
        }
    }

    fn set(timer: u64, expires: u64) -> Kind {
        Kind::TimerStart {
            timer,
            expires,
            bucket_expiry: Some(expires + 5),
            now: None,
        }
    }

    fn expire(timer: u64, now: u64, baseclk: u64) -> Kind {
        let baseclk = Some(baseclk);
        Kind::TimerExpire {
            timer,
            now,
            baseclk,
        }
    }

    fn calls(kinds: &[(u64, i32, Kind)]) -> Vec<Upkeep> {
        let mut upkeeps = Upkeeps::default();
        for &(time, pid, kind) in kinds {
            if matches!(kind, Kind::PcpuDrain { .. }) {
                upkeeps.drained(3, pid, 1);
            }
            upkeeps.take(&event(time, pid, kind));
        }
        upkeeps.finish().0
    }

    #[test]
    fn a_call_has_the_timer_that_led_to_it() {
        let work = 0x1000;
        let calls = calls(&[
            (10, 7, Kind::WorkStart { work }),
            // An interrupt's timer, then its own.
            (11, 7, set(0x9000, 1)),
            (12, 7, set(work + 32, 240)),
            (13, 7, Kind::PcpuDrain { pfn: 1, order: 0 }),
            (14, 8, Kind::PcpuDrain { pfn: 2, order: 0 }),
            (20, 7, Kind::WorkEnd { work }),
            (900, 0, expire(work + 32, 247, 245)),
            (950, 7, Kind::WorkStart { work }),
            (960, 7, set(work + 32, 490)),
            (970, 7, Kind::WorkEnd { work }),
            // The timer has not expired: the shepherd's call.
            (980, 7, Kind::WorkStart { work }),
            (990, 7, Kind::WorkEnd { work }),
        ]);
        assert_eq!(calls.len(), 3);
        assert_eq!((calls[0].expire_ns, calls[0].pages), (None, Some(1)));
        let second = calls[1];
        assert_eq!(second.target_jiffy, Some(240));
        assert_eq!(second.slot_jiffy, Some(245));
        assert_eq!(second.expire_jiffy, Some(247));
        assert_eq!(second.expire_ns, Some(900));
        assert_eq!((second.start_ns, second.end_ns), (950, 970));
        assert_eq!(calls[2].target_jiffy, None);
    }

    #[test]
    fn a_loss_drops_the_call_that_runs() {
        let work = 0x1000;
        let mut upkeeps = Upkeeps::default();
        upkeeps.take(&event(1, 7, Kind::WorkStart { work }));
        upkeeps.lost(3);
        upkeeps.take(&event(2, 7, Kind::WorkEnd { work }));
        assert_eq!(upkeeps.finish().0, []);
    }

    #[test]
    fn other_timers_keep_none_out_for_good() {
        let work = 0x1000;
        let mut upkeeps = Upkeeps::default();
        let mut take = |time_ns, kind| upkeeps.take(&event(time_ns, 7, kind));
        take(1, Kind::WorkStart { work });
        take(2, set(work + 32, 240));
        take(3, Kind::WorkEnd { work });
        for other in 0..TIMERS as u64 {
            take(4, set(0x10_0000 + 64 * other, 1));
        }
        take(5, Kind::WorkStart { work });
        take(6, set(work + 32, 490));
        take(7, Kind::WorkEnd { work });
        take(8, expire(work + 32, 491, 490));
        take(9, Kind::WorkStart { work });
        take(10, Kind::WorkEnd { work });
        let (calls, left_out) = upkeeps.finish();
        assert_eq!((calls[2].target_jiffy, left_out), (Some(490), 0));
    }

    #[test]
    fn calls_without_room_are_counted() {
        let mut upkeeps = Upkeeps::default();
        for _ in 0..crate::seen::ITEMS + 3 {
            upkeeps.take(&event(1, 7, Kind::WorkStart { work: 1 }));
            upkeeps.take(&event(1, 7, Kind::WorkEnd { work: 1 }));
        }
        assert_eq!(upkeeps.finish().1, 3);
    }
}
