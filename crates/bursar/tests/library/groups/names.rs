//! Names that tenants choose: no message forges a log line or controls a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Pages, Short, Task, UNIT, crew, inner, units};
use bursar::{CreateError, Limits, Memory};

const EVIL: &str = "evil\n2026-01-01 ERROR root logged in\u{1b}[2J\u{202e}\u{85}";
const SHOWN: &str = r"evil\n2026-01-01 ERROR root logged in\u{1b}[2J\u{202e}\u{85}";

/// Says that a message shows the name, and nothing raw of it.
fn assert_shown(message: &impl ToString) {
    let message = message.to_string();
    assert!(message.contains(SHOWN), "{message:?}");
    assert!(!message.contains(char::is_control), "{message:?}");
}

#[test]
fn messages_escape_names_and_fields_do_not() {
    let root = Memory::builder().max(1 << 20).build().unwrap().root();
    let evil = root.make_max(EVIL, 1 << 19);
    assert_eq!(
        (evil.name(), evil.path()),
        (EVIL.into(), format!("/{EVIL}"))
    );
    assert_shown(&evil);
    assert_shown(&format!("{evil:?}"));

    let error = evil.try_charge(1 << 20).unwrap_err();
    assert_shown(&error);
    let held = evil.try_charge(1 << 18).unwrap();
    // Among the largest.
    assert_shown(&root.try_charge(1 << 20).unwrap_err());
    drop(held);

    let exists = root.child(EVIL, Limits::none()).unwrap_err();
    assert_shown(&exists);
    let path = format!("/{EVIL}");
    assert_eq!(exists, CreateError::Exists { path });

    evil.remove().unwrap();
    assert_shown(&evil.child("child", Limits::none()).unwrap_err());
    assert_shown(&evil.try_charge(1).unwrap_err());
    let mut other = root.try_charge(1).unwrap();
    assert_shown(&other.move_to(&evil).unwrap_err());
}

#[test]
fn other_letters_stay() {
    let group = Memory::host()
        .unwrap()
        .root()
        .child(r"Zürich\n 東京", Limits::none());
    assert_eq!(group.unwrap().to_string(), r"/Zürich\n 東京");
}

#[test]
fn what_is_told_on_stderr_is_escaped() {
    if inner::is_inner() {
        let memory = Memory::host().unwrap();
        let group = memory.make(EVIL);
        group.engine().account().uncharge_nowait(1 << 20);
        drop(group.try_charge(1 << 20).unwrap());
        memory.tick();
        return;
    }
    let output =
        inner::in_another_process(module_path!(), "what_is_told_on_stderr_is_escaped", &[]);
    inner::assert_passed(&output);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let told = stderr.lines().find(|line| line.starts_with("bursar:"));
    assert_shown(&told.expect("it is told"));
}

/// Threads make one name, and so do the reclaimers and callbacks that they call meanwhile: one group has it at a time, and it is
/// free in the end.
#[test]
fn a_name_is_made_in_callbacks_too() {
    let tenant = crate::common::memory().make_max("tenant", units(4));
    let (holders, made) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let make = {
        let (tenant, made) = (tenant.clone(), made.clone());
        move || match tenant.child("spill", Limits::none()) {
            Ok(spill) => {
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                drop(spill.try_charge(1));
                std::thread::yield_now();
                holders.fetch_sub(1, Ordering::SeqCst);
                made.fetch_add(1, Ordering::SeqCst);
            }
            Err(CreateError::Exists { .. }) => (),
            Err(other) => panic!("{other}"),
        }
    };
    let (pages, calls) = (Pages::default(), Arc::<AtomicUsize>::default());
    let (evicted, counted, makes) = (pages.clone(), calls.clone(), make.clone());
    let reclaimer = tenant.add_reclaimer(0, move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        makes();
        evicted.evict(request.target)
    });
    let (counted, makes) = (calls.clone(), make.clone());
    let watcher = tenant.on_pressure(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        makes();
    });
    let work = |_| {
        for _ in 0..200 {
            make();
            let mut waiting = Task::new(tenant.charge_async(UNIT));
            drop(waiting.poll());
            if let Ok(page) = tenant.try_charge(UNIT) {
                pages.push(page);
            }
        }
    };
    crew(4, work, || ());
    drop((reclaimer, watcher));
    let counts = [&made, &calls].map(|count| count.load(Ordering::SeqCst));
    assert!(
        counts.iter().all(|&count| count > 0),
        "this shows too little: {counts:?}"
    );
    assert_eq!(tenant.events().panicked_callbacks, 0);
    assert!(tenant.children().is_empty());
    drop(tenant.make("spill"));
}

#[test]
fn names_are_checked() {
    let memory = Memory::host().unwrap();
    let root = memory.root();
    let bad = |name: &str| CreateError::BadName { name: name.into() };
    for (name, error) in [
        (String::new(), CreateError::EmptyName),
        ("x".repeat(256), CreateError::LongName { bytes: 256 }),
        (".".into(), bad(".")),
        ("..".into(), bad("..")),
        ("a/b".into(), bad("a/b")),
        ("a\0b".into(), bad("a\0b")),
    ] {
        let refused = root.child(&name, Limits::none()).unwrap_err();
        assert_eq!(refused, error, "{name:?}");
    }
    assert!(bad("..").to_string().contains("\"..\""));
    let good = ["...", ".hidden", " ", &"x".repeat(255)].map(|name| root.make(name));
    let group = root.make("a");
    let again = root.child("a", Limits::none()).unwrap_err();
    assert_eq!(again, CreateError::Exists { path: "/a".into() });
    assert!(again.to_string().contains("/a"));
    assert_eq!(root.children().len(), 5);
    assert_eq!(memory.find("/a").unwrap().path(), "/a");
    assert!(memory.find("a/none").is_none());
    drop((good, group));
    assert!(
        root.children().is_empty(),
        "a group ends with its last handle"
    );
}
