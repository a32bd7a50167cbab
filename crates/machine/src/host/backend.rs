//! Backend that this process uses.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use std::cell::Cell;

use crate::Shard;

/// Way in which the host changes per-CPU words. The semantics are the same; the cost is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Restartable sequences: about 2 ns an operation.
    Rseq,
    /// Atomic operations on the current CPU's words: 7 ns and more.
    PercpuAtomic,
    /// Atomic operations on words chosen by a hash of the thread, where the current CPU is unknown, and under
    /// sanitizers.
    Sharded,
}

impl Backend {
    pub(super) const ALL: [Self; 3] = [Self::Rseq, Self::PercpuAtomic, Self::Sharded];

    /// Name that `BURSAR_BACKEND` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rseq => "rseq",
            Self::PercpuAtomic => "percpu-atomic",
            Self::Sharded => "sharded",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

static KIND: AtomicU8 = AtomicU8::new(Backend::Sharded as u8);

/// Sets the backend of all operations from now on.
pub(super) fn set(backend: Backend) {
    // Relaxed: as for `rseq::enable`.
    KIND.store(backend as u8, Ordering::Relaxed);
}

/// Returns whether CPU shards are changed by sections.
#[inline]
pub(super) fn has_sections() -> bool {
    KIND.load(Ordering::Relaxed) == Backend::Rseq as u8
}

/// Shard of a thread that has no section, by the backend; `None` for the extra shard.
pub(super) fn hashed_shard(cpus: usize) -> Option<Shard> {
    let kind = KIND.load(Ordering::Relaxed);
    if kind == Backend::Rseq as u8 {
        return None;
    }
    if kind == Backend::PercpuAtomic as u8 {
        return system_cpu()
            .filter(|&cpu| cpu < cpus)
            .map(|cpu| Shard(cpu as u32));
    }
    thread_local!(static HERE: Cell<u8> = const { Cell::new(0) });
    // The address of a thread-local differs between threads; Fibonacci hashing spreads its upper bits.
    let address = HERE.with(|here| std::ptr::from_ref(here) as usize as u64);
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Some(Shard((hash % cpus as u64) as u32))
}

/// Current CPU, from the system.
#[cfg(target_os = "linux")]
pub(super) fn system_cpu() -> Option<usize> {
    // SAFETY: no arguments; async-signal-safe in practice (vDSO).
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn system_cpu() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_shown_by_name() {
        let shown = Backend::ALL.map(|backend| backend.to_string());
        assert_eq!(shown, ["rseq", "percpu-atomic", "sharded"]);
        assert_eq!(shown, Backend::ALL.map(Backend::name));
    }
}
