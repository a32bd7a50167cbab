//! The registry of pools by path.

use std::sync::{Arc, Barrier};
use std::thread;

use bursar::{CreateError, Limits, Memory};
use bursar_datafusion::{History, Pools, UnknownPath};

use crate::common::{KIB, exhausted, fixed, usage};

fn scene() -> (Memory, bursar::Group, Pools) {
    let memory = Memory::builder().build().unwrap();
    let tenant = memory.root().child("a", Limits::max(64 << 10)).unwrap();
    let pools = Pools::below(memory.root());
    (memory, tenant, pools)
}

#[test]
fn one_path_is_one_pool_until_its_last_task_ends() {
    let (memory, tenant, pools) = scene();
    let history = History::new(9);
    let kept = history.clone();
    let pools = pools.settings(move |builder, _| Ok(builder.history(&kept)));
    let one = pools.get_or_create("a/q").unwrap();
    let same = pools.clone().get_or_create("/a/q").unwrap();
    assert!(Arc::ptr_eq(&one, &same));
    let reservation = fixed(&one, "Join");
    reservation.try_grow(48 * KIB).unwrap();
    let other = pools.get_or_create("a/r").unwrap();
    exhausted(fixed(&other, "Join").try_grow(32 * KIB));
    assert_eq!(pools.running().len(), 2);
    drop((one, same, other));
    // A reservation keeps its pool.
    assert_eq!(pools.running().len(), 1);
    drop(reservation);
    assert_eq!((pools.running().len(), usage(&tenant)), (0, 0));
    assert!(tenant.children().is_empty() && history.finished().len() == 2);
    // The path is free for another query.
    let again = pools.get_or_create("a/q").unwrap();
    assert_eq!(again.report().peak, 0);
    assert_eq!(memory.removed_groups(), 0);
}

#[test]
fn paths_of_strangers_make_nothing() {
    let (memory, tenant, pools) = scene();
    let long = "q".repeat(300);
    for path in ["", "/", "a", "/a", "a/", "//", "a//q", "/a/q/", "//a/q"] {
        let refused = pools.get_or_create(path).map(drop);
        assert_eq!(
            refused,
            Err(UnknownPath::BadPath {
                path: path.to_owned()
            })
        );
    }
    for (path, missing) in [
        ("b/q", "/b"),
        ("a/q/op", "/a/q"),
        ("../q", "/.."),
        ("b\n\u{202e}/q", "/b\n\u{202e}"),
    ] {
        let refused = pools.get_or_create(path).map(drop).unwrap_err();
        assert_eq!(
            refused,
            UnknownPath::NoGroup {
                path: missing.to_owned()
            }
        );
        assert!(
            !refused.to_string().contains(['\n', '\u{202e}']),
            "{refused}"
        );
    }
    for path in ["a/..", "a/.", "a/q\0", &format!("a/{long}")] {
        let refused = pools.get_or_create(path).map(drop);
        assert!(
            matches!(
                refused,
                Err(UnknownPath::Create(
                    CreateError::BadName { .. } | CreateError::LongName { .. }
                ))
            ),
            "{refused:?}"
        );
    }
    assert!(tenant.children().is_empty() && pools.running().is_empty());
    assert_eq!(memory.root().children().len(), 1);
}

#[test]
fn tasks_that_come_at_once_share_a_pool() {
    let (_memory, tenant, pools) = scene();
    for round in 0..50 {
        let begin = Barrier::new(4);
        let path = format!("a/q{}", round % 2);
        let work = || {
            begin.wait();
            for _ in 0..20 {
                let pool = pools.get_or_create(&path).unwrap();
                let held = fixed(&pool, "Join");
                held.try_grow(KIB).unwrap();
                assert!(usage(pool.group()) >= KIB);
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(work);
            }
        });
    }
    assert_eq!((usage(&tenant), tenant.children().len()), (0, 0));
}
