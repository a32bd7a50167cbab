//! The rows of the view: their order, folds, filter and rates. Pure data.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::document::{Document, Group};

/// Looks that the history of a group keeps.
const HISTORY: usize = 240;
/// Groups that have a history: the first ones in the order of the server.
const WITH_HISTORY: usize = 2_000;
/// Groups from which on only the first level is unfolded at first.
const UNFOLDED_MAX: usize = 200;

/// Order of siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Usage,
    Share,
    Pressure,
    Refusals,
    Name,
}

impl Sort {
    pub const ALL: [Self; 5] = [
        Self::Usage,
        Self::Share,
        Self::Pressure,
        Self::Refusals,
        Self::Name,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Share => "share of limit",
            Self::Pressure => "pressure",
            Self::Refusals => "refusals",
            Self::Name => "name",
        }
    }

    /// The bigger first, but names from A on.
    fn compare(self, one: &Group, other: &Group) -> Ordering {
        let by = match self {
            Self::Usage => other.usage().cmp(&one.usage()),
            Self::Share => {
                let share = |group: &Group| group.share().unwrap_or(0.0);
                share(other).total_cmp(&share(one))
            }
            Self::Pressure => other.pressure().cmp(&one.pressure()),
            Self::Refusals => other.events.refused.cmp(&one.events.refused),
            Self::Name => Ordering::Equal,
        };
        by.then_with(|| one.path.cmp(&other.path))
    }
}

/// Changes of a group in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub usage_bytes: f64,
    pub refused: f64,
    pub reclaimed_bytes: f64,
}

/// A row that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Position of the group in the document.
    pub group: usize,
    pub is_folded: bool,
    pub has_children: bool,
}

/// Numbers of a group at the last look.
#[derive(Clone, Copy, Debug)]
struct Before {
    usage: u64,
    refused: u64,
    reclaimed_bytes: u64,
}

/// Everything that the screen shows.
#[derive(Debug, Default)]
pub struct Model {
    document: Option<Document>,
    before: BTreeMap<String, Before>,
    rates: Vec<Option<Rates>>,
    history: BTreeMap<String, VecDeque<u64>>,
    folded: BTreeSet<String>,
    is_unfolded: bool,
    pub sort: Sort,
    filter: String,
    rows: Vec<Row>,
    selected: usize,
}

