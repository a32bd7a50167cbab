//! `bursar stat` and `bursar top` beside a real server.
#![cfg(unix)]

mod common;

use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::{env, fs, process, thread};

use bursar::{Charge, Group, Limits, Memory};
use bursar_arbiter::{Arbiter, Ask, Policy};
use bursar_serve::Server;
use common::*;

/// A memory with a few groups, and its server in a directory of its own.
struct Scene {
    memory: Memory,
    _held: Vec<(Group, Charge)>,
    server: Option<Server>,
    directory: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only the number counts.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = env::temp_dir().join(format!("bursar-live-{}-{number}", process::id()));
    fs::create_dir_all(directory.join("bursar")).expect("a directory for tests");
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(directory.join("bursar"), mode).expect("it is ours");
    directory
}

impl Scene {
    fn new() -> Self {
        let memory = Memory::builder().max(96 << 20).build().expect("a memory");
        let acme = memory
            .root()
            .child("acme", Limits::max(64 << 20))
            .expect("a name");
        let report = acme
            .child("report\n\u{202e}", Limits::none())
            .expect("a name");
        let held = report.try_charge(48 << 20).expect("room");
        report.try_charge(32 << 20).expect_err("no room");
        let directory = directory();
        let path = directory.join("bursar/1.sock");
        let server = Server::builder()
            .path(path)
            .start(&memory)
            .expect("a socket");
        Self {
            memory,
            _held: vec![(report, held)],
            server: Some(server),
            directory,
        }
    }

    /// Has the server show an arbiter as well.
    fn with_arbiter(mut self) -> (Self, Arbiter) {
        let arbiter = Arbiter::new(&self.memory, Policy::default());
        self.server = None;
        let server = Server::builder().path(self.socket()).arbiter(&arbiter);
        self.server = Some(server.start(&self.memory).expect("a socket"));
        (self, arbiter)
    }

    fn socket(&self) -> String {
        self.directory
            .join("bursar/1.sock")
            .to_string_lossy()
            .into_owned()
    }

    /// File with the process of `top`.
    fn process_file(&self) -> PathBuf {
        self.directory.join("process")
    }

    fn stat(&self, arguments: &[&str]) -> process::Output {
        let mut stat = command();
        stat.args(["stat", "--socket", &self.socket()])
            .args(arguments);
        stat.output().expect("the program starts")
    }
}

#[test]
fn stat_says_who_holds_the_memory() {
    let scene = Scene::new();
    let text = succeeded(&scene.stat(&[]));
    assert!(text.contains(": 48.0 MiB in use of 96.0 MiB, by 3 groups. /acme/report\\n\\u{202e} has most: 48.0 MiB.") || text.contains("has most: 48.0 MiB"), "{text}");
    let acme = text
        .lines()
        .find(|line| line.starts_with("  acme "))
        .expect("acme");
    assert!(
        acme.contains("of 64.0 MiB") && acme.contains("75.0 %") && acme.trim_end().ends_with('1'),
        "{acme}"
    );
    assert!(!text.contains('\u{202e}'), "{text}");
}

#[test]
fn stat_lists_those_that_wait() {
    let (scene, arbiter) = Scene::new().with_arbiter();
    let acme = scene.memory.find("/acme").expect("it is there");
    assert!(!succeeded(&scene.stat(&[])).contains("waiting"));
    let mut context = Context::from_waker(Waker::noop());
    let mut charge = pin!(acme.charge_async(24 << 20));
    assert!(charge.as_mut().poll(&mut context).is_pending());
    let ask = Ask::new(&acme, "sum\u{202e}").least(32 << 20, 0);
    let mut asked = pin!(arbiter.admit(ask));
    assert!(asked.as_mut().poll(&mut context).is_pending());
    let text = succeeded(&scene.stat(&[]));
    let (_, table) = text.split_once("\n\nwaiting").expect("a table");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .map(|row| row.split_whitespace().collect())
        .collect();
    let without_time = |row: &[&'static str; 4], seen: &[&str]| {
        let [path, bytes, unit, limited] = *row;
        seen[..3] == [path, bytes, unit] && seen.last() == Some(&limited)
    };
    let ask = ["/acme/sum\\u{202e}", "32.0", "MiB", "/acme"];
    assert!(without_time(&ask, &rows[0]), "{text}");
    assert!(
        without_time(&["/acme", "24.0", "MiB", "/acme"], &rows[1]),
        "{text}"
    );
    // Of a part of the tree only.
    let other = scene.memory.root().child("other", Limits::none());
    let _other = other.expect("a name");
    assert!(!succeeded(&scene.stat(&["--path", "/other"])).contains("waiting"));
}

