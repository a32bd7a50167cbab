//! System calls that are interrupted by signals, and answers that leave in small parts.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::Limits;
use bursar_serve::Server;

use crate::child::{self, End};
use crate::library::world;
use crate::signals;

/// Enough that the tree does not fit into a socket's buffer.
const GROUPS: usize = 2_000;
const REQUESTS: usize = 6;

static HANDLED: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_server_that_is_interrupted_answers_all() {
    let _alone = child::alone();
    let ended = child::run(|_| run());
    assert_eq!(ended.end, End::Well, "{}", ended.errors);
    assert!(!ended.errors.contains("panicked"), "{}", ended.errors);
}

fn run() {
    let world = world();
    let groups: Vec<_> = (0..GROUPS)
        .map(|number| {
            world
                .tenant
                .child(format!("g{number}"), Limits::none())
                .unwrap()
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own").join("bursar.sock");
    let server = Server::builder().path(path).start(&world.memory).unwrap();
    signals::on(libc::SIGURG, || {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    });
    let thread = server_thread();
    for request in 0..REQUESTS {
        let mut stream = UnixStream::connect(server.path()).expect("it listens");
        // In two parts, with an interruption between.
        stream.write_all(b"GET /v1/tree HT").unwrap();
        interrupt(thread);
        stream.write_all(b"TP/1.1\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let mut part = vec![0; 997 + 8_192 * request];
        loop {
            interrupt(thread);
            match stream.read(&mut part).expect("an answer") {
                0 => break,
                bytes => answer.extend_from_slice(&part[..bytes]),
            }
        }
        let answer = String::from_utf8(answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200"));
        assert!(answer.trim_end().ends_with("]}"), "it is whole");
        assert_eq!(answer.matches("\"/tenant/g").count(), GROUPS);
    }
    drop((server, groups));
    world.settle();
}

/// The thread that serves, by the name that it gives itself when it begins.
fn server_thread() -> libc::pid_t {
    loop {
        for thread in std::fs::read_dir("/proc/self/task").expect("threads") {
            let thread = thread.expect("a thread");
            let name = std::fs::read_to_string(thread.path().join("comm"));
            if name.is_ok_and(|name| name.trim() == "bursar-serve") {
                let number = thread.file_name();
                return number.to_str().unwrap().parse().expect("a number");
            }
        }
        std::thread::yield_now();
    }
}

/// Interrupts a thread once.
///
/// The caller goes on when the signal has been handled: signals without a pause would leave the thread no time for its work.
fn interrupt(thread: libc::pid_t) {
    let before = HANDLED.load(Ordering::SeqCst);
    // SAFETY: numbers only; a thread of this process that lives.
    let failed = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG) };
    assert_eq!(failed, 0, "the server's thread lives");
    while HANDLED.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
}
