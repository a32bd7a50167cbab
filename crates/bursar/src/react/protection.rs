//! The part of a group's memory that reclaim leaves alone (`memory.min` and `memory.low`).
//!
//! A setting is the protection that a group asks for. Its *effective* protection is what it gets, never more than its parent
//! got. It is computed from the root of reclaim downwards, level by level:
//!
//! 1. A group *claims* the smaller of its usage and its setting.
//! 2. If the children claim more than their parent's effective protection, each gets the same part of it as its claim is of
//!    all claims.
//! 3. Otherwise each gets its claim. With [`Recursive::Yes`] the rest is shared by unclaimed usage, so that a setting on an
//!    inner group protects groups below it that have no settings.
//!
//! All of it works on readings taken at different moments. They may disagree: a parent may use less than its children claim.
//! The result is then off by no more than they are, and nothing overflows or divides by zero.
//!
//! After `mm/page_counter.c` (`page_counter_calculate_protection`) of Linux 7.3; 6.1 has it in `mm/memcontrol.c`. This counts
//! bytes where the kernel counts pages, so a division drops less than a byte, not less than a page.

use bursar_machine::Machine;

use super::core::Core;
use super::core::Recursive;
use super::lifetime::{self, Referred};
use crate::limit::Limits;

/// Values above a group on which its effective protection depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Above {
    /// Bytes used by the parent and all below it.
    pub usage: u64,
    /// The parent's own effective protection, bytes.
    pub effective: u64,
    /// The sum of the claims of the parent's children, this group among them, bytes: see [`claimed`].
    #[doc(alias = "children_low_usage")]
    #[doc(alias = "children_min_usage")]
    pub children_protected: u64,
}

/// Bytes of protection that a group claims of its parent's: none for memory that it does not use.
#[doc(alias = "propagate_protected_usage")]
pub(crate) fn claimed(usage: u64, setting: u64) -> u64 {
    usage.min(setting)
}

/// Bytes of a group that are protected when reclaim is about its parent's subtree.
///
/// The setting itself, because no group above competes; it may exceed the usage. A group without usage has none, so that it
/// offers its children no protection without memory behind it. (The kernel leaves the previous value there. That makes no
/// difference: there is no memory to reclaim.)
pub(crate) fn effective_below_root(usage: u64, setting: u64) -> u64 {
    if usage == 0 { 0 } else { setting }
}

/// Bytes of a group that are protected, two or more levels below the root of reclaim.
///
/// At most `usage`, unless the parent's effective protection exceeds the parent's usage; then it may exceed it likewise.
#[doc(alias = "effective_protection")]
#[doc(alias = "emin")]
#[doc(alias = "elow")]
pub(crate) fn effective(usage: u64, setting: u64, above: Above, recursive: Recursive) -> u64 {
    let claim = claimed(usage, setting);
    let claims = above.children_protected;
    if claims > above.effective {
        return part(above.effective, claim, claims);
    }
    // Readings that disagree may show claims above the parent's usage: then there is no other usage to share by.
    if recursive == Recursive::No || above.usage <= claims {
        return claim;
    }
    let unclaimed = above.effective - claims;
    claim.saturating_add(part(unclaimed, usage - claim, above.usage - claims))
}

/// Bytes that may be taken from a group: its usage beyond its effective protection.
#[doc(alias = "mem_cgroup_below_low")]
#[doc(alias = "mem_cgroup_below_min")]
pub(crate) fn reclaimable(usage: u64, effective: u64) -> u64 {
    usage.saturating_sub(effective)
}

/// `whole * of / all`, rounded down; `all` is not zero. Two factors of 64 bits fit in 128.
fn part(whole: u64, of: u64, all: u64) -> u64 {
    let part = u128::from(whole) * u128::from(of) / u128::from(all);
    part.try_into().unwrap_or(u64::MAX)
}

/// The effective protection of one group, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protected {
    pub(crate) min: u64,
    pub(crate) low: u64,
}

/// Visits the living groups below `scope` that are `wanted`, parents first, with their usage and their protection. Groups
/// below one that is not wanted are left out. `wanted` is called under a lock.
///
/// The kernel keeps the sums of siblings' claims up to date with every charge. Here they are computed on request, which
/// costs a look at each sibling and leaves charges alone. Usage changes meanwhile, as it does there.
pub(crate) fn walk<M: Machine>(
    core: &Core<M>,
    scope: u32,
    wanted: impl Fn(u32) -> bool,
    mut visit: impl FnMut(u32, u64, Protected),
) {
    let mut parents = vec![(lifetime::referred(core, scope), None)];
    while let Some((parent, above)) = parents.pop() {
        let (siblings, wanted) = siblings(core, parent.index, &wanted);
        let claimed = claimed_by(&siblings);
        for (sibling, child) in siblings.iter().zip(wanted) {
            let Some(child) = child else { continue };
            let protected = match above {
                // Reclaim of a group takes from it in spite of its own protection, so its children's claims count in full.
                None => Protected {
                    min: effective_below_root(sibling.usage, sibling.limits.min),
                    low: effective_below_root(sibling.usage, sibling.limits.low),
                },
                Some(above) => below(core, parent.index, above, claimed, sibling),
            };
            visit(child.index, sibling.usage, protected);
            parents.push((child, Some(protected)));
        }
    }
}

