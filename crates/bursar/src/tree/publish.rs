//! Adding to statistics, and marking the way to the root at the first update of a clean slot.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, Outcome, STATE, Shard, Slot, State};

use super::{LEVELS, Place, ROOT, Tree};

impl<M: Machine> Tree<M> {
    /// Shard of threads and CPUs without one of their own. It is never frozen.
    pub(crate) fn extra(&self) -> Shard {
        Shard(self.machine.cpus() as u32)
    }

    /// Whether a statistic is of this memory's declaration.
    #[inline(always)]
    pub(crate) fn declares(&self, place: Place) -> bool {
        place.fingerprint == self.layout.fingerprint
    }

    /// Adds to a statistic of a group, which is declared. Async-signal-safe.
    #[inline(always)]
    pub(crate) fn add(&self, index: u32, slot: &M::Slot, place: Place, delta: i64) {
        debug_assert!(self.declares(place));
        if place.is_eager {
            return self.add_eager(index, place, delta);
        }
        if place.batch > 0 {
            return self.add_batched(index, slot, place, delta);
        }
        let outcome = slot.add(usize::from(place.word), delta);
        if outcome != Outcome::Done {
            self.add_slowly(index, place.word, delta, outcome);
        }
    }

    #[cold]
    fn add_slowly(&self, index: u32, word: u16, delta: i64, mut outcome: Outcome) {
        let slot = &self.node(index).slot;
        let word = usize::from(word);
        while let Outcome::Unpublished { shard, committed } = outcome {
            let usable = self.publish(index, shard);
            if committed {
                return;
            }
            if !usable {
                slot.add_extra(word, delta);
                self.publish(index, self.extra());
                return;
            }
            outcome = slot.add(word, delta);
        }
    }

    #[inline(never)]
    fn add_eager(&self, index: u32, place: Place, delta: i64) {
        let word = usize::from(place.word);
        // Full: pairs with `read_eager`. A read that follows must see the addition.
        let add = |at: u32, word: usize| {
            self.node(at).eager[word].fetch_add_signed(delta, MemoryOrder::Full);
        };
        // The own part comes first, because a forked child sums the other parts from it.
        add(index, self.layout.eager + word);
        self.in_order(index, delta, |at| add(at, word));
    }

    /// Calls `add` with a group and all above it. A group has at no moment less than its children together: an addition comes from above,
    /// and a subtraction from below.
    fn in_order(&self, index: u32, delta: i64, add: impl FnMut(u32)) {
        if delta < 0 {
            return self.chain(index).for_each(add);
        }
        let mut way = [ROOT; LEVELS];
        let len = way
            .iter_mut()
            .zip(self.chain(index))
            .map(|(to, at)| *to = at);
        let len = len.count();
        way[..len].iter().rev().copied().for_each(add);
    }

    /// Adds, and reports to the ancestors when the unreported part has reached the batch.
    ///
    /// The report comes before the new base is set. A walk that samples the reports in between reads the words after
    /// that sample, so it folds the reported part.
    #[inline(never)]
    fn add_batched(&self, index: u32, slot: &M::Slot, place: Place, delta: i64) {
        let word = usize::from(place.word);
        let shard = loop {
            match slot.add_fetch(word, delta) {
                (Outcome::Unpublished { shard, committed }, _, _) => {
                    let usable = self.publish(index, shard);
                    if committed {
                        break shard;
                    }
                    if !usable {
                        slot.add_extra(word, delta);
                        self.publish(index, self.extra());
                        self.report(index, usize::from(place.index) + 1, delta.unsigned_abs());
                        return;
                    }
                }
                (_, shard, _) => break shard,
            }
        };
        // Acquire: pairs with the exchange of the base below, by another thread.
        let base = slot.word(shard, word + 1);
        let seen = base.load_signed(MemoryOrder::Acquire);
        // Full: pairs with `add_fetch` of other threads. Read after the base: with an older sum, the base could move backwards.
        let sum = slot.word(shard, word).load_signed(MemoryOrder::Full);
        let unreported = sum.wrapping_sub(seen).unsigned_abs();
        if unreported >= place.batch {
            // The sum may include what another thread has added and not published yet. A walk that sees the report
            // must visit this shard, or the reported part lies outside the range.
            self.publish(index, shard);
            self.report(index, usize::from(place.index) + 1, unreported);
            // Full: the report is made before the base moves. If another thread moved the base, both threads reported,
            // which only widens the error bar.
            let _ = base.compare_exchange(seen as u64, sum as u64, MemoryOrder::Full);
        }
    }

    fn report(&self, index: u32, column: usize, magnitude: u64) {
        for at in self.chain(index) {
            // Full: pairs with the sample that a walk takes before it reads the words.
            self.node(at).reported[column].fetch_add(magnitude, MemoryOrder::Full);
        }
    }

