//! Sections of the current CPU: a look at its words, and a commit.
//!
//! A section can be interrupted between the two: by preemption, by migration, by a fence. Then it begins anew, as the
//! kernel restarts a restartable sequence. In virtual time both happen at one moment, unless preemption inside sections
//! is enabled. An exploration separates them.

use bursar_machine::Shard;

use crate::engine::Engine;
use crate::lines::{Access, LineId};
use crate::task::{Step, Task};
use crate::timed::Timed;

/// Runs `look` as a section of `shard`, whose words begin on `line`. The caller may commit the result at once,
/// before the next step. `None` if the section must begin anew, maybe on another CPU.
#[inline]
pub(crate) fn section<R>(
    engine: &Engine,
    shard: Shard,
    line: LineId,
    look: impl FnOnce() -> R,
) -> Option<R> {
    engine.visible(Step::Section, line);
    if engine.is_scheduled() && engine.world.tasks.cpu.get() != shard.0 {
        return None;
    }
    engine.access(line, Access::Write, engine.costs().section_ns);
    if !section_can_break(engine) {
        return Some(look());
    }
    let begun = breaks(engine);
    let seen = look();
    section_survives(engine, begun, shard, line).then_some(seen)
}

/// Point in the middle of a look, where words that change without a fence may change.
#[inline]
pub(crate) fn inside_section(engine: &Engine, line: LineId) {
    if section_can_break(engine) {
        engine.visible(Step::Section, line);
    }
}

#[inline]
fn breaks(engine: &Engine) -> u32 {
    engine.world.tasks.with_current(|task| task.breaks.get())
}

/// Returns whether the look and the commit of a section are two moments.
#[inline]
fn section_can_break(engine: &Engine) -> bool {
    // An exploration can break any.
    let can_break = |timed: &Timed| timed.faults.has_section_preemption;
    engine.is_scheduled() && engine.timed().is_none_or(can_break)
}

/// Lets other tasks run between look and commit; returns `false` if the section must begin anew.
#[inline]
fn section_survives(engine: &Engine, begun: u32, shard: Shard, line: LineId) -> bool {
    let tasks = &engine.world.tasks;
    if let Some(timed) = engine.timed() {
        let away_ns = timed.faults.section_preemption_ns();
        if away_ns > 0 {
            engine.spend(away_ns);
            tasks.with_current(Task::break_section);
        }
    }
    engine.visible(Step::Section, line);
    breaks(engine) == begun && tasks.cpu.get() == shard.0
}
