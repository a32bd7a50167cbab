//! Backends and numbers of CPUs that variables ask for. Each is a process of its own, because a process sets its machine up
//! once.

use std::process::Command;

use bursar_machine::host::{Backend, allowed_cpus, pin_to};
use bursar_machine::{FIRST_STATISTIC, Host, Machine, Outcome, Shard, Slot};

/// Precedes what a process says of itself.
const SAYS: &str = "this process: ";

/// The machine of this process: each thread has a shard that there is, and its CPU's where the backend knows the CPU.
#[test]
fn this_process() {
    let host = match Host::start() {
        Ok(host) => host,
        Err(error) => return println!("{SAYS}{error}"),
    };
    let backend = host.report().backend;
    let cpus = host.cpus();
    assert!(cpus > 0);
    let slot = host.slots(FIRST_STATISTIC + 1).unwrap().remove(0);
    for cpu in allowed_cpus() {
        let is_pinned = pin_to(cpu).is_ok();
        let shard = host.current_shard();
        assert!(shard.index() <= cpus, "{shard:?} of {cpus}");
        match backend {
            Backend::Sharded => assert!(shard.index() < cpus, "{shard:?} of {cpus}"),
            // Others share the extra shard.
            _ if is_pinned => assert_eq!(shard.index(), cpu.min(cpus)),
            _ => {}
        }
        if is_pinned || backend == Backend::Sharded {
            let outcome = slot.add(FIRST_STATISTIC, 1);
            assert!(matches!(outcome, Outcome::Unpublished { shard: at, .. } if at == shard));
        }
    }
    assert_eq!(host.node_of(Shard(cpus as u32)), None);
    println!("{SAYS}{backend}, {cpus} CPUs");
}

/// Runs [`this_process`] in a process with that variable, and returns what it says.
fn with(variable: &str, value: &str) -> String {
    with_all(&[(variable, value)])
}

fn with_all(variables: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "this_process", "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let said = text.lines().find_map(|line| line.split_once(SAYS));
    said.expect("one line").1.to_owned()
}

#[test]
fn backends_by_name() {
    // The third, by sections, is for machines that have it.
    for name in ["percpu-atomic", "sharded"] {
        let text = with("BURSAR_BACKEND", name);
        let knows_cpu = cfg!(target_os = "linux") || name == "sharded";
        let expected = if knows_cpu {
            name
        } else {
            "not available here"
        };
        assert!(text.contains(expected), "{text}");
    }
    let text = with("BURSAR_BACKEND", "abacus");
    assert!(
        text.contains("BURSAR_BACKEND=abacus: no such backend"),
        "{text}"
    );
}

/// A C library that is told not to register sections has none, whatever else this machine lacks.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn sections_need_the_c_library() {
    let variables = [
        ("BURSAR_BACKEND", "rseq"),
        ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
    ];
    let said = with_all(&variables);
    let reasons = [
        "did not register rseq",
        "__rseq_offset",
        "sections exist on",
    ];
    let is_known = reasons.iter().any(|reason| said.contains(reason));
    assert!(said.contains("not available here") && is_known, "{said}");
}

#[test]
fn numbers_of_cpus() {
    let one = with("BURSAR_CPUS", "1");
    assert!(one.ends_with(", 1 CPUs"), "{one}");
    // Only those that the machine can have get a shard.
    assert_eq!(with("BURSAR_CPUS", "1024"), with("BURSAR_CPUS", ""));
    for bad in ["0", "1025", "many"] {
        let error = format!("BURSAR_CPUS={bad}: expected a number from 1 to 1024");
        assert_eq!(with("BURSAR_CPUS", bad), error);
    }
}

#[test]
fn an_empty_name_asks_for_no_backend() {
    // Where somebody has chosen, under a sanitizer for example, another may not work.
    if std::env::var_os("BURSAR_BACKEND").is_none() {
        let chosen = Host::start().unwrap().report().backend;
        let said = with("BURSAR_BACKEND", "");
        assert!(said.starts_with(&format!("{chosen}, ")), "{said}");
    }
}
