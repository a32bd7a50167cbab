//! Answers to requests that are right.

use bursar::{Freshness, Limits};
use serde_json::{Value, json};

use crate::client::{OPEN_FILES, ROWS, ask, get, scene};

/// Names that tenants could choose to harm a reader.
fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "a\"quote",
        "back\\slash",
        "new\nline",
        "\r\nX-Evil: 1\r\n\r\n<html>",
        "\u{202e}rtl\u{2066}",
        "\u{1b}[2J",
        "%2e%2e",
        "%",
        "a b+c&d=e?f#g",
        "memory.max",
        "...",
        "}]}",
        "\u{7f}\u{85}\u{2028}",
    ]
    .map(str::to_owned)
    .into();
    names.push("\u{10ffff}".repeat(63) + "xyz");
    assert_eq!(names.last().unwrap().len(), 255);
    names
}

/// Without numbers that change from one moment to the next.
fn steady(mut groups: Value) -> Value {
    for group in groups.as_array_mut().unwrap() {
        group["reading"]["age_ns"] = json!(0);
    }
    groups
}

fn paths(tree: &Value) -> Vec<&str> {
    let groups = tree["groups"].as_array().unwrap();
    let paths = groups.iter().map(|group| group["path"].as_str().unwrap());
    paths.collect()
}

#[test]
fn tree_is_the_snapshot() {
    let scene = scene();
    let acme = scene.child("acme", Limits::max(64 << 20));
    let query = acme.child("query", Limits::none()).unwrap();
    let _charge = query.try_charge(48 << 20).unwrap();
    query.add(ROWS, 7);
    query.add(OPEN_FILES, -2);
    query.try_charge(17 << 20).unwrap_err();

    for (asked, freshness) in [("exact", Freshness::Exact), ("cached", Freshness::Cached)] {
        let tree = get(&scene.path, &format!("/v1/tree?freshness={asked}")).json();
        let snapshot = scene.memory.snapshot(freshness).unwrap();
        let expected = steady(serde_json::to_value(&snapshot).unwrap());
        assert_eq!(steady(tree["groups"].clone()), expected);
        assert_eq!(tree["freshness"], asked);
    }
    let tree = get(&scene.path, "/v1/tree").json();
    assert_eq!(tree["freshness"], "cached");
    assert_eq!(tree["schema"], 1);
    assert_eq!(tree["kind"], "bursar-tree");
    assert_eq!(tree["pid"], std::process::id());
    let program = std::env::current_exe().unwrap();
    assert_eq!(
        tree["program"].as_str(),
        program.file_name().unwrap().to_str()
    );
    assert!(tree["uptime_ns"].as_u64().unwrap() > 0);
    assert!(tree["taken_unix_ns"].as_u64().unwrap() > 1_700_000_000_000_000_000);
}

#[test]
fn tree_has_the_requested_age() {
    let scene = scene();
    let group = scene.child("group", Limits::none());
    let _charge = group.try_charge(1 << 20).unwrap();
    let tree = get(&scene.path, "/v1/tree?freshness=0ms").json();
    assert_eq!(tree["freshness"], "0ms");
    assert_eq!(tree["groups"][0]["reading"]["usage"]["value"], 1 << 20);
    // Nothing has flushed since.
    let _more = group.try_charge(1 << 20).unwrap();
    let tree = get(&scene.path, "/v1/tree?freshness=3600000ms").json();
    assert_eq!(tree["groups"][0]["reading"]["usage"]["value"], 1 << 20);
    let age_ns = tree["groups"][0]["reading"]["age_ns"].as_u64().unwrap();
    assert!(age_ns < 3_600_000_000_000);
}

#[test]
fn tree_of_a_part() {
    let scene = scene();
    let a = scene.child("a", Limits::none());
    let _b = scene.child("b", Limits::none());
    let c = a.child("c d", Limits::none()).unwrap();
    let _e = c.child("e", Limits::none()).unwrap();
    let ask = |target: &str| get(&scene.path, target).json();
    assert_eq!(
        paths(&ask("/v1/tree")),
        ["/", "/a", "/a/c d", "/a/c d/e", "/b"]
    );
    assert_eq!(paths(&ask("/v1/tree?depth=1")), ["/", "/a", "/b"]);
    assert_eq!(paths(&ask("/v1/tree?depth=0")), ["/"]);
    assert_eq!(paths(&ask("/v1/tree?path=/a&depth=1")), ["/a", "/a/c d"]);
    let below = ask("/v1/tree?path=%2fa%2Fc%20d");
    assert_eq!(paths(&below), ["/a/c d", "/a/c d/e"]);
    assert_eq!(below["groups"][0]["depth"], 0);
}

