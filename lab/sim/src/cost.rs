//! Costs of each step of the simulated machine: every constant, with its source and its uncertainty.
//!
//! [`constants!`] is the one table; the fields of [`CostModel`], their values, ranges and sources all come from it.
//! `lab/docs/cost-model.md` resolves the keys in brackets (a test checks that). The model is a
//! server without a hypervisor. Our own figures (`[vm]`) are from a virtual machine. Where that matters, the value is
//! nearer to the bare machine and the range reaches ours.

use std::fmt;

use bursar_machine::Fnv1a64;

use crate::topology::nearest;

/// Version of the constants' meaning. Raise it when the engine charges differently for the same constants, so that
/// results of different models do not mix.
const MODEL_VERSION: u32 = 3;

/// Maximum value of a constant: a quarter of an hour. Sums of such steps stay far from the end of the clock.
const MOST_NS: u64 = 1_000_000_000_000;

/// One constant of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name, unit last.
    pub name: &'static str,
    /// Value used.
    pub value: u64,
    /// Lower bound of the sources.
    pub lo: u64,
    /// Upper bound of the sources.
    pub hi: u64,
    /// Source of the value.
    pub source: &'static str,
    /// Whether it may be set to 0.
    pub may_be_zero: bool,
}

/// Reason why a constant cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostError {
    /// There is no such constant.
    Unknown {
        /// The name given.
        name: String,
        /// The constant that is spelt most like it.
        nearest: Option<&'static str>,
    },
    /// The value 0, with which time would stand still.
    Zero {
        /// The constant.
        name: &'static str,
    },
    /// A value that the clock cannot hold.
    TooLarge {
        /// The constant.
        name: &'static str,
        /// The value given.
        value: u64,
    },
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, nearest } => {
                write!(f, "unknown constant `{name}` of the cost model")?;
                match nearest {
                    Some(nearest) => write!(f, ": did you mean `{nearest}`?"),
                    None => {
                        let known: Vec<_> =
                            CostModel::constants().map(|known| known.name).collect();
                        write!(f, ": known are {}", known.join(", "))
                    }
                }
            }
            Self::Zero { name } => write!(f, "{name}=0: must be at least 1"),
            Self::TooLarge { name, value } => {
                write!(f, "{name}={value}: must be at most {MOST_NS}")
            }
        }
    }
}

impl std::error::Error for CostError {}

