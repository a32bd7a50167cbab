//! Sockets of running servers in the directories where they are by default.
//!
//! A directory counts only if it belongs to the user whom its path names: anyone can make one in `/tmp`. A socket is dead if it refuses
//! connections. A dead socket whose process is gone is removed under the directory's lock, so it is never one that a server is about to
//! listen on.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

use crate::socket::{Listening, Turn, default_path, listening};

const RUN: &str = "/run/user";
const TMP: &str = "/tmp";

/// Sockets in the default directories. Returned by [`find`].
#[derive(Debug, Default)]
pub struct Found {
    /// Sockets on which a process listens, sorted.
    pub servers: Vec<PathBuf>,
    /// Sockets on which no process listens.
    pub dead: Vec<DeadSocket>,
    /// Directories that were looked at; `*` stands for each user.
    pub directories: Vec<PathBuf>,
}

/// A socket that a killed server left behind.
#[derive(Debug, PartialEq, Eq)]
pub struct DeadSocket {
    /// The socket's path.
    pub path: PathBuf,
    /// Whether it was removed. It stays if its process may still run.
    pub is_removed: bool,
}

/// Finds the servers that this user may ask: its own, and for root those of all users. A server in the directory of this process's
/// `XDG_RUNTIME_DIR` hides others. Removes dead sockets whose process is gone.
pub fn find() -> Found {
    let user = geteuid().as_raw();
    let own = directories_of(user);
    let mut found = Found::default();
    let (first, others) = own.split_first().expect("each user has two");
    found.look(first, user);
    if found.servers.is_empty() {
        others
            .iter()
            .for_each(|directory| found.look(directory, user));
        if user == 0 {
            for (directory, user) in directories_of_all(Path::new(RUN), Path::new(TMP)) {
                if !own.contains(&directory) {
                    found.look(&directory, user);
                }
            }
        }
    }
    found.directories = own;
    if user == 0 {
        found
            .directories
            .extend([format!("{RUN}/*/bursar"), format!("{TMP}/bursar-*")].map(PathBuf::from));
    }
    found.servers.sort();
    found
}

/// The paths where a process may serve by itself, for each place of its user: `XDG_RUNTIME_DIR` if the user is this process's, and the
/// two directories that [`default_path`] names.
pub fn default_paths(process: u32) -> Vec<PathBuf> {
    let user = user_of(process).unwrap_or(geteuid().as_raw());
    let directories = directories_of(user).into_iter();
    directories
        .map(|directory| directory.join(format!("{process}.sock")))
        .collect()
}

/// Effective user of a process, if the system tells. The owner of its directory in `/proc` may be root instead.
fn user_of(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn directories_of(user: u32) -> Vec<PathBuf> {
    let own = (user == geteuid().as_raw()).then(|| default_path(0));
    let own = own.and_then(|path| path.parent().map(Path::to_owned));
    let usual = [
        format!("{RUN}/{user}/bursar"),
        format!("{TMP}/bursar-{user}"),
    ];
    let mut directories: Vec<PathBuf> = own.into_iter().collect();
    for directory in usual.map(PathBuf::from) {
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories
}

/// The directories of all users, with the user to whom each must belong.
fn directories_of_all(run: &Path, tmp: &Path) -> Vec<(PathBuf, u32)> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let user = |name: &OsStr, prefix: &str| name.to_str()?.strip_prefix(prefix)?.parse().ok();
    let of_run = entries(run).filter_map(|entry| {
        let user = user(&entry.file_name(), "")?;
        Some((entry.path().join("bursar"), user))
    });
    let of_tmp =
        entries(tmp).filter_map(|entry| Some((entry.path(), user(&entry.file_name(), "bursar-")?)));
    of_run.chain(of_tmp).collect()
}

impl Found {
    /// Looks at the sockets of a directory, if it belongs to that user.
    fn look(&mut self, directory: &Path, user: u32) {
        // No link: another user may have made it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else {
            return;
        };
        if rustix::fs::fstat(&opened).map(|found| found.st_uid) != Ok(user) {
            return;
        }
        // A server that starts or ends may have it. Then nothing is removed.
        let turn = Turn::try_take(&opened);
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            // Files that are no sockets refuse connections, too.
            let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
            if !is_socket || path.extension() != Some(OsStr::new("sock")) {
                continue;
            }
            match listening(&path) {
                Ok(Listening::Somebody(_)) => self.servers.push(path),
                Ok(Listening::Orphan) => self.dead.push(DeadSocket {
                    path,
                    is_removed: false,
                }),
                Ok(Listening::Nobody) => self.dead.push(DeadSocket {
                    is_removed: turn.is_ok() && is_gone(&path) && remove(&opened, &name),
                    path,
                }),
                Err(_) => {}
            }
        }
    }
}

