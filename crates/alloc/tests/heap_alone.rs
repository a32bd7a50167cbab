//! Tests that change their process, each in one of its own. Panics: the group does not pay for what the panic hook allocates. A
//! process has one hook, and keeps the debug information that its first backtrace parsed. Then one group that pays for all the rest.
#![cfg(target_os = "linux")]

use std::alloc::System;
use std::fs::File;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::{Charged, GroupExt, InGroupExt, current, outside, panics_charge_nobody};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

const MIB: usize = 1 << 20;
const CHILD: &str = "BURSAR_TEST_CHILD";

/// Returns true in the process of its own that `test` runs in. Elsewhere, runs that process with backtraces and returns false when
/// `test` has passed there.
fn is_child(test: &str) -> bool {
    is_child_with(test, Stdio::piped())
}

fn is_child_with(test: &str, stderr: Stdio) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .env("RUST_BACKTRACE", "1")
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn group() -> Group {
    let memory = Memory::host().unwrap();
    memory.root().child("group", Limits::none()).unwrap()
}

fn usage(group: &Group) -> i64 {
    outside(|| group.read(Freshness::Exact).unwrap().usage().value)
}

/// Panics with a message that needs memory, and catches it.
#[inline(never)]
fn panic_and_catch() {
    let number = std::hint::black_box(7);
    let caught = catch_unwind(|| panic!("a bug in handler {number}"));
    assert!(caught.is_err());
}

/// Growth of the usage of `group` by 1 panic, and by 100.
fn growth_by_panics(group: &Group) -> [i64; 2] {
    let before = usage(group);
    group.scope(panic_and_catch);
    let after_one = usage(group) - before;
    for _ in 1..100 {
        group.scope(panic_and_catch);
    }
    [after_one, usage(group) - before]
}

#[test]
fn a_caught_panic_leaves_nothing_in_its_group() {
    if !is_child("a_caught_panic_leaves_nothing_in_its_group") {
        return;
    }
    assert!(panics_charge_nobody());
    let group = group();
    let kept = group.scope(|| vec![1_u8; 5000]);
    assert_eq!(growth_by_panics(&group), [0, 0]);
    drop(kept);
    assert_eq!(usage(&group), 0);
}

#[test]
fn a_panic_that_ends_a_task_or_a_thread_leaves_nothing_in_its_group() {
    if !is_child("a_panic_that_ends_a_task_or_a_thread_leaves_nothing_in_its_group") {
        return;
    }
    panics_charge_nobody();
    let group = group();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let task = async {
        let _kept = vec![1_u8; MIB];
        tokio::task::yield_now().await;
        panic!("a bug in a task");
    };
    let ended = runtime.block_on(runtime.spawn(task.in_group(&group)));
    assert!(ended.is_err_and(|error| error.is_panic()));
    drop(runtime);
    assert_eq!(usage(&group), 0);

    let its = group.clone();
    let thread = thread::spawn(move || {
        let _entered = its.enter();
        let _kept = vec![1_u8; MIB];
        panic!("a bug in a thread");
    });
    assert!(thread.join().is_err());
    assert_eq!(usage(&group), 0);
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Address of the stack in the hook's last call.
static STACK: AtomicUsize = AtomicUsize::new(0);

/// The threads that set the hook while the program's own runs, and the one that panics.
static MEETING: Barrier = Barrier::new(SETTERS + 1);
const SETTERS: usize = 8;
static MEETS: AtomicBool = AtomicBool::new(false);

fn set_own_hook() {
    panic::set_hook(Box::new(|info| {
        // Read when a test fails.
        eprintln!("{info}");
        let here = 0_u8;
        // Relaxed, here and below: the hook runs on the thread that looks.
        STACK.store((&raw const here).addr(), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        if MEETS.load(Ordering::Relaxed) {
            MEETING.wait();
            // Hooks are locked, so the others can call, but not set the hook.
            for _ in 0..1000 {
                thread::yield_now();
            }
        }
    }));
}

/// Panics once, and says how much of the stack there is between here and the program's own hook.
#[inline(never)]
fn depth_of_own_hook() -> usize {
    let here = 0_u8;
    panic_and_catch();
    (&raw const here).addr() - STACK.load(Ordering::Relaxed)
}

/// Has all setters call while the hook runs, so that none of them can set it before the others have looked.
fn set_on_threads_at_once() {
    MEETS.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..SETTERS {
            scope.spawn(|| {
                MEETING.wait();
                assert!(panics_charge_nobody());
            });
        }
        panic_and_catch();
    });
    MEETS.store(false, Ordering::Relaxed);
}