#[test]
fn stat_lists_the_last_decisions() {
    let (scene, arbiter) = Scene::new().with_arbiter();
    let acme = scene.memory.find("/acme").expect("it is there");
    assert!(!succeeded(&scene.stat(&[])).contains("decided"));
    let sum = Ask::new(&acme, "sum").least(16 << 20, 0);
    let sum = arbiter.try_admit(sum).expect("so much is left");
    let _held = sum.try_charge(16 << 20).expect("its grant");
    let mut context = Context::from_waker(Waker::noop());
    // Nobody else has a grant, so nobody can give back anything.
    let mut more = pin!(sum.grow(8 << 20));
    assert!(more.as_mut().poll(&mut context).is_ready());
    let text = succeeded(&scene.stat(&[]));
    let (_, table) = text.split_once("\n\ndecided").expect("a table");
    let row = table.lines().nth(2).expect("a row");
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        (row[0], row[1], row.last()),
        ("refuse", "/acme/sum", Some(&"/acme/sum")),
        "{text}"
    );
    // Of a part of the tree only.
    let other = scene.memory.root().child("other", Limits::none());
    let _other = other.expect("a name");
    assert!(!succeeded(&scene.stat(&["--path", "/other"])).contains("decided"));
}

#[test]
fn stat_names_what_was_left_behind() {
    let scene = Scene::new();
    let ended = scene.memory.root().child("ended", Limits::none());
    let ended = ended.expect("a name");
    let held = ended.try_charge(1 << 20).expect("room");
    assert!(!succeeded(&scene.stat(&[])).contains("ended with bytes"));
    drop(ended);
    let text = succeeded(&scene.stat(&[]));
    let said = "1 group ended with bytes that are still charged: /ended 1.00 MiB for ";
    assert!(text.contains(said), "{text}");
    drop(held);
    assert!(!succeeded(&scene.stat(&[])).contains("ended with bytes"));
}

/// Stock counts against the limit, but no charge lacks it: the share is of what is in use.
#[test]
fn the_share_of_a_limit_is_of_what_is_in_use() {
    let scene = Scene::new();
    let group = scene.memory.root().child("bronze", Limits::max(1 << 20));
    let group = group.expect("a name");
    drop(group.try_charge(4096).expect("room"));
    let text = succeeded(&scene.stat(&[]));
    let bronze = text.lines().find(|line| line.contains("bronze"));
    let cells: Vec<_> = bronze.expect("a row").split_ascii_whitespace().collect();
    assert_eq!(
        cells[1..8],
        ["0", "B", "of", "1.00", "MiB", "0", "%"],
        "{text}"
    );
    let document = succeeded(&scene.stat(&["-f", "json", "--path", "/bronze"]));
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let reserved = &document["groups"][0]["reserved"];
    assert!(reserved.as_u64() > Some(0), "it has no stock: {document}");
}

#[test]
fn stat_has_a_form_for_programs() {
    let scene = Scene::new();
    let document: serde_json::Value =
        serde_json::from_str(&succeeded(&scene.stat(&["-f", "json"]))).expect("JSON");
    assert_eq!(document["kind"], "bursar-tree");
    assert_eq!(document["groups"][1]["path"], "/acme");
    let acme = ["-f", "json", "--path", "/acme"];
    let document = succeeded(&scene.stat(&acme));
    assert!(document.contains("50331648") && document.contains("67108864"));
    let mut once = command();
    once.args(["top", "--once", "--socket", &scene.socket()]);
    let once = once.args(acme).output().expect("the program starts");
    // Each has a reading of its own, so the ages differ.
    let groups = |text: &str| {
        let mut document: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let groups = document["groups"].as_array_mut().expect("groups");
        for group in groups.iter_mut() {
            group["reading"]["age_ns"].take();
        }
        groups.clone()
    };
    assert_eq!(groups(&succeeded(&once)), groups(&document));
}

