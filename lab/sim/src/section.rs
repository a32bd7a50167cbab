//! Sections of the current CPU: a look at its words, and a commit.
//!
//! A section can be interrupted between the two: by preemption, by migration, by a fence. Then it begins anew, as the
//! kernel restarts a restartable sequence. In virtual time both happen at one moment, unless preemption inside sections
//! is enabled. An exploration separates them.

use bursar_machine::Shard;

use crate::engine::{Engine, Step};
use crate::lines::{Access, LineId};

impl Engine {
    /// Runs `look` as a section of `shard`, whose words begin on `line`. The caller may commit the result at once,
    /// before the next step. `None` if the section must begin anew, maybe on another CPU.
    pub(crate) fn section<R>(
        &self,
        shard: Shard,
        line: LineId,
        look: impl FnOnce() -> R,
    ) -> Option<R> {
        self.visible(Step::Section, line);
        if self.is_scheduled() && self.cpu.get() != shard.0 {
            return None;
        }
        self.access(line, Access::Write, self.settings.costs.section_ns);
        if !self.section_can_break() {
            return Some(look());
        }
        let begun = self.breaks();
        let seen = look();
        self.section_survives(begun, shard, line).then_some(seen)
    }

    /// Point in the middle of a look, where words that change without a fence may change.
    pub(crate) fn inside_section(&self, line: LineId) {
        if self.section_can_break() {
            self.visible(Step::Section, line);
        }
    }

    fn breaks(&self) -> u32 {
        self.with_task(self.current.get(), |task| task.breaks.get())
    }

    /// Returns whether the look and the commit of a section are two moments.
    fn section_can_break(&self) -> bool {
        self.is_scheduled() && (self.explored.is_some() || self.faults.has_section_preemption)
    }

    /// Lets other tasks run between look and commit; returns `false` if the section must begin anew.
    fn section_survives(&self, begun: u32, shard: Shard, line: LineId) -> bool {
        let current = self.current.get();
        if self.explored.is_none() {
            let away_ns = self.faults.section_preemption_ns();
            if away_ns > 0 {
                self.spend(away_ns);
                self.with_task(current, |task| task.breaks.set(task.breaks.get() + 1));
            }
        }
        self.visible(Step::Section, line);
        self.breaks() == begun && self.cpu.get() == shard.0
    }
}