#[test]
fn the_programs_own_hook_is_wrapped_once() {
    if !is_child("the_programs_own_hook_is_wrapped_once") {
        return;
    }
    let mut depths = Vec::new();
    for round in 1..=20 {
        // The hook before this one is gone, and its wrapping with it.
        set_own_hook();
        let bare = depth_of_own_hook();
        assert!(panics_charge_nobody());
        let once = depth_of_own_hook();
        assert!(once > bare, "not wrapped");
        for _ in 0..10 {
            assert!(panics_charge_nobody());
        }
        depths.push((once, depth_of_own_hook()));

        set_own_hook();
        set_on_threads_at_once();
        depths.push((once, depth_of_own_hook()));
        assert_eq!(CALLS.load(Ordering::Relaxed), 5 * round);
    }
    // A hook that is wrapped twice is called from deeper in the stack.
    assert!(depths.iter().all(|(once, now)| once == now), "{depths:?}");
}

#[test]
fn a_hook_that_calls_the_wrapped_one_keeps_it() {
    if !is_child("a_hook_that_calls_the_wrapped_one_keeps_it") {
        return;
    }
    set_own_hook();
    panics_charge_nobody();
    let wrapped = panic::take_hook();
    panic::set_hook(Box::new(move |info| wrapped(info)));
    let depth = depth_of_own_hook();
    assert!(panics_charge_nobody());
    assert_eq!(depth_of_own_hook(), depth);
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
}

/// Memory that hooks keep, as the standard library keeps debug information.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn set_hook_that_keeps_memory() {
    panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        KEPT.lock().unwrap().push(vec![1; MIB]);
    }));
}

#[test]
fn a_hook_that_is_set_later_can_be_wrapped_again() {
    if !is_child("a_hook_that_is_set_later_can_be_wrapped_again") {
        return;
    }
    let group = group();
    set_hook_that_keeps_memory();
    panics_charge_nobody();
    group.scope(panic_and_catch);
    assert_eq!(usage(&group), 0);
    set_hook_that_keeps_memory();
    group.scope(panic_and_catch);
    assert!(usage(&group) >= MIB as i64, "the later hook is not wrapped");
    KEPT.lock().unwrap().clear();
    assert!(panics_charge_nobody());
    let before = usage(&group);
    group.scope(panic_and_catch);
    assert_eq!(usage(&group), before);
    let calls = KEPT.lock().unwrap().len();
    assert_eq!(calls, 1);
}

/// Panics when it is dropped, and catches that.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic_and_catch();
    }
}

#[test]
fn a_thread_is_in_its_group_again_after_the_hook() {
    if !is_child("a_thread_is_in_its_group_again_after_the_hook") {
        return;
    }
    let (outer, inner) = (group(), group());
    let others = inner.clone();
    panic::set_hook(Box::new(move |info| {
        eprintln!("{info}");
        // In a group of the hook's own for a while.
        let _entered = others.enter();
        KEPT.lock().unwrap().push(vec![1; MIB]);
    }));
    panics_charge_nobody();
    outer.scope(|| {
        for round in 1..=3 {
            // The second panic begins while the first one unwinds.
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _second = PanicsInDrop;
                inner.scope(|| panic!("in another group"))
            }));
            drop(caught);
            assert!(usage(&inner) >= 2 * round * MIB as i64);
            assert_eq!(usage(&outer), 0);
            let kept = vec![1_u8; MIB];
            assert!(usage(&outer) >= MIB as i64, "left outside of its group");
            drop(kept);
        }
    });
    let kept = vec![1_u8; MIB];
    assert_eq!(usage(&outer), 0);
    drop(kept);
}

