//! `docs/live-schema.md` and the answers of a server: the same fields, of the same types.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use bursar::{Limits, Memory};
use bursar_arbiter::{Arbiter, Ask, Policy};
use serde_json::Value;

use crate::client::{ROWS, get, private_directory, scene};

/// Type, and whether it may be missing.
type Fields = BTreeMap<String, (String, bool)>;

/// The tables of fields, by the title of their part of the page.
fn documented() -> BTreeMap<String, Fields> {
    let page = include_str!("../../../../docs/live-schema.md");
    let mut tables = BTreeMap::<_, Fields>::new();
    let mut title = "";
    for line in page.lines() {
        if let Some(found) = line.strip_prefix("## ") {
            title = found;
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let ["", name, kind, meaning, ""] = cells[..]
            && let Some(name) = name
                .strip_prefix('`')
                .and_then(|name| name.strip_suffix('`'))
            && title != "Parameters"
        {
            let field = (kind.to_owned(), meaning.contains("may be missing"));
            let before = tables
                .entry(title.to_owned())
                .or_default()
                .insert(name.to_owned(), field);
            assert!(before.is_none(), "{name} twice");
        }
    }
    tables
}

/// Fields of a value with their types, as the page has them.
fn fields(
    value: &Value,
    at: &str,
    found: &mut BTreeMap<String, String>,
    tables: &BTreeMap<String, Fields>,
) {
    let kind = match (at, value) {
        ("events" | "own_events", _) => "[events](#events)",
        ("pressure.stall.some" | "pressure.stall.full", _) => "[share](#share)",
        (_, Value::Object(object)) => {
            for (name, value) in object {
                let name = if at == "reading.statistics" {
                    "*"
                } else {
                    name
                };
                let at = if at.is_empty() {
                    name.to_owned()
                } else {
                    format!("{at}.{name}")
                };
                fields(value, &at, found, tables);
            }
            return;
        }
        (_, Value::String(_)) => "string",
        (_, Value::Array(_)) => "list",
        (_, Value::Bool(_)) => "boolean",
        (_, Value::Number(number)) if number.is_f64() => "number",
        (_, Value::Number(_)) => "integer",
        other => panic!("{other:?}"),
    };
    found.insert(at.to_owned(), kind.to_owned());
    let part = match kind {
        "[events](#events)" => "Events",
        "[share](#share)" => "Share",
        _ => return,
    };
    check(value, &tables[part], tables);
}

fn check(
    value: &Value,
    expected: &Fields,
    tables: &BTreeMap<String, Fields>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    fields(value, "", &mut found, tables);
    for (name, kind) in &found {
        let documented = expected.get(name).map(|(kind, _)| kind);
        assert_eq!(
            documented,
            Some(kind),
            "{name} is not in the page, or has another type there"
        );
    }
    for (name, (_, may_be_missing)) in expected {
        let is_statistic = name.contains('*');
        assert!(
            *may_be_missing || is_statistic || found.contains_key(name),
            "{name} is missing in {value}"
        );
    }
    found
}

#[test]
fn page_and_answers_agree() {
    let tables = documented();
    assert_eq!(
        tables.keys().collect::<Vec<_>>(),
        [
            "A group",
            "Admissions",
            "Call site",
            "Decisions",
            "Events",
            "Grant",
            "Leftovers",
            "Refusals",
            "Refused ask",
            "Share",
            "State",
            "The object",
            "Waiter",
            "Waiting charge"
        ]
    );
    let scene = scene();
    let limits = Limits {
        max: 64 << 20,
        high: 32 << 20,
        ..Limits::none()
    };
    let group = scene.memory.root().child("group", limits).unwrap();
    let _charge = group.try_charge(1 << 20).unwrap();
    group.try_charge(64 << 20).unwrap_err();
    group.add(ROWS, 1);
    let refusals = get(&scene.path, "/v1/refusals").json();
    check(&refusals["refusals"][0], &tables["Refusals"], &tables);
    for state in refusals["refusals"][0]["report"]["way"].as_array().unwrap() {
        check(state, &tables["State"], &tables);
    }
    let ended = scene.memory.root().child("ended", Limits::none()).unwrap();
    let _left = ended.try_charge(1 << 20).unwrap();
    drop(ended);
    let leftovers = get(&scene.path, "/v1/leftovers").json();
    let leftover = &leftovers["leftovers"][0];
    check(leftover, &tables["Leftovers"], &tables);
    for site in leftover["call_sites"].as_array().unwrap() {
        check(site, &tables["Call site"], &tables);
    }
    let mut waits = pin!(group.charge_async(64 << 20));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let tree = get(&scene.path, "/v1/tree?path=/group").json();
    let waiting = &tree["groups"][0]["waiting"][0];
    check(waiting, &tables["Waiting charge"], &tables);
    assert_eq!(waiting["charged"], "/group");
    let mut ever = BTreeMap::new();
    for freshness in ["exact", "cached"] {
        let mut tree = get(&scene.path, &format!("/v1/tree?freshness={freshness}")).json();
        for group in tree["groups"].as_array().unwrap() {
            ever.extend(check(group, &tables["A group"], &tables));
        }
        tree["groups"] = Value::Array(Vec::new());
        ever.extend(check(&tree, &tables["The object"], &tables));
    }
    // Also those that may be missing.
    for name in tables["A group"].keys().chain(tables["The object"].keys()) {
        assert!(ever.contains_key(name), "no answer has {name}");
    }
}

/// A memory without statistics has the same form.
#[test]
fn an_empty_memory_has_all_fields() {
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    let server = bursar_serve::Server::builder().path(&path);
    let _server = server.start(&Memory::host().unwrap()).unwrap();
    let tree = get(&path, "/v1/tree").json();
    let tables = documented();
    check(&tree["groups"][0], &tables["A group"], &tables);
    assert_eq!(tree["groups"].as_array().unwrap().len(), 1);
}

#[test]
fn admissions_are_as_the_page_says() {
    let memory = Memory::host().unwrap();
    let acme = memory.root().child("acme", Limits::max(8 << 20)).unwrap();
    let arbiter = Arbiter::new(&memory, Policy::default());
    let ask = |name| Ask::new(&acme, name).least(6 << 20, 0).wanted(6 << 20);
    let grant = arbiter.try_admit(ask("first")).unwrap();
    let mut waiter = pin!(arbiter.admit(ask("second")));
    assert!(
        waiter
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    let free = Ask::new(&memory.root(), "free")
        .least(1, 0)
        .wanted(u64::MAX);
    let free = arbiter.try_admit(free).unwrap();
    let never = Ask::new(&acme, "third").least(9 << 20, 0);
    arbiter.try_admit(never).unwrap_err();

    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    let server = bursar_serve::Server::builder()
        .path(&path)
        .arbiter(&arbiter);
    let _server = server.start(&memory).unwrap();
    let answer = get(&path, "/v1/admissions").json();
    let tables = documented();
    let mut shown = answer.clone();
    let object = shown.as_object_mut().unwrap();
    assert_eq!(object.remove("schema"), Some(1.into()));
    assert_eq!(object.remove("kind"), Some("bursar-admissions".into()));
    check(&shown, &tables["Admissions"], &tables);
    let [first, unlimited] = &answer["grants"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    check(first, &tables["Grant"], &tables);
    check(unlimited, &tables["Grant"], &tables);
    assert_eq!(
        (&first["path"], &first["bytes"]),
        (&"/acme/first".into(), &(6 << 20).into())
    );
    assert_eq!(unlimited.get("bytes"), None);
    let [waiter] = &answer["waiting"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    check(waiter, &tables["Waiter"], &tables);
    assert_eq!(
        (&waiter["name"], &waiter["blocked_by"]),
        (&"second".into(), &"/acme".into())
    );
    let [refused] = &answer["refusals"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    check(refused, &tables["Refused ask"], &tables);
    let why = "the query needs at least 9.00 MiB, and /acme may have at most 8.00 MiB";
    assert_eq!(
        (&refused["group"], &refused["name"], &refused["why"]),
        (&"/acme".into(), &"third".into(), &why.into())
    );
    assert_eq!(answer["counts"]["admitted"], 2);
    let metrics = String::from_utf8(get(&path, "/metrics").body).unwrap();
    let never_fits = "bursar_admission_never_fits_total 1";
    assert!(metrics.contains(never_fits), "{metrics}");
    assert_eq!(get(&path, "/v1/admissions?path=/").status, 400);

    let beside = acme.try_charge(1 << 20).unwrap();
    let mut grow = Box::pin(grant.grow(8 << 20));
    let polled = grow.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready());
    let answer = get(&path, "/v1/decisions").json();
    assert_eq!(answer["kind"], "bursar-decisions");
    let [decision] = &answer["decisions"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    // It was refused, so nothing is expected of it.
    let mut decision = decision.clone();
    let object = decision.as_object_mut().unwrap();
    assert!(!object.contains_key("said") && !object.contains_key("seen"));
    object.extend([("said".to_owned(), 0.into()), ("seen".to_owned(), 0.into())]);
    check(&decision, &tables["Decisions"], &tables);
    assert_eq!(
        (&decision["decided"], &decision["query"]),
        (&"refuse".into(), &"/acme/first".into())
    );
    drop((grow, beside, grant, free));
}

#[test]
fn without_an_arbiter_there_are_no_admissions() {
    let scene = scene();
    assert_eq!(get(&scene.path, "/v1/admissions").status, 404);
    assert_eq!(get(&scene.path, "/v1/decisions").status, 404);
}
