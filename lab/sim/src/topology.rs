//! Topology of the simulated machine, as a value.
//!
//! CPUs are hardware threads. Node `k` of `n` has the numbers from `k * cpus / n` up to `(k + 1) * cpus / n`, so nodes
//! differ by one CPU at most. Within a node clusters are contiguous, and so are the hardware threads of a core within a
//! cluster. The last cluster of a node and the last core of a cluster may be smaller.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Maximum number of CPUs of a machine.
pub(crate) const MOST_CPUS: usize = 4096;
/// Maximum number of ticks a second. Kernels have 100, 250, 300 or 1000.
const MOST_HZ: u32 = 10_000;

/// Machine: its CPUs, their distances, and the behaviour of its locks and its scheduler.
///
/// Written `cpus=384,nodes=2,hz=1000` on the command line; each key may be left out.
///
/// | key | meaning | default |
/// |---|---|---|
/// | `cpus` | hardware threads, 1 to 4096 | 8 |
/// | `nodes` | NUMA nodes, each a socket, 1 to `cpus` | 1 |
/// | `cluster` | CPUs that share a last-level cache, 1 to those of a node | 16, or as many as a node has |
/// | `threads` | hardware threads of a core, 1 to `cluster` | 2, or as many as a cluster has |
/// | `hz` | ticks a second, 1 to 10000 | 1000 |
/// | `lock` | `queued`, `ticket` or `unfair` | `queued` |
/// | `preempt` | `user` or `kernel` | `user` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// Number of CPUs (hardware threads), at least 1.
    pub cpus: usize,
    /// Number of NUMA nodes, each a socket, at least 1 and at most `cpus`.
    pub nodes: usize,
    /// Number of CPUs that share a last-level cache.
    pub cluster: usize,
    /// Number of hardware threads of a core.
    pub threads: usize,
    /// Ticks a second.
    pub hz: u32,
    /// Order in which waiters get a spin lock.
    pub lock: LockKind,
    /// Whether a task that holds a spin lock can be preempted.
    pub preemption: PreemptionKind,
}

/// Order in which waiters get a spin lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockKind {
    /// First come, first served; each waits on a line of its own (MCS, the kernel's `qspinlock`).
    #[default]
    Queued,
    /// First come, first served; all look at one line.
    Ticket,
    /// No order: the lock goes to the first CPU that gets the line, mostly a near one.
    Unfair,
}

/// Whether a task that holds a spin lock can be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionKind {
    /// Any task at any time, as for threads of a process.
    #[default]
    User,
    /// No task while it holds a spin lock, as in the kernel.
    Kernel,
}

/// Distance between two CPUs, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The same CPU.
    Own,
    /// Hardware threads of one core.
    Core,
    /// Cores that share the last-level cache.
    Cluster,
    /// Clusters of one socket.
    Socket,
    /// Different sockets.
    Remote,
}

/// Place of a CPU. The numbers are the machine's, ascending with the CPU's number, and may have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its node.
    pub node: u16,
    /// Its cluster; no other node has a cluster of this number.
    pub cluster: u16,
    /// Its core; no other cluster has a core of this number.
    pub core: u16,
}

impl Place {
    /// Distance between two CPUs that are not the same.
    #[inline]
    #[must_use]
    pub fn distance(self, other: Self) -> Distance {
        if self.core == other.core {
            Distance::Core
        } else if self.cluster == other.cluster {
            Distance::Cluster
        } else if self.node == other.node {
            Distance::Socket
        } else {
            Distance::Remote
        }
    }
}

/// Error of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// A part is not `KEY=VALUE`.
    NotKeyValue {
        /// The part.
        part: String,
    },
    /// There is no such key.
    UnknownKey {
        /// The key.
        key: String,
        /// The key that is spelt most like it.
        nearest: Option<&'static str>,
    },
    /// A key was given twice.
    RepeatedKey {
        /// The key.
        key: &'static str,
    },
    /// Neither a number in range nor one of the words that are allowed.
    NotAllowed {
        /// The key.
        key: &'static str,
        /// The value given.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotKeyValue { part } => {
                write!(f, "`{part}` is not KEY=VALUE; keys are {}", KEYS.join(", "))
            }
            Self::UnknownKey { key, nearest } => {
                write!(f, "unknown key `{key}`: ")?;
                if let Some(nearest) = nearest {
                    write!(f, "did you mean `{nearest}`? ")?;
                }
                write!(f, "Keys are {}", KEYS.join(", "))
            }
            Self::RepeatedKey { key } => write!(f, "`{key}` is given twice; once is allowed"),
            Self::NotAllowed {
                key,
                value,
                allowed,
            } => write!(f, "{key}={value}: must be {allowed}"),
        }
    }
}