fn assert_fails(output: &process::Output, code: i32, said: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    assert!(stderr(output).contains(said), "{}", stderr(output));
    assert!(stdout(output).is_empty());
}

#[test]
fn what_is_not_there_is_named() {
    let scene = Scene::new();
    assert_fails(
        &scene.stat(&["--path", "/nobody"]),
        2,
        "there is no group '/nobody'",
    );
    assert_fails(
        &scene.stat(&["--freshness", "soon"]),
        2,
        "must be exact, cached, or an age",
    );
    assert_fails(&scene.stat(&["--pid", "1"]), 2, "cannot be used with");
    let missing = bursar(&["stat", "--socket", "/nowhere/at.sock"]);
    assert_fails(&missing, 3, "there is no such socket");
    let mut top = command();
    let top = top
        .args(["top", "--socket", &scene.socket()])
        .output()
        .expect("the program starts");
    assert_fails(&top, 2, "this is no terminal");
}

#[test]
fn the_only_server_is_found_and_of_several_one_must_be_chosen() {
    let scene = Scene::new();
    let stat = |directory: &PathBuf| {
        let mut stat = command();
        stat.args(["stat", "-f", "json"])
            .env("XDG_RUNTIME_DIR", directory);
        stat.output().expect("the program starts")
    };
    assert!(succeeded(&stat(&scene.directory)).contains("/acme"));
    let path = scene.directory.join("bursar/2.sock");
    let second = Server::builder()
        .path(path)
        .start(&scene.memory)
        .expect("a socket");
    let output = stat(&scene.directory);
    assert_fails(&output, 2, "2 servers have a socket: choose one with --pid");
    assert!(
        stderr(&output).contains("--pid 2  live"),
        "{}",
        stderr(&output)
    );
    drop(second);
}

/// Sockets of a user's processes, which answer with a tree, and whose directory goes in the end.
#[cfg(target_os = "linux")]
struct OtherUser {
    directory: PathBuf,
    processes: Vec<process::Child>,
}

#[cfg(target_os = "linux")]
impl OtherUser {
    /// `None` if this process may not act for another user.
    fn new() -> Option<Self> {
        use std::os::unix::fs::{PermissionsExt, chown};
        use std::os::unix::process::CommandExt;
        let user = 1_000_000_000 + process::id();
        let directory = PathBuf::from(format!("/tmp/bursar-{user}"));
        fs::create_dir(&directory).expect("nobody has this number");
        let mut other = Self {
            directory,
            processes: Vec::new(),
        };
        fs::set_permissions(&other.directory, fs::Permissions::from_mode(0o700)).ok()?;
        chown(&other.directory, Some(user), Some(user)).ok()?;
        for _ in 0..2 {
            // It ends with its input.
            let waits = Command::new("cat").uid(user).stdin(Stdio::piped()).spawn();
            other.processes.push(waits.ok()?);
        }
        Some(other)
    }

    fn sockets(&self) -> Vec<(u32, PathBuf)> {
        let numbers = self.processes.iter().map(process::Child::id);
        numbers
            .map(|number| (number, self.directory.join(format!("{number}.sock"))))
            .collect()
    }
}

