//! Sections of the current CPU: a look at its words, and a commit.
//!
//! In between a section can be interrupted: by preemption, by moving to another CPU, by a fence. Then it begins anew, which
//! is what the kernel does to a restartable sequence. In virtual time the two moments are one unless preemption inside
//! sections is asked for; an exploration tells them apart.

use bursar_machine::Shard;

use crate::engine::{Engine, Step};
use crate::lines::{Access, LineId};

impl Engine {
    /// Runs `look` as a section of `shard`, whose words begin on `line`. What it says may be committed at once, before the
    /// next step; `None` if the section must begin anew, maybe elsewhere.
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
        let seen = look();
        if self.section_can_break() && !self.section_survives(shard, line) {
            return None;
        }
        Some(seen)
    }

    /// Whether the look and the commit of a section are two moments.
    fn section_can_break(&self) -> bool {
        self.is_scheduled() && (self.explored.is_some() || self.faults.has_section_preemption)
    }

    /// Lets others in between look and commit; `false` if the section must begin anew.
    fn section_survives(&self, shard: Shard, line: LineId) -> bool {
        let current = self.current.get();
        let breaks = || self.with_task(current, |task| task.breaks.get());
        let begun = breaks();
        if self.explored.is_none() {
            let away_ns = self.faults.section_preemption_ns();
            if away_ns > 0 {
                self.spend(away_ns);
                self.with_task(current, |task| task.breaks.set(task.breaks.get() + 1));
            }
        }
        self.visible(Step::Section, line);
        breaks() == begun && self.cpu.get() == shard.0
    }
}
