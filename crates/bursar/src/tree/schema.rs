//! Statistics that a memory keeps: declared once as a constant, and used through typed handles.

use bursar_machine::{FIRST_STATISTIC, Fnv1a64, WORDS_MAX};

/// Declaration of one statistic.
///
/// ```
/// use bursar::{Counter, Gauge, Statistic};
///
/// const STATISTICS: &[Statistic] = &[
///     Statistic::counter("rows"),
///     Statistic::gauge("spilled_bytes").batch(1 << 20),
///     Statistic::gauge("open_files").eager(),
/// ];
/// const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
/// const SPILLED: Gauge = Gauge::from_name(STATISTICS, "spilled_bytes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    name: &'static str,
    is_counter: bool,
    is_eager: bool,
    is_per_node: bool,
    batch: u64,
}

impl Statistic {
    /// Declares a statistic that only grows.
    ///
    /// Sums of counters and gauges are signed 64-bit numbers. A sum beyond [`i64::MAX`] wraps around to [`i64::MIN`];
    /// at a million a second this takes 292,000 years.
    pub const fn counter(name: &'static str) -> Self {
        Self {
            name,
            is_counter: true,
            is_eager: false,
            is_per_node: false,
            batch: 0,
        }
    }

    /// Declares a statistic that goes up and down.
    pub const fn gauge(name: &'static str) -> Self {
        Self {
            is_counter: false,
            ..Self::counter(name)
        }
    }

    /// Keeps the statistic exact in every ancestor at each update, so that no read waits for it.
    ///
    /// An update then costs one contended atomic operation for each ancestor. This suits statistics that change rarely
    /// and must be exact at once.
    ///
    /// While an update is under way, some of the groups have it and others do not. An addition reaches the root first, and a
    /// subtraction last. So at no moment does a group have less than its children together, if none of their parts is below 0. And
    /// for a counter, a read of a group after a read of its child shows no less than the child had.
    pub const fn eager(self) -> Self {
        Self {
            is_eager: true,
            ..self
        }
    }

    /// Keeps the statistic for each NUMA node as well, by the CPU that made the update.
    pub const fn per_node(self) -> Self {
        Self {
            is_per_node: true,
            ..self
        }
    }

    /// Bounds the updates that cached numbers may miss: a CPU reports to the ancestors when its unreported part of one
    /// group reaches `unit`.
    ///
    /// This gives the statistic an error bar without a flush (see [`crate::Value`]), for about twice the cost of an
    /// update.
    ///
    /// # Panics
    /// If `unit` is 0 (at compile time, in a constant).
    pub const fn batch(self, unit: u64) -> Self {
        assert!(unit > 0, "a batch unit is at least 1");
        Self {
            batch: unit,
            ..self
        }
    }

    /// Name of the statistic.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether the statistic only grows.
    pub const fn is_counter(&self) -> bool {
        self.is_counter
    }

    /// Returns whether the statistic is exact in every ancestor at once.
    pub const fn is_eager(&self) -> bool {
        self.is_eager
    }

    /// Returns whether the statistic is kept for each NUMA node.
    pub const fn is_per_node(&self) -> bool {
        self.is_per_node
    }

    /// Number of words in a slot: one for the value, and for a batched statistic one for the value last reported.
    const fn words(&self) -> usize {
        if self.is_eager {
            0
        } else if self.batch > 0 {
            2
        } else {
            1
        }
    }
}

/// Place of a statistic in a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// As it was declared.
    pub(crate) name: &'static str,
    /// Index in the declaration.
    pub(crate) index: u16,
    /// Word in the slot (lazy), or index among the eager statistics.
    pub(crate) word: u16,
    pub(crate) is_eager: bool,
    /// The unit of a batched statistic; 0 for others.
    pub(crate) batch: u64,
    /// Fingerprint of the declaration. A memory refuses handles of another declaration.
    pub(crate) fingerprint: u32,
}

