//! Order of CPUs and timers in virtual time: by time, and among equal times by the seed.

use bursar_rig::random::Random;

const TIE_BITS: u32 = 16;
/// Bit that is set in the keys of CPUs, whose rank is below.
const RANKED: u64 = 1 << (TIE_BITS - 1);
/// End of virtual time, after 78 hours.
pub(crate) const END_NS: u64 = 1 << (u64::BITS - TIE_BITS);

/// Time of a key.
#[inline]
pub(crate) fn time_ns(key: u64) -> u64 {
    key >> TIE_BITS
}

/// Key of a moment, before all CPUs at the same time.
pub(crate) fn key_of_timer(expires_ns: u64) -> u64 {
    expires_ns << TIE_BITS
}

/// Ranks of CPUs, which a permutation that changes each nanosecond mixes.
pub(crate) struct Ranks {
    of_cpu: Vec<u16>,
    /// CPU of each rank.
    cpus: Vec<u16>,
    /// Bits of a rank.
    mask: u64,
    seed: u64,
}

impl Ranks {
    pub(crate) fn new(cpus: usize, seed: u64, random: &mut Random) -> Self {
        let mut of_cpu: Vec<u16> = (0..cpus as u16).collect();
        for at in (1..cpus).rev() {
            of_cpu.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut cpu_of_rank = vec![0; cpus];
        for (cpu, &rank) in (0..).zip(&of_cpu) {
            cpu_of_rank[usize::from(rank)] = cpu;
        }
        Self {
            of_cpu,
            cpus: cpu_of_rank,
            mask: (cpus as u64).next_power_of_two() - 1,
            seed,
        }
    }

    /// Key that orders CPUs by their clocks, and among equal clocks by their ranks at that moment.
    #[inline]
    pub(crate) fn key(&self, cpu: u32, now_ns: u64) -> u64 {
        assert!(now_ns < END_NS, "virtual time ends after 78 hours");
        let rank = u64::from(self.of_cpu[cpu as usize]) ^ self.shuffle(now_ns);
        // Never 0, which is the rank of timers.
        now_ns << TIE_BITS | RANKED | rank
    }

    /// CPU that a key belongs to; for a timer, the number of CPUs.
    #[inline]
    pub(crate) fn cpu_of(&self, key: u64) -> usize {
        if key & RANKED == 0 {
            return self.cpus.len();
        }
        let rank = (key & (RANKED - 1)) ^ self.shuffle(time_ns(key));
        usize::from(self.cpus[rank as usize])
    }

    /// Permutation of ranks at a moment.
    #[inline]
    fn shuffle(&self, now_ns: u64) -> u64 {
        let mixed = (now_ns ^ self.seed).wrapping_mul(0xd134_2543_de82_ef95);
        mixed >> 48 & self.mask
    }
}
