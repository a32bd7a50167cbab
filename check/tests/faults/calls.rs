//! System calls that are refused: the library returns its error, or does without. It neither panics nor hangs.
//!
//! A filter stays until its process ends. So a call that is refused is refused always, also to the code that would try it again.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bursar::pages::{NodeBinding, Order, PageOptions, ReserveError, Zeroed};
use bursar::{AllocPagesError, CreateError, Limits, Memory, MemoryError};
use bursar_arbiter::{Arbiter, Policy};
use bursar_machine::host::{Backend, allowed_cpus, pin_to};
use bursar_serve::{Server, StartError};

use crate::child::{self, End};
use crate::filter::refuse;
use crate::library::{MIB, World, world};

/// Refuses the calls of a case from now on.
type Refuse<'a> = &'a dyn Fn();

struct Case {
    name: &'static str,
    calls: &'static [libc::c_long],
    errors: &'static [libc::c_int],
    run: fn(Refuse<'_>),
}

const CLONES: &[libc::c_long] = &[libc::SYS_clone, libc::SYS_clone3];
#[cfg(target_arch = "x86_64")]
const POLLS: &[libc::c_long] = &[libc::SYS_poll, libc::SYS_ppoll];
#[cfg(not(target_arch = "x86_64"))]
const POLLS: &[libc::c_long] = &[libc::SYS_ppoll];
#[cfg(target_arch = "x86_64")]
const CHMODS: &[libc::c_long] = &[libc::SYS_chmod, libc::SYS_fchmodat];
#[cfg(not(target_arch = "x86_64"))]
const CHMODS: &[libc::c_long] = &[libc::SYS_fchmodat];

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { name: "mmap, at the start", calls: &[libc::SYS_mmap], errors: &[libc::ENOMEM, libc::EPERM], run: no_start },
    Case { name: "mmap", calls: &[libc::SYS_mmap], errors: &[libc::ENOMEM, libc::EPERM], run: no_more_mappings },
    Case { name: "munmap", calls: &[libc::SYS_munmap], errors: &[libc::EINVAL, libc::ENOMEM], run: all_works },
    Case { name: "madvise", calls: &[libc::SYS_madvise], errors: &[libc::EINVAL, libc::EPERM], run: all_works },
    Case { name: "mbind", calls: &[libc::SYS_mbind], errors: &[libc::EPERM, libc::ENOSYS], run: no_binding },
    Case { name: "membarrier", calls: &[libc::SYS_membarrier], errors: &[libc::ENOSYS, libc::EPERM], run: no_sections },
    Case { name: "getcpu", calls: &[libc::SYS_getcpu], errors: &[libc::ENOSYS, libc::EPERM], run: all_works },
    Case { name: "sched_getaffinity", calls: &[libc::SYS_sched_getaffinity], errors: &[libc::EPERM, libc::EINVAL], run: all_works },
    Case { name: "sched_setaffinity", calls: &[libc::SYS_sched_setaffinity], errors: &[libc::EPERM, libc::EINVAL], run: no_pinning },
    Case { name: "clone", calls: CLONES, errors: &[libc::EAGAIN, libc::EPERM], run: no_threads },
    Case { name: "clone3", calls: &[libc::SYS_clone3], errors: &[libc::ENOSYS], run: all_works },
    Case { name: "openat", calls: &[libc::SYS_openat], errors: &[libc::EMFILE, libc::EACCES], run: no_files },
    Case { name: "read", calls: &[libc::SYS_read], errors: &[libc::EIO], run: no_files },
    Case { name: "socket", calls: &[libc::SYS_socket], errors: &[libc::EMFILE, libc::EPERM], run: no_server },
    Case { name: "socketpair", calls: &[libc::SYS_socketpair], errors: &[libc::EMFILE], run: no_server },
    Case { name: "bind", calls: &[libc::SYS_bind], errors: &[libc::EACCES, libc::ENOSPC], run: no_server },
    Case { name: "listen", calls: &[libc::SYS_listen], errors: &[libc::EACCES], run: no_server },
    Case { name: "flock", calls: &[libc::SYS_flock], errors: &[libc::ENOLCK], run: no_server },
    Case { name: "chmod", calls: CHMODS, errors: &[libc::EPERM], run: no_server },
    Case { name: "accept4", calls: &[libc::SYS_accept4], errors: &[libc::EMFILE, libc::ENOMEM, libc::EPERM], run: no_client },
    Case { name: "getsockopt", calls: &[libc::SYS_getsockopt], errors: &[libc::EPERM, libc::ENOTSOCK], run: no_answer },
    Case { name: "ioctl", calls: &[libc::SYS_ioctl, libc::SYS_fcntl], errors: &[libc::EPERM], run: no_server },
    Case { name: "recvfrom", calls: &[libc::SYS_recvfrom], errors: &[libc::EIO, libc::ENOMEM], run: no_answer },
    Case { name: "sendto", calls: &[libc::SYS_sendto], errors: &[libc::EPIPE, libc::ENOBUFS], run: no_answer },
    Case { name: "poll", calls: POLLS, errors: &[libc::ENOMEM, libc::EINVAL, libc::EPERM], run: no_client },
    Case { name: "shutdown", calls: &[libc::SYS_shutdown], errors: &[libc::EPERM], run: an_answer },
];