impl Place {
    const fn find(statistics: &[Statistic], name: &str, counter: bool) -> Self {
        let mut word = FIRST_STATISTIC;
        let mut eager = 0;
        let mut index = 0;
        while index < statistics.len() {
            let statistic = &statistics[index];
            if same(statistic.name, name) {
                assert!(
                    statistic.is_counter == counter,
                    "this statistic is of the other kind: use Counter for counters, Gauge for gauges"
                );
                return Self {
                    name: statistic.name,
                    index: index as u16,
                    word: if statistic.is_eager {
                        eager
                    } else {
                        word as u16
                    },
                    is_eager: statistic.is_eager,
                    batch: if statistic.is_eager {
                        0
                    } else {
                        statistic.batch
                    },
                    fingerprint: fingerprint(statistics),
                };
            }
            word += statistic.words();
            if statistic.is_eager {
                eager += 1;
            }
            index += 1;
        }
        panic!("no statistic of this name is declared");
    }
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// FNV-1a hash of everything that decides the layout.
pub(crate) const fn fingerprint(statistics: &[Statistic]) -> u32 {
    let mut hash = Fnv1a64::new();
    let mut index = 0;
    while index < statistics.len() {
        let statistic = &statistics[index];
        let flags = statistic.is_counter as u8
            + 2 * statistic.is_eager as u8
            + 4 * statistic.is_per_node as u8;
        // 0xff ends a name: UTF-8 has no such byte.
        hash = hash
            .write(statistic.name.as_bytes())
            .write(&[0xff, flags])
            .write(&statistic.batch.to_le_bytes());
        index += 1;
    }
    (hash.get() ^ (hash.get() >> 32)) as u32
}

/// Handle of a declared statistic.
pub trait Handle: sealed::Sealed + Copy {
    /// Type of the numbers that are added.
    type Delta;
    #[doc(hidden)]
    fn signed(delta: Self::Delta) -> i64;
}

pub(crate) mod sealed {
    pub trait Sealed {
        #[doc(hidden)]
        fn resolve(&self) -> super::Resolved;
    }
}

/// Place that a handle resolves to.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Resolved(pub(crate) Place);

/// Handle of a [`Statistic::counter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(Place);

/// Handle of a [`Statistic::gauge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge(Place);

impl Counter {
    /// Returns the handle of the counter `name`. Meant for constants, where a wrong name does not compile.
    ///
    /// # Panics
    /// If `statistics` declares no counter of that name.
    pub const fn from_name(statistics: &[Statistic], name: &str) -> Self {
        Self(Place::find(statistics, name, true))
    }
}

impl Gauge {
    /// Returns the handle of the gauge `name`. Meant for constants, where a wrong name does not compile.
    ///
    /// # Panics
    /// If `statistics` declares no gauge of that name.
    pub const fn from_name(statistics: &[Statistic], name: &str) -> Self {
        Self(Place::find(statistics, name, false))
    }
}

impl sealed::Sealed for Counter {
    #[inline]
    fn resolve(&self) -> Resolved {
        Resolved(self.0)
    }
}
impl Handle for Counter {
    type Delta = u64;
    #[inline]
    fn signed(delta: u64) -> i64 {
        // Debug builds only. Release builds do not check, and count modulo 2^64.
        debug_assert!(
            delta <= i64::MAX as u64,
            "{delta} added to a counter: more than i64::MAX, as if it went down"
        );
        delta as i64
    }
}
impl sealed::Sealed for Gauge {
    #[inline]
    fn resolve(&self) -> Resolved {
        Resolved(self.0)
    }
}
impl Handle for Gauge {
    type Delta = i64;
    #[inline]
    fn signed(delta: i64) -> i64 {
        delta
    }
}

/// Column of folded numbers. Column 0 is usage, then comes one for each statistic; the shares per node follow all of
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// The word of the slot that feeds it; `None` for an eager statistic.
    pub(crate) word: Option<usize>,
    /// Index of the first of `nodes + 1` numbers: the share of each node, and of the extra shard.
    pub(crate) per_node: Option<usize>,
    pub(crate) batch: u64,
}