/// `name: value, lo..hi, zero or positive, source`.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $value:literal, $lo:literal..$hi:literal, $least:ident, $source:literal;)*) => {
        /// All costs, in nanoseconds, and the number of lines that a CPU fetches at the same time. [`CostModel::default`] holds the
        /// values of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct CostModel {
            $($(#[$doc])* pub $name: u64,)*
        }

        const CONSTANTS: &[Constant] = &[$(Constant {
            name: stringify!($name),
            value: $value,
            lo: $lo,
            hi: $hi,
            source: $source,
            may_be_zero: constants!(@ $least),
        },)*];

        impl Default for CostModel {
            fn default() -> Self {
                Self { $($name: $value,)* }
            }
        }

        impl CostModel {
            /// Names and values in use, in the order of the table.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            fn field(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
    (@ zero) => { true };
    (@ positive) => { false };
}

constants! {
    /// Access to a line that this CPU owns already.
    line_own_ns: 1, 1..2, positive, "[vm] 0.96 by pointers in L1; [rome] 4 cycles";
    /// Fetching a line from the sibling hardware thread.
    line_core_ns: 8, 5..10, zero, "[c2c] 7.6 to 8.1 on Xeons, 9.8 and 10 on EPYCs, 5.3 on a Ryzen";
    /// Fetching a line from a core that shares the last-level cache.
    line_cluster_ns: 25, 16..51, zero, "[c2c] 23 on EPYC 7R13, 44 to 51 across a Xeon; [vm] 29";
    /// Fetching a line from another cluster of the same socket.
    line_socket_ns: 110, 44..200, zero, "[c2c] 107 and 200 on the sockets of EPYC 7R13; a Xeon is one cluster";
    /// Fetching a line from another socket.
    line_remote_ns: 200, 108..250, zero, "[c2c] medians 108 (Xeon 8375C) to 197 (EPYC 7R13); above: judgement";
    /// First touch of a line, from DRAM.
    line_memory_ns: 120, 80..150, zero, "[vm] 147; [rome] 122 to 134; [mlc] 81 local, 141 remote";
    /// Number of lines that a CPU fetches at the same time when it is told to fetch ahead; 0: none.
    lines_ahead: 10, 10..24, zero, "[lfb] 10 fill buffers of a Skylake core, 12 since Ice Lake; [mab] 22 misses of a Zen 2 core";
    /// Extra for a locked read-modify-write.
    atomic_ns: 5, 3..10, zero, "[vm] locked add 4.8, plain add 0.24; prototypes 7 to 9 in all";
    /// Extra for a `Full` store.
    full_barrier_ns: 5, 0..20, zero, "[vm] store by xchg 4.8, with mfence 18.6; an x86 load needs none";
    /// A restartable sequence (add or charge) beyond its line accesses.
    section_ns: 1, 1..3, zero, "[vm] prototypes' rseq add 1.9 to 2.1 in all";
    /// An expedited membarrier that interrupts no CPU.
    fence_base_ns: 350, 150..10000, zero, "[vm] 150 and 349, of 2 CPUs; above: judgement";
    /// A fence's sending to and waiting for one CPU that runs the process.
    fence_cpu_ns: 1000, 200..15000, zero, "[kvm-ipi] 950 to 2500 a target; [vm] 5 to 15 us alone; below: judgement";
    /// Waiting for the slowest of the interrupted CPUs, once a fence.
    fence_wait_ns: 1500, 0..5000, zero, "[kvm-ipi] 2500 for one target, less what fence_cpu_ns charges; range: judgement";
    /// Time that a fence takes from each CPU that it interrupts.
    fence_interrupt_ns: 1000, 300..5400, zero, "judgement; [vm] 5.4 us under a hypervisor";
    /// Instructions of an uncontended lock and unlock, beyond the line.
    lock_ns: 10, 4..20, zero, "[vm] pair of a spin lock 5.2, of a mutex 11, line included";
    /// Entering and leaving the kernel.
    syscall_ns: 120, 50..500, zero, "[vm] getppid 119, futex wake of nobody 154; range: judgement";
    /// A context switch.
    switch_ns: 1000, 500..2500, zero, "[vm] 1094 with sched_yield; [switch] threads 1070, processes 2410";
    /// Waking a task, for the waker.
    wake_ns: 1000, 300..6700, zero, "judgement; [vm] futex wake of another CPU 1.6 to 6.7 us";
    /// Time from the wake-up until an idle CPU runs the woken task.
    idle_exit_ns: 5000, 1000..290000, zero, "[vm] 5.1 to 23 us with the wake; [idle] C1 1 us, C6 290 us";
    /// Time slice while others wait.
    slice_ns: 2800000, 700000..10000000, positive, "[fair] 0.7 ms times 1 + log2(min(CPUs, 8)); above: judgement";
    /// Time that a sleeping lock of a process spins before it sleeps.
    mutex_spin_ns: 2500, 0..2800000, zero, "[std] 100 rounds of [vm] 23; [mutex] spins while the owner runs";
    /// Time that a thread spins for a lock before it lets other threads have its CPU.
    spin_yield_ns: 1500, 500..10000, positive, "64 rounds of relax_ns, as the host's locks do; range: judgement";
    /// Lateness of a sleep in user space.
    timer_slack_ns: 50000, 0..50000, zero, "[init] default; [vm] 70 us late with it, 21 us with 1 ns";
    /// A timer interrupt.
    timer_interrupt_ns: 2000, 500..13500, zero, "judgement; [vm] gaps of 1.3 us (tenth), 13.5 us (median)";
    /// Reading the clock.
    clock_ns: 21, 15..50, positive, "[vm] clock_gettime in the vDSO 21; range: judgement";
    /// A pause in a spin loop.
    relax_ns: 23, 3..56, positive, "[vm] 23; [pause] 10 cycles, up to 140 since Skylake";
    /// Faulting in, zeroing and touching a page of 4 KiB.
    page_touch_ns: 1000, 500..4000, zero, "[fault] median 1013, p95 4025; [vm] 1306 with nested tables";
    /// Unmapping and freeing a page of 4 KiB.
    page_free_ns: 260, 100..1100, zero, "[vm] madvise 257 in bulk, 1095 page by page; below: judgement";
    /// Working on the record of a page frame, such as joining it with its buddy.
    frame_record_ns: 20, 10..45, zero, "[drain] 11 a page in a zone of 4 GiB, 42 in one of 64 GiB";
    /// Making a page of 4 KiB zero that is in no cache.
    page_zero_ns: 350, 170..1000, zero, "[clear] 174 and 348 in huge pages; [vm] 683 to 1017 page by page";
}

impl CostModel {
    /// Constants of the table.
    pub fn constants() -> impl Iterator<Item = &'static Constant> {
        CONSTANTS.iter()
    }

    /// Changes a constant, also to a value outside `lo..=hi`, because an experiment may need one.
    ///
    /// # Errors
    /// [`CostError`] for an unknown name, a 0 with which time would stand still, or a value that the clock cannot hold.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), CostError> {
        let known = CONSTANTS.iter().find(|constant| constant.name == name);
        let (Some(known), Some(field)) = (known, self.field(name)) else {
            return Err(CostError::Unknown {
                name: name.to_owned(),
                nearest: nearest(name, CONSTANTS.iter().map(|constant| constant.name)),
            });
        };
        let name = known.name;
        if value == 0 && !known.may_be_zero {
            return Err(CostError::Zero { name });
        }
        if value > MOST_NS {
            return Err(CostError::TooLarge { name, value });
        }
        *field = value;
        Ok(())
    }

    /// Identity of the model: its version and all names and values.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut hash = Fnv1a64::new().write(format!("version={MODEL_VERSION}\n").as_bytes());
        for (name, value) in self.values() {
            hash = hash.write(format!("{name}={value}\n").as_bytes());
        }
        hash.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_can_be_set_and_read() {
        for constant in CostModel::constants() {
            let mut costs = CostModel::default();
            costs.set(constant.name, 4711).expect("a known name");
            for (name, value) in costs.values() {
                let expected = CONSTANTS.iter().find(|known| known.name == name);
                let expected = expected.expect("in the table").value;
                assert_eq!(
                    value,
                    if name == constant.name {
                        4711
                    } else {
                        expected
                    }
                );
            }
        }
    }

    #[test]
    fn errors_name_the_constant() {
        let mut costs = CostModel::default();
        let unknown = costs.set("slice_us", 1).expect_err("no such constant");
        assert_eq!(
            unknown.to_string(),
            "unknown constant `slice_us` of the cost model: did you mean `slice_ns`?"
        );
        let far = costs.set("colour", 1).expect_err("no such constant");
        assert!(far.to_string().contains("line_own_ns, "), "{far}");
        let zero = costs.set("slice_ns", 0).expect_err("no time slice");
        assert_eq!(zero.to_string(), "slice_ns=0: must be at least 1");
        let large = costs.set("wake_ns", u64::MAX).expect_err("too long");
        assert!(
            large
                .to_string()
                .starts_with("wake_ns=18446744073709551615: ")
        );
        assert_eq!(costs, CostModel::default(), "failures change nothing");
        costs.set("mutex_spin_ns", 0).expect("no spinning");
        costs
            .set("slice_ns", 1)
            .expect("outside the range, allowed");
    }
}