#[cfg(target_os = "linux")]
impl Drop for OtherUser {
    fn drop(&mut self) {
        for process in &mut self.processes {
            drop(process.stdin.take());
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn root_finds_the_servers_of_other_users() {
    let Some(other) = OtherUser::new() else {
        println!("skipped: only root may act for another user");
        return;
    };
    let scene = Scene::new();
    let run = |arguments: &[&str]| {
        let mut stat = command();
        stat.arg("stat")
            .args(arguments)
            .env_remove("XDG_RUNTIME_DIR");
        stat.output().expect("the program starts")
    };
    for (number, socket) in other.sockets() {
        fs::hard_link(scene.socket(), &socket).expect("one file system");
        let text = succeeded(&run(&["--pid", &number.to_string()]));
        assert!(text.contains("48.0 MiB in use"), "{text}");
    }
    let list = run(&[]);
    assert_eq!(list.status.code(), Some(2), "{list:?}");
    for (number, _) in other.sockets() {
        assert!(
            stderr(&list).contains(&format!("--pid {number}  ")),
            "{list:?}"
        );
    }
}

#[test]
fn dead_sockets_are_named_and_removed() {
    let directory = directory();
    let [gone, runs] =
        [1 << 30, process::id()].map(|number: u32| directory.join(format!("bursar/{number}.sock")));
    for path in [&gone, &runs] {
        drop(UnixListener::bind(path).expect("a socket"));
    }
    let server = Server::builder().path(directory.join("bursar/1.sock"));
    let memory = Memory::builder().build().expect("a memory");
    let _server = server.start(&memory).expect("a socket");
    let mut stat = command();
    let output = stat.arg("stat").env("XDG_RUNTIME_DIR", &directory).output();
    let output = output.expect("the program starts");
    succeeded(&output);
    for (path, done) in [
        (&gone, "removed"),
        (&runs, "no server listens there any more"),
    ] {
        let said = format!("{}: {done}", path.display());
        assert!(stderr(&output).contains(&said), "{output:?}");
    }
    assert!(!gone.exists() && runs.exists());
    fs::remove_dir_all(&directory).expect("it is ours");
}

/// Answers one client with some bytes, and hangs up.
fn answer(bytes: impl AsRef<[u8]> + Send + 'static) -> (PathBuf, thread::JoinHandle<()>) {
    let directory = directory();
    let listener = UnixListener::bind(directory.join("it.sock")).expect("a socket");
    let answers = thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut request = [0; 4096];
        let _ = client.read(&mut request);
        let _ = client.write_all(bytes.as_ref());
    });
    (directory, answers)
}

#[test]
fn answers_that_make_no_sense_are_told() {
    for (bytes, said) in [
        (&b"SSH-2.0-OpenSSH\r\n\r\n"[..], "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "the answer is cut off"),
        (
            b"HTTP/1.1 200 OK\r\n\r\n{\"schema\":1,\"kind\":\"bursar-tree\",\"gro",
            "the answer is cut off",
        ),
        (
            b"HTTP/1.1 200 OK\r\n\r\n{\"schema\":2,\"kind\":\"bursar-tree\"}",
            "reads bursar-tree of schema 1: update it",
        ),
        (
            b"HTTP/1.1 503 Busy\r\n\r\ntoo many answers",
            "too many answers",
        ),
        (b"\xff\xff\xff", "not text"),
        (b"", "cut off"),
        (
            b"HTTP/1.1 301 Moved Permanently\r\nLocation: /\r\n\r\n",
            "it.sock: 301 Moved Permanently\n",
        ),
        (b"HTTP/1.1 500\r\n\r\n \r\n", "it.sock: 500\n"),
    ] {
        let (directory, answers) = answer(bytes);
        let socket = directory.join("it.sock");
        let output = bursar(&["stat", "--socket", &socket.to_string_lossy()]);
        answers.join().expect("it answers");
        assert_fails(&output, 3, said);
        fs::remove_dir_all(directory).expect("it is ours");
    }
}

/// Text that a terminal obeys, and marks that turn text around.
const LIES: &str = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\u{7f}\u{202e}";

/// A terminal obeys none of this text.
fn assert_harmless(text: &str, of: &str) {
    let harmful = |it: char| {
        it != '\n' && it.is_control()
            || matches!(it, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(harmful), "{of}: {text:?}");
}

#[test]
fn no_text_of_a_server_reaches_the_terminal_as_it_is() {
    let tree = |kind: &str| {
        serde_json::json!({
            "schema": 1, "kind": kind, "pid": 1, "program": LIES, "uptime_ns": 1, "taken_unix_ns": 1, "freshness": LIES,
            "groups": [{
                "path": LIES, "depth": 0, "limits": {"max": 8}, "reading": {"usage": {"value": 1}}, "reserved": 1, "peak": 1,
                "events": {"refused": 0, "reclaimed_bytes": 0}, "pressure": {"level": LIES},
            }],
        })
        .to_string()
    };
    let ok = |body: &str| format!("HTTP/1.1 200 OK\r\n\r\n{body}");
    let wrong_type = tree("bursar-tree").replace("\"pid\":1", "\"pid\":\"\u{9b}31m\u{202e}\"");
    for (answer_of, code) in [
        (ok(&tree("bursar-tree")), 0),
        (ok(&tree(LIES)), 3),
        (ok(&wrong_type), 3),
        (ok(LIES), 3),
        (format!("HTTP/1.1 404 x\r\n\r\n{LIES}"), 2),
        (format!("HTTP/1.1 503 x\r\n\r\n{LIES}\n{LIES}"), 3),
        (format!("HTTP/1.1 301 {LIES}\r\n\r\n"), 3),
        (format!("HTTP/1.1 {LIES}\r\n\r\n"), 3),
        (format!("{LIES}\r\n\r\n"), 3),
    ] {
        for form in ["table", "json"] {
            let (directory, answers) = answer(answer_of.clone().into_bytes());
            let socket = directory.join("it.sock");
            let output = bursar(&["stat", "-f", form, "--socket", &socket.to_string_lossy()]);
            answers.join().expect("it answers");
            assert_eq!(output.status.code(), Some(code), "{answer_of:?} {output:?}");
            assert_harmless(&stdout(&output), form);
            assert_harmless(&stderr(&output), form);
            if code == 0 && form == "json" {
                let document: serde_json::Value =
                    serde_json::from_slice(&output.stdout).expect("JSON");
                assert_eq!(document["program"], LIES);
            }
            fs::remove_dir_all(directory).expect("it is ours");
        }
    }
}

/// A server that says, or sends, more than any tree has is left before its answer is held.
#[test]
fn an_answer_that_is_too_big_is_refused_before_it_is_held() {
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n".to_vec();
    for (bytes, sent_max) in [
        (length, 1 << 20),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), 300 << 20),
        (b"HTTP/1.1 200 OK\r\n".to_vec(), 2 << 20),
    ] {
        let (directory, endless) = endless(bytes);
        let socket = directory.join("it.sock");
        let output = bursar(&["stat", "--socket", &socket.to_string_lossy()]);
        let sent = endless.join().expect("it answers");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains("too big") || said.contains("HTTP"), "{said}");
        assert!(sent <= sent_max, "{sent} bytes were taken");
        fs::remove_dir_all(directory).expect("it is ours");
    }
}