/// Layout of a declaration on a machine with a given number of nodes.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) statistics: &'static [Statistic],
    pub(crate) fingerprint: u32,
    /// Words of a slot.
    pub(crate) words: usize,
    /// Columns: 0 is usage, `index + 1` a declared statistic.
    pub(crate) columns: Vec<Column>,
    /// Number of folded numbers, including the shares per node.
    pub(crate) width: usize,
    pub(crate) eager: usize,
}

/// Reason why a declaration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadSchema {
    Duplicate(&'static str),
    Empty,
    TooMany,
    OutOfMemory,
}

impl Layout {
    pub(crate) fn new(statistics: &'static [Statistic], nodes: usize) -> Result<Self, BadSchema> {
        let mut words = FIRST_STATISTIC;
        let mut eager = 0;
        let mut width = statistics.len() + 1;
        let mut columns = Vec::new();
        let has_room = columns.try_reserve_exact(width);
        has_room.map_err(|_| BadSchema::OutOfMemory)?;
        columns.push(Column {
            word: Some(bursar_machine::CHARGED),
            per_node: None,
            batch: 0,
        });
        for (index, statistic) in statistics.iter().enumerate() {
            if statistic.name.is_empty() {
                return Err(BadSchema::Empty);
            }
            if statistics[..index]
                .iter()
                .any(|other| other.name == statistic.name)
            {
                return Err(BadSchema::Duplicate(statistic.name));
            }
            let per_node = (statistic.is_per_node && !statistic.is_eager).then_some(width);
            width += per_node.map_or(0, |_| nodes + 1);
            columns.push(Column {
                word: (!statistic.is_eager).then_some(words),
                per_node,
                batch: if statistic.is_eager {
                    0
                } else {
                    statistic.batch
                },
            });
            words += statistic.words();
            eager += usize::from(statistic.is_eager);
        }
        if words > WORDS_MAX {
            return Err(BadSchema::TooMany);
        }
        Ok(Self {
            statistics,
            fingerprint: fingerprint(statistics),
            words,
            columns,
            width,
            eager,
        })
    }

    /// Each column that words feed, and its word.
    pub(crate) fn words_of_columns(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let columns = self.columns.iter().enumerate();
        columns.filter_map(|(column, declared)| Some((column, declared.word?)))
    }

    /// Numbers that an addition to a column on a node changes: the column's own, and the node's share.
    pub(crate) fn numbers(&self, column: usize, home: usize) -> impl Iterator<Item = usize> {
        let share = self.columns[column].per_node.map(|first| first + home);
        std::iter::once(column).chain(share)
    }

