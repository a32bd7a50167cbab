//! The allocator where allocators are called too: before `main`, in signal handlers, in destructors of thread-locals, in the
//! child of a fork, and where the one below fails.
#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::{ByLayout, Charged, GroupExt, InGroupExt, RealSize, outside};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

fn group() -> Group {
    let memory = Memory::host().unwrap();
    memory.root().child("group", Limits::none()).unwrap()
}

fn usage(group: &Group) -> i64 {
    outside(|| group.read(Freshness::Exact).unwrap().usage().value)
}

static BEFORE_MAIN: AtomicPtr<Vec<u64>> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn before_main() {
    let early: Vec<u64> = (0..1000).collect();
    BEFORE_MAIN.store(Box::leak(Box::new(early)), Ordering::SeqCst);
}

// SAFETY: the section holds pointers to such functions, which the system calls before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = before_main;

#[test]
fn what_was_allocated_before_main_is_nobodys() {
    let early = BEFORE_MAIN.swap(std::ptr::null_mut(), Ordering::SeqCst);
    assert!(!early.is_null());
    let memory = Memory::host().unwrap();
    let group = memory.root().child("group", Limits::none()).unwrap();
    // SAFETY: from the box that was leaked, and taken out once.
    let mut early = unsafe { Box::from_raw(early) };
    group.scope(|| {
        assert_eq!(early.iter().sum::<u64>(), 499_500);
        early.extend(0..100_000);
    });
    // It grew in the group, and stays whose it was.
    assert_eq!(usage(&group), 0);
    group.scope(|| drop(early));
    assert_eq!(usage(&group), 0);
}

/// A fixed piece of memory, handed out once: what a signal handler can allocate from.
struct Bump {
    used: AtomicUsize,
}

const BUMP_BYTES: usize = 1 << 20;
static BUMP_MEMORY: [AtomicU64; BUMP_BYTES / 8] = [const { AtomicU64::new(0) }; BUMP_BYTES / 8];

// SAFETY: for callers like `on_signal`, on one thread: they free the newest block first, and need no more alignment than a word. Such blocks are
// inside a static that nobody else uses, and share no byte.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size().next_multiple_of(8);
        let begin = self.used.fetch_add(size, Ordering::Relaxed);
        if begin + size > BUMP_BYTES {
            self.used.fetch_sub(size, Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        BUMP_MEMORY[begin / 8].as_ptr().cast()
    }

    unsafe fn dealloc(&self, _block: *mut u8, layout: Layout) {
        // The newest block, as above.
        let size = layout.size().next_multiple_of(8);
        self.used.fetch_sub(size, Ordering::Relaxed);
    }
}

static HANDLERS: Charged<Bump, ByLayout> = Charged::over(Bump {
    used: AtomicUsize::new(0),
});
static HANDLED: AtomicU64 = AtomicU64::new(0);
static INTERRUPTED: OnceLock<Group> = OnceLock::new();

