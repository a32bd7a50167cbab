//! The stock that CPUs may hold: pure functions of the room below a limit and of what CPUs may hold already.
//!
//! Each CPU may hold the least stock, 256 KiB, or its even part of a quarter of the room if that is less. More than that comes out of a
//! sixteenth of the room, which all CPUs and all groups below the limit share: a CPU takes at most half of what is left of it. So many CPUs
//! that use no stock keep nothing from the few that do, and the stock is little beside the room that there was when it was taken. Where the
//! room has shrunk since, upkeep takes it back.

/// All CPUs and groups together hold the room divided by this at most. Judgement.
const PART_FOR_ALL: u64 = 4;
/// CPUs whose requests are large share the room divided by this. Judgement: stock that is taken where levels of pressure
/// begin and end, at 65 to 95 % of a limit, is then 2.2 % of the limit at most.
const PART_FOR_LARGE: u64 = 16;
/// Requests of its size that a CPU's stock covers. Chosen by `bursar-bench reservation`: a ramp of 64 requests cost 3.1 times `GreedyMemoryPool`
/// with 16, and 2.0 to 2.4 times with 32.
const REQUESTS: u64 = 32;
/// The stock that a CPU wishes for, however small its requests are, bytes: 64 pages of 4 KiB, the kernel's `MEMCG_CHARGE_BATCH`.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
pub(super) const STOCK_LEAST: u64 = 64 * 4096;
/// A group's CPUs claim what the group has, divided by this, ahead of need. Its `peak` has these bytes, so they must be few. Judgement.
const AHEAD_OF_USAGE: u64 = 8;

/// A request makes use of stock only if the room is at least so many times as large. So stock neither grows nor is refilled near a limit.
pub(super) const ROOM_FOR_STOCK: u64 = 2 * PART_FOR_ALL;

/// The stock of a CPU and group that a request of this size wishes for, bytes; 0 if no stock would cover it.
pub(super) fn wish(request: u64, stock_max: u64) -> u64 {
    let wish = request.saturating_mul(REQUESTS).max(STOCK_LEAST);
    let wish = wish.min(stock_max);
    if wish < request { 0 } else { wish }
}

/// The bytes that a charge claims ahead of need, for the stock of a CPU that may hold `cap`.
///
/// A group that has `claimed` and whose CPUs may hold `caps` in all claims an eighth of that ahead, but each CPU half of the least stock in
/// any case. `room` is that of the tightest limit. 0 if that would not cover another request of the same size.
pub(super) fn ahead(request: u64, cap: u64, claimed: u64, caps: u64, room: u64) -> u64 {
    let cpus = caps.div_ceil(cap.max(1)).max(1);
    let of_usage = claimed / AHEAD_OF_USAGE / cpus;
    let ahead = (cap / 2).min(of_usage.max(STOCK_LEAST / 2));
    let ahead = ahead.min(room / ROOM_FOR_STOCK);
    if ahead < request { 0 } else { ahead }
}

/// Room and caps at one limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Bytes left below the limit, with stock counted as used.
    pub(super) room: u64,
    /// Bytes that all CPUs may hold as stock for the group and all below it.
    pub(super) caps: u64,
}

impl Budget {
    /// Whether the CPUs hold no more than they may.
    pub(super) fn holds(self) -> bool {
        self.caps <= self.room / PART_FOR_ALL
    }

    /// The stock that one of the machine's CPUs may hold here, which may hold `seen` already.
    pub(super) fn cap(self, cpus: u64, seen: u64) -> u64 {
        let whole = self.room / PART_FOR_ALL;
        let least = STOCK_LEAST.min(whole / cpus).saturating_sub(seen);
        let least = least.min(whole.saturating_sub(self.caps));
        let large = (self.room / PART_FOR_LARGE).saturating_sub(self.caps) / 2;
        seen.saturating_add(least.max(large))
    }

