//! Network streams: tasks in pairs, one that sends segments and one that receives them, in groups deep in the tree.
//!
//! The sender charges the pages of a segment to the group of its flow as socket memory and works on it. The receiver
//! works on it, uncounts the pages and returns them. The work stands for copying and for the protocol. Between them is
//! a queue of bounded length. A charge that a limit refuses is forced, as the kernel forces a charge that must not
//! wait.
//!
//! # Limits of the model
//! There is no link: each pair is limited by its own work alone. Flows do not compete within a thread. A thread serves
//! its flows in turn, and more flows mean more segments under way.
//!
//! # Measuring the share of charging
//! Of every 17th segment the three parts (charging, counting and working) are timed with four looks at the clock. The
//! number is 17 because stock comes in batches of 64 pages, which are 4 segments: every 16th segment would always find
//! the stock the same. The cost of a look at the clock is measured beforehand and subtracted. If tasks share CPUs, the
//! clock goes on while another task runs. So the share leaves out segments that took longer than twice their work, and
//! `disturbed_segments` is their number. The share means nothing if these are many, or if updates take as long as the
//! work.

use std::collections::VecDeque;
use std::sync::Arc;

use bursar_kernel::stats::GroupIndex;
use bursar_machine::{Event, Lock, Machine};
use bursar_rig::Tasks;

use super::parameters::Parameters;
use super::statistics::Stat;
use super::subject::Subject;
use super::worker::Log;
use super::worker::Task;
use crate::document::Metrics;
use crate::metrics::memcg_flush::*;

/// Number of segments for one that is timed; see above.
const SAMPLE_EVERY: u64 = 17;

/// Segments under way of each flow: a quarter of a megabyte of 64 KiB segments, of the order of a socket's buffer. Judgement.
const WINDOW: u64 = 4;

/// Looks at the clock from which the cost of one is taken: judgement.
const CLOCK_LOOKS: u32 = 16;

struct Segment<C> {
    group: GroupIndex,
    charge: C,
}

/// Segments on the way from a sender to its receiver. There is one of each, so at most one of them waits.
struct Queue<M: Machine, C> {
    segments: VecDeque<Segment<C>>,
    sleeper: Option<Arc<M::Event>>,
    is_closed: bool,
}

struct Pipe<M: Machine, C: Send + 'static> {
    queue: M::Mutex<Queue<M, C>>,
    bound: usize,
}

/// Returns whether a sender that found the queue full is woken: when a third is free, as the kernel does.
fn is_writable(length: usize, bound: usize) -> bool {
    length * 3 <= bound * 2
}

impl<M: Machine, C: Send + 'static> Pipe<M, C> {
    fn new(bound: usize) -> Self {
        Self {
            queue: M::Mutex::new(Queue {
                segments: VecDeque::new(),
                sleeper: None,
                is_closed: false,
            }),
            bound,
        }
    }

    fn push(&self, segment: Segment<C>) {
        loop {
            let mut queue = self.queue.lock();
            if queue.segments.len() < self.bound {
                queue.segments.push_back(segment);
                let sleeper = queue.sleeper.take();
                drop(queue);
                wake(sleeper);
                return;
            }
            let event = Arc::new(M::Event::new());
            queue.sleeper = Some(event.clone());
            drop(queue);
            event.wait();
        }
    }

    fn close(&self) {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        let sleeper = queue.sleeper.take();
        drop(queue);
        wake(sleeper);
    }

    /// Takes the next segment; `None` once the pipe is closed and empty.
    fn pop(&self) -> Option<Segment<C>> {
        loop {
            let mut queue = self.queue.lock();
            if let Some(segment) = queue.segments.pop_front() {
                let sleeper = if is_writable(queue.segments.len(), self.bound) {
                    queue.sleeper.take()
                } else {
                    None
                };
                drop(queue);
                wake(sleeper);
                return Some(segment);
            }
            if queue.is_closed {
                return None;
            }
            let event = Arc::new(M::Event::new());
            queue.sleeper = Some(event.clone());
            drop(queue);
            event.wait();
        }
    }
}

/// Wakes a sleeper. Must not be called under the lock, because the woken task takes it.
fn wake<E: Event>(sleeper: Option<Arc<E>>) {
    if let Some(event) = sleeper {
        event.set();
    }
}

/// Reads the clock while a timed segment is handled, and does nothing for other segments.
struct Watch<'a, M>(Option<&'a M>);

impl<'a, M: Machine> Watch<'a, M> {
    /// Makes a watch for the `nth` segment.
    fn over(machine: &'a M, nth: u64) -> Self {
        Self(nth.is_multiple_of(SAMPLE_EVERY).then_some(machine))
    }

    fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn look(&self) -> u64 {
        self.0.map_or(0, Machine::now_ns)
    }
}

/// Times of the parts of a segment's handling, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timed {
    /// Charging or returning.
    charge_ns: u64,
    /// The statistic.
    count_ns: u64,
    work_ns: u64,
}

