//! Changing limits while everything runs.

use bursar_machine::Machine;

use super::Group;
use crate::limit::Limits;
use crate::react::{Debt, high, set_limits};

/// # Limits
impl<M: Machine> Group<M> {
    /// The group's `max`, bytes; [`u64::MAX`] for none.
    #[doc(alias = "memory.max")]
    pub fn max(&self) -> u64 {
        self.limits().max
    }

    /// All limits.
    pub fn limits(&self) -> Limits {
        self.core.counters.limits(self.index)
    }

    /// Changes the group's `max`. When this returns, no charge succeeds above the new limit, not even from stock.
    ///
    /// The limit may be below the usage. Then reclaimers are asked for the difference, and charges fail until enough is
    /// returned. On a root that follows a cgroup ([`crate::Builder::max_from_cgroup`]) the limit lasts until the cgroup is read
    /// again: use [`crate::Memory::set_max`] there.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::max(8 << 20))?;
    /// let held = tenant.try_charge(6 << 20)?;
    /// tenant.set_max(4 << 20);
    /// assert!(tenant.is_over_max() && tenant.try_charge(1).is_err());
    /// drop(held);
    /// assert!(tenant.try_charge(4 << 20).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If a reclaimer panics. The limit is changed then.
    #[doc(alias = "page_counter_set_max")]
    pub fn set_max(&self, bytes: u64) {
        set_limits::set_max(&self.core, self.index, bytes);
    }

    /// Changes the group's `high`. Charges above it leave a debt or sleep ([`crate::HighPolicy`]). If the new `high` is below the
    /// usage, reclaimers are asked for the difference.
    ///
    /// # Panics
    /// If a reclaimer panics. The limit is changed then.
    #[doc(alias = "page_counter_set_high")]
    pub fn set_high(&self, bytes: u64) {
        set_limits::set_high(&self.core, self.index, bytes);
    }

    /// Changes the group's `low`: the bytes that reclaim takes only if it finds no others.
    #[doc(alias = "page_counter_set_low")]
    pub fn set_low(&self, bytes: u64) {
        set_limits::set_low(&self.core, self.index, bytes);
    }

    /// Changes the group's `min`: the bytes that reclaim never takes.
    #[doc(alias = "page_counter_set_min")]
    pub fn set_min(&self, bytes: u64) {
        set_limits::set_min(&self.core, self.index, bytes);
    }

    /// Changes all limits, one after the other. `min` and `low` come first, so that reclaim goes by the new protection. A `max`
    /// that is lowered changes before `high`, and one that is raised after it. So at each moment a charge
    /// succeeds, and escapes `high`, only if the old or the new limits allow this. If another task changes limits at the same time, the
    /// result may be a mixture.
    ///
    /// # Panics
    /// As [`Group::set_max`] and [`Group::set_high`]. The limits that would follow are not changed then.
    pub fn set_limits(&self, limits: Limits) {
        self.set_min(limits.min);
        self.set_low(limits.low);
        let lowers_max = limits.max < self.max();
        if lowers_max {
            self.set_max(limits.max);
        }
        self.set_high(limits.high);
        if !lowers_max {
            self.set_max(limits.max);
        }
    }

    /// Whether the usage is above `max`, after an infallible charge or a lowered limit.
    pub fn is_over_max(&self) -> bool {
        self.reserved() > self.max()
    }

    /// Takes the debt that charges left while a `high` was exceeded, here or above. This does not wait: the caller should then wait
    /// for [`Debt::delay`], for example with a timer of its runtime.
    ///
    /// The debt is that of charges to this group. Charges to groups below leave their debt there. All tasks that charge the group
    /// share one debt. The delay is computed by this call. It is zero if the usage is back below `high`, and at most 2 s for any
    /// debt. So take the debt after every charge.
    ///
    /// ```
    /// # use bursar::{Limits, Memory};
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::none().high(1 << 20))?;
    /// let charge = tenant.try_charge(3 << 20)?;
    /// let debt = tenant.take_debt();
    /// assert!(debt.bytes >= 3 << 20 && debt.delay.as_millis() == 2000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_debt(&self) -> Debt {
        high::take_debt(&self.core, self.index)
    }
}