/// The living children of a group, and references to those that are wanted.
#[allow(clippy::type_complexity, reason = "two columns of one table")]
fn siblings<'a, M: Machine>(
    core: &'a Core<M>,
    parent: u32,
    wanted: &impl Fn(u32) -> bool,
) -> (Vec<Sibling>, Vec<Option<Referred<'a, M>>>) {
    let mut rows = (Vec::new(), Vec::new());
    core.tree().for_each_child(parent, |_, child| {
        rows.0.push(Sibling {
            usage: core.counters.usage(child),
            limits: core.counters.limits(child),
        });
        // The lock of the children is held, which keeps the record of each listed name.
        rows.1
            .push(wanted(child).then(|| lifetime::referred(core, child)));
    });
    rows
}

fn below<M: Machine>(
    core: &Core<M>,
    parent: u32,
    above: Protected,
    claimed: Protected,
    one: &Sibling,
) -> Protected {
    let usage = core.counters.usage(parent);
    let of = |setting, effective_above, children_protected| {
        let above = Above {
            usage,
            effective: effective_above,
            children_protected,
        };
        effective(one.usage, setting, above, core.policies.recursive)
    };
    Protected {
        min: of(one.limits.min, above.min, claimed.min),
        low: of(one.limits.low, above.low, claimed.low),
    }
}

/// The protection of a living group against reclaim of `scope`, which is above it.
pub(crate) fn of<M: Machine>(core: &Core<M>, scope: u32, index: u32) -> Protected {
    let mut found = Protected::default();
    let is_on_the_way = |at| core.tree().is_ancestor(at, index);
    walk(core, scope, is_on_the_way, |at, _, protected| {
        if at == index {
            found = protected;
        }
    });
    found
}

struct Sibling {
    usage: u64,
    limits: Limits,
}

/// The sums of siblings' claims.
fn claimed_by(siblings: &[Sibling]) -> Protected {
    let sum = |setting: fn(&Limits) -> u64| {
        siblings.iter().fold(0_u64, |sum, one| {
            sum.saturating_add(claimed(one.usage, setting(&one.limits)))
        })
    };
    Protected {
        min: sum(|limits| limits.min),
        low: sum(|limits| limits.low),
    }
}

#[cfg(test)]
mod tests {
    use bursar_rig::random::Random;

    use super::Recursive::{No, Yes};
    use super::*;

    const MAX: u64 = u64::MAX;

    fn above(usage: u64, effective: u64, children_protected: u64) -> Above {
        Above {
            usage,
            effective,
            children_protected,
        }
    }

    #[test]
    fn worked_cases() {
        // Usage, setting, what is above, recursive, effective.
        let cases = [
            // Siblings claim 60 + 30 of 60: two thirds each. Whether unclaimed protection is shared does not matter.
            (70, 60, above(100, 60, 90), Yes, 40),
            (30, 30, above(100, 60, 90), Yes, 20),
            (70, 60, above(100, 60, 90), No, 40),
            // The parent has none to give.
            (70, 60, above(100, 0, 90), Yes, 0),
            // 10 of 40 claimed: 30 left for 30 + 30 unclaimed, so half a byte for each byte.
            (40, 10, above(70, 40, 10), Yes, 25),
            (30, 0, above(70, 40, 10), Yes, 15),
            (40, 10, above(70, 40, 10), No, 10),
            (30, 0, above(70, 40, 10), No, 0),
            // Claims and protection are equal: neither scaled nor shared.
            (50, 20, above(90, 40, 40), Yes, 20),
            // A setting above the usage claims the usage: 20 of 50; the share is by usage beyond it, which is none.
            (20, 80, above(100, 50, 20), Yes, 20),
            // Its sibling has 80 beyond it and gets all that is left, 30 * 80 / 80.
            (80, 0, above(100, 50, 20), Yes, 30),
            // 10 * 1 / 3, rounded down.
            (1, 0, above(3, 10, 0), Yes, 3),
            // Nothing used, nothing set, nothing anywhere.
            (0, 50, above(100, 50, 20), Yes, 0),
            (50, 0, above(100, 0, 0), Yes, 0),
            (0, 0, above(0, 0, 0), Yes, 0),
            // The parent is protected beyond its usage, 100 for 50: so are the children, 100 * 20 / 50.
            (20, 0, above(50, 100, 0), Yes, 40),
            // The ends of the numbers: claims equal to the protection; half of it; all unclaimed.
            (MAX, MAX, above(MAX, MAX, MAX), Yes, MAX),
            (MAX, MAX, above(MAX, MAX / 2, MAX), Yes, MAX / 2),
            (MAX, 0, above(MAX, MAX, 0), Yes, MAX),
            (1 << 40, MAX, above(1 << 41, MAX, 1 << 40), No, 1 << 40),
            // Readings that disagree: the parent seems to use less than its children claim, or than one child.
            (70, 20, above(30, 90, 40), Yes, 20),
            (MAX, 1, above(2, MAX, 1), Yes, MAX),
        ];
        for (usage, setting, above, recursive, expected) in cases {
            let found = effective(usage, setting, above, recursive);
            assert_eq!(found, expected, "{usage} {setting} {above:?} {recursive:?}");
        }
    }

