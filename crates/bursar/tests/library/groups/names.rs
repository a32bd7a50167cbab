//! Names that tenants choose: no message forges a log line or controls a terminal.

use crate::common::{Short, inner};
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

    evil.engine().remove().unwrap();
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