    /// In a forked child: sets a group's eager statistics to the sum of its own part and its children's. A thread that
    /// was on its way to the root at the fork is gone.
    pub(crate) fn sum_eager(&self, index: u32) {
        let node = self.node(index);
        let (totals, own) = node.eager.split_at(self.layout.eager);
        // The lock is kept: no other thread exists, and a copy of the list would be an allocation, which may change the
        // sums.
        let children = node.children.lock();
        let children = || children.ordinals.iter().flatten();
        for (word, total) in totals.iter().enumerate() {
            // Full, here and below: pairs with `add_eager` in a signal handler. No other thread exists.
            let read = |word: &M::Word| word.load(MemoryOrder::Full);
            let sum = || {
                let parts = children().map(|&child| read(&self.node(child).eager[word]));
                parts.fold(read(&own[word]), u64::wrapping_add)
            };
            // Full, as above: a signal handler may add to any of these in between.
            loop {
                let (before, now) = (sum(), read(total));
                if sum() == before
                    && total
                        .compare_exchange(now, before, MemoryOrder::Full)
                        .is_ok()
                {
                    break;
                }
            }
        }
    }

    /// In a forked child: publishes a shard in a new epoch, and reports what its batched statistics hold back. The
    /// thread that was about to do so is gone.
    pub(crate) fn publish_anew(&self, index: u32, shard: Shard) {
        let slot = &self.node(index).slot;
        self.node(index).clean(shard);
        self.publish(index, shard);
        for (column, declared) in self.layout.columns.iter().enumerate() {
            if let (Some(word), 1..) = (declared.word, declared.batch) {
                // Full: pairs with `add_fetch` in a signal handler. No other thread exists.
                let read = |word| slot.word(shard, word).load_signed(MemoryOrder::Full);
                let unreported = read(word).wrapping_sub(read(word + 1)).unsigned_abs();
                // The base stays, because reporting twice only widens the error bar.
                if unreported >= declared.batch {
                    self.report(index, column, unreported);
                }
            }
        }
    }

    /// Publishes `shard` of a group: marks its CPU in the group, and the way from the group to the root. Returns
    /// whether the shard's account may be used, which means that it is not frozen.
    ///
    /// Async-signal-safe: a caller that finds a publication half-way makes the whole way itself. It may have
    /// interrupted that publication.
    #[cold]
    pub(crate) fn publish(&self, index: u32, shard: Shard) -> bool {
        let state = self.node(index).slot.word(shard, STATE);
        loop {
            // Full: pairs with the clean in `retire.rs`, and with the look there after the mark is removed. If this load comes after
            // the clean, either that look finds our publication, or the marks below are set after it.
            let seen = State(state.load(MemoryOrder::Full));
            if seen.tag() == State::PUBLISHED {
                return !seen.is_frozen();
            }
            let publishing = seen.with_tag(State::PUBLISHING);
            // Full: pairs with the clean, as the load does.
            if seen.tag() == State::CLEAN
                && state
                    .compare_exchange(seen.0, publishing.0, MemoryOrder::Full)
                    .is_err()
            {
                continue;
            }
            self.mark_to_root(index, shard);
            self.finish_publishing(state, publishing);
        }
    }

    /// Turns `PUBLISHING` into `PUBLISHED`, unless the slot was cleaned since: our marks may be gone.
    fn finish_publishing(&self, state: &M::Word, publishing: State) {
        // Full, both: pair with `Node::clean` and `Node::clean_published`, and with each look for `PUBLISHED`, which then finds our marks.
        let mut now = State(state.load(MemoryOrder::Full));
        while now.tag() == State::PUBLISHING && now.epoch() == publishing.epoch() {
            match state.compare_exchange(now.0, now.with_tag(State::PUBLISHED).0, MemoryOrder::Full)
            {
                Ok(_) => return,
                Err(other) => now = State(other),
            }
        }
    }

    fn mark_to_root(&self, index: u32, shard: Shard) {
        self.node(index).published.mark(shard.0);
        let mut at = self.node(index);
        while let Some(parent) = at.parent() {
            let above = self.node(parent);
            // Never stop at a mark that is set already; see `marks.rs`.
            above.dirty.mark(at.ordinal());
            at = above;
        }
        // Full, after the marks: pairs with `Node::sample` and `by_roster`. A walk that samples this publication before it looks at
        // the marks also finds ours.
        for at in self.chain(index) {
            self.node(at).publications.fetch_add(1, MemoryOrder::Full);
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::fixture::{
        BATCHED, OPEN, ROWS, SHUT, add, child, marked, place, state, tree,
    };
    use super::super::{Keep, exact};
    use super::*;

    fn reported(tree: &Tree<Host>, index: u32) -> u64 {
        let column = usize::from(place(BATCHED).index) + 1;
        tree.node(index).reported[column].load(MemoryOrder::Full)
    }

    #[test]
    fn eager_statistics_have_totals_and_own_parts_each() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        add(&tree, group, OPEN, 5);
        add(&tree, group, SHUT, -7);
        add(&tree, ROOT, SHUT, 100);
        let read = |index| {
            let reading = exact(&tree, index, Keep::Roster).expect("reads may walk");
            [OPEN, SHUT].map(|gauge| (reading.get(gauge).value, reading.own(gauge)))
        };
        assert_eq!(read(group), [(5, 5), (-7, -7)]);
        assert_eq!(read(ROOT), [(5, 0), (93, 100)]);
    }

    #[test]
    fn eager_additions_come_from_above_and_subtractions_from_below() {
        let tree = tree();
        let tenant = child(&tree, ROOT, "tenant");
        let query = child(&tree, tenant, "query");
        let order = |delta| {
            let mut order = Vec::new();
            tree.in_order(query, delta, |at| order.push(at));
            order
        };
        assert_eq!(order(1), [ROOT, tenant, query]);
        assert_eq!(order(-1), [query, tenant, ROOT]);
    }

    /// As in a forked child: the thread that was on its way to the root is gone.
    #[test]
    fn eager_totals_are_summed_anew_from_own_parts() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        add(&tree, group, OPEN, 5);
        add(&tree, group, SHUT, 6);
        add(&tree, ROOT, SHUT, 10);
        let totals = |index| &tree.node(index).eager[..tree.layout.eager];
        for index in [group, ROOT] {
            let of = totals(index);
            of.iter().for_each(|word| word.store(99, MemoryOrder::Full));
            tree.sum_eager(index);
        }
        let read = |index| {
            totals(index)
                .iter()
                .map(|word| word.load(MemoryOrder::Full))
        };
        assert!(read(group).eq([5, 6]));
        assert!(read(ROOT).eq([5, 16]));
    }