/// Whether the process that a socket's name tells has ended.
fn is_gone(path: &Path) -> bool {
    let number = path.file_stem().and_then(OsStr::to_str);
    let number: Option<i32> = number.and_then(|number| number.parse().ok());
    let process = number.filter(|number| *number > 0).and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

fn remove(directory: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Id of no process: more than Linux and macOS give to any.
    const NO_PROCESS: u32 = 1 << 30;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("bursar-find-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a temporary directory");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn looked_at(directory: &Path, user: u32) -> Found {
        let mut found = Found::default();
        found.look(directory, user);
        found.dead.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    #[test]
    fn only_sockets_that_refuse_and_whose_process_is_gone_are_removed() {
        let scratch = Scratch::new("dead");
        let (directory, user) = (&scratch.0, geteuid().as_raw());
        let socket = |name: &str| {
            let path = directory.join(name);
            let listener = UnixListener::bind(&path).expect("a socket");
            (path, listener)
        };
        let (live, _listener) = socket("1.sock");
        let own = format!("{}.sock", std::process::id());
        let [gone, runs, nameless] =
            [&format!("{NO_PROCESS}.sock"), &own, "server.sock"].map(|name| socket(name).0);
        let no_socket = directory.join(format!("{}.sock", NO_PROCESS + 1));
        fs::write(&no_socket, "mine").expect("a file");

        let dead = |path: &PathBuf, is_removed| DeadSocket {
            path: path.clone(),
            is_removed,
        };
        let mut expected = [
            dead(&gone, true),
            dead(&runs, false),
            dead(&nameless, false),
        ];
        expected.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(looked_at(directory, user + 1).dead, []);
        let opened = fs::File::open(directory).expect("a directory").into();
        let turn = Turn::try_take(&opened);
        assert!(
            looked_at(directory, user)
                .dead
                .iter()
                .all(|it| !it.is_removed)
        );
        drop(turn);
        let found = looked_at(directory, user);
        assert_eq!(found.servers, [live]);
        assert_eq!(found.dead, expected);
        assert!(!gone.exists() && runs.exists() && nameless.exists() && no_socket.exists());
    }

    #[test]
    fn directories_of_other_users_and_links_do_not_count() {
        let scratch = Scratch::new("users");
        let user = geteuid().as_raw();
        let real = scratch.0.join(format!("bursar-{user}"));
        fs::create_dir(&real).expect("a directory");
        let _listener = UnixListener::bind(real.join("1.sock")).expect("a socket");
        let link = scratch.0.join("bursar-7");
        symlink(&real, &link).expect("a link");
        fs::create_dir(scratch.0.join("bursar-x")).expect("a directory");
        let mut all = directories_of_all(&scratch.0.join("none"), &scratch.0);
        all.sort();
        let mut expected = vec![(real.clone(), user), (link.clone(), 7)];
        expected.sort();
        assert_eq!(all, expected);
        assert_eq!(looked_at(&real, user).servers.len(), 1);
        assert!(looked_at(&real, user + 1).servers.is_empty());
        assert!(looked_at(&link, user).servers.is_empty());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_the_paths_of_its_user() {
        let user = geteuid().as_raw();
        assert_eq!(user_of(std::process::id()), Some(user));
        assert_eq!(user_of(NO_PROCESS), None);
        let paths = default_paths(std::process::id());
        assert!(paths.contains(&default_path(std::process::id())));
        let other = directories_of(user + 1);
        let expected = [
            format!("/run/user/{}/bursar", user + 1),
            format!("/tmp/bursar-{}", user + 1),
        ];
        assert_eq!(other, expected.map(PathBuf::from));
    }
}