/// Answers one client with some bytes and then spaces, until it hangs up. Returns how many spaces it took.
fn endless(bytes: Vec<u8>) -> (PathBuf, thread::JoinHandle<usize>) {
    let directory = directory();
    let listener = UnixListener::bind(directory.join("it.sock")).expect("a socket");
    let answers = thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let spaces = vec![b' '; 64 << 10];
        let mut sent = 0;
        let mut next = &bytes[..];
        while let Ok(taken) = client.write(next) {
            sent += taken;
            next = &spaces;
        }
        sent
    });
    (directory, answers)
}

/// A terminal: characters go where the cursor is, and the cursor moves.
#[cfg(target_os = "linux")]
struct Screen {
    cells: Vec<[char; 80]>,
    at: (usize, usize),
    /// Bytes that are no whole sequence yet.
    left: String,
}

#[cfg(target_os = "linux")]
impl Screen {
    fn new() -> Self {
        Self {
            cells: vec![[' '; 80]; 24],
            at: (0, 0),
            left: String::new(),
        }
    }

    fn write(&mut self, text: &str) {
        self.left += text;
        let text = std::mem::take(&mut self.left);
        let mut rest = &text[..];
        while let Some(character) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let Some(end) = sequence.find(|it: char| it.is_ascii_alphabetic()) else {
                    break;
                };
                if &sequence[end..=end] == "H" {
                    let mut numbers = sequence[..end].split(';').map(|it| it.parse().unwrap_or(1));
                    let mut next = || numbers.next().unwrap_or(1).max(1) - 1;
                    self.at = (next(), next());
                }
                rest = &sequence[end + 1..];
                continue;
            }
            if rest == "\x1b" {
                break;
            }
            if let (false, Some(cell)) = (character.is_control(), self.cells.get_mut(self.at.0)) {
                if let Some(cell) = cell.get_mut(self.at.1) {
                    *cell = character;
                }
                self.at.1 += 1;
            }
            rest = &rest[character.len_utf8()..];
        }
        self.left = rest.to_owned();
    }

    fn text(&self) -> String {
        let lines = self
            .cells
            .iter()
            .map(|line| line.iter().collect::<String>());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Text that must be on the screen; what happens then; keys that are pressed then.
#[cfg(target_os = "linux")]
type Step<'a> = (&'a str, fn(&mut Scene), &'a [u8]);

/// Runs `top` on a terminal of 24 lines and 80 columns. Returns its exit code and everything that it wrote; nothing where `script` is
/// not installed or is another one.
#[cfg(target_os = "linux")]
fn top(scene: &mut Scene, steps: &[Step<'_>]) -> Option<(Option<i32>, String)> {
    let program = env!("CARGO_BIN_EXE_bursar");
    let socket = scene.socket();
    let process = scene.process_file();
    let line = format!(
        "stty rows 24 cols 80; echo $$ > {}; exec {program} top --every 100ms --socket {socket}",
        process.display()
    );
    let mut script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let (mut keys, mut output) = (script.stdin.take()?, script.stdout.take()?);
    let (mut written, mut screen) = (String::new(), Screen::new());
    let mut piece = [0; 4096];
    for (seen, act, key) in steps {
        while !screen.text().contains(seen) {
            let bytes = output.read(&mut piece).expect("a pipe");
            assert!(bytes > 0, "no {seen:?} in {}", screen.text());
            let text = String::from_utf8_lossy(&piece[..bytes]);
            screen.write(&text);
            written += &text;
        }
        act(scene);
        keys.write_all(key).expect("it reads");
        keys.flush().expect("it reads");
    }
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("a pipe");
    written += &String::from_utf8_lossy(&rest);
    Some((script.wait().expect("it ends").code(), written))
}

const LEAVES_THE_SCREEN: &str = "\u{1b}[?1049l";
const SHOWS_THE_CURSOR: &str = "\u{1b}[?25h";

/// The screen is left, and the cursor is there again.
#[cfg(target_os = "linux")]
fn assert_restored(written: &str) {
    let left = written.rfind(LEAVES_THE_SCREEN);
    let (shown, hidden) = (
        written.rfind(SHOWS_THE_CURSOR),
        written.rfind("\u{1b}[?25l"),
    );
    assert!(left.is_some() && shown > hidden, "{written:?}");
    let redrawn = written.rfind("\u{1b}[?1049h");
    assert!(left > redrawn, "{written:?}");
}

#[cfg(target_os = "linux")]
fn signal(scene: &Scene, name: &str) {
    let process = fs::read_to_string(scene.process_file()).expect("the shell wrote it");
    let sent = Command::new("kill").args([name, process.trim()]).status();
    assert!(sent.expect("kill").success());
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_ends_top_and_restores_the_terminal() {
    let by: [fn(&mut Scene); 2] = [
        |scene| signal(scene, "-TERM"),
        |scene| signal(scene, "-INT"),
    ];
    for act in by {
        let Some((code, written)) = top(&mut Scene::new(), &[("48.0 MiB", act, b"")]) else {
            return;
        };
        assert_eq!(code, Some(130), "{written:?}");
        assert_restored(&written);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn top_shows_the_tree_takes_keys_and_restores_the_terminal() {
    let nothing: fn(&mut Scene) = |_| ();
    let steps = [
        ("48.0 MiB", nothing, &b"s"[..]),
        ("s sort (share of limit)", nothing, b"/"),
        ("show paths with: _", nothing, b"nobody"),
        ("show paths with: nobody_", nothing, b"\r"),
        ("no group matches", nothing, b" "),
        ("PAUSED", nothing, b"q"),
    ];
    let Some((code, written)) = top(&mut Scene::new(), &steps) else {
        return;
    };
    assert_eq!(code, Some(0), "{written:?}");
    assert!(written.contains("acme"), "{written:?}");
    assert_restored(&written);
}

#[test]
#[cfg(target_os = "linux")]
fn top_tells_that_the_server_is_gone_and_finds_it_again() {
    let steps: [Step<'_>; 3] = [
        ("48.0 MiB", |scene| scene.server = None, b""),
        (
            "no such socket",
            |scene| {
                let server = Server::builder().path(scene.socket());
                scene.server = Some(server.start(&scene.memory).expect("a socket"));
            },
            b"",
        ),
        ("in use", |_| (), b"\x03"),
    ];
    let Some((code, written)) = top(&mut Scene::new(), &steps) else {
        return;
    };
    assert_eq!(code, Some(130), "{written:?}");
    assert_restored(&written);
}
