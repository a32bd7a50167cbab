//! Blocks that are made, used and freed in one function, as most of a program's blocks are: the compiler sees the whole life of
//! each, so it may drop whatever it takes for dead. Each must still count at its group while it lives, and at no group afterwards.
//!
//! ```text
//! cargo run --release -p bursar-alloc --example local_blocks
//! ```
//!
//! Only optimised builds test anything here, and nothing may hide a value from the compiler. `.ci/run optimised` builds this program
//! with several optimisation levels, codegen units and kinds of link-time optimisation, and runs each with a time limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::process::ExitCode;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::{Charged, GroupExt, outside};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

const ROUNDS: u64 = 300;

#[derive(Clone, Copy)]
#[repr(align(128))]
struct Aligned([u64; 20]);

#[inline(never)]
fn boxed(n: u64) -> u64 {
    let numbers = Box::new([n; 100]);
    numbers.iter().map(|number| number ^ 5).sum()
}

#[inline(never)]
fn boxed_and_aligned(n: u64) -> u64 {
    let numbers = Box::new(Aligned([n; 20]));
    numbers.0.iter().sum()
}

#[inline(never)]
fn with_capacity(n: u64) -> u64 {
    let mut numbers = Vec::with_capacity(600);
    for i in 0..600 {
        numbers.push(i * n);
    }
    numbers.iter().fold(0, |sum, number| sum ^ number)
}

#[inline(never)]
fn filled(n: u64) -> u64 {
    let bytes = vec![n as u8; 5000];
    bytes
        .iter()
        .fold(0_u8, |sum, byte| sum ^ byte.rotate_left(3))
        .into()
}

#[inline(never)]
fn zeroed(n: u64) -> u64 {
    let mut numbers = vec![0_u64; 700];
    numbers[n as usize % 700] = n;
    numbers.iter().sum()
}

#[inline(never)]
fn grown(n: u64) -> u64 {
    let mut numbers = Vec::new();
    for i in 0..n % 200 + 40 {
        numbers.push(i ^ n);
    }
    numbers.shrink_to_fit();
    numbers.iter().sum()
}

/// Never read, so that the compiler may take all of it for dead.
#[inline(never)]
fn unread(n: u64) -> u64 {
    drop(vec![2_u8; 5000]);
    drop(Box::new(n));
    n
}

/// Without the standard library's collections around it.
#[inline(never)]
fn raw(n: u64) -> u64 {
    let layout = Layout::new::<[u64; 9]>();
    // SAFETY: a layout that is not empty; the block is written before it is read, and freed as it was allocated.
    unsafe {
        let block = std::alloc::alloc(layout).cast::<u64>();
        block.add(8).write(n);
        let read = block.add(8).read();
        std::alloc::dealloc(block.cast(), layout);
        read
    }
}

/// As [`raw`], of the allocator itself, which need not be the program's.
#[inline(never)]
fn of_the_allocator(n: u64) -> u64 {
    static OTHER: Charged<System> = Charged::new(System);
    let layout = Layout::new::<[u64; 9]>();
    // SAFETY: as above.
    unsafe {
        let block = OTHER.alloc(layout).cast::<u64>();
        block.add(8).write(n);
        let read = block.add(8).read();
        OTHER.dealloc(block.cast(), layout);
        read
    }
}

#[inline(never)]
fn made(n: u64) -> Box<[u64; 30]> {
    Box::new([n; 30])
}

#[inline(never)]
fn passed_on(n: u64) -> u64 {
    let numbers = made(n);
    numbers[0] + numbers[29]
}

#[inline(never)]
fn text(n: u64) -> u64 {
    format!("{n:>40}").len() as u64
}

type Way = fn(u64) -> u64;

const WAYS: [(&str, Way); 11] = [
    ("boxed", boxed),
    ("boxed_and_aligned", boxed_and_aligned),
    ("with_capacity", with_capacity),
    ("filled", filled),
    ("zeroed", zeroed),
    ("grown", grown),
    ("unread", unread),
    ("raw", raw),
    ("of_the_allocator", of_the_allocator),
    ("passed_on", passed_on),
    ("text", text),
];

/// Leaves bytes in freed blocks that no label may be read from.
#[inline(never)]
fn litter() {
    for byte in [0x09, 0xff] {
        for bytes in (16..1024).step_by(16).chain([5000, 5008, 5600, 40_000]) {
            drop(vec![byte; bytes]);
        }
    }
}

struct AtEnd(RefCell<Group>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let group = self.0.borrow();
        litter();
        group.scope(|| all(7));
    }
}

thread_local! {
    static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

/// All ways, inlined or not as the compiler likes.
fn all(n: u64) -> u64 {
    boxed(n)
        ^ boxed_and_aligned(n)
        ^ with_capacity(n)
        ^ filled(n)
        ^ zeroed(n)
        ^ grown(n)
        ^ unread(n)
        ^ raw(n)
        ^ of_the_allocator(n)
        ^ passed_on(n)
        ^ text(n)
}

/// Says what is wrong with the books after `way`, or nothing.
fn wrong(way: &str, groups: &[&Group]) -> Option<String> {
    let all: Vec<String> = groups
        .iter()
        .filter_map(|group| {
            let usage = group.read(Freshness::Exact).ok()?.usage().value;
            let events = group.events();
            let right = usage == 0 && events.over_returned_bytes == 0;
            let path = group.path();
            (!right).then(|| {
                format!(
                    "{way}: {path} uses {usage} bytes after its blocks are freed, and {} too many were returned",
                    events.over_returned_bytes
                )
            })
        })
        .collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

fn main() -> ExitCode {
    let memory = Memory::host().expect("the machine can be used");
    let [one, other] = ["one", "other"].map(|name| {
        let group = memory.root().child(name, Limits::none());
        group.expect("a name that is free")
    });
    let groups = [&one, &other];
    let mut faults = Vec::new();
    let mut results = 0_u64;
    for (name, way) in WAYS {
        for n in 0..ROUNDS {
            other.scope(litter);
            outside(litter);
            results = one.scope(|| way(n)).wrapping_add(results);
        }
        faults.extend(wrong(name, &groups));
        // A block counts in the group where it was made, whichever thread frees it.
        let kept: Vec<_> = one.scope(|| (0..ROUNDS).map(made).collect());
        let usage = one.read(Freshness::Exact).expect("not removed").usage();
        if usage.value < (ROUNDS * 240) as i64 {
            faults.push(format!(
                "{name}: {} bytes are kept, of {ROUNDS} blocks",
                usage.value
            ));
        }
        other.scope(|| drop(kept));
        faults.extend(wrong("kept and freed elsewhere", &groups));
    }
    let ended = other.clone();
    std::thread::spawn(move || AT_END.set(outside(|| Some(AtEnd(RefCell::new(ended))))))
        .join()
        .expect("the thread ends as usual");
    faults.extend(wrong("a thread local's destructor", &groups));
    for n in 0..ROUNDS {
        let expected = outside(|| all(n));
        if one.scope(|| all(n)) != expected {
            faults.push(format!("other results in a group than outside: {n}"));
        }
        results = expected.wrapping_add(results);
    }
    faults.extend(wrong("all", &groups));
    if faults.is_empty() {
        println!(
            "each block counted while it lived, and none afterwards (sum of results {results})"
        );
        return ExitCode::SUCCESS;
    }
    println!("{}", faults.join("\n"));
    ExitCode::FAILURE
}
