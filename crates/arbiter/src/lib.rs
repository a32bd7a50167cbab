//! Admission: a query that does not fit now waits for its turn or runs with fewer partitions, and is not refused.
//!
//! Limits say no. An [`Arbiter`] decides what follows from a no. Before a query starts, it *asks*: with how little memory it can run, how much
//! it would like, and with how many partitions. It gets a [`Grant`]: a group below its tenant's, with a limit of its own, and a
//! width. If there is no room, it waits.
//!
//! ```
//! use bursar::{Limits, Memory};
//! use bursar_arbiter::{Arbiter, Ask, Policy};
//!
//! let memory = Memory::builder().max(1 << 30).build()?;
//! let acme = memory.root().child("acme", Limits::max(60 << 20))?;
//! let arbiter = Arbiter::new(&memory, Policy::default());        // one for each memory
//!
//! // 8 MiB for the query, 8 MiB for each of up to 4 partitions. With 48 MiB it would not spill.
//! let ask = |name| Ask::new(&acme, name).least(8 << 20, 8 << 20).wanted(48 << 20).width(1..=4);
//! let report = arbiter.admit_blocking(ask("report"))?;           // or `admit(..).await`
//! assert_eq!((report.width(), report.bytes()), (4, 48 << 20));
//!
//! // 12 MiB are left, and the report has 8 MiB above its least that it does not use. Half the width needs 24 MiB, so the next one waits.
//! let mut dashboard = arbiter.admit(ask("dashboard"));
//! # use std::{future::Future, pin::Pin, task::{Context, Poll, Waker}};
//! # assert!(Pin::new(&mut dashboard).poll(&mut Context::from_waker(Waker::noop())).is_pending());
//! assert_eq!(arbiter.admissions().waiting[0].blocked_by, "/acme");
//!
//! let table = report.try_charge(40 << 20)?;                      // was promised, so it is there
//! drop((table, report));                                         // the end of the grant lets the next one start
//! # let Poll::Ready(dashboard) = Pin::new(&mut dashboard).poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
//! # assert_eq!(dashboard?.width(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! * **Promises.** The grants below a limit never add up to more than the limit, unless it is lowered. Bytes charged outside of grants count as
//!   well. Nothing is charged ahead, so such a charge may take what was promised. The query is then refused as any other.
//! * **Nobody blocks others for long, and nobody is passed without end.** A waiter that cannot be served is passed by those that can. The
//!   first waiter of a group is passed at most [`Policy::passes_max`] times, or for [`Policy::passed_max`]. Then room is kept for it: no other
//!   is admitted through the limit in its way, except those that room was kept for earlier.
//!   A query that runs and waits for memory ([`Grant::grow`]) comes before all asks. While it waits for a limit, nobody is admitted through it.
//!   Room is kept only as long as a query of others runs below that limit, or bytes of an ended one are still charged. A query that is idle for
//!   [`Policy::idle_after`] does not count, because its client may never come back. Until it does, those that wait are passed again. A query that runs
//!   without end does not keep others waiting without end: from [`Policy::kept_max`] on there are breaks, and they become longer.
//! * **An ask that never fits is refused at once**, and so is a waiter that a lowered limit made so. Nobody yields for it.
//! * **Narrower before later.** An ask gets fewer partitions rather than waits, but at least [`Policy::narrowest_percent`] of its wish until
//!   it has waited for [`Policy::narrow_after`]. The width of a grant never changes.
//! * **While nobody waits, a query grows before it spills.** A charge beyond the grant makes the grant larger, if the room is neither
//!   charged nor promised ([`Grant::try_charge`], [`Widener::widen`]). While somebody waits for a limit on its way, it does not, and what a
//!   grant has above its `least` and its peak goes to those that wait. A request that would end its query if it were refused comes first
//!   ([`Widener::before_asks`]).
//! * **An ask from inside a grant never waits.** An ask for the grant's group, or for one below it, is served from that grant or refused.
//! * **The end.** Dropping a grant closes its group. Bytes that are still charged count until they return, and their return wakes
//!   those that wait.
//!
//! # Order
//! In a group, a higher [`Ask::score`] comes first, then who came first. A score is worth waiting time ([`Policy::ageing`]), so all age alike.
//! Among groups, the higher [`Order::precedence`] comes first, then who has the fewest bytes for its [`Order::weight`], then who was granted the
//! fewest so far. A score compares asks of one group only.
//!
//! # Yielding
//! Estimates are wrong, and limits are lowered. A query that needs more than its grant has can *wait* for it with [`Grant::grow`]. Bytes that
//! return go to running queries before they go to asks. If none return, other queries yield, by [`Policy::yielding`]:
//!
//! 1. Grants lose bytes that they have not charged and do not need.
//! 2. After [`Yielding::ask_after`], queries whose [`Engine`] says that it can give back memory are asked for it, as many as are needed, for no
//!    more than is missing. A query that gave back nothing is not asked again before it has grown.
//! 3. After [`Yielding::stop_after`] one query is stopped. The next one is stopped only when the bytes of the first are back, or its time
//!    ([`Yielding::stop_max`]) is over. If all victims together could not mend the shortage, nobody is stopped.
//! 4. If all that could end the shortage wait themselves, neither time counts. If nobody can yield then, the query that comes first is refused.
//!
//! A query may need memory to give memory back, for the buffers of a spill. The lowest limit on its way keeps [`Yielding::spill_credit`] bytes for that. Only a
//! query that is asked may draw from them ([`Widener::draw`]). They are kept anew from the first bytes that return.
//!
//! Queries have an *order*. First come those that cannot run again ([`Grant::grow_first`]). Then a higher [`Order::precedence`] of the tenant comes first, then
//! fewer bytes of the tenant above its fair part of the memory (in steps of a 64th), then a higher [`Ask::score`], and then the query that began
//! first. Only a query that comes later in the order is asked or stopped. Nobody is stopped while its tenant is within its `min`, or with fewer
//! bytes than [`Yielding::victim_min`]. Bytes that are promised to it count as well. So the first in the order gets what it needs, or fails, once the others wait or end.
//!
//! A query that waits is stopped by its wait: [`Grant::grow`] returns [`GrowError::Stopped`]. For all else attach an engine ([`Grant::attach`]).
//! [`Arbiter::decisions`] has the last 64 decisions, with the bytes that were expected and seen.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use bursar::{Charge, Limits, Memory};
//! use bursar_arbiter::{Answer, Arbiter, Ask, Engine, Policy, Stop};
//!
//! /// A sort that can write what it holds to disk.
//! #[derive(Default)]
//! struct Sort {
//!     held: Mutex<Vec<Charge>>,
//!     asked: Mutex<Option<Answer>>,
//! }
//!
//! impl Engine for Sort {
//!     fn reclaimable(&self) -> u64 {
//!         self.held.lock().unwrap().iter().map(Charge::bytes).sum()
//!     }
//!     fn ask(&self, _bytes: u64, answer: Answer) {
//!         *self.asked.lock().unwrap() = Some(answer);            // its own thread does the work
//!     }
//!     fn stop(&self, stop: &Arc<Stop>) {
//!         println!("{stop}");
//!     }
//! }
//!
//! let memory = Memory::builder().max(100 << 20).build()?;
//! let acme = memory.root().child("acme", Limits::none())?;
//! let mut policy = Policy::default();
//! policy.yielding.ask_after = std::time::Duration::ZERO;
//! let arbiter = Arbiter::new(&memory, policy);
//! let join = arbiter.try_admit(Ask::new(&acme, "join").least(50 << 20, 0))?;
//! let grant = arbiter.try_admit(Ask::new(&acme, "sort").least(50 << 20, 0))?;
//! let sort = Arc::new(Sort::default());
//! grant.attach(sort.clone());
//! sort.held.lock().unwrap().push(grant.try_charge(50 << 20)?);
//!
//! let table = join.try_charge(50 << 20)?;
//! let mut more = join.grow(20 << 20);                            // `.await` it
//! # use std::{future::Future, pin::Pin, task::{Context, Poll, Waker}};
//! # assert!(Pin::new(&mut more).poll(&mut Context::from_waker(Waker::noop())).is_pending());
//! let answer = sort.asked.lock().unwrap().take().unwrap();       // the sort came later, so it is asked
//! let freed: u64 = sort.held.lock().unwrap().drain(..).map(|charge| charge.bytes()).sum();
//! answer.freed(freed);
//! # let Poll::Ready(more) = Pin::new(&mut more).poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
//! # let more = more?;
//! assert_eq!(arbiter.decisions()[0].seen, Some(50 << 20));
//! # drop((table, more));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Real bytes
//! Queries take more than they reserve. An arbiter made by [`Arbiter::with_real`] also looks at what the process really takes, as shares of
//! the root's limit ([`Policy::real`]). From 70 % on, asks get their smallest width. From 85 % on, nobody starts while a query runs, and queries are asked to
//! give back what is above. From 95 % on, one is stopped at a time. [`Real::of_process`] also reads the time that the process's cgroup stalls for memory.
//!
//! # Cost
//! A decision costs time that grows with the groups that have waiters and with the grants that run, not with the asks that wait. Behind the
//! first waiter of a group it examines at most 32, in their order, whose size may fit. A query that was admitted charges as any other: its
//! group is an ordinary one.
//!
//! # Time
//! An arbiter looks when somebody asks, ends, or polls a wait. Raised limits, bytes that return outside of ended grants, and grants that are
//! larger than they need are looked at by asks that must wait and by [`Arbiter::tick`]. So are the times of shortages. So have a ticker
//! ([`Arbiter::start_ticker`]).
//!
//! # Events
//! With the feature `tracing`, each arbiter makes events with the target `bursar`: `admitted` (debug), `waits to be admitted` (info),
//! `not admitted` and `decided in a shortage` (warn), at most ten a second of each.
//!
//! # After a fork
//! A child forgets the asks that waited: their tasks are in the parent. A future that the child polls asks anew. Grants stay, as the bytes
//! charged to their groups do.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The guide: its example is compiled and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/attach-an-engine.md")]
    mod attach_an_engine {}
}

mod arbiter;
mod ask;
mod bed;
mod bias;
mod decision;
mod engine;
mod grow;
mod grow_error;
mod ledger;
mod policy;
mod queue;
mod real;
mod report;
mod shapes;
mod shortage;
mod trace;

pub use arbiter::{Admit, Arbiter, Grant, Widener};
pub use ask::{AdmitError, Ask};
pub use bias::Bias;
pub use decision::{Decision, DecisionKind};
pub use engine::{Answer, Engine, Stop};
pub use grow::{Grow, Room};
pub use grow_error::{DrawError, GrowError};
pub use policy::{Order, Policy, VictimOrder, Yielding};
pub use real::{Real, RealLines};
pub use report::{Admissions, Counts, Granted, NotWidened, Refused, Waiting};
pub use shapes::{Seen, Shapes};
