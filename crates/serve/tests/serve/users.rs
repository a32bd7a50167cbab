//! Other users.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use bursar::Memory;
use bursar_serve::Server;

use crate::client::{Answer, get, private_directory, rest, scene};

const SOCKET: &str = "BURSAR_TEST_SOCKET";
const SERVED: &str = "BURSAR_TEST_SERVED";
/// `nobody` on most systems.
const OTHER: u32 = 65534;

/// The other user's side of the tests below: prints the first line that it gets.
#[test]
fn client_of_another_user() {
    let Some(path) = std::env::var_os(SOCKET) else {
        return;
    };
    match UnixStream::connect(Path::new(&path)) {
        Err(error) => println!("not connected: {:?}", error.kind()),
        Ok(mut stream) => {
            // The answer may be there before the question.
            let _ = stream.write_all(b"GET /v1/tree HTTP/1.1\r\n\r\n");
            let answer = Answer::parse(&rest(&stream));
            println!("answered: {} {}", answer.status, answer.text());
        }
    }
}

/// Prints of a client of the other user; `None` if this process may not change its user.
fn as_another_user(path: &Path) -> Option<String> {
    // Not by its path, which the other user may not be able to follow.
    let ran = Command::new("/proc/self/exe")
        .args(["--exact", "users::client_of_another_user", "--nocapture"])
        .env(SOCKET, path)
        .uid(OTHER)
        .gid(OTHER)
        .output();
    match ran {
        Ok(ran) => {
            let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(ran.status.success(), "{printed}");
            Some(printed)
        }
        Err(error) => {
            println!("skipped: cannot run a client as user {OTHER}: {error}");
            None
        }
    }
}

#[test]
fn another_user_cannot_connect() {
    let scene = scene();
    if let Some(printed) = as_another_user(&scene.path) {
        assert!(
            printed.contains("not connected: PermissionDenied"),
            "{printed}"
        );
    }
    assert_eq!(get(&scene.path, "/v1/tree").status, 200);
}

/// Even if the permissions of the files were changed.
#[test]
fn another_user_who_connects_is_refused() {
    let scene = scene();
    fs::set_permissions(scene.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&scene.path, fs::Permissions::from_mode(0o666)).unwrap();
    if let Some(printed) = as_another_user(&scene.path) {
        assert!(
            printed.contains("answered: 403 user 65534 is not served, only user "),
            "{printed}"
        );
        assert!(!printed.contains("bursar-tree"), "{printed}");
    }
    assert_eq!(get(&scene.path, "/v1/tree").status, 200);
}

/// The server's side of the test below. It ends with its input.
#[test]
fn server_in_another_namespace() {
    if let Some(path) = std::env::var_os(SERVED) {
        let memory = Memory::host().unwrap();
        let _server = Server::builder().path(path).start(&memory).unwrap();
        println!("ready");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
}

/// As in a pod with two containers: the server cannot see the process that asks.
#[test]
#[cfg(target_os = "linux")]
fn a_client_outside_of_the_servers_process_namespace_is_answered() {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork"]);
        unshare
    };
    if !unshare()
        .arg("true")
        .status()
        .is_ok_and(|ran| ran.success())
    {
        println!("skipped: this process may not make a namespace");
        return;
    }
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    let mut server = unshare()
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "users::server_in_another_namespace",
            "--nocapture",
        ])
        .env(SERVED, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let printed = BufReader::new(server.stdout.take().unwrap());
    let mut lines = printed.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")));
    assert_eq!(get(&path, "/v1/tree").status, 200);
    drop(server.stdin.take());
    assert!(lines.last().is_some());
    assert!(server.wait().unwrap().success());
}