#[test]
fn each_system_call_is_refused() {
    let _alone = child::alone();
    let mut wrong = Vec::new();
    let only = std::env::var("BURSAR_FAULT_CASE").unwrap_or_default();
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        for &errno in case.errors {
            let ended = child::run(|said| {
                let refuses = || assert!(refuse(case.calls, errno), "no filters");
                // A kernel without filters, or a sandbox: nothing can be shown.
                if !refuse(&[], 0) {
                    said.write_all(b"left out").unwrap();
                    return;
                }
                (case.run)(&refuses);
            });
            let name = format!(
                "{}, {}",
                case.name,
                std::io::Error::from_raw_os_error(errno)
            );
            println!(
                "{name}: {:?} {}",
                ended.end,
                String::from_utf8_lossy(&ended.said)
            );
            // A thread may have panicked, which ends no process.
            if ended.end != End::Well || ended.errors.contains("panicked") {
                wrong.push(format!("{name}: {:?}: {}", ended.end, ended.errors));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The C library registers the area of sections when a program begins. So the filter comes before that: it outlives `exec`.
#[test]
fn a_registration_of_rseq_is_refused() {
    let _alone = child::alone();
    if std::env::var_os("BURSAR_FAULT_INNER").is_some() {
        let forced = std::env::var("BURSAR_BACKEND").unwrap_or_default();
        if forced == "rseq" {
            return assert!(Memory::host().is_err());
        }
        let world = world();
        assert_ne!(world.memory.machine().report().backend, Backend::Rseq);
        return use_all(world);
    }
    let ended = child::run(|_| {
        if !refuse(&[libc::SYS_rseq], libc::ENOSYS) {
            return;
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "calls::a_registration_of_rseq_is_refused"]);
        panic!("{}", again.env("BURSAR_FAULT_INNER", "1").exec());
    });
    assert_eq!(ended.end, End::Well, "{}", ended.errors);
}

/// A start that failed for lack of addresses is tried again by the next.
#[test]
fn a_start_that_failed_is_tried_again() {
    let _alone = child::alone();
    let ended = child::run(|_| {
        limit_addresses(Some(0));
        let failed = Memory::host().map(drop).unwrap_err();
        assert!(matches!(failed, MemoryError::Start(_)), "{failed}");
        limit_addresses(None);
        world().settle();
    });
    assert_eq!(ended.end, End::Well, "{}", ended.errors);
}

/// Lets the process have so many bytes of addresses more than now, or without a limit.
fn limit_addresses(more: Option<u64>) {
    let status = std::fs::read_to_string("/proc/self/statm").expect("a number of pages");
    let pages: u64 = status.split(' ').next().unwrap().parse().expect("a number");
    let limit = libc::rlimit {
        rlim_cur: more.map_or(libc::RLIM_INFINITY, |more| pages * 4096 + more),
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure is valid; the own soft limit may be changed.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Charges from some threads, pages, readings, and upkeep; then nothing is left.
fn use_all(world: World) {
    let work = || {
        for size in 0..300 {
            let charge = world.query.try_charge(size * 100).expect("there is room");
            let page = world
                .query
                .alloc_pages(Order::ZERO, Zeroed::Yes)
                .expect("there is room");
            assert!(page.bytes().iter().all(|&byte| byte == 0));
            drop((charge, page));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            // Some cases have no threads.
            let started = std::thread::Builder::new().spawn_scoped(scope, work);
            if started.is_err() {
                work();
            }
        }
    });
    let group = world
        .tenant
        .child("one more", Limits::none())
        .expect("there is room");
    drop(group.try_charge(MIB).expect("there is room"));
    drop(group);
    world.memory.drain_pages();
    world.memory.tick();
    assert_eq!(
        world
            .memory
            .snapshot(bursar::Freshness::Exact)
            .unwrap()
            .groups()
            .len(),
        3
    );
    world.settle();
}

/// The library does without.
fn all_works(refuse: Refuse<'_>) {
    refuse();
    use_all(world());
}

fn no_start(refuse: Refuse<'_>) {
    refuse();
    let failed = Memory::host().map(drop).unwrap_err();
    assert!(matches!(failed, MemoryError::Start(_)), "{failed}");
    assert!(failed.to_string().contains("memory"), "{failed}");
}

fn no_more_mappings(refuse: Refuse<'_>) {
    let world = world();
    refuse();
    let mut groups = Vec::new();
    let error = loop {
        match world.tenant.child(groups.len().to_string(), Limits::none()) {
            Ok(group) => groups.push(group),
            Err(error) => break error,
        }
    };
    assert_eq!(error, CreateError::OutOfMemory);
    let charges: Vec<_> = groups
        .iter()
        .map(|group| group.try_charge(10).unwrap())
        .collect();
    let error = world
        .query
        .alloc_pages(Order::ZERO, Zeroed::No)
        .unwrap_err();
    let AllocPagesError::NoZones(ReserveError::Refused { .. }) = error else {
        panic!("{error}");
    };
    drop((charges, groups));
    // A new thread would need a mapping for its stack.
    world.settle();
}

fn no_binding(refuse: Refuse<'_>) {
    refuse();
    let memory = |binding| {
        let options = PageOptions {
            bytes_per_node: Some(16 * MIB),
            binding,
            ..PageOptions::default()
        };
        Memory::builder().pages(options).build().expect("a memory")
    };
    let strict = memory(NodeBinding::Strict);
    let page = strict.alloc_pages(Order::ZERO, Zeroed::No);
    match page {
        // With one node nothing is bound, and nothing refused.
        Ok(_) => assert_eq!(strict.machine().report().nodes, 1),
        Err(AllocPagesError::NoZones(ReserveError::CannotBind { .. })) => {}
        Err(error) => panic!("{error}"),
    }
    drop(
        memory(NodeBinding::Preferred)
            .alloc_pages(Order::ZERO, Zeroed::No)
            .unwrap(),
    );
}

fn no_sections(refuse: Refuse<'_>) {
    refuse();
    if std::env::var("BURSAR_BACKEND").is_ok_and(|backend| backend == "rseq") {
        return assert!(Memory::host().is_err());
    }
    let world = world();
    assert_ne!(world.memory.machine().report().backend, Backend::Rseq);
    use_all(world);
}

fn no_pinning(refuse: Refuse<'_>) {
    refuse();
    assert!(pin_to(allowed_cpus()[0]).is_err());
    use_all(world());
}

fn no_threads(refuse: Refuse<'_>) {
    refuse();
    let error = Memory::builder()
        .ticker(true)
        .build()
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, MemoryError::Ticker(_)), "{error}");
    let world = world();
    assert!(world.memory.start_ticker().is_err());
    let arbiter = Arbiter::new(&world.memory, Policy::default());
    assert!(arbiter.start_ticker(Duration::from_secs(1)).is_err());
    drop(arbiter);
    refused_server(&world.memory, tempfile::tempdir().unwrap().path());
    use_all(world);
}

fn no_files(refuse: Refuse<'_>) {
    refuse();
    let error = Memory::builder()
        .max_from_cgroup(0)
        .build()
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, MemoryError::Cgroup(_)), "{error}");
    let world = world();
    assert!(world.memory.drift().is_err() && world.memory.reread_cgroup().is_err());
    use_all(world);
}