#[test]
fn a_message_that_cannot_be_printed_changes_nothing() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let test = "a_message_that_cannot_be_printed_changes_nothing";
    if !is_child_with(test, full.into()) {
        return;
    }
    panics_charge_nobody();
    let group = group();
    group.scope(|| {
        panic_and_catch();
        assert_eq!(usage(&group), 0);
        let kept = vec![1_u8; MIB];
        assert!(usage(&group) >= MIB as i64);
        drop(kept);
    });
    assert_eq!(usage(&group), 0);
}

/// Keeps the answer of a call in a destructor.
struct CallsInDrop<'a>(&'a AtomicBool);

impl Drop for CallsInDrop<'_> {
    fn drop(&mut self) {
        self.0.store(panics_charge_nobody(), Ordering::Relaxed);
    }
}

/// Returns the answer of a call while its thread unwinds.
fn call_while_unwinding() -> bool {
    let answer = AtomicBool::new(true);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _calls = CallsInDrop(&answer);
        panic!("unwinds");
    }));
    assert!(caught.is_err());
    answer.into_inner()
}

#[test]
fn a_panicking_thread_sets_nothing() {
    if !is_child("a_panicking_thread_sets_nothing") {
        return;
    }
    // From a hook: the standard library holds its lock of the hook meanwhile.
    static ANSWER: AtomicBool = AtomicBool::new(true);
    panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        ANSWER.store(panics_charge_nobody(), Ordering::Relaxed);
        KEPT.lock().unwrap().push(vec![1; MIB]);
    }));
    let group = group();
    group.scope(panic_and_catch);
    assert!(!ANSWER.load(Ordering::Relaxed));
    assert!(!call_while_unwinding());
    assert!(usage(&group) >= MIB as i64, "it was set");
    // On a thread that does not panic it is still set, and then a panicking one says so.
    assert!(panics_charge_nobody());
    KEPT.lock().unwrap().clear();
    let before = usage(&group);
    group.scope(panic_and_catch);
    assert_eq!(usage(&group), before);
    assert!(ANSWER.load(Ordering::Relaxed));
    assert!(call_while_unwinding());
}

/// A hook calls on one thread while another thread sets the hook: both return.
#[test]
fn a_hook_that_calls_while_another_thread_sets_it() {
    if !is_child("a_hook_that_calls_while_another_thread_sets_it") {
        return;
    }
    for _ in 0..200 {
        panic::set_hook(Box::new(|_| {
            for _ in 0..20 {
                panics_charge_nobody();
                thread::yield_now();
            }
        }));
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                panic_and_catch();
            });
            together.wait();
            assert!(panics_charge_nobody());
        });
    }
}

/// All threads, and a forked child.
#[test]
fn what_is_in_no_group_is_the_rest() {
    if !is_child("what_is_in_no_group_is_the_rest") {
        return;
    }
    let memory = Memory::host().unwrap();
    let rest = memory.root().child("rest", Limits::none()).unwrap();
    let query = memory.root().child("query", Limits::none()).unwrap();
    let before = vec![1_u8; 1 << 20];
    HEAP.charge_rest_to(&rest);
    // It pays; nobody is in it.
    assert_eq!(current(), None);
    drop(before);
    let kept = std::thread::spawn(|| vec![1_u8; 1 << 20]).join().unwrap();
    assert!(usage(&rest) >= 1 << 20);
    let (others, rests) = (usage(&query), usage(&rest));
    let own = query.scope(|| vec![1_u8; 1 << 20]);
    // Nobody can end the process to have its memory back.
    let victim = memory.root().choose_victim().unwrap();
    assert_eq!(victim.map(|(group, _)| group), Some(query.clone()));
    assert!(usage(&query) >= others + (1 << 20) && usage(&rest) < rests + (1 << 20));
    // SAFETY: the child does what the memory allows, and ends without returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // Whatever the first operation allocates is charged to the books that it puts right.
        let more = vec![1_u8; 1 << 20];
        let with = usage(&rest);
        drop(kept);
        drop(own);
        let (without, queries) = (usage(&rest), usage(&query));
        let right = with >= 2 << 20 && without >= 1 << 20 && without < with && queries == 0;
        drop(more);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's books are not right");
    // The group stays, though nobody has a handle any more.
    drop(rest);
    assert!(usage(&memory.find("rest").unwrap()) >= 1 << 20);
    drop((kept, own));
    assert_eq!(usage(&query), 0);
}
