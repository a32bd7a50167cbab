//! Servers and forked children.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use bursar::Memory;
use bursar_serve::Server;

use crate::client::{get, private_directory, scene};
use crate::fork::{alone, in_child};

#[test]
fn a_child_leaves_its_parents_server_alone() {
    let _alone = alone();
    let scene = scene();
    let (path, server) = (scene.path.clone(), scene.server);
    let mut server = Some(server);
    in_child(|| {
        server = None;
        // The parent answers, with its own number.
        let tree = get(&path, "/v1/tree").json();
        assert_ne!(tree["pid"], std::process::id());
    });
    let tree = get(&path, "/v1/tree").json();
    assert_eq!(tree["pid"], std::process::id());
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_child_may_serve_itself() {
    let _alone = alone();
    let scene = scene();
    let path = scene.directory.path().join("child.sock");
    in_child(|| {
        scene.memory.tick();
        let server = Server::builder().path(&path).start(&scene.memory).unwrap();
        assert_eq!(get(&path, "/v1/tree").json()["pid"], std::process::id());
        drop(server);
        assert!(!path.exists());
    });
    assert_eq!(get(&scene.path, "/").status, 200);
}

/// A connection ends for its client although a child has a copy of it.
#[test]
fn a_childs_copy_of_a_connection_does_not_keep_it_open() {
    let _alone = alone();
    let scene = scene();
    let mut client = crate::client::connect(&scene.path);
    client.write_all(b"GET /v1/tree HTTP/1.1\r\n").unwrap();
    // The server has taken it.
    assert_eq!(get(&scene.path, "/").status, 200);
    let (mut parent, mut child) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            in_child(|| {
                child.write_all(b"!").unwrap();
                child.read_exact(&mut [0]).unwrap();
            });
        });
        parent.read_exact(&mut [0]).unwrap();
        client.write_all(b"\r\n").unwrap();
        let answer = crate::client::Answer::parse(&crate::client::rest(&client));
        assert_eq!(answer.status, 200);
        parent.write_all(b"!").unwrap();
    });
}

/// The socket of a process that was killed is stale, although a child of it still has a copy.
#[test]
#[cfg(target_os = "linux")]
fn a_childs_copy_of_a_listener_does_not_keep_the_path() {
    let _alone = alone();
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    let (mut here, mut grandchild) = UnixStream::pair().unwrap();
    in_child(|| {
        let server = Server::builder()
            .path(&path)
            .start(&Memory::host().unwrap())
            .unwrap();
        std::mem::forget(server);
        std::thread::spawn(move || {
            in_child(|| {
                grandchild.write_all(b"!").unwrap();
                // Until the test ends.
                let _ = grandchild.read(&mut [0]);
            });
        });
        here.read_exact(&mut [0]).unwrap();
        // Ends as if it was killed: the socket's file stays.
    });
    assert!(
        UnixStream::connect(&path).is_ok(),
        "the grandchild has no copy"
    );
    let server = Server::builder()
        .path(&path)
        .start(&Memory::host().unwrap())
        .unwrap();
    assert_eq!(get(&path, "/v1/tree").json()["pid"], std::process::id());
    drop(server);
    here.write_all(b"!").unwrap();
}