impl std::error::Error for TopologyError {}

const KEYS: [&str; 7] = [
    "cpus", "nodes", "cluster", "threads", "hz", "lock", "preempt",
];
const LOCKS: [(&str, LockKind); 3] = [
    ("queued", LockKind::Queued),
    ("ticket", LockKind::Ticket),
    ("unfair", LockKind::Unfair),
];
const PREEMPTIONS: [(&str, PreemptionKind); 2] = [
    ("user", PreemptionKind::User),
    ("kernel", PreemptionKind::Kernel),
];

impl Default for Topology {
    fn default() -> Self {
        Self::new(8, 1, 1000)
    }
}

impl Topology {
    /// Makes a machine with the usual clusters and hardware threads, as far as a node has CPUs for them.
    /// [`Topology::check`] finds a machine that cannot be built.
    #[must_use]
    pub fn new(cpus: usize, nodes: usize, hz: u32) -> Self {
        let cluster = cpus.div_ceil(nodes.max(1)).clamp(1, 16);
        Self {
            cpus,
            nodes,
            cluster,
            threads: cluster.min(2),
            hz,
            lock: LockKind::default(),
            preemption: PreemptionKind::default(),
        }
    }

    /// Checks whether such a machine can be built.
    ///
    /// # Errors
    /// [`TopologyError::NotAllowed`] for the first number that is out of range.
    pub fn check(&self) -> Result<(), TopologyError> {
        in_range("cpus", self.cpus, MOST_CPUS, "")?;
        in_range("nodes", self.nodes, self.cpus, ", the CPUs")?;
        let most = self.cpus.div_ceil(self.nodes);
        in_range("cluster", self.cluster, most, ", the CPUs of a node")?;
        in_range(
            "threads",
            self.threads,
            self.cluster,
            ", the CPUs of a cluster",
        )?;
        in_range("hz", self.hz as usize, MOST_HZ as usize, "")
    }

    /// Node of a CPU of this machine.
    #[must_use]
    pub fn node_of(&self, cpu: usize) -> usize {
        debug_assert!(cpu < self.cpus, "CPU {cpu} of {}", self.cpus);
        // The inverse of `cpus_of`: the last node that does not begin behind this CPU.
        ((cpu + 1) * self.nodes - 1) / self.cpus
    }

    /// CPUs of a node.
    #[must_use]
    pub fn cpus_of(&self, node: usize) -> Range<usize> {
        node * self.cpus / self.nodes..(node + 1) * self.cpus / self.nodes
    }

    /// Place of a CPU of this machine. It divides: keep [`Topology::places`] for frequent use.
    #[must_use]
    pub fn place(&self, cpu: usize) -> Place {
        let node = self.node_of(cpu);
        let offset = cpu - self.cpus_of(node).start;
        let clusters_a_node = self.cpus.div_ceil(self.nodes).div_ceil(self.cluster);
        let cores_a_cluster = self.cluster.div_ceil(self.threads);
        let cluster = node * clusters_a_node + offset / self.cluster;
        let core = cluster * cores_a_cluster + offset % self.cluster / self.threads;
        let narrow = |number| u16::try_from(number).expect("at most four times 4096, by `check`");
        Place {
            node: narrow(node),
            cluster: narrow(cluster),
            core: narrow(core),
        }
    }

    /// Places of all CPUs, by number.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        (0..self.cpus).map(|cpu| self.place(cpu)).collect()
    }
}

fn in_range(key: &'static str, value: usize, most: usize, of: &str) -> Result<(), TopologyError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(TopologyError::NotAllowed {
        key,
        value: value.to_string(),
        allowed: format!("1 to {most}{of}"),
    })
}