    #[test]
    fn three_levels() {
        // a (uses 100, asks for 60) holds b (70, 60) and c (30, 30); b holds d (40, 10) and e (30, none).
        let a = effective_below_root(100, 60);
        let of_a = above(100, a, claimed(70, 60) + claimed(30, 30));
        let (b, c) = (effective(70, 60, of_a, Yes), effective(30, 30, of_a, Yes));
        let of_b = above(70, b, claimed(40, 10) + claimed(30, 0));
        let (d, e) = (effective(40, 10, of_b, Yes), effective(30, 0, of_b, Yes));
        // 60 * 60 / 90 and 60 * 30 / 90; 10 + 30 * 30 / 60 and 30 * 30 / 60.
        assert_eq!([a, b, c, d, e], [60, 40, 20, 25, 15]);
        assert_eq!([reclaimable(40, d), reclaimable(30, e)], [15, 15]);
    }

    #[test]
    fn below_the_root_the_setting_stands() {
        let cases = [(10, 5, 5), (10, MAX, MAX), (10, 0, 0), (0, 5, 0)];
        for (usage, setting, expected) in cases {
            assert_eq!(effective_below_root(usage, setting), expected);
        }
        assert_eq!(reclaimable(10, MAX), 0);
    }

    /// Any number of up to 60 bits, small ones as likely as big ones, so that sums of a few fit.
    fn any(random: &mut Random) -> u64 {
        let shift = 4 + random.below(60);
        random.number() >> shift
    }

    #[test]
    fn families_share_what_there_is() {
        let mut random = Random::new(0x9607_ec7e);
        for _ in 0..50_000 {
            let mut children: Vec<(u64, u64)> = (0..=random.below(6))
                .map(|_| (any(&mut random), any(&mut random)))
                .collect();
            let own = if random.happens(2) {
                any(&mut random)
            } else {
                0
            };
            let used = own + children.iter().map(|child| child.0).sum::<u64>();
            let protected = match random.below(3) {
                0 => used,
                _ => any(&mut random).min(used),
            };
            let shared = |children: &[(u64, u64)], recursive| -> Vec<u64> {
                let claims = children.iter().map(|c| claimed(c.0, c.1)).sum();
                let above = above(used, protected, claims);
                (children.iter())
                    .map(|child| effective(child.0, child.1, above, recursive))
                    .collect()
            };
            for recursive in [Yes, No] {
                let parts = shared(&children, recursive);
                let sum: u64 = parts.iter().sum();
                let seen = format!("{children:?} of {used}, {protected}: {parts:?}");
                // Each division rounds down, so not even rounding gives more than there is.
                assert!(sum <= protected, "{seen}");
                assert!(
                    parts.iter().zip(&children).all(|(p, c)| *p <= c.0),
                    "{seen}"
                );
                // All of it is shared if all of the parent's usage is its children's: each drops less than one byte.
                if recursive == Yes && own == 0 {
                    assert!(sum + children.len() as u64 > protected, "{seen}");
                }
            }
            // Asking for more never gets less, although it changes the sum of claims as well.
            let before = [Yes, No].map(|recursive| shared(&children, recursive)[0]);
            children[0].1 += if random.happens(2) {
                1
            } else {
                any(&mut random)
            };
            let after = [Yes, No].map(|recursive| shared(&children, recursive)[0]);
            assert!(
                before[0] <= after[0] && before[1] <= after[1],
                "{children:?}"
            );
        }
    }
}
