//! Policies of a memory about limits.

use super::pressure_policy::PressurePolicy;

/// A memory's policies about limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policies {
    pub(crate) high: HighPolicy,
    pub(crate) recursive: Recursive,
    pub(crate) pressure: PressurePolicy,
    /// Whether the end of a group with bytes charged panics.
    pub(crate) panics_on_leftovers: bool,
    /// One in so many charges is followed to its call site; 0 for none.
    pub(crate) sampled_one_in: u32,
}

/// How a charge pays for usage above a `high`. By default it leaves a debt, so a `high` throttles only callers that take that
/// debt ([`crate::Group::take_debt`]) and wait.
///
/// First stock is taken back and reclaimers are asked. Then a charge pays for the bytes that stay above the `high` of its
/// group, or of a group above. [`crate::Group::charge_async`] owes under either policy. So does
/// [`Engine::try_charge_nowait`](crate::engine::Engine::try_charge_nowait), which asks no reclaimers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HighPolicy {
    /// No charge sleeps. The bytes charged become a debt of the group that was charged. A caller that can wait takes it with
    /// [`crate::Group::take_debt`]. If no caller does, nothing is slowed down. This is the default.
    #[default]
    Owe,
    /// The charge sleeps before it returns, for the time that the kernel's formula gives: 64 s times the square of `(usage -
    /// high) / high` for each 256 KiB charged, at most 2 s. It looks every 100 ms whether the usage is still above `high`, so
    /// it wakes when `high` is raised.
    ///
    /// The sleep blocks the thread, also in [`crate::Group::try_charge`]. Do not use this policy where threads serve other
    /// tasks meanwhile, as on an async runtime.
    Throttle,
}

/// Policy for the protection of a group that its children do not claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "memory_recursiveprot")]
pub enum Recursive {
    /// It is shared among the children, in proportion to the memory that they use beyond their claims: the mount option
    /// `memory_recursiveprot` of cgroup2, which systemd sets.
    #[default]
    Yes,
    /// It protects nothing below the group: cgroup2 without that option.
    No,
}
