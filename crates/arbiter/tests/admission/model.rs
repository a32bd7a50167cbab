//! Random asks, some nested and some alone, grants, charges, cancellations, resizes, changes of limits and removals of tenants. After each
//! the books must be right, by sums that are made anew from what the arbiter and the memory show.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;

use bursar::{Charge, Group};
use bursar_arbiter::{Admit, AdmitError, Arbiter, Ask, Grant};
use bursar_rig::random::Random;

use super::common::{MIB, arbiter, ask, poll, tenant, timeless};

const ROOT: u64 = 100;
const PASSES_MAX: u32 = 5;

struct Running {
    inside: Vec<Grant>,
    grant: Grant,
    charges: Vec<Charge>,
}

struct Asked {
    admit: Admit,
    name: String,
    tenant: Group,
    kind: Kind,
}

/// Size, score, and whether it is alone: those that are equal in all are served in turn.
type Kind = (u64, i32, bool);

struct Model {
    arbiter: Arbiter,
    tenants: Vec<Group>,
    waiting: Vec<Asked>,
    running: Vec<Running>,
    /// Charges whose grant has ended.
    left: Vec<Charge>,
    names: u64,
    /// Names of asks that are alone.
    alone: BTreeSet<String>,
    /// Bytes that were promised at each level when that was last looked at.
    promised: BTreeMap<String, u64>,
    random: Random,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut policy = timeless();
        policy.passes_max = PASSES_MAX;
        let arbiter = arbiter(ROOT, policy);
        let tenants = [("wide", u64::MAX), ("half", 50), ("narrow", 20)]
            .map(|(name, max)| tenant(&arbiter, name, max));
        Self {
            arbiter,
            tenants: tenants.into(),
            waiting: Vec::new(),
            running: Vec::new(),
            left: Vec::new(),
            names: 0,
            alone: BTreeSet::new(),
            promised: BTreeMap::new(),
            random: Random::new(seed),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn ask(&mut self) {
        let tenant = self.below(self.tenants.len());
        let tenant = self.tenants[tenant].clone();
        let most = [3, 20, 90][self.below(3)];
        let mib = 1 + self.random.below(most);
        let score = self.random.below(2) as i32;
        let width = 1 + self.random.below(4) as u32;
        self.names += 1;
        let name = format!("query-{}", self.names);
        let is_alone = self.below(8) == 0;
        let wanted = mib * MIB + self.random.below(20) * MIB;
        let part = mib * MIB / 2;
        let mut ask = Ask::new(&tenant, &name)
            .least(mib * MIB - part, part / u64::from(width))
            .wanted(wanted)
            .width(1..=width)
            .score(score);
        if is_alone {
            self.alone.insert(name.clone());
            ask = ask.alone();
        }
        let mut admit = self.arbiter.admit(ask);
        match poll(&mut admit) {
            Poll::Ready(answer) => self.answered(answer, &tenant),
            Poll::Pending => self.waiting.push(Asked {
                admit,
                name,
                tenant,
                kind: (mib * 100 + u64::from(width), score, is_alone),
            }),
        }
    }

    fn answered(&mut self, answer: Result<Grant, AdmitError>, tenant: &Group) {
        match answer {
            Ok(grant) => self.running.push(Running {
                inside: Vec::new(),
                grant,
                charges: Vec::new(),
            }),
            Err(AdmitError::NeverFits { max, least, .. }) => assert!(least > max),
            Err(AdmitError::Removed { .. } | AdmitError::Create(_)) if tenant.is_removed() => (),
            Err(error) => panic!("{error}"),
        }
    }

    /// Polls all that wait, in any order.
    fn poll_all(&mut self) {
        let still = self.arbiter.admissions().waiting;
        let is_waiting = |asked: &Asked| still.iter().any(|one| one.name == asked.name);
        let (mut decided, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|asked| !is_waiting(asked));
        // Those of one kind are served in turn: no earlier one waits.
        for one in &decided {
            let passed = waiting.iter().find(|other| {
                other.tenant == one.tenant
                    && other.kind == one.kind
                    && other.number() < one.number()
            });
            assert!(
                passed.is_none(),
                "{} was served before {}",
                one.name,
                passed.unwrap().name
            );
        }
        self.waiting = waiting;
        while !decided.is_empty() {
            let at = self.below(decided.len());
            let mut one = decided.swap_remove(at);
            let Poll::Ready(answer) = poll(&mut one.admit) else {
                panic!("{} is decided", one.name);
            };
            self.answered(answer, &one.tenant);
        }
    }

    /// Asks inside a grant, which never waits.
    fn ask_inside(&mut self, at: usize) {
        let mib = 1 + self.random.below(20);
        self.names += 1;
        let one = &mut self.running[at];
        let name = format!("inside-{}", self.names);
        match self.arbiter.try_admit(ask(one.grant.group(), &name, mib)) {
            Ok(grant) => one.inside.push(grant),
            Err(AdmitError::Nested { left, least, .. }) => assert!(least > left),
            Err(AdmitError::NeverFits { max, least, .. }) => assert!(least > max),
            Err(_) if one.grant.group().is_removed() => (),
            Err(error) => panic!("{error}"),
        }
    }

    /// Lowers or raises the limit of the root or of a tenant.
    fn change_limit(&mut self) {
        let (at, mib) = (self.below(4), 10 + self.random.below(ROOT));
        match self.tenants.get(at) {
            Some(tenant) => tenant.set_max(mib * MIB),
            None => self.arbiter.memory().root().set_max(mib * MIB),
        }
    }

    /// Removes a tenant, whatever runs or waits there, and makes another.
    fn remove_tenant(&mut self) {
        let at = self.below(self.tenants.len());
        self.names += 1;
        let name = format!("tenant-{}", self.names);
        let other = tenant(&self.arbiter, &name, 20 + self.random.below(60));
        let removed = std::mem::replace(&mut self.tenants[at], other);
        removed.close().expect("it is not the root");
    }

    fn step(&mut self) {
        let running = self.running.len();
        match self.below(16) {
            0..=3 if self.waiting.len() < 30 => self.ask(),
            4 if !self.waiting.is_empty() => {
                let at = self.below(self.waiting.len());
                drop(self.waiting.remove(at));
            }
            5 | 6 if running > 0 => {
                let at = self.below(running);
                let ended = self.running.swap_remove(at);
                if self.below(3) == 0 {
                    self.left.extend(ended.charges);
                }
            }
            7 | 8 if running > 0 => {
                let (at, mib) = (self.below(running), 1 + self.random.below(10));
                let one = &mut self.running[at];
                let grant = one.inside.last().unwrap_or(&one.grant);
                one.charges.extend(grant.try_charge(mib * MIB));
            }
            9 if running > 0 => {
                let at = self.below(running);
                let one = &mut self.running[at];
                one.charges.pop();
                one.inside.pop();
            }
            10 if running > 0 => {
                let (at, mib) = (self.below(running), self.random.below(40));
                let _ = self.running[at].grant.resize(mib * MIB);
            }
            11 | 12 if running > 0 => {
                let at = self.below(running);
                self.ask_inside(at);
            }
            13 => self.change_limit(),
            14 if self.below(4) == 0 => self.remove_tenant(),
            _ => {
                self.left.pop();
            }
        }
        self.arbiter.tick();
        self.check();
        self.poll_all();
    }

    fn check(&mut self) {
        let shown = self.arbiter.admissions();
        let mut promised: BTreeMap<String, u64> = BTreeMap::new();
        let mut uncharged: BTreeMap<String, u64> = BTreeMap::new();
        let mut grants: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for grant in &shown.grants {
            let (above, name) = grant.path.rsplit_once('/').expect("it is below a tenant");
            if name.starts_with("inside") {
                let inside = shown.grants.iter().filter(|one| {
                    one.path
                        .strip_prefix(above)
                        .is_some_and(|name| name.starts_with('/'))
                });
                let inside: u64 = inside.map(|one| one.bytes).sum();
                let around = shown.grants.iter().find(|one| one.path == above);
                let around = around.expect("it ends after those inside").bytes;
                assert!(inside <= around, "{inside} bytes inside of {around}");
                continue;
            }
            grants.entry(above).or_default().push(name);
            for level in [above, "/"].map(str::to_owned) {
                *promised.entry(level.clone()).or_default() += grant.bytes;
                *uncharged.entry(level).or_default() += grant.bytes.saturating_sub(grant.charged);
            }
        }
        let alone_in = |tenant: &str| {
            let names = grants.get(tenant).map_or(&[][..], Vec::as_slice);
            let is_alone = names.iter().any(|&name| self.alone.contains(name));
            assert!(!is_alone || names.len() == 1, "{names:?} are alone");
            (is_alone, names.len())
        };
        grants.keys().for_each(|tenant| _ = alone_in(tenant));
        let room = |group: &Group| {
            let path = group.path();
            let path = if path.is_empty() { "/" } else { &path };
            let [promised, uncharged] =
                [&promised, &uncharged].map(|sums| sums.get(path).copied().unwrap_or(0));
            let max = group.limits().max;
            // A limit may be lowered below what is promised. Then that does not grow.
            let most = max.max(self.promised.get(path).copied().unwrap_or(0));
            assert!(
                promised <= most,
                "{path}: {promised} bytes are promised of {max}"
            );
            max.saturating_sub(promised.max(group.reserved() + uncharged))
        };
        let root_max = self.arbiter.memory().root().limits().max;
        let root = room(&self.arbiter.memory().root());
        let rooms: BTreeMap<String, u64> = self
            .tenants
            .iter()
            .map(|tenant| (tenant.path(), room(tenant).min(root)))
            .collect();
        for one in &shown.waiting {
            assert!(one.passed <= PASSES_MAX, "{one:?} was passed too often");
        }
        if !shown.waiting.iter().any(|one| one.is_kept_room) {
            // Every ask that fits is served: `floor` partitions of `width`, without time.
            for one in &shown.waiting {
                let asked = self
                    .waiting
                    .iter()
                    .find(|asked| asked.name == one.name)
                    .expect("it waits");
                let width = asked.kind.0 % 100;
                let mib = asked.kind.0 / 100 * MIB;
                let part = mib / 2;
                // Half its wish, but no more than the tenant may ever have.
                let max = asked.tenant.limits().max.min(root_max);
                let ever = (max + part - mib)
                    .checked_div(part / width)
                    .unwrap_or(width);
                let floor = (width * 50).div_ceil(100).min(ever).max(1);
                // Nobody is admitted beside one that is alone.
                let (is_alone, grants) = alone_in(&one.group);
                if is_alone || asked.kind.2 && grants > 0 {
                    continue;
                }
                let needed = mib - part + part / width * floor;
                let room = rooms[&one.group];
                assert!(needed > room, "{one:?} needs {needed} and there are {room}");
            }
        }
        self.promised = promised;
    }
}

impl Asked {
    fn number(&self) -> u64 {
        self.name["query-".len()..].parse().expect("a number")
    }
}

#[test]
fn the_books_are_right_after_each_of_many_random_steps() {
    let seed = std::env::var("BURSAR_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in seed..seed + 40 {
        println!("replay with BURSAR_SEED={seed}");
        let mut model = Model::new(seed);
        for _ in 0..400 {
            model.step();
        }
        model.left.clear();
        while !model.waiting.is_empty() || !model.running.is_empty() {
            model.running.clear();
            model.arbiter.tick();
            model.check();
            let waiting = model.waiting.len();
            model.poll_all();
            assert!(
                model.waiting.len() < waiting || waiting == 0,
                "nobody is served, and nobody runs"
            );
        }
        let shown = model.arbiter.admissions();
        assert_eq!((shown.grants, shown.waiting), (vec![], vec![]));
        assert_eq!(shown.counts.admitted, shown.counts.ended);
    }
}