    /// The first addition finds the slot clean. It stays on its CPU all the same.
    #[test]
    fn a_batch_is_reported_when_it_is_full() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        add(&tree, group, BATCHED, 99);
        let own = Shard(marked(&tree, group)[0]);
        let word = usize::from(place(BATCHED).word);
        let added = tree.node(group).slot.word(own, word);
        assert_eq!(added.load_signed(MemoryOrder::Full), 99);
        assert_eq!(marked(&tree, group).len(), 1);
        assert_eq!((reported(&tree, group), reported(&tree, ROOT)), (0, 0));
        add(&tree, group, BATCHED, 1);
        assert_eq!((reported(&tree, group), reported(&tree, ROOT)), (100, 100));
        add(&tree, group, BATCHED, 60);
        add(&tree, group, BATCHED, -50);
        assert_eq!(reported(&tree, ROOT), 100);
    }

    /// The extra shard holds nothing back: each addition there is reported.
    #[test]
    fn a_frozen_shard_gives_its_additions_to_the_extra_shard() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        add(&tree, group, ROWS, 1);
        let extra = tree.extra();
        let own = Shard(marked(&tree, group)[0]);
        let slot = &tree.node(group).slot;
        let freeze = |bits| slot.word(own, STATE).fetch_or(bits, MemoryOrder::Full);
        freeze(State::FROZEN);
        add(&tree, group, BATCHED, 30);
        let word = usize::from(place(BATCHED).word);
        let of = |shard| slot.word(shard, word).load_signed(MemoryOrder::Full);
        // Without sections an addition may still commit where the shard is frozen.
        if of(own) == 0 {
            assert_eq!(of(extra), 30);
            assert_eq!((reported(&tree, group), reported(&tree, ROOT)), (30, 30));
        }
        let reading = exact(&tree, ROOT, Keep::Roster).expect("reads may walk");
        assert_eq!(reading.get(BATCHED).value, 30);
    }

    /// A task that began to publish in an epoch does not end the publication of another.
    #[test]
    fn a_publication_ends_in_its_own_epoch() {
        let tree = tree();
        let extra = tree.extra();
        let word = tree.node(ROOT).slot.word(extra, STATE);
        let begun = State(0).with_tag(State::PUBLISHING);
        let next = State(0).cleaned().with_tag(State::PUBLISHING);
        word.store(next.0, MemoryOrder::Full);
        tree.finish_publishing(word, begun);
        assert_eq!(state(&tree, ROOT, extra), next);
        tree.finish_publishing(word, next);
        assert_eq!(state(&tree, ROOT, extra), next.with_tag(State::PUBLISHED));
    }

    #[test]
    fn a_shard_that_is_published_anew_reports_what_it_held_back() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        let (slot, extra) = (&tree.node(group).slot, tree.extra());
        let word = usize::from(place(BATCHED).word);
        let epoch = || state(&tree, group, extra).epoch();
        let before = epoch();
        slot.add_extra(word, 150);
        slot.word(extra, word + 1).store(60, MemoryOrder::Full);
        // A batch is 100, and 90 are not reported.
        tree.publish_anew(group, extra);
        assert_eq!(marked(&tree, group), [extra.0]);
        assert_eq!(state(&tree, group, extra).tag(), State::PUBLISHED);
        assert_eq!((reported(&tree, group), reported(&tree, ROOT)), (0, 0));
        slot.add_extra(word, -190);
        // Now 100 are not reported, downwards.
        tree.publish_anew(group, extra);
        assert_eq!((reported(&tree, group), reported(&tree, ROOT)), (100, 100));
        assert_eq!(epoch(), State(before).cleaned().cleaned().epoch());
    }
}
