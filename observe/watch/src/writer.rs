//! Programs that write files, and the command of each that records the events of an answer.

use serde::{Deserialize, Serialize};

use crate::event::Problem;
use crate::event::{FLUSH_EVENTS, TIMER_EVENTS, WAIT_EVENTS, WORK_EVENTS, Wanted};

/// Program that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// `trace-cmd record` and `trace-cmd extract`.
    TraceCmd,
    /// `perf record`.
    Perf,
    /// `bursar-observe watch --record`.
    Bursar,
}

impl Writer {
    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::TraceCmd => "trace-cmd",
            Self::Perf => "perf",
            Self::Bursar => "bursar",
        }
    }

    /// Command that records the events on which the answer to a problem rests.
    pub(crate) fn command(self, problem: Problem) -> String {
        let (begin, end) = match (self, problem) {
            (Self::TraceCmd, _) => (
                "sudo trace-cmd record --compression none -C mono",
                "sleep 60",
            ),
            (Self::Perf, _) => ("sudo perf record -a -k CLOCK_MONOTONIC", "-- sleep 60"),
            (Self::Bursar, Problem::ZoneLock) => {
                return "sudo bursar-observe watch --locks --record FILE".to_owned();
            }
            (Self::Bursar, _) => return "sudo bursar-observe watch --record FILE".to_owned(),
        };
        let events = match problem {
            Problem::UpkeepHerd => [&WORK_EVENTS[..], &TIMER_EVENTS],
            Problem::ZoneLock => [&WAIT_EVENTS[..], &[]],
            Problem::MemcgFlush => [&FLUSH_EVENTS[..], &[]],
        };
        let events: String = (events.into_iter().flatten())
            .map(|wanted| self.option(wanted))
            .collect();
        format!("{begin}{events} {end}")
    }

    /// The option of an event, with its filter and its stacks.
    fn option(self, wanted: &Wanted) -> String {
        let event = format!("{}:{}", wanted.system, wanted.name);
        let is_wait = wanted.name == "contention_begin";
        // `trace-cmd` puts a filter in parentheses, so a name in it needs a blank behind it.
        let filter = match wanted.name {
            _ if is_wait => "flags == 1",
            "workqueue_execute_start" | "workqueue_execute_end" => {
                "function.function == vmstat_update "
            }
            "timer_start" | "timer_expire_entry" => "function.function == delayed_work_timer_fn ",
            _ => "",
        };
        match (self, filter) {
            (_, "") => format!(" -e {event}"),
            (Self::Perf, _) if is_wait => {
                format!(" -e {event}/call-graph=fp,max-stack=6/ --filter '{filter}'")
            }
            (Self::Perf, _) => format!(" -e {event} --filter '{filter}'"),
            (_, _) if is_wait => {
                format!(" -e {event} -f '{filter}' -R 'stacktrace:4000 if {filter}'")
            }
            (_, _) => format!(" -e {event} -f '{filter}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/observe.md");

    /// The page has the same events and filters, some of them by a pattern.
    #[test]
    fn commands_are_those_of_the_page() {
        let page = std::fs::read_to_string(PAGE).expect("the page");
        for writer in [Writer::TraceCmd, Writer::Perf] {
            for problem in [Problem::UpkeepHerd, Problem::ZoneLock, Problem::MemcgFlush] {
                let command = writer.command(problem);
                for event in command.split(" -e ").skip(1) {
                    let event = event.split(' ').next().unwrap_or_default();
                    let event = match event.starts_with("cgroup:cgroup_rstat_") {
                        true => "cgroup:cgroup_rstat_*",
                        false => event,
                    };
                    assert!(page.contains(event), "{event}");
                }
                for quoted in command.split('\'').skip(1).step_by(2) {
                    assert!(page.contains(&format!("'{quoted}'")), "{quoted}");
                }
                let begin = command.split(" -e ").next().unwrap_or_default();
                assert!(page.contains(begin), "{begin}");
            }
        }
    }
}