/// More than a piece of an answer, and more than the socket's buffer.
#[test]
fn big_tree_arrives_whole() {
    let scene = scene();
    let groups: Vec<_> = (0..2_000)
        .map(|number| {
            scene
                .memory
                .root()
                .child(format!("{number:05}"), Limits::none())
        })
        .collect::<Result<_, _>>()
        .unwrap();
    let answer = get(&scene.path, "/v1/tree");
    assert!(answer.body.len() > 1 << 20);
    assert!(answer.body.ends_with(b"]}\n"));
    let tree = answer.json();
    let names = groups.iter().map(|group| group.path());
    let expected: Vec<_> = std::iter::once("/".to_owned()).chain(names).collect();
    assert_eq!(paths(&tree), expected);
}

/// An observer that asks again and again: each answer is right, costs one walk at most, and grows with the groups alone.
#[test]
fn ten_thousand_groups_are_read_again_and_again() {
    const TENANTS: u64 = 100;
    const READS: u64 = 3;
    let scene = scene();
    let (root, mut groups) = (scene.memory.root(), Vec::new());
    for tenant in 0..TENANTS {
        let tenant = root.child(format!("{tenant}"), Limits::none()).unwrap();
        for query in 0..TENANTS {
            let query = tenant.child(format!("{query}"), Limits::none()).unwrap();
            query.add(ROWS, 1);
            groups.push((query.try_charge(4096).unwrap(), query));
        }
    }
    let queries = groups.len() as u64;
    let mut held = queries * 4096;
    let mut answers_bytes = Vec::new();
    for read in 0..READS {
        // One query ends and another begins, and some work goes on.
        let (charge, ended) = groups.swap_remove(read as usize);
        drop((charge, ended));
        let tenant = root.find(&read.to_string()).unwrap();
        let begun = tenant.child(format!("new-{read}"), Limits::none()).unwrap();
        begun.add(ROWS, 1);
        groups.push((begun.try_charge(8192).unwrap(), begun));
        held += 4096;

        let before = scene.memory.flush_counts();
        let answer = get(&scene.path, "/v1/tree?freshness=exact");
        let after = scene.memory.flush_counts();
        let walks = [after, before].map(|it| it.root + it.subtree + it.rosters);
        assert!(walks[0] - walks[1] <= 1, "{before:?} {after:?}");
        let tree = answer.json();
        let shown = tree["groups"].as_array().unwrap();
        assert_eq!(shown.len() as u64, 1 + TENANTS + queries);
        assert_eq!(shown[0]["reading"]["usage"]["value"], held);
        // The rows of groups that have ended stay in those above.
        assert_eq!(
            shown[0]["reading"]["statistics"]["rows"]["value"],
            queries + read + 1
        );
        let own = shown
            .iter()
            .map(|it| it["reading"]["usage"]["own"].as_i64().unwrap());
        assert_eq!(own.sum::<i64>() as u64, held);
        answers_bytes.push(answer.body.len());

        let before = scene.memory.flush_counts();
        let cached = get(&scene.path, "/v1/tree");
        assert_eq!(scene.memory.flush_counts(), before, "a cached read walks");
        assert_eq!(
            cached.json()["groups"].as_array().unwrap().len(),
            shown.len()
        );
    }
    let (least, most) = (answers_bytes.iter().min(), answers_bytes.iter().max());
    assert!(
        most.unwrap() * 100 < least.unwrap() * 105,
        "{answers_bytes:?}"
    );
    // No answer keeps a group: all that is left is what the program holds.
    drop(groups);
    assert_eq!(
        scene
            .memory
            .snapshot(Freshness::Exact)
            .unwrap()
            .groups()
            .len(),
        1
    );
}