    /// Whether CPUs that came first may keep others from having stock, or the room has shrunk since: less than a quarter of the budget is
    /// left. Judgement.
    pub(super) fn is_spent(self) -> bool {
        self.caps > self.room.saturating_add(self.caps) / PART_FOR_ALL / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use bursar_rig::random::Random;

    use super::*;

    /// In any order of raises, all caps together are within the budget of the room that there is, and large ones within theirs.
    #[test]
    fn caps_add_up_to_no_more_than_the_budget() {
        let mut random = Random::new(40);
        for _ in 0..2_000 {
            let room = 1 << random.below(45);
            let cpus = 1 + random.below(512);
            let groups = 1 + random.below(20);
            let mut caps = vec![0; (cpus * groups) as usize];
            for _ in 0..200 {
                let at = random.below(cpus * groups) as usize;
                let budget = Budget {
                    room,
                    caps: caps.iter().sum(),
                };
                let request = 1 << random.below(27);
                let cap = budget.cap(cpus, caps[at]).min(wish(request, 64 << 20));
                caps[at] = cap.max(caps[at]);
                let raised = Budget {
                    caps: caps.iter().sum(),
                    ..budget
                };
                assert!(raised.holds(), "{raised:?}");
                let least = STOCK_LEAST.min(room / PART_FOR_ALL / cpus);
                let large: u64 = caps.iter().filter(|&&cap| cap > least).sum();
                assert!(large <= room / PART_FOR_LARGE, "{large} of {raised:?}");
            }
        }
    }

    #[test]
    fn what_a_request_wishes_for() {
        let wishes = [
            1,
            16 << 10,
            1 << 20,
            16 << 20,
            64 << 20,
            (64 << 20) + 1,
            u64::MAX,
        ];
        let expected = [256 << 10, 512 << 10, 32 << 20, 64 << 20, 64 << 20, 0, 0];
        assert_eq!(wishes.map(|request| wish(request, 64 << 20)), expected);
        assert_eq!(wish(1, 0), 0);
    }

    /// Bytes claimed ahead are in the peak, so they are few beside those that the group has.
    #[test]
    fn an_eighth_of_what_a_group_has_is_claimed_ahead() {
        let mib = 1 << 20;
        let far = u64::MAX / 4;
        assert_eq!(ahead(4096, 256 << 10, 0, 0, far), 128 << 10);
        assert_eq!(ahead(mib, 16 * mib, 4 * mib, 16 * mib, far), 0);
        assert_eq!(ahead(mib, 16 * mib, 32 * mib, 16 * mib, far), 4 * mib);
        assert_eq!(ahead(mib, 16 * mib, 32 * mib, 32 * mib, far), 2 * mib);
        assert_eq!(ahead(mib, 16 * mib, 1 << 40, 16 * mib, far), 8 * mib);
        // Near a limit nothing is.
        assert_eq!(ahead(mib, 16 * mib, 1 << 40, 16 * mib, 7 * mib), 0);
        assert_eq!(ahead(mib, 16 * mib, 1 << 40, 16 * mib, 8 * mib), mib);
        // However little the group has, each CPU claims half of the least stock.
        assert_eq!(ahead(4096, 16 * mib, mib, 16 * mib, far), 128 << 10);
    }

    #[test]
    fn cpus_hold_a_quarter_of_the_room_at_most() {
        let holds = |caps| Budget { room: 256, caps }.holds();
        assert_eq!([0, 64, 65].map(holds), [true, true, false]);
    }

    /// Upkeep takes stock back once more than three quarters of the budget are caps. The budget is that of the room without them.
    #[test]
    fn a_budget_is_spent_when_less_than_a_quarter_is_left() {
        let is_spent = |caps| {
            let room = 256 - caps;
            Budget { room, caps }.is_spent()
        };
        assert_eq!([0, 48, 49, 64].map(is_spent), [false, false, true, true]);
    }
}
