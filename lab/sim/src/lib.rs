//! Machine in virtual time.
//!
//! [`Sim`] is a [`bursar_machine::Machine`] with any number of CPUs. It runs the code that real threads run, one step
//! at a time, on one thread of the host. The same seed gives the same run.
//!
//! | part | file |
//! |---|---|
//! | settings of the machine | `topology.rs`, `cost.rs`, `settings.rs`, `fault.rs` |
//! | state that any schedule works on | `world.rs`, `task.rs`, `lines.rs`, `lock_table.rs` |
//! | tasks and visible operations | `engine.rs`, `current.rs`, `coroutine.rs` |
//! | schedule in virtual time: clocks, run queues | `timed.rs`, `ranks.rs`, `tournament.rs`, `cpu_set.rs` |
//! | schedule of an exploration | `explored.rs`, `strategy.rs`, `explorer.rs` |
//! | timers, deferred work | `work.rs` |
//! | shared words, locks, fences | `word.rs`, `locks.rs`, `fence.rs` |
//! | state of each CPU | `section.rs`, `slot.rs`, `stacks.rs` |
//! | page memory | `frames.rs` |
//! | operations that a fork waits for | `operation.rs` |
//! | all of it as a machine | `machine.rs` |
//!
//! Memory is sequentially consistent here. The library's tests check weaker orderings with loom.

mod coroutine;
mod cost;
mod cpu_set;
mod current;
mod engine;
mod explored;
mod explorer;
mod failure;
mod fault;
mod fence;
mod frames;
mod lines;
mod lock_table;
mod locks;
mod machine;
mod operation;
mod ranks;
mod section;
mod settings;
mod slot;
mod stacks;
mod strategy;
mod task;
mod timed;
mod topology;
mod tournament;
mod word;
mod work;
mod world;

pub use cost::{Constant, CostError, CostModel};
pub use explorer::{BadScheduleId, Counted, Explored, Explorer, Found, ScheduleId};
pub use failure::Failure;
pub use fault::{Chance, Faults, Kill, Stall};
pub use frames::SimFrames;
pub use locks::{SimEvent, SimGuard, SimMutex, SimSpin};
pub use machine::{Sim, SimPage, Simulator};
pub use operation::SimOperation;
pub use settings::{Mode, SectionKind, Settings};
pub use slot::SimSlot;
pub use stacks::SimStacks;
pub use strategy::{Decision, Strategy};
pub use topology::{Distance, LockKind, Place, PreemptionKind, Topology, TopologyError};
pub use word::SimWord;
pub use work::SimQueue;
pub use world::Counts;