impl Model {
    pub fn document(&self) -> Option<&Document> {
        self.document.as_ref()
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn selected(&self) -> usize {
        self.selected
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    pub fn group(&self, row: Row) -> &Group {
        &self.groups()[row.group]
    }

    fn groups(&self) -> &[Group] {
        self.document
            .as_ref()
            .map_or(&[], |document| &document.groups)
    }

    /// Shows all levels from the first look on.
    pub fn unfold_all(&mut self) {
        self.is_unfolded = true;
    }

    /// Changes since the look before; `None` at the first look at a group.
    pub fn rates(&self, row: Row) -> Option<Rates> {
        self.rates[row.group]
    }

    /// Usage of the selected group at each look, the oldest first.
    pub fn history(&self) -> Vec<u64> {
        let selected = self.rows.get(self.selected);
        let path = selected.map(|row| &self.group(*row).path);
        let history = path.and_then(|path| self.history.get(path));
        history.map_or_else(Vec::new, |usage| usage.iter().copied().collect())
    }

    /// Takes a new look. The selection stays on its group, if that is still there.
    pub fn update(&mut self, document: Document) {
        let is_same = self
            .document
            .as_ref()
            .is_some_and(|before| before.pid == document.pid);
        if !is_same {
            self.before.clear();
            self.history.clear();
            self.folded.clear();
            if document.groups.len() > UNFOLDED_MAX && !self.is_unfolded {
                let deep = document.groups.iter().filter(|group| group.depth == 1);
                self.folded.extend(deep.map(|group| group.path.clone()));
            }
        }
        let earlier = self.document.as_ref().filter(|_| is_same);
        let seconds = earlier.map_or(0.0, |earlier| {
            document.taken_unix_ns.saturating_sub(earlier.taken_unix_ns) as f64 / 1e9
        });
        let now = |group: &Group| Before {
            usage: group.usage(),
            refused: group.events.refused,
            reclaimed_bytes: group.events.reclaimed_bytes,
        };
        let rates = document.groups.iter().map(|group| {
            let (before, now) = (self.before.get(&group.path)?, now(group));
            // A group that was made anew counts from 0.
            let grown = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            (seconds > 0.0).then(|| Rates {
                usage_bytes: (now.usage as f64 - before.usage as f64) / seconds,
                refused: grown(now.refused, before.refused),
                reclaimed_bytes: grown(now.reclaimed_bytes, before.reclaimed_bytes),
            })
        });
        self.rates = rates.collect();
        self.before = document
            .groups
            .iter()
            .map(|group| (group.path.clone(), now(group)))
            .collect();
        let mut history = BTreeMap::new();
        for group in document.groups.iter().take(WITH_HISTORY) {
            let mut usage = self.history.remove(&group.path).unwrap_or_default();
            if usage.len() == HISTORY {
                usage.pop_front();
            }
            usage.push_back(group.usage());
            history.insert(group.path.clone(), usage);
        }
        self.history = history;
        let selected = self.selected_path();
        self.document = Some(document);
        self.arrange(selected);
    }

    fn selected_path(&self) -> Option<String> {
        self.rows
            .get(self.selected)
            .map(|row| self.group(*row).path.clone())
    }

    /// Makes the rows anew.
    fn arrange(&mut self, selected: Option<String>) {
        let groups = self.groups();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
        let mut way: Vec<usize> = Vec::new();
        // A group matches if its path has the text; then the groups on the way to it are shown, too.
        let needle = self.filter.to_lowercase();
        let mut matches = vec![needle.is_empty(); groups.len()];
        for (at, group) in groups.iter().enumerate() {
            way.truncate(group.depth);
            if let Some(&parent) = way.last() {
                children[parent].push(at);
            }
            way.push(at);
            if !needle.is_empty()
                && bursar::printable(&group.path)
                    .to_lowercase()
                    .contains(&needle)
            {
                way.iter().for_each(|&at| matches[at] = true);
            }
        }
        let mut rows = Vec::new();
        let mut left = if groups.is_empty() {
            Vec::new()
        } else {
            vec![0]
        };
        while let Some(at) = left.pop() {
            if !matches[at] {
                continue;
            }
            let below = &mut children[at];
            let has_children = !below.is_empty();
            // Rows that a filter finds are shown, folded or not.
            let is_folded =
                has_children && needle.is_empty() && self.folded.contains(&groups[at].path);
            rows.push(Row {
                group: at,
                is_folded,
                has_children,
            });
            if !is_folded {
                below.sort_by(|&one, &other| self.sort.compare(&groups[other], &groups[one]));
                left.append(below);
            }
        }
        let same =
            selected.and_then(|path| rows.iter().position(|row| groups[row.group].path == path));
        self.selected = same
            .unwrap_or(self.selected)
            .min(rows.len().saturating_sub(1));
        self.rows = rows;
    }

    /// Moves the selection by some rows.
    pub fn select(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Folds the selected group, or goes to the group above if it has nothing to fold. Unfolds with `false`.
    pub fn fold(&mut self, is_folded: bool) {
        let Some(&row) = self.rows.get(self.selected) else {
            return;
        };
        let group = self.group(row);
        let path = group.path.clone();
        if is_folded && (row.is_folded || !row.has_children) {
            let depth = group.depth;
            let above = self.rows[..self.selected]
                .iter()
                .rposition(|row| self.group(*row).depth < depth);
            self.selected = above.unwrap_or(self.selected);
            return;
        }
        match is_folded {
            true => self.folded.insert(path.clone()),
            false => self.folded.remove(&path),
        };
        self.arrange(Some(path));
    }

    pub fn sort_by_next(&mut self) {
        let at = Sort::ALL
            .iter()
            .position(|sort| *sort == self.sort)
            .unwrap_or(0);
        self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
        let selected = self.selected_path();
        self.arrange(selected);
    }

    pub fn set_filter(&mut self, filter: String) {
        let selected = self.selected_path();
        self.filter = filter;
        self.arrange(selected);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A group in the server's form.
    pub fn group(path: &str, usage: u64, max: Option<u64>, refused: u64, level: &str) -> Value {
        let depth = if path == "/" {
            0
        } else {
            path.matches('/').count()
        };
        json!({
            "path": path, "depth": depth, "limits": {"max": max, "low": 0, "min": 0},
            "reading": {"usage": {"value": usage}}, "peak": usage,
            "events": {"refused": refused, "reclaimed_bytes": 0}, "pressure": {"level": level},
        })
    }

    /// A document in the server's form.
    pub fn document(pid: u64, seconds: u64, groups: &[Value]) -> Document {
        let text = json!({
            "schema": 1, "kind": "bursar-tree", "pid": pid, "program": "server", "uptime_ns": seconds * 1_000_000_000,
            "taken_unix_ns": seconds * 1_000_000_000, "freshness": "exact", "groups": groups,
        });
        Document::parse(&text.to_string()).expect("a document")
    }

    pub fn two_tenants() -> Document {
        let groups = [
            group("/", 70 << 20, Some(96 << 20), 3, "none"),
            group("/acme", 40 << 20, Some(48 << 20), 3, "high"),
            group("/acme/dashboard", 10 << 20, None, 0, "none"),
            group("/acme/report\u{202e}\n", 30 << 20, None, 0, "none"),
            group("/umbrella", 30 << 20, None, 0, "none"),
        ];
        document(1, 1, &groups)
    }

    fn names(model: &Model) -> Vec<String> {
        let group = |&row| model.group(row).path.clone();
        model.rows().iter().map(group).collect()
    }

    /// Paths in order, by a recursion over all groups.
    fn expected(model: &Model, groups: &[Group], at: &Group, found: &mut Vec<String>) {
        let hides = |group: &Group| model.filter().is_empty() && model.folded.contains(&group.path);
        let is_shown = |group: &Group| group.path.contains(model.filter());
        let below = |group: &Group, of: &Group| {
            of.path == "/" && group.path != "/" || group.path.starts_with(&format!("{}/", of.path))
        };
        if !is_shown(at)
            && !groups
                .iter()
                .any(|group| below(group, at) && is_shown(group))
        {
            return;
        }
        found.push(at.path.clone());
        if hides(at) {
            return;
        }
        let mut children: Vec<&Group> = groups
            .iter()
            .filter(|group| below(group, at) && group.depth == at.depth + 1)
            .collect();
        children.sort_by(|one, other| model.sort.compare(one, other));
        children
            .iter()
            .for_each(|child| expected(model, groups, child, found));
    }

    #[test]
    fn rows_are_the_tree_in_order_without_what_is_folded_or_filtered() {
        let mut random = 7_u64;
        let mut below = move |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        for round in 0..200 {
            let mut paths = vec![String::new()];
            for number in 0..below(30) {
                let parent = paths[below(paths.len() as u64) as usize].clone();
                paths.push(format!("{parent}/g{}", number % 7 * 10 + number));
            }
            paths.sort_by(|one, other| one.split('/').cmp(other.split('/')));
            let mut made = |path: &String| {
                let path = if path.is_empty() { "/" } else { path };
                let level = ["none", "low", "high", "critical"][below(4) as usize];
                group(
                    path,
                    below(5) * 1000,
                    (below(2) == 0).then_some(4000),
                    below(3),
                    level,
                )
            };
            let groups: Vec<Value> = paths.iter().map(&mut made).collect();
            let mut model = Model::default();
            model.update(document(1, round, &groups));
            for _ in 0..20 {
                match below(5) {
                    0 => model.sort_by_next(),
                    1 => model.select(below(9) as isize - 4),
                    2 => model.fold(true),
                    3 => model.fold(false),
                    _ => model.set_filter(["", "g1", "3", "zzz"][below(4) as usize].to_owned()),
                }
                let groups = model.groups();
                let mut found = Vec::new();
                expected(&model, groups, &groups[0], &mut found);
                assert_eq!(names(&model), found);
                assert!(model.selected() < model.rows().len().max(1));
            }
        }
    }

    #[test]
    fn rates_are_changes_in_a_second() {
        let mut model = Model::default();
        let look = |seconds, usage, refused| {
            document(1, seconds, &[group("/", usage, None, refused, "none")])
        };
        model.update(look(10, 1000, 5));
        assert_eq!(model.rates(model.rows()[0]), None);
        model.update(look(12, 600, 11));
        let rates = Rates {
            usage_bytes: -200.0,
            refused: 3.0,
            reclaimed_bytes: 0.0,
        };
        assert_eq!(model.rates(model.rows()[0]), Some(rates));
        assert_eq!(model.history(), [1000, 600]);
        // Another server's numbers are no change of this one's.
        model.update(document(2, 13, &[group("/", 7, None, 0, "none")]));
        assert_eq!(
            (model.rates(model.rows()[0]), model.history()),
            (None, vec![7])
        );
    }

    #[test]
    fn the_selection_stays_on_its_group() {
        let mut model = Model::default();
        model.update(two_tenants());
        model.select(4);
        assert_eq!(model.group(model.rows()[4]).path, "/umbrella");
        let mut later = two_tenants();
        later.groups[4].reading.usage.value = 50 << 20;
        model.update(later);
        assert_eq!(
            model.group(model.rows()[model.selected()]).path,
            "/umbrella"
        );
        assert_eq!(model.selected(), 1);
    }

    #[test]
    fn many_groups_begin_folded() {
        let mut groups = vec![group("/", 1, None, 0, "none")];
        for tenant in 0..100 {
            groups.push(group(&format!("/t{tenant:03}"), 1, None, 0, "none"));
            groups.extend(
                (0..999)
                    .map(|query| group(&format!("/t{tenant:03}/q{query:02}"), 1, None, 0, "none")),
            );
        }
        let mut model = Model::default();
        model.update(document(1, 1, &groups));
        assert_eq!(model.rows().len(), 101);
        model.set_filter("q5".to_owned());
        // Of 999 queries, ten begin with "q5" and have two digits, a hundred three.
        assert_eq!(model.rows().len(), 101 + 100 * 110);
    }
}