    /// The first word on each cache line of a slot.
    pub(crate) fn lines(&self) -> impl Iterator<Item = usize> {
        const WORDS_PER_LINE: usize = 8;
        (0..self.words).step_by(WORDS_PER_LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of which one begins like another, and every kind of statistic.
    const STATISTICS: &[Statistic] = &[
        Statistic::counter("rows"),
        Statistic::counter("rows_read").per_node(),
        Statistic::gauge("row").eager(),
        Statistic::gauge("bytes").batch(1 << 20),
        Statistic::counter("byte").eager().batch(5),
        Statistic::gauge("rowt").per_node().batch(1),
    ];

    #[test]
    fn a_statistic_is_what_was_declared() {
        let kinds = STATISTICS.iter().map(|one| {
            let kinds = [one.is_counter(), one.is_eager(), one.is_per_node()];
            (one.name(), kinds, one.batch, one.words())
        });
        assert!(kinds.eq([
            ("rows", [true, false, false], 0, 1),
            ("rows_read", [true, false, true], 0, 1),
            ("row", [false, true, false], 0, 0),
            ("bytes", [false, false, false], 1 << 20, 2),
            ("byte", [true, true, false], 5, 0),
            ("rowt", [false, false, true], 1, 2),
        ]));
    }

    #[test]
    fn handles_lead_to_the_words_of_the_layout() {
        let layout = Layout::new(STATISTICS, 3).expect("the names differ");
        let mut eager = 0;
        for (index, declared) in STATISTICS.iter().enumerate() {
            let place = if declared.is_counter() {
                Counter::from_name(STATISTICS, declared.name()).0
            } else {
                Gauge::from_name(STATISTICS, declared.name()).0
            };
            let column = &layout.columns[index + 1];
            assert_eq!(place.name, declared.name());
            assert_eq!(usize::from(place.index), index);
            assert_eq!(place.is_eager, declared.is_eager());
            let number = column.word.unwrap_or(eager);
            assert_eq!(usize::from(place.word), number);
            assert_eq!(place.batch, column.batch);
            assert_eq!(place.fingerprint, layout.fingerprint);
            eager += usize::from(declared.is_eager());
        }
        assert_eq!((layout.eager, eager), (2, 2));
        assert_eq!(layout.words, FIRST_STATISTIC + 6);
        assert_eq!(layout.width, 7 + 2 * 4);
        let fed = layout.words_of_columns().skip(1);
        let first = FIRST_STATISTIC;
        assert!(fed.eq([(1, first), (2, first + 1), (4, first + 2), (6, first + 4)]));
        assert!(layout.numbers(1, 2).eq([1]));
        assert!(layout.numbers(2, 2).eq([2, 7 + 2]));
        assert!(layout.numbers(6, 3).eq([6, 11 + 3]));
    }

    #[test]
    #[should_panic(expected = "no statistic of this name")]
    fn a_name_that_is_not_declared_has_no_handle() {
        Counter::from_name(STATISTICS, "rowz");
    }

    #[test]
    #[should_panic(expected = "of the other kind")]
    fn a_gauge_is_no_counter() {
        Counter::from_name(STATISTICS, "bytes");
    }

    #[test]
    fn a_slot_has_a_line_for_eight_words() {
        const MANY: &[Statistic] = &[
            Statistic::gauge("a").batch(1),
            Statistic::gauge("b").batch(1),
            Statistic::gauge("c").batch(1),
            Statistic::gauge("d").batch(1),
            Statistic::gauge("e").batch(1),
        ];
        let lines = |statistics| {
            let layout = Layout::new(statistics, 1).expect("the names differ");
            (layout.words, layout.lines().collect::<Vec<_>>())
        };
        let (words, own) = lines(MANY);
        assert!((9..=16).contains(&words));
        assert_eq!(own, [0, 8]);
        assert_eq!(lines(&[]).1, [0]);
    }

    /// Each flag, unit, name and order makes another fingerprint, and no bit of it prefers a value.
    #[test]
    fn declarations_have_their_own_fingerprints() {
        let one = |name, flags: u32, batch| Statistic {
            name,
            is_counter: flags & 1 != 0,
            is_eager: flags & 2 != 0,
            is_per_node: flags & 4 != 0,
            batch,
        };
        let kinds = (0..8).flat_map(|flags| (0..64).map(move |batch| (flags, batch)));
        let mut seen: Vec<u32> = kinds
            .flat_map(|(flags, batch)| {
                let (a, ab) = (one("a", flags, batch), one("ab", flags, batch));
                [
                    fingerprint(&[a]),
                    fingerprint(&[ab]),
                    fingerprint(&[a, ab]),
                    fingerprint(&[ab, a]),
                ]
            })
            .collect();
        let count = seen.len();
        for bit in 0..u32::BITS {
            let set = seen.iter().filter(|&&hash| hash >> bit & 1 == 1).count();
            assert!(set.abs_diff(count / 2) < count / 10, "bit {bit}: {set}");
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