impl Timed {
    fn update_ns(self) -> u64 {
        self.charge_ns + self.count_ns
    }

    fn total_ns(self) -> u64 {
        self.update_ns() + self.work_ns
    }

    /// Returns whether it took so long that another task must have had the CPU meanwhile.
    fn is_disturbed(self, segment_ns: u64) -> bool {
        self.total_ns() > 2 * segment_ns
    }
}

/// Returns the share of updates in the time of undisturbed segments; 0 if there are none.
fn update_share(timed: &[Timed], segment_ns: u64) -> f64 {
    let undisturbed = timed.iter().filter(|one| !one.is_disturbed(segment_ns));
    let add = |sum: (u64, u64), one: &Timed| (sum.0 + one.update_ns(), sum.1 + one.total_ns());
    match undisturbed.fold((0, 0), add) {
        (_, 0) => 0.0,
        (part, whole) => part as f64 / whole as f64,
    }
}

/// Measurements of one end of the pairs.
#[derive(Debug, Default)]
struct End {
    segments: u64,
    timed: Vec<Timed>,
}

/// Returns megabits in each second, of segments within a time.
fn mbit_per_second(segments: u64, segment_bytes: u64, duration_ms: u64) -> f64 {
    (segments * segment_bytes * 8) as f64 / (duration_ms * 1000) as f64
}

/// Returns the least time between two looks at the clock.
fn look_ns<M: Machine>(machine: &M) -> u64 {
    let look = |_| {
        let first_ns = machine.now_ns();
        machine.now_ns() - first_ns
    };
    (0..CLOCK_LOOKS).map(look).min().unwrap_or(0)
}

/// Returns the groups of the flows of one pair. Flows are dealt out to pairs, and to queries, in turn.
fn groups_of_pair(parameters: &Parameters, pair: u64) -> Vec<GroupIndex> {
    let tree = parameters.tree();
    (pair..parameters.flows)
        .step_by(parameters.streams as usize)
        .map(|flow| tree.query(flow as usize % tree.all_queries()))
        .collect()
}

/// One sender and its receiver.
struct Pair<M: Machine, C: Send + 'static> {
    pipe: Pipe<M, C>,
    groups: Vec<GroupIndex>,
    client: End,
    server: End,
    log: Log,
}

/// All pairs.
pub(super) struct Streams<M: Machine, C: Send + 'static> {
    pairs: Vec<Pair<M, C>>,
}

impl<M: Tasks, C: Send + 'static> Streams<M, C> {
    pub(super) fn new(parameters: &Parameters) -> Self {
        let pair = |pair| {
            let groups = groups_of_pair(parameters, pair);
            Pair {
                pipe: Pipe::new(groups.len() * WINDOW as usize),
                groups,
                client: End::default(),
                server: End::default(),
                log: Log::default(),
            }
        };
        Self {
            pairs: (0..parameters.streams).map(pair).collect(),
        }
    }

    /// Returns their tasks.
    pub(super) fn tasks<'a, S: Subject<M, Charge = C>>(
        &'a mut self,
        machine: &'a M,
        subject: &'a S,
        parameters: &'a Parameters,
        span: (u64, u64),
    ) -> Vec<Task<'a>> {
        let mut tasks: Vec<Task<'a>> = Vec::new();
        for pair in &mut self.pairs {
            let (pipe, groups) = (&pair.pipe, &pair.groups);
            let wire = Wire {
                machine,
                subject,
                parameters,
                pipe,
                span,
            };
            let (client, server, log) = (&mut pair.client, &mut pair.server, &mut pair.log);
            tasks.push(Box::new(move || *client = wire.send(groups, log)));
            tasks.push(Box::new(move || *server = wire.receive()));
        }
        tasks
    }

    /// Takes the logs that the truth needs; must be called before the report.
    pub(super) fn take_logs(&mut self) -> impl Iterator<Item = Log> {
        self.pairs
            .iter_mut()
            .map(|pair| std::mem::take(&mut pair.log))
    }

    /// Adds their measurements, if there are any.
    pub(super) fn report(self, parameters: &Parameters, metrics: &mut Metrics) {
        if self.pairs.is_empty() {
            return;
        }
        let seed = parameters.seed;
        let rate = |segments: &dyn Fn(&Pair<M, C>) -> u64| {
            let segments = self.pairs.iter().map(segments).sum();
            mbit_per_second(segments, parameters.segment_bytes, parameters.duration_ms)
        };
        metrics.figure(THROUGHPUT_SERVER, seed, rate(&|pair| pair.server.segments));
        metrics.figure(THROUGHPUT_CLIENT, seed, rate(&|pair| pair.client.segments));
        let ends = self
            .pairs
            .iter()
            .flat_map(|pair| [&pair.client, &pair.server]);
        let timed: Vec<Timed> = ends.flat_map(|end| end.timed.iter().copied()).collect();
        let is_disturbed = |one: &&Timed| one.is_disturbed(parameters.segment_ns);
        let disturbed = timed.iter().filter(is_disturbed).count() as u64;
        metrics.figure(
            CHARGE_SHARE,
            seed,
            update_share(&timed, parameters.segment_ns),
        );
        metrics.share(DISTURBED_SEGMENTS, seed, disturbed, timed.len() as u64);
        metrics.spread(UPDATE_NS, timed.iter().map(|one| one.update_ns()));
        metrics.spread(STATISTIC_UPDATE_NS, timed.iter().map(|one| one.count_ns));
    }
}

