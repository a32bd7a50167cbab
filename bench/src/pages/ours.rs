//! Bursar's contenders, and the yardstick: the only place that knows them.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::pages::{Order, PageOptions, Zeroed};
use bursar::{AllocPagesError, Group, Limits, Memory, Page};
use bursar_bench_peers::{Absent, BareStack, FRAME_BYTES, Pages};

use crate::pages::scenario::{Job, Scenario};

/// The yardstick: a push and a pop of a per-CPU stack by restartable sequences, and nothing else.
pub const BARE_STACK: &str = "bare rseq push+pop";
/// Pages that are charged to nobody.
pub const BURSAR: &str = "bursar";
/// Pages that are charged to a group three levels deep.
pub const BURSAR_CHARGED: &str = "bursar, 3 levels charged";

/// Returns the names of our contenders in a scenario.
pub fn names(scenario: Scenario) -> &'static [&'static str] {
    match scenario {
        Scenario::Pair => &[BARE_STACK, BURSAR, BURSAR_CHARGED],
        Scenario::Hold => &[BURSAR],
        _ => &[BURSAR, BURSAR_CHARGED],
    }
}

/// Does `job` with blocks of `BYTES` bytes of the contender called `name`.
///
/// # Errors
/// Why that is not possible here.
pub fn with<const BYTES: usize, J: Job>(name: &str, job: J) -> Result<J::Output, Absent> {
    Ok(match name {
        BARE_STACK => job.run(&Bare::new()?),
        BURSAR => {
            let memory = memory()?;
            let source = memory.clone();
            job.run(&Bursar::<BYTES, _> { memory, source })
        }
        BURSAR_CHARGED => {
            let memory = memory()?;
            let source = group(&memory)?;
            job.run(&Bursar::<BYTES, _> { memory, source })
        }
        name => return Err(Absent(format!("no contender is called {name}"))),
    })
}

/// As it comes, in a zone that has room for all scenarios.
fn memory() -> Result<Memory, Absent> {
    let options = PageOptions {
        bytes_per_node: Some(8 << 30),
        ..PageOptions::default()
    };
    let built = Memory::builder().pages(options).build();
    built.map_err(|error| Absent(error.to_string()))
}

fn group(memory: &Memory) -> Result<Group, Absent> {
    let mut group = memory.root();
    for name in ["tenant", "query", "operator"] {
        let child = group.child(name, Limits::max(32 << 30));
        group = child.map_err(|error| Absent(error.to_string()))?;
    }
    Ok(group)
}

fn order<const BYTES: usize>() -> Order {
    const { Order::for_bytes(BYTES).expect("blocks have an order") }
}

/// Source of the pages, and the group that pays.
trait Source: Send + Sync {
    fn alloc(&self, order: Order) -> Result<Page, AllocPagesError>;
}

impl Source for Memory {
    #[inline(always)]
    fn alloc(&self, order: Order) -> Result<Page, AllocPagesError> {
        self.alloc_pages(order, Zeroed::No)
    }
}

impl Source for Group {
    #[inline(always)]
    fn alloc(&self, order: Order) -> Result<Page, AllocPagesError> {
        self.alloc_pages(order, Zeroed::No)
    }
}

struct Bursar<const BYTES: usize, S> {
    memory: Memory,
    source: S,
}

/// Handling an error is the caller's affair. Out of line, as in a program.
#[cold]
#[inline(never)]
fn failed(_error: AllocPagesError) {}

impl<const BYTES: usize, S: Source> Pages for Bursar<BYTES, S> {
    type Block = Page;

    #[inline(always)]
    fn alloc(&self) -> Option<Page> {
        self.source.alloc(order::<BYTES>()).map_err(failed).ok()
    }

    #[inline(always)]
    fn free(&self, block: Page) {
        drop(block);
    }

    fn address(block: &Page) -> usize {
        // Numbers are as good as addresses: what is asked is only whether two are the same, or near.
        block.pfn().0 as usize * FRAME_BYTES
    }

    fn touch(block: &mut Page) {
        block.uninit_mut()[0].write(1);
    }

    fn fill(block: &mut Page) {
        for frame in block.uninit_mut().chunks_mut(FRAME_BYTES) {
            frame[0].write(1);
        }
    }

    fn upkeep(&self) {
        self.memory.tick();
    }
}

/// No memory is behind its blocks.
struct Bare {
    stack: BareStack,
    next: AtomicU64,
}

impl Bare {
    fn new() -> Result<Self, Absent> {
        let host = bursar_machine::Host::start().map_err(|error| Absent(error.to_string()))?;
        let has_sections = host.report().backend == bursar_machine::host::Backend::Rseq;
        let stack = has_sections.then(BareStack::new).transpose()?.flatten();
        let stack = stack.ok_or_else(|| Absent("no restartable sequences here".to_owned()))?;
        Ok(Self {
            stack,
            next: AtomicU64::new(1),
        })
    }

    #[cold]
    fn make(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Pages for Bare {
    type Block = NonZeroU64;

    #[inline(always)]
    fn alloc(&self) -> Option<NonZeroU64> {
        self.stack.pop().or_else(|| self.make())
    }

    #[inline(always)]
    fn free(&self, block: NonZeroU64) {
        self.stack.push(block);
    }

    fn address(block: &NonZeroU64) -> usize {
        block.get() as usize * FRAME_BYTES
    }

    fn touch(_block: &mut NonZeroU64) {}

    fn fill(_block: &mut NonZeroU64) {}
}
