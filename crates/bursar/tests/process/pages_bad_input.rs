//! Pages that cannot be allocated: each error names the obstacle, nothing is lost, and the request succeeds later.
//!
//! The kernel's limits are set in processes of their own.

use crate::common::Short;
use crate::common::inner::in_own_process;
use bursar::pages::{
    ListOptions, NodeBinding, Order, PageOptions, Placement, ReserveError, Watermarks, Zeroed,
};
use bursar::{AllocPagesError, Memory, MemoryError, Page, PageRequest};

const ZERO: Order = Order::ZERO;

fn options(bytes: u64) -> PageOptions {
    PageOptions {
        bytes_per_node: Some(bytes),
        ..PageOptions::default()
    }
}

fn memory(options: PageOptions) -> Memory {
    Memory::builder().pages(options).build().unwrap()
}

/// Asks for the first page, charged to a group, and gets none; nothing is charged then.
fn refused(memory: &Memory) -> ReserveError {
    let group = memory.make("asks");
    let error = group.alloc_pages(ZERO, Zeroed::No).unwrap_err();
    assert_eq!(group.used(), 0);
    assert!(memory.zone_info().is_none());
    match error {
        AllocPagesError::NoZones(error) => error,
        other => panic!("{other}"),
    }
}

/// Address space of this process, bytes.
#[cfg(target_os = "linux")]
fn mapped_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_address_space_is_named() {
    let _alone = crate::common::fork::alone();
    if !in_own_process(module_path!(), "a_limit_on_address_space_is_named", &[]) {
        return;
    }
    let set_limit = |bytes| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: passes a valid structure; the hard limit stays what it was, or is lowered to it.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    };
    let memory = memory(options(16 << 30));
    let limit = mapped_bytes() + (256 << 20);
    set_limit(limit);
    let error = refused(&memory);
    assert!(matches!(error, ReserveError::Refused { .. }), "{error:?}");
    let error = error.to_string();
    let parts = [
        "17179869184 bytes",
        "RLIMIT_AS",
        &limit.to_string(),
        "ulimit -v",
    ];
    for part in parts {
        assert!(error.contains(part), "{error}");
    }
    // Nothing was reserved, and nothing is remembered.
    set_limit(libc::RLIM_INFINITY);
    let mut page = memory.alloc_pages(ZERO, Zeroed::No).unwrap();
    page.zero();
    assert_eq!(page.bytes().len(), 4096);
}

/// `BURSAR_TEST_CGROUP` is the directory of a cgroup with a memory limit above 64 MiB and below 1 TiB, which tests may enter.
/// Without, this tries the limit of the cgroup that it is in, if that has one. The unit test of `host/frames.rs` makes one up.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_the_cgroup_is_named() {
    let _alone = crate::common::fork::alone();
    let Some(directory) = std::env::var_os("BURSAR_TEST_CGROUP") else {
        ask_for_more_than_the_cgroup_gives();
        return;
    };
    if in_own_process(module_path!(), "a_limit_of_the_cgroup_is_named", &[]) {
        let file = std::path::Path::new(&directory).join("cgroup.procs");
        std::fs::write(file, std::process::id().to_string()).unwrap();
        assert!(ask_for_more_than_the_cgroup_gives(), "it has a limit");
    }
}

/// Returns whether there is such a limit.
#[cfg(target_os = "linux")]
fn ask_for_more_than_the_cgroup_gives() -> bool {
    let Ok(cgroup) = bursar_machine::host::CgroupMemory::of_this_process() else {
        return false;
    };
    let Some(max) = cgroup.read().ok().and_then(|limits| limits.max) else {
        return false;
    };
    if max > 1 << 40 {
        return false;
    }
    let error = refused(&memory(options(max + (8 << 20)))).to_string();
    let directory = cgroup.directory().display().to_string();
    for part in [&max.to_string(), &directory, "reserve less"] {
        assert!(error.contains(part), "{error}");
    }
    // Other values fit.
    drop(
        memory(PageOptions::default())
            .alloc_pages(ZERO, Zeroed::No)
            .unwrap(),
    );
    true
}

#[test]
fn more_than_there_are_addresses() {
    let _alone = crate::common::fork::alone();
    for bytes in [u64::MAX, 1 << 60, 1 << 47, 9 << 40] {
        let error = refused(&memory(options(bytes)));
        let is_named = match &error {
            ReserveError::TooLarge { pages, available } => {
                *pages == bytes.div_ceil(4096) && available < pages
            }
            // A cgroup's limit is looked at before.
            ReserveError::Refused { reason, .. } => reason.contains("cgroup"),
            _ => false,
        };
        assert!(is_named, "{error}");
    }
}

#[test]
fn a_node_that_does_not_exist() {
    let _alone = crate::common::fork::alone();
    let memory = memory(options(16 << 20));
    let nodes = memory.machine().report().nodes;
    let group = memory.make("a");
    for placement in [
        Placement::Only(nodes),
        Placement::Prefer(nodes),
        Placement::Only(usize::MAX),
    ] {
        let request = PageRequest::new(ZERO).on(placement);
        let error = request.alloc(&group).unwrap_err();
        assert_eq!(error, AllocPagesError::NoSuchNode { nodes });
        let text = error.to_string();
        assert!(text.contains(&format!("0 to {}", nodes - 1)), "{text}");
    }
    assert_eq!(group.used(), 0);
    let last = PageRequest::new(ZERO).on(Placement::Only(nodes - 1));
    assert_eq!(last.alloc(&group).unwrap().node(), nodes - 1);
}