/// Asserts that a server cannot start, and that it leaves no socket.
fn refused_server(memory: &Memory, directory: &Path) {
    let path = directory.join("own").join("bursar.sock");
    let error = Server::builder()
        .path(&path)
        .start(memory)
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, StartError::System { .. }), "{error}");
    assert!(!path.exists(), "{error}");
}

fn no_server(refuse: Refuse<'_>) {
    let world = world();
    let directory = tempfile::tempdir().unwrap();
    refuse();
    refused_server(&world.memory, directory.path());
    use_all(world);
}

/// Event that a client waits for.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// The server ends the connection.
    Closed,
    /// The server itself ends, because it cannot even see the client.
    Stopped,
    /// The first bytes of the answer.
    Answered,
}

/// Starts a server after `refuse`, and asks it from a thread to which nothing is refused. Returns the answer.
fn asked(world: &World, refuse: Refuse<'_>, until: Until) -> Result<Vec<u8>, StartError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own").join("bursar.sock");
    let (go, begin) = std::sync::mpsc::channel::<()>();
    let (say, has_asked) = std::sync::mpsc::channel::<()>();
    let path = &path;
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            if begin.recv().is_err() {
                return Vec::new();
            }
            let mut stream = UnixStream::connect(path).expect("it listens");
            // The server may have closed it already, here and below.
            let _ = stream.write_all(b"GET /v1/tree HTTP/1.1\r\n\r\n");
            say.send(()).expect("it waits");
            let mut answer = vec![0; 12];
            if until == Until::Answered {
                stream.read_exact(&mut answer).expect("an answer");
            } else {
                answer.clear();
                let _ = stream.read_to_end(&mut answer);
            }
            answer
        });
        refuse();
        let go = go;
        let server = Server::builder().path(path).start(&world.memory)?;
        go.send(()).expect("it waits");
        has_asked.recv().expect("it asks");
        if until == Until::Stopped {
            drop(server);
            return Ok(client.join().expect("it ends"));
        }
        let answer = client.join().expect("it ends");
        drop(server);
        Ok(answer)
    })
}

fn no_answer(refuse: Refuse<'_>) {
    let world = world();
    let answer = asked(&world, refuse, Until::Closed).expect("it starts");
    assert_eq!(String::from_utf8_lossy(&answer), "");
    use_all(world);
}

fn no_client(refuse: Refuse<'_>) {
    let world = world();
    let answer = asked(&world, refuse, Until::Stopped).expect("it starts");
    assert_eq!(String::from_utf8_lossy(&answer), "");
    use_all(world);
}

fn an_answer(refuse: Refuse<'_>) {
    let world = world();
    let answer = asked(&world, refuse, Until::Answered).expect("it starts");
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200");
    use_all(world);
}
