//! Requests that are wrong, and clients that do not behave.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bursar::{FlushPolicy, Group, Limits, Memory};
use bursar_rig::random::Random;
use bursar_serve::Server;

use crate::client::{Answer, Scene, ask, connect, get, private_directory, rest, scene, scene_with};
use crate::signals;

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let scene = scene();
    let many = "X: 1\r\n".repeat(65);
    #[rustfmt::skip]
    let refused: &[(&str, u16, &str)] = &[
        ("POST / HTTP/1.1\r\n\r\n", 405, "'POST' is not allowed: use GET or HEAD"),
        ("PUT /v1/groups/memory.max HTTP/1.1\r\nContent-Length: 1\r\n\r\n9", 405, "'PUT' is not allowed"),
        ("get / HTTP/1.1\r\n\r\n", 405, "'get' is not allowed"),
        ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400, "remove the header Content-Length"),
        ("GET / HTTP/1.1\r\ntransfer-ENCODING: chunked\r\n\r\n0\r\n\r\n", 400, "a request has no body"),
        ("GET http://localhost/ HTTP/1.1\r\n\r\n", 400, "a target begins with '/'"),
        ("GET * HTTP/1.1\r\n\r\n", 400, "a target begins with '/'"),
        ("GET / HTTP/2.0\r\n\r\n", 400, "no HTTP/1.1 request"),
        ("GET /\r\n\r\n", 400, "no HTTP/1.1 request"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "no HTTP/1.1 request"),
        ("\u{16}\u{3}\u{1}\u{2}", 400, "no HTTP/1.1 request"),
        ("GET / HTTP/1.1\r\nNo colon\r\n\r\n", 400, "no HTTP/1.1 request"),
        ("GET /\0 HTTP/1.1\r\n\r\n", 400, "no HTTP/1.1 request"),
        ("GET /nothing HTTP/1.1\r\n\r\n", 404, "there is no '/nothing'; GET / lists"),
        ("GET /v1 HTTP/1.1\r\n\r\n", 404, "there is no '/v1'"),
        ("GET /v1/groups HTTP/1.1\r\n\r\n", 404, "there is no '/v1/groups'"),
        ("GET /v1/groups/nobody/ HTTP/1.1\r\n\r\n", 404, "there is no group 'nobody'"),
        ("GET /v1/groups/nobody/memory.max HTTP/1.1\r\n\r\n", 404, "there is no group 'nobody'"),
        ("GET /v1/groups/memory.swap.max HTTP/1.1\r\n\r\n", 404, "/ has no file 'memory.swap.max'"),
        ("GET /v1/groups/../memory.max HTTP/1.1\r\n\r\n", 404, "there is no group '..'"),
        ("GET /v1/groups/%2Fetc%2f/ HTTP/1.1\r\n\r\n", 404, "there is no group '/etc/'"),
        ("GET /v1/groups/%zz/ HTTP/1.1\r\n\r\n", 400, "two hexadecimal digits"),
        ("GET /v1/groups/%f/ HTTP/1.1\r\n\r\n", 400, "two hexadecimal digits"),
        ("GET /v1/groups/% HTTP/1.1\r\n\r\n", 400, "two hexadecimal digits"),
        ("GET /v1/groups/%ff/ HTTP/1.1\r\n\r\n", 400, "does not decode to UTF-8"),
        ("GET /v1/groups/?depth=1 HTTP/1.1\r\n\r\n", 400, "has no parameter 'depth'"),
        ("GET /?a HTTP/1.1\r\n\r\n", 400, "'/' has no parameter 'a'"),
        ("GET /v1/tree?fresh=exact HTTP/1.1\r\n\r\n", 400, "there is no parameter 'fresh'; a tree has freshness, path and depth"),
        ("GET /v1/tree?freshness=new HTTP/1.1\r\n\r\n", 400, "freshness is exact, cached, or an age such as 500ms, not 'new'"),
        ("GET /v1/tree?freshness=-1ms HTTP/1.1\r\n\r\n", 400, "not '-1ms'"),
        ("GET /v1/tree?freshness=5s HTTP/1.1\r\n\r\n", 400, "not '5s'"),
        ("GET /v1/tree?depth=-1 HTTP/1.1\r\n\r\n", 400, "depth is a number of levels, not '-1'"),
        ("GET /v1/tree?depth= HTTP/1.1\r\n\r\n", 400, "depth is a number of levels, not ''"),
        ("GET /v1/tree?path=/%ff HTTP/1.1\r\n\r\n", 400, "does not decode to UTF-8"),
        ("GET /v1/tree?path=/a/b HTTP/1.1\r\n\r\n", 404, "there is no group '/a/b'"),
    ];
    for &(request, status, reason) in refused {
        let answer = ask(&scene.path, request.as_bytes());
        assert_eq!(answer.status, status, "{request:?}: {}", answer.text());
        assert!(
            answer.text().contains(reason),
            "{request:?}: {}",
            answer.text()
        );
        assert_eq!(answer.text().lines().count(), 1, "{request:?}");
        let allow = (status == 405).then_some("GET, HEAD");
        assert_eq!(answer.header("Allow"), allow, "{request:?}");
    }
    let answer = ask(
        &scene.path,
        format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes(),
    );
    assert_eq!(
        (answer.status, answer.text()),
        (431, "a request has at most 64 headers\n")
    );
    assert_eq!(get(&scene.path, "/").status, 200);
}