#[test]
fn files_are_as_in_cgroup_v2() {
    let scene = scene();
    let limits = Limits {
        min: 1 << 20,
        low: 2 << 20,
        high: 32 << 20,
        max: 64 << 20,
    };
    let acme = scene.child("acme", limits);
    let query = acme.child("query", Limits::none()).unwrap();
    drop(query.try_charge(30 << 20).unwrap());
    let _charge = query.try_charge(20 << 20).unwrap();
    query.try_charge(60 << 20).unwrap_err();
    query.add(ROWS, 7);
    query.add(OPEN_FILES, -2);
    scene.memory.root().flush().unwrap();

    let file = |path: &str| {
        let answer = get(&scene.path, &format!("/v1/groups/{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text().to_owned()
    };
    assert_eq!(
        file("acme/memory.current"),
        format!("{}\n", acme.reserved())
    );
    assert!(acme.reserved() >= 20 << 20);
    assert_eq!(file("acme/memory.max"), "67108864\n");
    assert_eq!(file("acme/memory.high"), "33554432\n");
    assert_eq!(file("acme/memory.low"), "2097152\n");
    assert_eq!(file("acme/memory.min"), "1048576\n");
    assert_eq!(file("acme/memory.peak"), format!("{}\n", acme.peak()));
    assert_eq!(file("acme/query/memory.max"), "max\n");
    assert_eq!(file("acme/query/memory.high"), "max\n");
    assert_eq!(file("acme/query/memory.low"), "0\n");
    assert_eq!(file("memory.max"), "max\n");
    let events = acme.own_events();
    assert_eq!((events.max, events.refused), (1, 1));
    let text = file("acme/memory.events.local");
    assert!(
        text.starts_with("low 0\nhigh 0\nmax 1\noom 1\noom_kill 0\noom_group_kill 0\nrefused 1\n"),
        "{text}"
    );
    assert_eq!(file("acme/memory.events"), text);
    assert!(file("memory.events").contains("\nmax 1\n"));
    assert!(file("memory.events.local").contains("\nmax 0\n"));
    let quiet = "avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    assert_eq!(
        file("acme/memory.pressure"),
        format!("some {quiet}full {quiet}")
    );
    assert_eq!(
        file("acme/memory.stat"),
        "usage 20971520\nrows 7\nopen_files -2\npages 0\n"
    );
}

/// Each line of a listing leads on, to a file or to a group, whatever its name.
#[test]
fn listings_lead_to_groups_of_any_name() {
    let scene = scene();
    let mut names = hostile_names();
    let groups: Vec<_> = (names.iter().enumerate())
        .map(|(number, name)| scene.memory.root().child(name, Limits::max(number as u64)))
        .collect::<Result<_, _>>()
        .unwrap();
    let listing = get(&scene.path, "/v1/groups/");
    assert_eq!(listing.status, 200);
    let (children, files): (Vec<_>, Vec<_>) =
        listing.text().lines().partition(|line| line.ends_with('/'));
    assert_eq!(children.len(), names.len());
    for file in files {
        assert_eq!(
            get(&scene.path, &format!("/v1/groups/{file}")).status,
            200,
            "{file}"
        );
    }
    let mut seen = Vec::new();
    for child in children {
        assert!(
            child.is_ascii() && !child.contains([' ', '"', '\\']),
            "{child:?}"
        );
        let answer = get(&scene.path, &format!("/v1/groups/{child}memory.max"));
        let number: usize = answer.text().trim().parse().unwrap();
        let name = child.strip_suffix('/').unwrap();
        let tree = get(&scene.path, &format!("/v1/tree?path={name}")).json();
        assert_eq!(paths(&tree), [groups[number].path()]);
        seen.push(names[number].clone());
    }
    seen.sort();
    names.sort();
    assert_eq!(seen, names);
    // All of them in one document.
    assert_eq!(
        get(&scene.path, "/v1/tree").json()["groups"]
            .as_array()
            .unwrap()
            .len(),
        names.len() + 1
    );
}

/// A request is repeated in the error on one line, and in no header.
#[test]
fn no_name_forges_an_answer() {
    let scene = scene();
    for name in hostile_names() {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for target in [
            format!("/v1/groups/{encoded}/"),
            format!("/v1/tree?path={encoded}"),
            format!("/{encoded}"),
            format!("/v1/tree?{encoded}=1"),
        ] {
            let answer = get(&scene.path, &target);
            assert!(matches!(answer.status, 400 | 404), "{target}");
            let line = answer.text().strip_suffix('\n').unwrap();
            assert!(!line.contains(char::is_control), "{line:?}");
            assert!(line.chars().count() < 400, "{line:?}");
            let names: Vec<_> = answer.headers.iter().map(|(name, _)| &**name).collect();
            assert_eq!(
                names,
                [
                    "Content-Type",
                    "Content-Length",
                    "Cache-Control",
                    "Connection"
                ]
            );
        }
    }
}

#[test]
fn index_lists_requests_that_work() {
    let scene = scene();
    let _tenant = scene.child("tenant", Limits::none());
    let index = get(&scene.path, "/");
    let targets: Vec<_> = index
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("GET "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(targets.len() >= 4);
    for target in targets {
        assert_eq!(get(&scene.path, target).status, 200, "{target}");
    }
}

#[test]
fn head_has_no_body() {
    let scene = scene();
    for target in ["/", "/v1/tree", "/v1/groups/", "/nothing"] {
        let whole = get(&scene.path, target);
        let head = ask(
            &scene.path,
            format!("HEAD {target} HTTP/1.0\r\n\r\n").as_bytes(),
        );
        assert_eq!(head.status, whole.status);
        assert_eq!(
            head.header("Content-Length"),
            whole.header("Content-Length")
        );
        assert_eq!(head.header("Content-Type"), whole.header("Content-Type"));
        assert!(head.body.is_empty(), "{target}: {head:?}");
    }
}

#[test]
fn metrics_are_those_of_the_collector() {
    let scene = scene();
    let acme = scene.child("acme", Limits::max(64 << 20));
    let _charge = acme.try_charge(48 << 20).unwrap();
    let answer = get(&scene.path, "/metrics");
    assert_eq!(answer.status, 200);
    let kind = (
        "content-type".to_owned(),
        "application/openmetrics-text; version=1.0.0; charset=utf-8".to_owned(),
    );
    assert!(
        answer
            .headers
            .iter()
            .any(|(name, value)| (name.to_lowercase(), value.clone()) == kind)
    );
    let text = String::from_utf8(answer.body).unwrap();
    assert!(
        text.contains("bursar_group_usage_bytes{group=\"/acme\",parent=\"/\"} 50331648\n"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(get(&scene.path, "/metrics?depth=2").status, 400);
}

#[test]
fn refusals_show_the_tree_of_their_moment() {
    let scene = scene();
    let acme = scene.child("acme", Limits::max(64 << 20));
    let charge = acme.try_charge(48 << 20).unwrap();
    acme.try_charge(32 << 20).unwrap_err();
    drop(charge);
    let answer = get(&scene.path, "/v1/refusals");
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (&document["schema"], &document["kind"]),
        (&json!(1), &json!("bursar-refusals"))
    );
    let refusal = &document["refusals"][0];
    assert!(refusal["age_ns"].as_u64().is_some());
    assert_eq!(
        (&refusal["charged"], &refusal["requested"]),
        (&json!("/acme"), &json!(32 << 20))
    );
    assert_eq!(refusal["report"]["way"][1]["reserved"], json!(48 << 20));
}

#[test]
fn leftovers_are_of_groups_that_have_ended() {
    let scene = scene();
    let leftovers = || -> Value {
        let answer = get(&scene.path, "/v1/leftovers");
        serde_json::from_slice(&answer.body).unwrap()
    };
    let query = scene.child("query\n", Limits::none());
    let charge = query.try_charge(1 << 20).unwrap();
    let none = json!({"schema": 1, "kind": "bursar-leftovers", "leftovers": []});
    assert_eq!(leftovers(), none);
    drop(query);
    let left = &leftovers()["leftovers"][0];
    assert_eq!(
        (&left["path"], &left["bytes"]),
        (&json!("/query\n"), &json!(1 << 20))
    );
    drop(charge);
    assert_eq!(leftovers(), none);
    assert_eq!(get(&scene.path, "/v1/leftovers?path=/").status, 400);
}

#[test]
fn pages_are_what_the_socket_answers() {
    let scene = scene();
    let pages = bursar_serve::Pages::new(&scene.memory);
    for target in [
        "/",
        "/v1/groups/",
        "/v1/leftovers",
        "/v1/none",
        "/v1/tree?path=%zz",
    ] {
        let (page, answer) = (pages.get(target), get(&scene.path, target));
        let text = String::from_utf8(page.body).unwrap();
        assert_eq!(
            (page.status, &*text),
            (answer.status, answer.text()),
            "{target}"
        );
    }
    assert_eq!(pages.get("no/slash").status, 400);
    let tree: Value = serde_json::from_slice(&pages.get("/v1/tree").body).unwrap();
    let answer = get(&scene.path, "/v1/tree").json();
    for key in ["schema", "kind", "pid", "program"] {
        assert_eq!(tree[key], answer[key], "{key}");
    }
    assert_eq!(tree["groups"][0]["path"], "/");
}
