//! State and numbers that all consumers share.

use bursar_rig::Tasks;

use crate::memcg_flush::oracle::Oracle;
use crate::memcg_flush::parameters::Parameters;
use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::Numbers;
use crate::memcg_flush::warm_up::Reclaim;
use crate::random::Random;

/// Memory of a tenant, as killers and reclaimers see it.
pub(super) const RESIDENT: [Stat; 2] = [Stat::Anon, Stat::File];

pub(super) fn resident(numbers: &Numbers) -> i64 {
    RESIDENT.iter().map(|&stat| numbers.get(stat)).sum()
}

/// State that all consumers share.
pub(in super::super) struct Scene<'a, M, S> {
    pub(in super::super) machine: &'a M,
    pub(in super::super) subject: &'a S,
    pub(in super::super) parameters: &'a Parameters,
    pub(in super::super) oracle: &'a Oracle,
    pub(in super::super) reclaim: &'a dyn Reclaim,
    pub(in super::super) span: (u64, u64),
}

impl<M: Tasks, S> Scene<'_, M, S> {
    /// Acts once an interval until the end, from a random moment of the first interval on. A late task does not catch
    /// up.
    pub(super) fn now_and_then(
        &self,
        interval_ms: u64,
        random: &mut Random,
        mut act: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let interval_ns = interval_ms * 1_000_000;
        let (start_ns, end_ns) = self.span;
        let mut next_ns = start_ns + random.below(interval_ns);
        while next_ns < end_ns {
            self.machine.sleep_until(next_ns);
            act()?;
            next_ns = (next_ns + interval_ns).max(self.machine.now_ns());
        }
        Ok(())
    }
}