/// A memory whose readers may not flush has cached numbers only.
#[test]
fn a_memory_that_forbids_flushes_says_so() {
    let memory = Memory::builder()
        .policy(FlushPolicy::PeriodicOnly)
        .build()
        .unwrap();
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    let _server = Server::builder().path(&path).start(&memory).unwrap();
    let answer = get(&path, "/v1/tree?freshness=exact");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(
        answer.text().contains("ask with freshness=cached"),
        "{}",
        answer.text()
    );
    for target in ["/v1/tree", "/v1/groups/", "/v1/groups/memory.stat"] {
        assert_eq!(get(&path, target).status, 200, "{target}");
    }
}

#[test]
fn a_head_of_8_kib_is_read_and_no_more() {
    let scene = scene();
    let fixed = "GET / HTTP/1.1\r\nX: \r\n\r\n".len();
    let request =
        |bytes: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(bytes - fixed));
    assert_eq!(ask(&scene.path, request(8 << 10).as_bytes()).status, 200);
    let answer = ask(&scene.path, request((8 << 10) + 1).as_bytes());
    assert_eq!(
        (answer.status, answer.text()),
        (431, "the head of a request has at most 8192 bytes\n")
    );
}

/// The client gets the refusal although it still sends.
#[test]
fn ten_megabytes_of_headers_are_refused() {
    let scene = scene();
    let mut stream = connect(&scene.path);
    let line = format!("X-Header: {}\r\n", "x".repeat(1_000));
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    for _ in 0..10_000 {
        stream.write_all(line.as_bytes()).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(Answer::parse(&rest(&stream)).status, 431);
}

#[test]
fn half_a_request_is_refused_at_its_end() {
    let scene = scene();
    let answer = ask(&scene.path, b"GET /v1/tree HTTP/1.1\r\nHo");
    assert_eq!(
        (answer.status, answer.text()),
        (400, "the request ended before its head did\n")
    );
    // Nothing was asked: nothing is answered.
    let stream = connect(&scene.path);
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&stream).is_empty());
}

#[test]
fn half_a_request_is_refused_in_time() {
    // However late a part comes on a busy machine, the answer is the same.
    let scene = scene_with(|builder| builder.timeout(Duration::from_millis(1)));
    for part in ["", "G", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let mut stream = connect(&scene.path);
        let _ = stream.write_all(part.as_bytes());
        let mut answer = Vec::new();
        // The server may close before it has read the part.
        let _ = stream.read_to_end(&mut answer);
        let answer = Answer::parse(&answer);
        assert_eq!(
            (answer.status, answer.text()),
            (408, "the request did not arrive in time\n"),
            "{part:?}"
        );
    }
}

/// A request may come in any parts.
#[test]
fn a_request_byte_by_byte_is_answered() {
    let scene = scene();
    let mut stream = connect(&scene.path);
    for byte in b"GET /v1/groups/memory.max HTTP/1.1\r\nHost: x\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(Answer::parse(&rest(&stream)).text(), "max\n");
}

/// Groups whose tree is far larger than a socket's buffer.
fn big(memory: &Memory) -> Vec<Group> {
    let groups = (0..2_000).map(|number| memory.root().child(format!("{number}"), Limits::none()));
    groups.collect::<Result<_, _>>().unwrap()
}

/// `poll.rs` tests when it is left.
#[test]
fn a_client_that_stops_reading_delays_no_other() {
    let scene = scene_with(|builder| builder.timeout(Duration::MAX));
    let _groups = big(&scene.memory);
    let mut slow = connect(&scene.path);
    slow.write_all(b"GET /v1/tree HTTP/1.1\r\n\r\n").unwrap();
    let mut first = [0; 1];
    slow.read_exact(&mut first).unwrap();
    // While the rest of the answer is under way.
    assert_eq!(get(&scene.path, "/v1/groups/memory.max").text(), "max\n");
    assert!(get(&scene.path, "/v1/tree").body.ends_with(b"]}\n"));
    assert!(rest(&slow).ends_with(b"]}\n"));
}

