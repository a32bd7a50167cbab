//! Threads and sleep of the host.

use std::hint::black_box;

use bursar_machine::{Host, Machine};

use crate::Tasks;

/// Number of words in a page.
const WORDS: usize = 4096 / 8;
/// Number of words in a cache line.
const LINE: usize = 8;

/// Page of the process's own memory.
#[derive(Debug)]
pub struct PageMemory(Box<[u64; WORDS]>);

impl Drop for PageMemory {
    fn drop(&mut self) {
        // The last use of the page reads each of its lines.
        black_box(self.0.iter().step_by(LINE).fold(0, |sum, line| sum ^ line));
    }
}

impl Tasks for Host {
    type PageMemory = PageMemory;

    fn run<'scope>(&self, tasks: Vec<Box<dyn FnOnce() + Send + 'scope>>) {
        std::thread::scope(|scope| {
            for task in tasks {
                scope.spawn(task);
            }
        });
    }

    fn touch_page(&self, mark: u64) -> PageMemory {
        let mut memory = Box::new([0; WORDS]);
        memory
            .iter_mut()
            .step_by(LINE)
            .zip(mark..)
            .for_each(|(line, mark)| *line = mark);
        PageMemory(black_box(memory))
    }

    fn compute(&self, duration_ns: u64) {
        let end_ns = self.now_ns().saturating_add(duration_ns);
        while duration_ns > 0 && self.now_ns() < end_ns {
            std::hint::spin_loop();
        }
    }
}
