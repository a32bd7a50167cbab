//! Random asks, grants, charges, cancellations and resizes. After each the books must be right, by sums that
//! are made anew from what the arbiter and the memory show.

use std::collections::BTreeMap;
use std::task::Poll;

use bursar::{Charge, Group};
use bursar_arbiter::{Admit, AdmitError, Arbiter, Ask, Grant};
use bursar_rig::random::Random;

use super::common::{MIB, arbiter, poll, tenant, timeless};

const ROOT: u64 = 100;
const PASSES_MAX: u32 = 5;

struct Running {
    grant: Grant,
    charges: Vec<Charge>,
}

struct Asked {
    admit: Admit,
    name: String,
    tenant: usize,
    /// Size and score: those that are equal in both are served in turn.
    kind: (u64, i32),
}

struct Model {
    arbiter: Arbiter,
    tenants: Vec<Group>,
    waiting: Vec<Asked>,
    running: Vec<Running>,
    /// Charges whose grant has ended.
    left: Vec<Charge>,
    names: u64,
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
            random: Random::new(seed),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn ask(&mut self) {
        let tenant = self.below(self.tenants.len());
        let most = [3, 20, 90][self.below(3)];
        let mib = 1 + self.random.below(most);
        let score = self.random.below(2) as i32;
        let width = 1 + self.random.below(4) as u32;
        self.names += 1;
        let name = format!("query-{}", self.names);
        let wanted = mib * MIB + self.random.below(20) * MIB;
        let part = mib * MIB / 2;
        let ask = Ask::new(&self.tenants[tenant], &name)
            .least(mib * MIB - part, part / u64::from(width))
            .wanted(wanted)
            .width(1..=width)
            .score(score);
        let mut admit = self.arbiter.admit(ask);
        match poll(&mut admit) {
            Poll::Ready(answer) => self.answered(answer, None),
            Poll::Pending => self.waiting.push(Asked {
                admit,
                name,
                tenant,
                kind: (mib * 100 + u64::from(width), score),
            }),
        }
    }

    fn answered(&mut self, answer: Result<Grant, AdmitError>, waited: Option<(usize, (u64, i32))>) {
        match answer {
            Ok(grant) => self.running.push(Running {
                grant,
                charges: Vec::new(),
            }),
            Err(AdmitError::NeverFits { max, least, .. }) => assert!(least > max),
            Err(error) => panic!("{waited:?}: {error}"),
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
            self.answered(answer, Some((one.tenant, one.kind)));
        }
    }

    fn step(&mut self) {
        let running = self.running.len();
        match self.below(12) {
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
                one.charges.extend(one.grant.try_charge(mib * MIB));
            }
            9 if running > 0 => {
                let at = self.below(running);
                let one = &mut self.running[at];
                one.charges.pop();
            }
            10 if running > 0 => {
                let (at, mib) = (self.below(running), self.random.below(40));
                let _ = self.running[at].grant.resize(mib * MIB);
            }
            _ => {
                self.left.pop();
            }
        }
        self.arbiter.tick();
        self.check();
        self.poll_all();
    }

    fn check(&self) {
        let shown = self.arbiter.admissions();
        let mut promised: BTreeMap<String, u64> = BTreeMap::new();
        let mut uncharged: BTreeMap<String, u64> = BTreeMap::new();
        for grant in &shown.grants {
            // One that nobody has polled for yet is shown by its name.
            let tenant = match grant.path.rsplit_once('/') {
                Some((tenant, _)) => tenant.to_owned(),
                None => {
                    let asked = self.waiting.iter().find(|asked| asked.name == grant.path);
                    self.tenants[asked.expect("somebody asked").tenant].path()
                }
            };
            for level in [tenant, "/".to_owned()] {
                *promised.entry(level.clone()).or_default() += grant.bytes;
                *uncharged.entry(level).or_default() += grant.bytes.saturating_sub(grant.charged);
            }
        }
        let room = |group: &Group| {
            let path = group.path();
            let path = if path.is_empty() { "/" } else { &path };
            let [promised, uncharged] =
                [&promised, &uncharged].map(|sums| sums.get(path).copied().unwrap_or(0));
            let max = group.limits().max;
            assert!(
                promised <= max,
                "{path}: {promised} bytes are promised of {max}"
            );
            max.saturating_sub(promised.max(group.reserved() + uncharged))
        };
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
                let max = [ROOT, 50, 20][asked.tenant] * MIB;
                let ever = (max + part - mib)
                    .checked_div(part / width)
                    .unwrap_or(width);
                let floor = (width * 50).div_ceil(100).min(ever).max(1);
                let needed = mib - part + part / width * floor;
                let room = rooms[&one.group];
                assert!(needed > room, "{one:?} needs {needed} and there are {room}");
            }
        }
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