fn number(key: &'static str, value: &str) -> Result<usize, TopologyError> {
    // Not `parse` alone: that takes a sign.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|_| digits);
    number.ok_or_else(|| TopologyError::NotAllowed {
        key,
        value: value.to_owned(),
        allowed: match key {
            "cpus" => format!("a number, 1 to {MOST_CPUS}"),
            "hz" => format!("a number, 1 to {MOST_HZ}"),
            _ => "a number, at least 1 and at most the CPUs there are".to_owned(),
        },
    })
}

fn word<T: Copy>(key: &'static str, value: &str, words: &[(&str, T)]) -> Result<T, TopologyError> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let allowed: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        TopologyError::NotAllowed {
            key,
            value: value.to_owned(),
            allowed: allowed.join(" or "),
        }
    })
}

fn word_of<T: PartialEq>(kind: T, words: &[(&'static str, T)]) -> &'static str {
    let found = words.iter().find(|(_, other)| *other == kind);
    found.expect("each kind has a word").0
}

/// Shows all keys, so that the text means the same machine when a default changes.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cpus,
            nodes,
            cluster,
            threads,
            hz,
            lock,
            preemption,
        } = *self;
        let lock = word_of(lock, &LOCKS);
        let preempt = word_of(preemption, &PREEMPTIONS);
        write!(
            f,
            "cpus={cpus},nodes={nodes},cluster={cluster},threads={threads},hz={hz},lock={lock},preempt={preempt}"
        )
    }
}

impl FromStr for Topology {
    type Err = TopologyError;

    /// Parses the text that follows `sim:`; an empty text is the default machine.
    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let mut values: [Option<&str>; KEYS.len()] = [None; KEYS.len()];
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(TopologyError::NotKeyValue {
                    part: part.to_owned(),
                });
            };
            let Some(index) = KEYS.iter().position(|known| *known == key) else {
                return Err(TopologyError::UnknownKey {
                    key: key.to_owned(),
                    nearest: nearest(key, KEYS.into_iter()),
                });
            };
            if values[index].replace(value).is_some() {
                return Err(TopologyError::RepeatedKey { key: KEYS[index] });
            }
        }
        let [cpus, nodes, cluster, threads, hz, lock, preempt] = values;
        let read = |key, value: Option<&str>| value.map(|value| number(key, value)).transpose();
        let default = Self::default();
        let hz = read("hz", hz)?.unwrap_or(default.hz as usize);
        in_range("hz", hz, MOST_HZ as usize, "")?;
        let mut topology = Self::new(
            read("cpus", cpus)?.unwrap_or(default.cpus),
            read("nodes", nodes)?.unwrap_or(default.nodes),
            u32::try_from(hz).expect("in range"),
        );
        if let Some(cluster) = read("cluster", cluster)? {
            topology.cluster = cluster;
            topology.threads = cluster.clamp(1, 2);
        }
        if let Some(threads) = read("threads", threads)? {
            topology.threads = threads;
        }
        if let Some(lock) = lock {
            topology.lock = word("lock", lock, &LOCKS)?;
        }
        if let Some(preempt) = preempt {
            topology.preemption = word("preempt", preempt, &PREEMPTIONS)?;
        }
        topology.check()?;
        Ok(topology)
    }
}

