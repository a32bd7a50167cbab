//! A cache's target, led by the memory that the process really takes.

use std::fmt;
use std::io;
use std::time::Duration;

use bursar::{Freshness, Group};
use bursar_arbiter::Real;
use bursar_machine::host::Ticker;

/// Policy by which a group of caches follows [`Real`]: an integral controller.
///
/// A look sets the caches' target to what they have now, plus `1 / gain_divisor` of the distance between the set point and the real bytes. With gain
/// *g* = 1 / `gain_divisor`, and freed memory that returns to the system *d* looks later, the distance obeys
/// *e(n+1) = e(n) - g e(n-d)*. This does not oscillate while *g* ≤ *d^d / (d+1)^(d+1)*: 1/4 for *d* = 1, 4/27 for *d* = 2. That is where the
/// polynomial *z^(d+1) - z^d + g* has a double root; beyond it, roots are complex. So the default, 1/8, is for memory that returns within two looks. Look
/// less often, or raise `gain_divisor`, if an allocator keeps freed memory for longer: 1/32 for ten looks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachePolicy {
    /// Set point: share of the root's limit that the process may take, percent; 65 unless set. That is below
    /// [`bursar_arbiter::RealLines::narrow_percent`], so that caches give way before queries run narrower.
    pub real_percent: u32,
    /// Inverse of the gain, at least 1; 8 unless set.
    pub gain_divisor: u32,
    /// Least target, bytes; 0 unless set.
    pub floor: u64,
    /// Largest target, bytes; no limit unless set.
    pub ceiling: u64,
    /// [`Real::stall_percent`] from which on the set point is an eighth lower; 10 unless set, as for queries. Judgement.
    pub stall_percent: u32,
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self {
            real_percent: 65,
            gain_divisor: 8,
            floor: 0,
            ceiling: u64::MAX,
            stall_percent: 10,
        }
    }
}

impl CachePolicy {
    /// The target of caches that have `usage` bytes now, in a process with a limit of `max` bytes. Without a limit it is the ceiling.
    pub fn target(&self, usage: u64, real: Real, max: u64) -> u64 {
        if max == u64::MAX {
            return self.ceiling.max(self.floor);
        }
        let set_point = u128::from(max) * u128::from(self.real_percent) / 100;
        let set_point = match real.stall_percent >= f64::from(self.stall_percent) {
            true => set_point - set_point / 8,
            false => set_point,
        };
        let distance = i128::try_from(set_point).unwrap_or(i128::MAX) - i128::from(real.bytes);
        let target = i128::from(usage) + distance / i128::from(self.gain_divisor.max(1));
        let target = u64::try_from(target.max(0)).unwrap_or(u64::MAX);
        target.min(self.ceiling).max(self.floor)
    }
}

/// Outcome of a look.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CacheLook {
    /// The real bytes and stalls that it went by.
    pub real: Real,
    /// Bytes of the caches before it.
    pub usage_before: u64,
    /// Bytes of the caches after it. Much above the target: their eviction frees nothing.
    pub usage: u64,
    /// The `high` that it set.
    pub target: u64,
}

/// Leads a group of caches by the memory that the process really takes.
///
/// The target is the group's `high`, so all reclaimers of the group and below it follow, in their order. A charge above it makes them evict. It needs a
/// limit of the root: set one, or follow a cgroup (`Builder::max_from_cgroup`).
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_cache::{CacheController, CachePolicy};
/// use std::time::Duration;
///
/// let memory = Memory::builder().max(4 << 30).build()?;
/// let caches = memory.root().child("caches", Limits::none())?;
/// let controller = CacheController::new(&caches, CachePolicy::default());
/// let _ticker = controller.start_ticker(Duration::from_secs(1))?;      // keep it as long as the caches
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CacheController {
    group: Group,
    policy: CachePolicy,
    gauge: Box<dyn Fn() -> Option<Real> + Send + Sync>,
}

impl CacheController {
    /// Leads the caches of `group` by [`Real::of_process`].
    pub fn new(group: &Group, policy: CachePolicy) -> Self {
        Self::with_gauge(group, policy, Real::of_process)
    }

    /// Leads them by a gauge of your own, such as the bytes of a whole cgroup. `None` where it cannot tell.
    pub fn with_gauge(
        group: &Group,
        policy: CachePolicy,
        gauge: impl Fn() -> Option<Real> + Send + Sync + 'static,
    ) -> Self {
        Self {
            group: group.clone(),
            policy,
            gauge: Box::new(gauge),
        }
    }

    /// Looks once: sets the target, and asks the caches for what they have above it. `None`, and nothing changes, where the gauge cannot tell.
    ///
    /// # Panics
    /// If a reclaimer panics. The target is set then.
    pub fn look(&self) -> Option<CacheLook> {
        let real = (self.gauge)()?;
        let usage_before = self.usage();
        let max = self.group.memory().root().limits().max;
        let target = self.policy.target(usage_before, real, max);
        self.group.set_high(target);
        Some(CacheLook {
            real,
            usage_before,
            usage: self.usage(),
            target,
        })
    }

    /// Starts a thread that looks each `period`, until the returned value is dropped. A look reads files in `/proc` and walks the group.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn start_ticker(self, period: Duration) -> io::Result<Ticker> {
        Ticker::start("bursar-cache", period, move || {
            self.look();
        })
    }

    fn usage(&self) -> u64 {
        let reading = match self.group.read(Freshness::Exact) {
            Ok(reading) => reading,
            // The memory's policy forbids readers to flush, so this is the number of the last flush.
            Err(not_fresh) => not_fresh.cached,
        };
        reading.usage_bytes()
    }
}

impl fmt::Debug for CacheController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheController")
            .field("group", &self.group.path())
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
