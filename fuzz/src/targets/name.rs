//! Names of groups, and everything that shows or finds them.

use std::sync::{Arc, OnceLock};

use bursar::{CreateError, Freshness, Group, Limits, Memory, printable};
use bursar_prometheus::{Collector, openmetrics};
use bursar_serve::Pages;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::common::{assert_harmless, text};

/// Levels of groups, as ARCHITECTURE.md has them.
const DEPTH_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 255;

/// A name a line. Each is that of a group below the one before, or beside it if the line begins with a tab.
pub(super) fn run(input: &[u8]) {
    let Some(text) = text(input) else {
        return;
    };
    let (memory, pages) = shared();
    let mut way: Vec<Group> = vec![memory.root()];
    let mut kept = Vec::new();
    for line in text.split('\n').take(100) {
        let name = match line.strip_prefix('\t') {
            Some(name) if way.len() > 1 => {
                kept.extend(way.pop());
                name
            }
            _ => line,
        };
        let parent = way.last().expect("the root").clone();
        let group = match parent.child(name, Limits::none()) {
            Ok(group) => group,
            Err(error) => {
                check_refusal(&parent, way.len(), name, &error);
                continue;
            }
        };
        check_rules(&parent, name, &group);
        check_shown(memory, pages, &group);
        way.push(group);
    }
    check_metrics(&openmetrics(&Arc::new(Collector::new(memory))));
    let paths: Vec<String> = way[1..].iter().chain(&kept).map(Group::path).collect();
    drop((way, kept));
    assert!(paths.iter().all(|path| memory.find(path).is_none()));
    assert_eq!(memory.root().children().len(), 0, "nothing is left");
}

fn shared() -> &'static (Memory, Pages) {
    static SHARED: OnceLock<(Memory, Pages)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let memory = Memory::builder().build().expect("a memory");
        let pages = Pages::new(&memory);
        (memory, pages)
    })
}

fn is_allowed(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= NAME_BYTES_MAX
        && !name.contains('/')
        && !name.contains('\0')
}

fn check_refusal(parent: &Group, depth: usize, name: &str, error: &CreateError) {
    assert_harmless(&error.to_string());
    match error {
        CreateError::Exists { .. } => assert!(parent.find(name).is_some()),
        CreateError::TooDeep => assert!(depth > DEPTH_MAX),
        CreateError::EmptyName | CreateError::LongName { .. } | CreateError::BadName { .. } => {
            assert!(!is_allowed(name));
        }
        other => panic!("{name:?}: {other}"),
    }
}

fn check_rules(parent: &Group, name: &str, group: &Group) {
    assert!(is_allowed(name));
    assert_eq!(group.name(), name);
    let found = parent.find(name).expect("it is found");
    assert_eq!(found.path(), group.path());
}

fn check_shown(memory: &Memory, pages: &Pages, group: &Group) {
    let path = group.path();
    assert_eq!(memory.find(&path).map(|it| it.path()), Some(path.clone()));
    let shown = printable(&path);
    assert!(!shown.chars().any(char::is_control));
    assert_eq!(printable(&shown), shown, "shown twice as once");
    assert_eq!(group.to_string(), shown);
    let snapshot = group.snapshot(Freshness::Cached).expect("cached");
    let json = serde_json::to_string(&snapshot).expect("a snapshot prints");
    let json: serde_json::Value = serde_json::from_str(&json).expect("and parses");
    assert_eq!(json[0]["path"], path.as_str());
    let encoded: Vec<String> = (path.split('/'))
        .map(|name| utf8_percent_encode(name, NON_ALPHANUMERIC).to_string())
        .collect();
    let page = pages.get(&format!("/v1/groups{}/memory.max", encoded.join("/")));
    assert_eq!((page.status, &page.body[..]), (200, &b"max\n"[..]));
}

/// Checks that no name breaks out of its label.
fn check_metrics(text: &str) {
    for line in text.split('\n').filter(|line| line.contains('{')) {
        if line.starts_with('#') {
            continue;
        }
        let (_, labels) = line.split_once('{').expect("labels");
        let mut is_escaped = false;
        let mut is_inside = false;
        for letter in labels.chars() {
            match letter {
                _ if is_escaped => is_escaped = false,
                '\\' if is_inside => is_escaped = true,
                '"' => is_inside = !is_inside,
                '}' if !is_inside => break,
                _ => {}
            }
        }
        assert!(!is_inside, "{line:?}");
        let value = line.rsplit(' ').next().unwrap_or_default();
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line:?}"));
    }
}