extern "C" fn on_signal(_: libc::c_int) {
    let layout = Layout::new::<[u64; 12]>();
    // Whatever this thread was about: inside a charge, an entry, an exit.
    // SAFETY: the layout is not empty, and what was allocated is freed by the same.
    unsafe {
        let block = HANDLERS.alloc(layout);
        assert!(!block.is_null());
        block.write_bytes(7, layout.size());
        HANDLERS.dealloc(block, layout);
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signal_handlers_allocate() {
    let memory = Memory::host().unwrap();
    let group = INTERRUPTED.get_or_init(|| memory.root().child("group", Limits::none()).unwrap());
    // SAFETY: a handler that does what handlers may do.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let done = &done;
        scope.spawn(move || {
            // SAFETY: no arguments.
            send.send(unsafe { libc::pthread_self() }).unwrap();
            while !done.load(Ordering::Acquire) {
                group.scope(|| std::hint::black_box(vec![1_u8; 300]));
                let entered = group.enter();
                let held = Box::new([1_u64; 9]);
                drop(entered);
                drop(std::hint::black_box(held));
            }
        });
        let thread = receive.recv().unwrap();
        while HANDLED.load(Ordering::Relaxed) < 5_000 {
            // SAFETY: the thread runs until `done`.
            assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
            memory.tick();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(usage(group), 0);
}

/// Allocates, enters and frees when its thread is nearly gone.
struct Late {
    group: Option<Group>,
    kept: Vec<u8>,
}

static LATE: AtomicU64 = AtomicU64::new(0);

impl Drop for Late {
    fn drop(&mut self) {
        let group = self.group.take().unwrap();
        let more = group.scope(|| vec![2_u8; 4096]);
        assert!(usage(&group) >= 4096 + 2048);
        LATE.fetch_add(more[9].into(), Ordering::Relaxed);
        let _entered = group.enter();
        drop(std::mem::take(&mut self.kept));
    }
}

thread_local! {
    static KEPT: RefCell<Option<Late>> = const { RefCell::new(None) };
    static TOUCHED: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn destructors_of_thread_locals_allocate() {
    let group = group();
    for _ in 0..20 {
        let group = group.clone();
        let thread = thread::spawn(move || {
            let kept = group.scope(|| vec![1_u8; 2048]);
            KEPT.set(Some(Late {
                group: Some(group),
                kept,
            }));
            TOUCHED.set(1);
        });
        thread.join().unwrap();
    }
    assert_eq!(LATE.load(Ordering::Relaxed), 40);
    assert_eq!(usage(&group), 0);
}

/// Fails from a number of bytes on.
struct Failing;

// SAFETY: the system's allocator, or nothing.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= 10_000 {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(block, layout) }
    }
}

#[test]
fn what_the_allocator_below_refuses_is_not_charged() {
    let failing: Charged<Failing, ByLayout> = Charged::over(Failing);
    let group = group();
    let layout = |bytes| Layout::from_size_align(bytes, 32).unwrap();
    group.scope(|| {
        // SAFETY: layouts that are not empty; each block is freed once, as what it is by then.
        unsafe {
            assert!(failing.alloc(layout(10_000)).is_null());
            assert!(failing.alloc_zeroed(layout(20_000)).is_null());
            assert!(failing.alloc(layout(isize::MAX as usize - 31)).is_null());
            assert_eq!(usage(&group), 0);
            let block = failing.alloc(layout(1000));
            block.write_bytes(3, 1000);
            let before = usage(&group);
            assert_eq!(before, 1008);
            // It stays as it was.
            assert!(failing.realloc(block, layout(1000), 12_000).is_null());
            assert_eq!((usage(&group), *block.add(999)), (before, 3));
            let block = failing.realloc(block, layout(1000), 2000);
            assert_eq!((usage(&group), *block.add(999)), (2016, 3));
            failing.dealloc(block, layout(2000));
        }
    });
    assert_eq!(usage(&group), 0);
}

/// Says that each block takes a mebibyte more: more than a label has room for.
struct Roomy;

// SAFETY: the layout's size and a number.
unsafe impl RealSize<System> for Roomy {
    unsafe fn real_size(_: &System, _: *mut u8, layout: Layout) -> usize {
        layout.size() + (1 << 20)
    }
}

#[test]
fn an_excess_beyond_the_label_is_asked_for_again() {
    let roomy: Charged<System, Roomy> = Charged::over(System);
    let group = group();
    let layout = Layout::from_size_align(1000, 8).unwrap();
    // SAFETY: a layout that is not empty; the block is freed once, as what it is by then.
    unsafe {
        let block = group.scope(|| roomy.alloc(layout));
        assert_eq!(usage(&group), (1 << 20) + 1008);
        let block = roomy.realloc(block, layout, 3000);
        assert_eq!(usage(&group), (1 << 20) + 3008);
        roomy.dealloc(block, Layout::from_size_align(3000, 8).unwrap());
    }
    assert_eq!(usage(&group), 0);
}

#[test]
fn a_guard_that_is_never_dropped_keeps_its_group() {
    let memory = Memory::host().unwrap();
    let thread = std::thread::spawn({
        let memory = memory.clone();
        move || {
            let group = memory.root().child("group", Limits::none()).unwrap();
            std::mem::forget(group.enter());
            drop(group);
            memory.tick();
            // Still in it, though nobody has a handle that could be found but by its name.
            let kept = vec![1_u8; 5000];
            let others = outside(|| memory.root().child("other", Limits::none()).unwrap());
            assert_eq!(usage(&others), 0);
            let group = outside(|| memory.root().find("group")).expect("the guard keeps it");
            assert!(usage(&group) >= 5000);
            drop(kept);
            assert!(usage(&group) < 5000 && usage(&others) == 0);
        }
    });
    thread.join().unwrap();
}

#[test]
fn alignments_are_kept() {
    let group = group();
    group.scope(|| {
        for shift in 0..22 {
            for bytes in [1, 24, 4096, 70_000] {
                let layout = Layout::from_size_align(bytes, 1 << shift).unwrap();
                // SAFETY: a layout that is not empty; freed as what it is by then.
                unsafe {
                    let block = std::alloc::alloc_zeroed(layout);
                    assert_eq!(block.addr() % (1 << shift), 0);
                    assert!((0..bytes).all(|at| *block.add(at) == 0));
                    assert!(usage(&group) >= bytes as i64);
                    let block = std::alloc::realloc(block, layout, bytes + 100);
                    assert_eq!(block.addr() % (1 << shift), 0);
                    let layout = Layout::from_size_align(bytes + 100, 1 << shift).unwrap();
                    std::alloc::dealloc(block, layout);
                }
            }
        }
    });
    assert_eq!(usage(&group), 0);
}

#[test]
fn a_forked_child_allocates_and_frees() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("group", Limits::none()).unwrap();
    let inherited = group.scope(|| vec![1_u8; 1 << 20]);
    // SAFETY: the child does what the memory allows, and ends without returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let entered = group.enter();
        // Before any operation on the memory: charged in the child's books, whatever state they are in.
        // A large block has whole pages of the system, of at most 64 KiB. This one, with its label and its record, has 512 KiB.
        let own = vec![2_u8; (1 << 19) - 4096];
        drop(inherited);
        // The first one, which puts the books right, and allocates for that in the group.
        let first = group.read(Freshness::Exact).unwrap().usage().value;
        drop(entered);
        let least = own.len() as i64;
        let right = first >= least && usage(&group) >= least && usage(&group) < (1 << 19) + 10_000;
        drop(own);
        // The books allocated in the group, and keep what they have.
        let empty = usage(&group) < 10_000;
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if right && empty { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's books are not right");
    assert!(usage(&group) >= 1 << 20);
    drop(inherited);
    assert_eq!(usage(&group), 0);
}

/// Polls, allocates, and may go to another worker in between; returns blocks with the threads that allocated them.
async fn wander(rounds: usize) -> Vec<(ThreadId, Vec<u8>)> {
    let mut kept = Vec::new();
    for round in 0..rounds {
        kept.push((thread::current().id(), vec![round as u8; 1000]));
        tokio::task::yield_now().await;
        if round % 3 == 0 {
            kept.remove(0);
        }
    }
    kept
}

/// Number of times that tasks are let loose until one of them has moved.
const ATTEMPTS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn futures_carry_their_group_between_threads() {
    let memory = Memory::host().unwrap();
    let groups: Vec<Group> = (0..8)
        .map(|k| memory.root().child(k.to_string(), Limits::none()).unwrap())
        .collect();
    for _ in 0..ATTEMPTS {
        let tasks: Vec<_> = groups
            .iter()
            .map(|group| tokio::spawn(wander(100).in_group(group)))
            .collect();
        let mut has_moved = false;
        for (group, task) in groups.iter().zip(tasks) {
            let kept = task.await.unwrap();
            has_moved |= kept.iter().any(|(thread, _)| *thread != kept[0].0);
            // The returned blocks are the group's until they are freed here.
            let blocks: i64 = kept.iter().map(|(_, block)| block.capacity() as i64).sum();
            assert!(
                usage(group) >= blocks && usage(group) < blocks + 20_000,
                "{}",
                usage(group)
            );
            drop(kept);
            // The runtime keeps a queue of wakers, which it allocated while it polled.
            assert!(usage(group) < 2000, "{group}: {}", usage(group));
        }
        if has_moved {
            return;
        }
    }
    panic!("no task allocated on two threads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn futures_dropped_half_way_leave_nothing() {
    let group = group();
    for polls in 0..20 {
        let mut future = Box::pin(wander(100).in_group(&group));
        for _ in 0..polls {
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(std::future::Future::poll(future.as_mut(), context).is_pending());
        }
        assert_eq!(usage(&group) > 0, polls > 0);
        drop(future);
        let task = tokio::spawn(wander(1000).in_group(&group));
        tokio::task::yield_now().await;
        task.abort();
        let _ = task.await;
        // The runtime keeps a queue, as above. Twenty rounds that each leave a block of 1000 bytes would be
        // more.
        assert!(usage(&group) < 2000, "{}", usage(&group));
    }
}