#[test]
fn an_order_above_the_largest() {
    for order in [11, 12, 63, u8::MAX] {
        let error = Order::try_new(order).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("order {order} is above 10, the largest")
        );
    }
    assert_eq!(Order::for_bytes((4 << 20) + 1), None);
    assert_eq!(Order::for_bytes(usize::MAX), None);
    let panicked = std::panic::catch_unwind(|| Order::new(11));
    assert!(panicked.is_err());
}

#[test]
fn options_that_make_no_sense() {
    type Change = fn(&mut PageOptions);
    #[rustfmt::skip]
    let changes: [(Change, &str); 9] = [
        (|options| options.bytes_per_node = Some(0), "no bytes"),
        (|options| options.lists = [8, 9].map(|high| ListOptions::new(0, high)).into(), "same order"),
        (|options| options.lists.clear(), "lists"),
        (|options| options.lists = vec![ListOptions::new(0, 0)], "1 to 4,095"),
        (|options| options.lists = vec![ListOptions::new(0, 4_096)], "1 to 4,095"),
        (|options| options.lists = [0, 1, 2].map(|order| ListOptions::new(order, 4_000)).into(), "8,000"),
        (|options| options.batch = Some(0), "batch"),
        (|options| options.hold.blocks = 0, "hold"),
        (|options| { options.watermarks = Some(Watermarks { min: 3, low: 2, high: 1, }) }, "rise"),
    ];
    for (change, part) in changes {
        let mut options = PageOptions::default();
        change(&mut options);
        let error = Memory::builder().pages(options).build().unwrap_err();
        let is_options = matches!(error, MemoryError::BadPageOptions { .. });
        assert!(is_options && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn what_is_exhausted_recovers() {
    let _alone = crate::common::fork::alone();
    let memory = memory(options(16 << 20));
    let greedy = memory.make("greedy");
    let other = memory.make("other");
    for _ in 0..3 {
        let mut held = Vec::new();
        let error = loop {
            match greedy.alloc_pages(ZERO, Zeroed::No) {
                Ok(page) => held.push(page),
                Err(error) => break error,
            }
        };
        let AllocPagesError::Exhausted {
            free_pages,
            reserve_pages,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert!(free_pages <= reserve_pages, "{error}");
        assert_eq!(held.len() as u64 + free_pages, (16 << 20) / 4096);
        assert!(error.to_string().contains("bytes_per_node"), "{error}");
        // Nobody else gets any either, but for emergencies.
        assert!(other.alloc_pages(ZERO, Zeroed::No).is_err());
        let urgent = PageRequest::new(ZERO).urgent().alloc(&other);
        assert_eq!(urgent.is_ok(), free_pages > 0);
        drop(urgent);
        // One comes back, wherever, and goes to who asks next.
        let back = held.pop().unwrap();
        std::thread::spawn(move || drop(back)).join().unwrap();
        drop(other.alloc_pages(ZERO, Zeroed::No).unwrap());
        Page::free_many(held);
        let largest = other.alloc_pages(Order::MAX, Zeroed::No);
        assert!(largest.is_ok(), "pieces have become one again: {largest:?}");
    }
    let root = memory.exact();
    assert_eq!(root.usage().value, 0);
}

/// A strict binding gives pages, unless a sandbox hides which of several nodes they are on.
#[test]
fn a_strict_binding() {
    let _alone = crate::common::fork::alone();
    let memory = memory(PageOptions {
        binding: NodeBinding::Strict,
        ..options(16 << 20)
    });
    match memory.alloc_pages(ZERO, Zeroed::Yes) {
        Ok(page) => assert!(page.bytes().iter().all(|&byte| byte == 0)),
        // Several nodes, and a sandbox that does not let them be told apart.
        Err(AllocPagesError::NoZones(ReserveError::CannotBind { .. })) => {
            assert!(memory.machine().report().nodes > 1);
        }
        Err(error) => panic!("{error}"),
    }
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_reserved_before_the_first_page() {
    let _alone = crate::common::fork::alone();
    if !in_own_process(
        module_path!(),
        "nothing_is_reserved_before_the_first_page",
        &[],
    ) {
        return;
    }
    let start = mapped_bytes();
    let memory = memory(PageOptions::default());
    let group = memory.make("charges");
    drop(group.try_charge(1 << 20).unwrap());
    memory.tick();
    assert!(memory.zone_info().is_none() && memory.frames().next().is_none());
    // Books and per-CPU words take address space as well: less than a page zone would.
    let before = mapped_bytes();
    let reserve = bursar_machine::Machine::memory_bytes(memory.machine());
    assert!(before - start < reserve / 2, "{} bytes", before - start);
    let page = group.alloc_pages(ZERO, Zeroed::Yes).unwrap();
    assert!(mapped_bytes() - before >= reserve);
    assert_eq!(memory.frames().count(), memory.machine().report().nodes);
    let resident = || memory.drift().unwrap().resident;
    let (reserved, touched) = (reserve, resident());
    assert!(
        touched < reserved / 4,
        "address space is not memory: {touched}"
    );
    drop(page);
}