/// A client that goes away in the middle leaves no trace, and no signal.
#[test]
fn disconnects_end_nothing_but_their_connection() {
    static SIGNALLED: AtomicBool = AtomicBool::new(false);
    signals::on(libc::SIGPIPE, || SIGNALLED.store(true, Ordering::Relaxed));
    let scene = scene();
    let _groups = big(&scene.memory);
    for part in [&b""[..], b"GET /v1/tr", b"GET /v1/tree HTTP/1.1\r\n\r\n"] {
        for reads in [false, true] {
            let mut stream = connect(&scene.path);
            stream.write_all(part).unwrap();
            if reads && part.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut [0; 1]).unwrap();
            }
            drop(stream);
        }
    }
    // Served after all those.
    assert_eq!(get(&scene.path, "/").status, 200);
    drop(scene);
    assert!(!SIGNALLED.load(Ordering::Relaxed));
}

#[test]
fn a_thousand_silent_clients_keep_no_other_out() {
    let scene = scene();
    let silent: Vec<UnixStream> = (0..1_000).map(|_| connect(&scene.path)).collect();
    assert_eq!(get(&scene.path, "/").status, 200);
    drop(silent);
    assert_eq!(get(&scene.path, "/").status, 200);
}

#[test]
fn a_thousand_requests_are_answered() {
    let scene = scene();
    let _group = scene.child("group", Limits::none());
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let tree = get(&scene.path, "/v1/tree?freshness=exact").json();
                    assert_eq!(tree["groups"].as_array().unwrap().len(), 2);
                }
            });
        }
    });
}

/// Two workers begin groups below `/tenant`, each its own, and `end` them, until `run` returns.
fn while_groups_come_and_go(scene: &Scene, end: impl Fn(Group) + Sync, run: impl FnOnce()) {
    let tenant = scene.child("tenant", Limits::none());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (tenant, ended, end) = (&tenant, &ended, &end);
            scope.spawn(move || {
                // Relaxed: only the end of the test depends on it.
                while !ended.load(Ordering::Relaxed) {
                    let query = tenant.child(format!("query {worker}"), Limits::none());
                    end(query.unwrap());
                }
            });
        }
        run();
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn groups_come_and_go_while_they_are_listed() {
    let scene = scene();
    let end = |query: Group| {
        let charge = query.try_charge(4096).unwrap();
        query.close().unwrap();
        drop(charge);
    };
    while_groups_come_and_go(&scene, end, || {
        let mut found = [0, 0];
        while found.iter().any(|&count| count < 20) {
            let tree = get(&scene.path, "/v1/tree?freshness=exact").json();
            let count = tree["groups"].as_array().unwrap().len();
            assert!((2..=4).contains(&count), "{tree}");
            let listing = get(&scene.path, "/v1/groups/tenant/");
            assert_eq!(listing.status, 200);
            for target in [
                "/v1/groups/tenant/query%200/memory.stat",
                "/v1/tree?path=/tenant/query%201",
            ] {
                match get(&scene.path, target) {
                    Answer { status: 200, .. } => found[0] += 1,
                    Answer { status: 404, .. } => found[1] += 1,
                    other => panic!("{target}: {other:?}"),
                }
            }
        }
    });
}

/// A name is free when the program's last handle has gone, also while the groups are listed.
#[test]
fn listings_keep_no_name_taken() {
    let scene = scene();
    while_groups_come_and_go(&scene, drop, || {
        for _ in 0..200 {
            assert_eq!(get(&scene.path, "/v1/groups/tenant/").status, 200);
            assert_eq!(get(&scene.path, "/v1/tree").status, 200);
        }
    });
}

/// Random bytes, and right requests that were changed at random. The parser's own test tries more of them.
#[test]
fn no_bytes_stop_the_server() {
    const RIGHT: &[&[u8]] = &[
        b"GET /v1/tree?freshness=500ms&path=/a%20b&depth=3 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/groups/a%20b/memory.events.local HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let scene = scene();
    let _group = scene.child("a b", Limits::none());
    let seed = std::env::var("BURSAR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random::new(seed);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    for round in 0..2_000 {
        let mut bytes = RIGHT[round % RIGHT.len()].to_vec();
        if round % 8 == 0 {
            bytes = (0..below(300)).map(|_| below(256) as u8).collect();
        }
        for _ in 0..below(4) {
            if !bytes.is_empty() {
                let at = below(bytes.len());
                match below(3) {
                    0 => bytes[at] = below(256) as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b"%/?&=\r\n\0 "[below(9)]),
                }
            }
        }
        let mut stream = connect(&scene.path);
        match stream.write_all(&bytes) {
            Ok(()) => stream.shutdown(Shutdown::Write).unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::BrokenPipe),
        }
        let answered = rest(&stream);
        if !bytes.is_empty() {
            let answer = Answer::parse(&answered);
            assert!(
                matches!(answer.status, 200 | 400 | 404 | 405 | 431),
                "seed {seed}: {bytes:?}: {answer:?}"
            );
        }
    }
    assert_eq!(get(&scene.path, "/").status, 200);
}