/// State that both ends of a pair share.
struct Wire<'a, M: Machine, S: Subject<M>> {
    machine: &'a M,
    subject: &'a S,
    parameters: &'a Parameters,
    pipe: &'a Pipe<M, S::Charge>,
    span: (u64, u64),
}

impl<M: Machine, S: Subject<M>> Clone for Wire<'_, M, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, S: Subject<M>> Copy for Wire<'_, M, S> {}

impl<M: Tasks, S: Subject<M>> Wire<'_, M, S> {
    fn send(self, groups: &[GroupIndex], log: &mut Log) -> End {
        let (start_ns, end_ns) = self.span;
        let tree = self.parameters.tree();
        let pages = self.parameters.segment_pages() as u64;
        let look_ns = look_ns(self.machine);
        let mut end = End::default();
        let mut flows = groups.iter().copied().cycle();
        while self.machine.now_ns() < end_ns {
            let Some(group) = flows.next() else { break };
            let watch = Watch::over(self.machine, end.segments);
            let began_ns = watch.look();
            let charge = self.subject.try_charge(group, pages).unwrap_or_else(|| {
                log.refusals += 1;
                self.subject.charge(group, pages)
            });
            let charged_ns = watch.look();
            self.subject
                .add(group, Stat::Sock, self.parameters.segment_pages());
            let counted_ns = watch.look();
            self.work();
            let ended_ns = watch.look();
            if watch.is_on() {
                end.timed.push(Timed {
                    charge_ns: (charged_ns - began_ns).saturating_sub(look_ns),
                    count_ns: (counted_ns - charged_ns).saturating_sub(look_ns),
                    work_ns: (ended_ns - counted_ns).saturating_sub(look_ns),
                });
            }
            end.segments += 1;
            if self.parameters.readers > 0 {
                // The readers' truth needs an update that only counts up.
                self.subject.add(group, Stat::Pgfault, 1);
                let now_ns = self.machine.now_ns();
                log.push(now_ns.saturating_sub(start_ns), group - tree.query(0));
            }
            self.pipe.push(Segment { group, charge });
        }
        self.pipe.close();
        end
    }

    fn receive(self) -> End {
        let look_ns = look_ns(self.machine);
        let mut end = End::default();
        let mut taken = 0_u64;
        while let Some(Segment { group, charge }) = self.pipe.pop() {
            let watch = Watch::over(self.machine, taken);
            let began_ns = watch.look();
            self.work();
            let worked_ns = watch.look();
            self.subject
                .add(group, Stat::Sock, -self.parameters.segment_pages());
            let counted_ns = watch.look();
            drop(charge);
            let ended_ns = watch.look();
            if watch.is_on() {
                end.timed.push(Timed {
                    charge_ns: (ended_ns - counted_ns).saturating_sub(look_ns),
                    count_ns: (counted_ns - worked_ns).saturating_sub(look_ns),
                    work_ns: (worked_ns - began_ns).saturating_sub(look_ns),
                });
            }
            taken += 1;
            // Segments after the end are taken, so that none is left, but not counted.
            if self.machine.now_ns() < self.span.1 {
                end.segments += 1;
            }
        }
        end
    }

    fn work(&self) {
        self.machine.compute(self.parameters.segment_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_follow_worked_cases() {
        // 1,000 segments of 64 KiB in a second are 524.288 Mbit.
        assert_eq!(mbit_per_second(1000, 65_536, 1000), 524.288);
        assert_eq!(mbit_per_second(1000, 65_536, 500), 1048.576);
    }

    #[test]
    fn the_share_leaves_out_what_was_disturbed() {
        let timed = |charge_ns, count_ns, work_ns| Timed {
            charge_ns,
            count_ns,
            work_ns,
        };
        let undisturbed = [timed(20, 5, 100), timed(20, 5, 50)];
        assert_eq!(update_share(&undisturbed, 100), 0.25);
        let one_disturbed = [undisturbed[0], undisturbed[1], timed(101, 0, 100)];
        assert_eq!(update_share(&one_disturbed, 100), 0.25);
        assert!(!timed(100, 0, 100).is_disturbed(100));
        assert_eq!(update_share(&[], 100), 0.0);
    }

    #[test]
    fn a_sender_goes_on_when_a_third_is_free() {
        assert!(!is_writable(4, 4) && !is_writable(3, 4) && is_writable(2, 4));
        assert!(is_writable(0, 1), "else it would wait for ever");
    }
}
