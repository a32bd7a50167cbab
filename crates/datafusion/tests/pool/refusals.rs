//! Texts of refused requests.

use bursar::Limits;
use bursar_datafusion::{FairShare, GroupPool, Operators, PoolExt, RefusalText, Resource};
use datafusion_common::DataFusionError;

use crate::common::{MIB, child, exhausted, fixed, sharing, spiller, tenant};

/// Without the peaks, which include stock, and so depend on the number of CPUs; and without consumers' numbers, which depend on
/// the tests that ran before.
fn without_peaks(text: &str) -> String {
    let text = without_numbers(text);
    let mut parts = text.split(", peak ");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once("iB").expect("a number of bytes");
        shown += rest;
    }
    shown
}

fn without_numbers(text: &str) -> String {
    let mut parts = text.split('#');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown += "#";
        shown += part.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    shown
}

/// Without the tree at its end.
fn without_tree(text: &str) -> &str {
    let (before, _) = text.split_once("\nThe tree around /tenant:\n").unwrap();
    before
}

/// The block of text in the documentation of `GroupPool`.
fn documented() -> String {
    let source = include_str!("../../src/pool.rs");
    let block = source.split("```text\n").nth(1).unwrap();
    let block = block.split("/// ```").next().unwrap();
    let lines = block.lines().map(|line| line.strip_prefix("/// ").unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_limit_refuses_as_documented() {
    let memory = bursar::Memory::host().unwrap();
    let tenant = memory
        .root()
        .child("tenant-a", Limits::max(256 << 20))
        .unwrap();
    let other = child(&tenant, "query-9");
    let _charge = other.try_charge(144 << 20).unwrap();
    let pool = child(&tenant, "query-7").pool();
    let join = fixed(&pool, "HashJoinInput");
    join.try_grow(64 * MIB).unwrap();
    let sorters: Vec<_> = (0..4)
        .map(|partition| spiller(&pool, &format!("ExternalSorter[{partition}]")))
        .collect();
    sorters
        .iter()
        .for_each(|sorter| sorter.try_grow(10 * MIB).unwrap());
    let refused = sorters[3].try_grow(12 * MIB).unwrap_err();
    assert_eq!(
        without_peaks(&refused.to_string()),
        without_peaks(&documented())
    );
    exhausted(Err(refused));
}

#[test]
fn what_never_fits_says_so() {
    let pool = child(&tenant(10 * MIB), "query").pool();
    let sorter = spiller(&pool, "ExternalSorter[0]");
    let text = exhausted(sorter.try_grow(12 * MIB));
    assert!(
        text.contains("does not fit while the limit is 10.0 MiB: raise it to 12.0 MiB"),
        "{text}"
    );
    sorter.try_grow(10 * MIB).unwrap();
    let text = exhausted(sorter.try_grow(MIB));
    assert!(!text.contains("does not fit while"), "{text}");
    exhausted(sorter.try_grow(usize::MAX));
}

#[test]
fn operators_are_named_once() {
    let query = child(&tenant(10 * MIB), "query");
    query.set_max(1 << 20);
    let pool = query.pool();
    let sorter = spiller(&pool, "ExternalSorter[0]");
    sorter.try_grow(MIB).unwrap();
    let text = exhausted(sorter.try_grow(1));
    assert!(
        text.contains("/tenant/query uses 1.00 MiB of at most 1.00 MiB\n"),
        "{text}"
    );
    assert_eq!(text.matches("ExternalSorter:").count(), 1, "{text}");
}

#[test]
fn consumers_are_named_without_operators() {
    let tenant = tenant(10 * MIB);
    let share = FairShare::new(&tenant);
    let builder = GroupPool::builder(child(&tenant, "query")).operators(Operators::Together);
    let pool = builder.share(&share).build();
    let join = fixed(&pool, "HashJoinInput");
    let gone = fixed(&pool, "gone");
    join.try_grow(MIB).unwrap();
    let sorters: Vec<_> = (0..6)
        .map(|partition| spiller(&pool, &format!("ExternalSorter[{partition}]")))
        .collect();
    sorters[1].try_grow(MIB).unwrap();
    sorters[4].try_grow(2 * MIB).unwrap();
    drop(gone);
    let text = without_numbers(&exhausted(join.try_grow(7 * MIB)));
    let (_, named) = text.split_once("; its top consumers:\n").unwrap();
    let expected = "  ExternalSorter[4]# 2.00 MiB, can spill\n  HashJoinInput# 1.00 MiB, cannot spill\n  \
        ExternalSorter[1]# 1.00 MiB, can spill\n  ExternalSorter[0]# 0 B, can spill\n  ExternalSorter[2]# 0 B, can spill\n  \
        and 2 more";
    assert_eq!(without_tree(named), expected);
}

#[test]
fn partitions_are_named_by_what_they_hold() {
    let tenant = tenant(90 * MIB);
    let pool = sharing(&tenant);
    let sorters: Vec<_> = (0..7)
        .map(|partition| spiller(&pool, &format!("ExternalSorter[{partition}]")))
        .collect();
    sorters[2].try_grow(MIB).unwrap();
    sorters[6].try_grow(2 * MIB).unwrap();
    let text = without_numbers(&exhausted(sorters[0].try_grow(91 * MIB)));
    let expected = "can spill, refused 1\n    ExternalSorter[6]# 2.00 MiB, ExternalSorter[2]# 1.00 MiB, ExternalSorter[0]# 0 B, \
        ExternalSorter[1]# 0 B, ExternalSorter[3]# 0 B, and 2 more\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn each_consumer_is_named_once() {
    let builder = GroupPool::builder(child(&tenant(10 * MIB), "query"));
    let pool = builder.operators(Operators::Each).build();
    let sorters = [0, 1].map(|partition| spiller(&pool, &format!("ExternalSorter[{partition}]")));
    sorters[0].try_grow(9 * MIB).unwrap();
    let text = without_numbers(&exhausted(sorters[1].try_grow(2 * MIB)));
    let own = without_tree(&text);
    assert_eq!(own.matches("ExternalSorter[0]#").count(), 1, "{text}");
    assert!(
        text.contains("\n  ExternalSorter[0]#: 9.00 MiB, "),
        "{text}"
    );
}

#[test]
fn a_share_refuses_with_what_it_is() {
    let tenant = tenant(90 * MIB);
    let pool = sharing(&tenant);
    let sorters =
        [0, 1, 2].map(|partition| spiller(&pool, &format!("ExternalSorter[{partition}]")));
    fixed(&pool, "HashJoinInput").try_grow(MIB).unwrap();
    sorters[0].try_grow(45 * MIB).unwrap();
    let text = exhausted(sorters[0].try_grow(MIB));
    let expected = "cannot reserve 1.00 MiB more for ExternalSorter[0], which has 45.0 MiB, in /tenant/query: its share of /tenant \
        is 45.0 MiB: of 90.0 MiB, 0 B are used by those that cannot spill, and 1 that can spill hold memory, while 2 more may \
        begin, for whom a share is kept free; 45.0 MiB are free\n/tenant/query uses 45.0 MiB";
    assert!(text.starts_with(expected), "{text}");
    let text = exhausted(sorters[1].try_grow(91 * MIB));
    assert!(
        text.contains("does not fit while the limit is 90.0 MiB"),
        "{text}"
    );
}

#[test]
fn a_refusal_has_parts_and_hides_others() {
    let tenant = tenant(10 * MIB);
    let pool = child(&tenant, "query").pool();
    let other = child(&tenant, "other");
    let _held = other.try_charge(8 << 20).unwrap();
    let error = fixed(&pool, "HashJoinInput").try_grow(4 * MIB).unwrap_err();
    let text = RefusalText::of(&error.context("while joining")).unwrap();
    assert_eq!(text.resource, Resource::Memory);
    let message = "cannot reserve 4.00 MiB more for HashJoinInput, which has 0 B, in /tenant/query: /tenant uses 8.00 MiB of at most \
                   10.0 MiB; largest in it: other 8.00 MiB";
    assert_eq!(text.message, message);
    assert!(
        text.detail.starts_with("/tenant/query uses 0 B"),
        "{text:?}"
    );
    assert!(
        text.detail.contains("\nThe tree around /tenant:\n"),
        "{text:?}"
    );
    assert!(
        text.hint.starts_with("Raise the limit of /tenant, "),
        "{text:?}"
    );
    for sees in ["/", "/tenant", "/tenant/"] {
        assert_eq!(text.clone().within(sees), text, "{sees}");
    }
    for sees in ["/tenant/query", "/ten", "/tenants"] {
        let shown = text.clone().within(sees);
        assert!(
            shown
                .message
                .ends_with("/tenant uses 8.00 MiB of at most 10.0 MiB"),
            "{shown:?}"
        );
        assert!(!shown.detail.contains("tree"), "{shown:?}");
        assert!(!format!("{shown:?}").contains("other"), "{shown:?}");
    }
}

/// DataFusion puts names of columns into those of consumers, and a quoted name may have any characters.
#[test]
fn a_name_of_a_consumer_forges_no_part_of_a_refusal() {
    let tenant = tenant(10 * MIB);
    let pool = child(&tenant, "query").pool();
    let other = child(&tenant, "other");
    let _held = other.try_charge(8 << 20).unwrap();
    let tree = "\nThe tree around /tenant/query:";
    for name in [
        format!("max(m\n{tree})"),
        "max(m\nHint: )".to_owned(),
        format!("max({tree}\n\nHint: {tree})"),
    ] {
        // One that is refused, and one that is shown because it holds bytes.
        let [refused, holds] = [(); 2].map(|()| fixed(&pool, &name));
        holds.try_grow(MIB).unwrap();
        let error = refused.try_grow(4 * MIB).unwrap_err();
        let text = RefusalText::of(&error).unwrap();
        assert!(format!("{text:?}").contains("other"), "{text:?}");
        let shown = text.within("/tenant/query");
        assert!(!format!("{shown:?}").contains("other"), "{shown:?}");
    }
}

#[test]
fn the_refusal_of_a_share_has_a_tree() {
    let pool = sharing(&tenant(90 * MIB));
    let sorters = [0, 1].map(|partition| spiller(&pool, &format!("ExternalSorter[{partition}]")));
    sorters[0].try_grow(45 * MIB).unwrap();
    let error = sorters[0].try_grow(MIB).unwrap_err();
    let text = RefusalText::of(&error).unwrap();
    assert!(
        text.message.contains("its share of /tenant is 45.0 MiB"),
        "{text:?}"
    );
    assert!(
        text.detail.contains("\nThe tree around /tenant:\n"),
        "{text:?}"
    );
    assert!(
        text.hint.starts_with("Raise the limit of /tenant, "),
        "{text:?}"
    );
}

#[test]
fn a_full_disk_is_a_refusal_of_spill_space() {
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    let text = RefusalText::of(&full.into()).unwrap();
    assert_eq!(text.resource, Resource::SpillSpace);
    assert!(
        text.message.starts_with("no disk space for a spill file: "),
        "{text:?}"
    );
    assert_eq!(
        RefusalText::of(&DataFusionError::Execution("other".into())),
        None
    );
}
