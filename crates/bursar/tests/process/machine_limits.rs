//! The machine's limits: more CPUs than at the start, no memory for more groups, a backend that does not exist. Each
//! test is a process of its own, because a process sets its machine up once.

use crate::common::Short;
use crate::common::inner::{assert_passed, in_another_process, is_inner};
use bursar::{Counter, CreateError, Limits, Memory, Statistic};

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::of(STATISTICS, "rows");

#[test]
fn inner_work_on_all_cpus() {
    let _alone = crate::common::fork::alone();
    if !is_inner() {
        return;
    }
    use bursar_machine::host::{allowed_cpus, pin_to};
    let memory = Memory::builder().statistics(STATISTICS).build().unwrap();
    let tenant = memory.make_max("tenant", 1 << 20);
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
    drop(
        query
            .try_charge(1 << 20)
            .expect("whatever CPU it was returned on"),
    );
    assert_eq!(tenant.used(), 0);
}

#[test]
fn cpus_that_come_later_share_the_extra_shard() {
    let _alone = crate::common::fork::alone();
    assert_passed(&in_another_process(
        module_path!(),
        "inner_work_on_all_cpus",
        &[("BURSAR_CPUS", "1")],
    ));
}

#[test]
fn bad_settings_are_named() {
    let _alone = crate::common::fork::alone();
    for (variable, value, part) in [
        (
            "BURSAR_BACKEND",
            "fast",
            "use rseq, percpu-atomic or sharded",
        ),
        ("BURSAR_CPUS", "0", "expected a number from 1 to 1024"),
    ] {
        let output = in_another_process(module_path!(), "inner_start", &[(variable, value)]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(part), "{text}");
        assert!(output.status.success());
    }
}

#[test]
fn inner_start() {
    let _alone = crate::common::fork::alone();
    if is_inner() {
        println!("{}", Memory::host().unwrap_err());
    }
}

/// Under a limit on address space, groups run out with an error, and those that exist go on working.
#[cfg(target_os = "linux")]
#[test]
fn too_many_groups_for_the_address_space() {
    let _alone = crate::common::fork::alone();
    assert_passed(&in_another_process(
        module_path!(),
        "inner_many_groups",
        &[],
    ));
}

#[cfg(target_os = "linux")]
#[test]
fn inner_many_groups() {
    let _alone = crate::common::fork::alone();
    if !is_inner() {
        return;
    }
    let many: Vec<Statistic> = (0..120)
        .map(|index| Statistic::counter(Box::leak(format!("s{index}").into_boxed_str())))
        .collect();
    let memory = Memory::builder().statistics(many.leak()).build().unwrap();
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
