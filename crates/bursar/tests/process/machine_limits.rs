//! The machine's limits: more CPUs than at the start, no memory for more groups, a backend that does not exist. Each
//! test is a process of its own, because a process sets its machine up once.

use crate::common::inner::{in_another_process, in_own_process, is_inner};
use crate::common::{ROWS, Short, memory};
use bursar::{CreateError, Limits, Memory, Statistic};

#[test]
fn cpus_that_come_later_share_the_extra_shard() {
    let _alone = crate::common::fork::alone();
    if !in_own_process(
        module_path!(),
        "cpus_that_come_later_share_the_extra_shard",
        &[("BURSAR_CPUS", "1")],
    ) {
        return;
    }
    use bursar_machine::host::{allowed_cpus, pin_to};
    let tenant = memory().make_max("tenant", 1 << 20);
    let query = tenant.make("query");
    let mut held = Vec::new();
    for cpu in allowed_cpus() {
        pin_to(cpu).unwrap();
        query.add(ROWS, 1);
        held.push(query.try_charge(1000).unwrap());
    }
    let cpus = held.len() as i64;
    let reading = tenant.exact();
    assert_eq!(
        (reading.get(ROWS).value, reading.usage().value),
        (cpus, 1000 * cpus)
    );
    drop(held);
    let all = query.try_charge(1 << 20);
    drop(all.expect("whatever CPU it was returned on"));
    assert_eq!(tenant.used(), 0);
}

#[test]
fn bad_settings_are_named() {
    let _alone = crate::common::fork::alone();
    if is_inner() {
        return println!("{}", Memory::host().unwrap_err());
    }
    for (variable, value, part) in [
        (
            "BURSAR_BACKEND",
            "fast",
            "use rseq, percpu-atomic or sharded",
        ),
        ("BURSAR_CPUS", "0", "expected a number from 1 to 1024"),
    ] {
        let variables = [(variable, value)];
        let output = in_another_process(module_path!(), "bad_settings_are_named", &variables);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(part) && output.status.success(), "{text}");
    }
}

/// Under a limit on address space, groups run out with an error, and those that exist go on working.
#[cfg(target_os = "linux")]
#[test]
fn too_many_groups_for_the_address_space() {
    let _alone = crate::common::fork::alone();
    if !in_own_process(module_path!(), "too_many_groups_for_the_address_space", &[]) {
        return;
    }
    let many = (0..120).map(|index| Statistic::counter(format!("s{index}").leak()));
    let many = many.collect::<Vec<_>>().leak();
    let memory = Memory::builder().statistics(many).build().unwrap();
    // Room for what is mapped now, the allocator's arena of this thread included, and a few chunks of per-CPU words.
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit {
        rlim_cur: pages * 4096 + (4 << 20),
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: passes a valid structure; lowering the own soft limit is always allowed.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let root = memory.root();
    let mut groups = Vec::new();
    let error = loop {
        match root.child(format!("g{}", groups.len()), Limits::none()) {
            Ok(group) => groups.push(group),
            Err(error) => break error,
        }
    };
    assert_eq!(error, CreateError::OutOfMemory);
    let held: Vec<_> = groups
        .iter()
        .map(|group| group.try_charge(10).unwrap())
        .collect();
    assert_eq!(root.used(), 10 * held.len() as i64);
    drop((held, groups));
    let again = root.child("again", Limits::none());
    assert!(again.is_ok(), "records are used again");
}
