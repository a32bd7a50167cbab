//! The socket's file: made, refused, replaced, removed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use bursar::Memory;
use bursar_serve::{Server, StartError, default_path};

use crate::client::{get, private_directory, scene};

fn start(path: impl Into<PathBuf>) -> Result<Server, StartError> {
    Server::builder().path(path).start(&Memory::host().unwrap())
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

#[test]
fn only_the_user_may_enter() {
    let above = private_directory();
    let path = above.path().join("own/bursar.sock");
    let server = start(&path).unwrap();
    assert_eq!(server.path(), path);
    assert_eq!(mode(&above.path().join("own")), 0o700);
    assert_eq!(mode(&path), 0o600);
    assert!(path.symlink_metadata().unwrap().file_type().is_socket());
    drop(server);
    assert!(!path.exists());
    assert!(above.path().join("own").is_dir());
}

#[test]
fn the_default_path_names_the_process() {
    let server = Server::start(&Memory::host().unwrap()).unwrap();
    let path = default_path(std::process::id());
    assert_eq!(server.path(), path);
    assert!(path.ends_with(format!("{}.sock", std::process::id())));
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(get(&path, "/").status, 200);
}

#[test]
fn a_path_must_fit() {
    let directory = private_directory();
    let room = 107 - directory.path().as_os_str().len() - 1;
    let path = directory.path().join("x".repeat(room));
    assert_eq!(path.as_os_str().len(), 107);
    assert_eq!(get(start(&path).unwrap().path(), "/").status, 200);

    let path = directory.path().join("x".repeat(room + 1));
    let error = start(&path).unwrap_err();
    assert!(matches!(
        error,
        StartError::PathTooLong {
            bytes: 108,
            bytes_max: 107,
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains(path.to_str().unwrap()) && text.contains("Builder::path"),
        "{text}"
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_path_needs_a_directory_and_a_name() {
    let directory = private_directory();
    assert!(matches!(
        start(directory.path().join("..")).unwrap_err(),
        StartError::NoFileName { .. }
    ));
    assert!(matches!(
        start("").unwrap_err(),
        StartError::NoFileName { .. }
    ));
    let error = start(directory.path().join("none/none/bursar.sock")).unwrap_err();
    assert!(
        matches!(
            error,
            StartError::System {
                action: "make the directory",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("none/none"), "{error}");
}

#[test]
fn a_directory_that_others_may_enter_is_refused() {
    for refused in [0o755, 0o710, 0o701, 0o777, 0o1777, 0o2740] {
        let directory = private_directory();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(refused)).unwrap();
        let error = start(directory.path().join("bursar.sock")).unwrap_err();
        let StartError::DirectoryMode { path, mode } = &error else {
            panic!("{error}");
        };
        assert_eq!((path.as_path(), *mode), (directory.path(), refused & 0o777));
        assert!(error.to_string().contains("chmod 700"), "{error}");
        let octal = format!("mode: {mode:#o},");
        assert!(format!("{error:#?}").contains(&octal), "{error:#?}");
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let directory = private_directory();
    let (path, other) = match chown(directory.path(), Some(65534), None) {
        Ok(()) => (directory.path(), 65534),
        // We are not root.
        Err(_) => (Path::new("/"), 0),
    };
    let error = start(path.join("bursar.sock")).unwrap_err();
    assert!(
        matches!(&error, StartError::DirectoryOwner { owner, .. } if *owner == other),
        "{error}"
    );
}

#[test]
fn no_link_leads_to_the_directory() {
    let directory = private_directory();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&real, &link).unwrap();
    assert!(matches!(
        start(link.join("bursar.sock")).unwrap_err(),
        StartError::NotADirectory { .. }
    ));
    fs::remove_file(&link).unwrap();
    symlink("nothing", &link).unwrap();
    assert!(matches!(
        start(link.join("bursar.sock")).unwrap_err(),
        StartError::NotADirectory { .. }
    ));
    fs::write(directory.path().join("file"), "").unwrap();
    let error = start(directory.path().join("file/bursar.sock")).unwrap_err();
    assert!(matches!(error, StartError::NotADirectory { .. }), "{error}");
}

#[test]
fn a_live_socket_is_not_replaced() {
    let scene = scene();
    let error = start(&scene.path).unwrap_err();
    assert!(
        matches!(error, StartError::Taken { process: Some(process), .. } if process == std::process::id()),
        "{error}"
    );
    assert!(
        error.to_string().contains(scene.path.to_str().unwrap()),
        "{error}"
    );
    assert_eq!(get(&scene.path, "/").status, 200);
    // Of another program, which does not answer.
    let path = scene.directory.path().join("other.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    assert!(matches!(
        start(&path).unwrap_err(),
        StartError::Taken { .. }
    ));
}

#[test]
fn a_stale_socket_is_replaced() {
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = start(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(get(&path, "/").status, 200);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn no_other_file_is_replaced_or_removed() {
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        start(&path).unwrap_err(),
        StartError::NotASocket { .. }
    ));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
    symlink("precious", &path).unwrap();
    assert!(matches!(
        start(&path).unwrap_err(),
        StartError::NotASocket { .. }
    ));
    fs::remove_file(&path).unwrap();
    // Put in place of the socket while the server runs.
    let server = start(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    drop(server);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

/// Many servers find the same stale socket: one replaces it, and the others find it taken.
#[test]
fn one_of_many_servers_gets_the_path() {
    let directory = private_directory();
    let path = directory.path().join("bursar.sock");
    for _ in 0..20 {
        let _ = fs::remove_file(&path);
        drop(UnixListener::bind(&path).unwrap());
        let memory = Memory::host().unwrap();
        let servers: Vec<_> = std::thread::scope(|scope| {
            let start = || Server::builder().path(&path).start(&memory);
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let taken =
            |result: &&Result<Server, StartError>| matches!(result, Err(StartError::Taken { .. }));
        assert_eq!(servers.iter().filter(taken).count(), 3, "{servers:?}");
        assert_eq!(get(&path, "/").status, 200);
    }
}