/// Known word that is spelt most like `given`, if any is near.
pub(crate) fn nearest(
    given: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let near = known.map(|word| (strsim::levenshtein(given, word), word));
    let best = near.min_by_key(|(edits, _)| *edits);
    best.filter(|(edits, word)| *edits <= 1 + word.len() / 4)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Topology {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn message(text: &str) -> String {
        let error = text.parse::<Topology>().expect_err(text);
        error.to_string()
    }

    /// Random number below `bound`, by xorshift.
    fn random(state: &mut u64, bound: usize) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state % bound as u64) as usize
    }

    #[test]
    fn defaults_fit_the_machine() {
        assert_eq!(parse(""), Topology::new(8, 1, 1000));
        assert_eq!(
            parse("").to_string(),
            "cpus=8,nodes=1,cluster=8,threads=2,hz=1000,lock=queued,preempt=user"
        );
        assert_eq!(
            parse("hz=1000,nodes=2,cpus=384").to_string(),
            "cpus=384,nodes=2,cluster=16,threads=2,hz=1000,lock=queued,preempt=user"
        );
        assert_eq!(
            parse("cpus=1").to_string(),
            "cpus=1,nodes=1,cluster=1,threads=1,hz=1000,lock=queued,preempt=user"
        );
        assert_eq!(parse("cluster=1").threads, 1);
        assert_eq!(parse("lock=unfair,preempt=kernel").lock, LockKind::Unfair);
        assert_eq!(
            parse("lock=ticket,preempt=kernel").preemption,
            PreemptionKind::Kernel
        );
    }

    #[test]
    fn errors_name_the_key_and_say_what_is_allowed() {
        for (text, expected) in [
            ("cpus=0", "cpus=0: must be 1 to 4096"),
            ("cpus=4097", "cpus=4097: must be 1 to 4096"),
            ("cpus=4,nodes=5", "nodes=5: must be 1 to 4, the CPUs"),
            ("nodes=0", "nodes=0: must be 1 to 8, the CPUs"),
            (
                "cpus=8,nodes=2,cluster=5",
                "cluster=5: must be 1 to 4, the CPUs of a node",
            ),
            ("cluster=0", "cluster=0: must be 1 to 8, the CPUs of a node"),
            (
                "cluster=4,threads=5",
                "threads=5: must be 1 to 4, the CPUs of a cluster",
            ),
            ("hz=0", "hz=0: must be 1 to 10000"),
            ("hz=10001", "hz=10001: must be 1 to 10000"),
            ("hz=4294968296", "hz=4294968296: must be 1 to 10000"),
            ("cpus=many", "cpus=many: must be a number, 1 to 4096"),
            ("cpus=", "cpus=: must be a number, 1 to 4096"),
            ("cpus=+8", "cpus=+8: must be a number, 1 to 4096"),
            (
                "nodes=-1",
                "nodes=-1: must be a number, at least 1 and at most the CPUs there are",
            ),
            ("lock=fair", "lock=fair: must be queued or ticket or unfair"),
            ("preempt=yes", "preempt=yes: must be user or kernel"),
            ("cpus=8,cpus=8", "`cpus` is given twice; once is allowed"),
            (
                "cpus",
                "`cpus` is not KEY=VALUE; keys are cpus, nodes, cluster, threads, hz, lock, preempt",
            ),
            (
                "cpus=8,",
                "`` is not KEY=VALUE; keys are cpus, nodes, cluster, threads, hz, lock, preempt",
            ),
            (
                "cpu=8",
                "unknown key `cpu`: did you mean `cpus`? \
                 Keys are cpus, nodes, cluster, threads, hz, lock, preempt",
            ),
            (
                "memory=8",
                "unknown key `memory`: Keys are cpus, nodes, cluster, threads, hz, lock, preempt",
            ),
        ] {
            assert_eq!(message(text), expected);
        }
        assert!(Topology::new(0, 0, 0).check().is_err());
        assert!(Topology::new(0, 1, 100).check().is_err());
        assert!(Topology::new(8, 1, 0).check().is_err());
    }

    #[test]
    fn what_is_printed_parses_back() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..20_000 {
            let mut topology = Topology::new(1 + random(&mut state, MOST_CPUS), 1, 1000);
            topology.nodes = 1 + random(&mut state, topology.cpus);
            let node = topology.cpus.div_ceil(topology.nodes);
            topology.cluster = 1 + random(&mut state, node);
            topology.threads = 1 + random(&mut state, topology.cluster);
            topology.hz = 1 + random(&mut state, MOST_HZ as usize) as u32;
            topology.lock = LOCKS[random(&mut state, 3)].1;
            topology.preemption = PREEMPTIONS[random(&mut state, 2)].1;
            topology.check().expect("in range");
            assert_eq!(parse(&topology.to_string()), topology);
            assert!(usize::from(topology.place(topology.cpus - 1).node) < topology.nodes);
        }
    }

    #[test]
    fn nonsense_is_refused_without_panicking() {
        let mut state = 42;
        let pieces = [
            "cpus",
            "nodes",
            "cluster",
            "threads",
            "hz",
            "lock",
            "=",
            ",",
            "0",
            "7",
            "99999999999999999999",
            "é",
            "-",
        ];
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..random(&mut state, 9) {
                text.push_str(pieces[random(&mut state, pieces.len())]);
            }
            if let Ok(topology) = text.parse::<Topology>() {
                topology.check().expect("only what can be built is parsed");
            }
        }
    }

    #[test]
    fn nodes_cover_the_cpus_in_order() {
        for cpus in 1..=1024 {
            for nodes in [1, 2, 3, 4, 7, 8, 16, 61, cpus] {
                if nodes > cpus {
                    continue;
                }
                let topology = Topology::new(cpus, nodes, 1000);
                topology.check().expect("defaults fit");
                let mut next = 0;
                for node in 0..nodes {
                    let range = topology.cpus_of(node);
                    assert_eq!(range.start, next, "{topology}");
                    assert!(range.len() >= cpus / nodes && range.len() <= cpus.div_ceil(nodes));
                    for cpu in range.clone() {
                        assert_eq!(topology.node_of(cpu), node, "CPU {cpu} of {topology}");
                    }
                    next = range.end;
                }
                assert_eq!(next, cpus, "{topology}");
            }
        }
    }

    #[test]
    fn places_nest_and_have_the_right_size() {
        let mut state = 7;
        for cpus in 1..=1024 {
            let mut topology = Topology::new(cpus, 1 + random(&mut state, cpus.min(9)), 1000);
            let node = cpus.div_ceil(topology.nodes);
            topology.cluster = 1 + random(&mut state, node);
            topology.threads = 1 + random(&mut state, topology.cluster);
            let places = topology.places();
            let mut by_cluster = vec![0; 1 << 16];
            let mut by_core = vec![0; 1 << 16];
            for (cpu, place) in places.iter().enumerate() {
                by_cluster[place.cluster as usize] += 1;
                by_core[place.core as usize] += 1;
                assert_eq!(place.node as usize, topology.node_of(cpu));
                let Some(next) = places.get(cpu + 1) else {
                    continue;
                };
                // Ascending, so equal numbers are neighbours, and a new part begins new parts below it.
                assert!(place.node <= next.node);
                assert!(place.cluster <= next.cluster && place.core <= next.core);
                assert!(place.node == next.node || place.cluster < next.cluster);
                assert!(place.cluster == next.cluster || place.core < next.core);
            }
            assert!(by_cluster.iter().all(|size| *size <= topology.cluster));
            assert!(by_core.iter().all(|size| *size <= topology.threads));
            // Only the last cluster of a node and the last core of a cluster may be short.
            let cores: usize = (0..topology.nodes)
                .map(|node| {
                    let size = topology.cpus_of(node).len();
                    let full =
                        size / topology.cluster * topology.cluster.div_ceil(topology.threads);
                    full + (size % topology.cluster).div_ceil(topology.threads)
                })
                .sum();
            assert_eq!(by_core.iter().filter(|size| **size > 0).count(), cores);
        }
    }

    #[test]
    fn distances() {
        let topology = parse("cpus=64,nodes=2,cluster=8,threads=2");
        for (one, other, distance) in [
            (4, 5, Distance::Core),
            (5, 6, Distance::Cluster),
            (0, 7, Distance::Cluster),
            (7, 8, Distance::Socket),
            (0, 31, Distance::Socket),
            (31, 32, Distance::Remote),
            (0, 63, Distance::Remote),
        ] {
            let [one, other] = [one, other].map(|cpu| topology.place(cpu));
            assert_eq!(one.distance(other), distance, "{one:?} {other:?}");
            assert_eq!(other.distance(one), distance, "{other:?} {one:?}");
        }
        let order = [
            Distance::Own,
            Distance::Core,
            Distance::Cluster,
            Distance::Socket,
            Distance::Remote,
        ];
        assert!(order.is_sorted());
    }

    #[test]
    fn the_nearest_word_is_near() {
        assert_eq!(nearest("treads", KEYS.into_iter()), Some("threads"));
        assert_eq!(nearest("numa", KEYS.into_iter()), None);
    }
}
