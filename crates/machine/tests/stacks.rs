//! Stacks of blocks on the host, on the backend that this process uses (`BURSAR_BACKEND` forces one).

#[path = "stacks/battery.rs"]
mod battery;
#[path = "stacks/fire.rs"]
mod fire;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[path = "stacks/unregistered.rs"]
mod unregistered;

use std::sync::atomic::{AtomicBool, Ordering};

use bursar_machine::host::{allowed_cpus, pin_to};
use bursar_machine::pages::{BlockStacks, Bounds};
use bursar_machine::{Host, Machine};
use bursar_rig::Tasks;
use fire::{Fire, burn};

fn host() -> Host {
    Host::start().expect("the host starts")
}

fn hop(number: u64) {
    let cpus = allowed_cpus();
    // Where threads cannot be pinned, they hop less.
    let _ = pin_to(cpus[number as usize % cpus.len()]);
}

fn fire(seed: u64) -> Fire {
    Fire {
        workers: 3,
        operations: 300_000,
        freezes: u64::MAX,
        blocks: 60,
        seed,
        pause_ns: 1_000,
        hop,
    }
}

#[test]
fn one_thread_on_any_cpu() {
    for cpu in 0..allowed_cpus().len() as u64 {
        battery::all(&host(), &|| hop(cpu));
    }
}

#[test]
fn nothing_is_lost_under_fire() {
    burn(&host(), &fire(1));
}

#[test]
fn a_freezer_without_a_pause_and_one_that_hardly_ever_comes() {
    for pause_ns in [0, 10_000_000] {
        let operations = 150_000;
        burn(
            &host(),
            &Fire {
                pause_ns,
                operations,
                ..fire(2)
            },
        );
    }
}

/// Operations that were under way when a list was frozen have ended, one way or the other, when the freezer
/// looks.
#[test]
fn nothing_comes_after_the_fence() {
    const ROUNDS: u64 = 20_000;
    let host = host();
    let stacks = host.stacks(&[16]).unwrap();
    let is_over = AtomicBool::new(false);
    let worker = || {
        hop(0);
        let mut block = battery::pages(&host, 1).pop().unwrap();
        while !is_over.load(Ordering::Relaxed) {
            block = match stacks.push(0, block) {
                Ok(()) => loop {
                    match stacks.pop(0) {
                        Some(block) => break block,
                        // Frozen, maybe for good.
                        None if is_over.load(Ordering::Relaxed) => return,
                        None => {}
                    }
                },
                Err(block) => block,
            };
        }
    };
    let freezer = || {
        let _over = Over(&is_over);
        hop(1);
        let heads = || battery::sum(&host, &stacks, 0, |head| head);
        for _ in 0..ROUNDS {
            battery::set_bounds(&host, &stacks, 0, Bounds::up_to(8));
            (0..50).for_each(|_| std::hint::spin_loop());
            battery::freeze(&host, &stacks, 0);
            let frozen = heads();
            (0..20).for_each(|_| assert_eq!(heads(), frozen));
        }
    };
    host.run(vec![Box::new(worker), Box::new(freezer)]);
}

/// Ends the other thread's loop, also after a failure.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads whose section cannot be: they share the extra shard with each other and with nobody else.
#[test]
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn threads_without_sections() {
    use bursar_machine::host::Backend;
    let leave = |_| unregistered::leave();
    battery::all(&host(), &|| leave(0));
    burn(
        &host(),
        &Fire {
            operations: 100_000,
            hop: |number| {
                // Some have sections, some do not, and who hops on a thread without stays without.
                if number % 3 == 0 {
                    unregistered::leave();
                }
                hop(number);
            },
            ..fire(3)
        },
    );
    if host().report().backend == Backend::Rseq {
        std::thread::spawn(|| {
            unregistered::leave();
            assert_eq!(host().current_shard().index(), host().cpus());
        })
        .join()
        .unwrap();
    }
}

/// All of this again where the other CPUs share the extra shard.
#[test]
fn with_one_cpu() {
    let path = std::env::current_exe().unwrap();
    let output = std::process::Command::new(path)
        .args(["--skip", "with_one_cpu"])
        .env("BURSAR_CPUS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("nothing_is_lost_under_fire ... ok"), "{text}");
}

#[test]
#[should_panic(expected = "no such list")]
fn lists_that_do_not_exist() {
    use bursar_machine::Shard;
    let stacks = host().stacks(&[1]).unwrap();
    let _ = stacks.head(Shard(0), 1);
}

/// Calls that would make a token of nothing are refused, in any build.
#[test]
fn bounds_and_turns_are_kept() {
    use bursar_machine::Shard;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let stacks = host().stacks(&[4, 0]).unwrap();
    let at = Shard(0);
    let refused = |what: &dyn Fn()| catch_unwind(AssertUnwindSafe(what)).is_err();
    for (list, bounds) in [
        (0, Bounds::up_to(5)),
        (1, Bounds::up_to(1)),
        (0, Bounds::FROZEN),
        (
            0,
            Bounds {
                limit: 1,
                floor: u32::MAX - 2,
            },
        ),
    ] {
        assert!(
            refused(&|| {
                let _ = stacks.set_bounds(at, list, bounds);
            }),
            "{bounds:?}"
        );
    }
    assert!(stacks.set_bounds(at, 0, Bounds::up_to(4)));
    assert!(
        refused(&|| {
            let _ = stacks.take_oldest(at, 0, 1, &mut Vec::new());
        }),
        "not frozen"
    );
    assert!(
        refused(&|| stacks.thaw(at, 0, Bounds::up_to(4))),
        "not frozen"
    );
    stacks.freeze(&[(at, 0)]);
    assert!(stacks.bounds(at, 0).is_frozen());
    assert!(!stacks.set_bounds(at, 0, Bounds::up_to(4)));
    assert!(refused(&|| stacks.freeze(&[(at, 0)])), "frozen already");
    assert!(
        refused(&|| stacks.thaw(at, 0, Bounds::up_to(5))),
        "beyond the capacity"
    );
    assert_eq!(stacks.take_oldest(at, 0, 1, &mut Vec::new()), 0);
    stacks.thaw(at, 0, Bounds::up_to(2));
    assert_eq!(stacks.bounds(at, 0), Bounds::up_to(2));
    assert!(
        refused(&|| stacks.freeze(&[(at, 0), (at, 0)])),
        "twice at once"
    );
}

#[test]
#[should_panic(expected = "at most 8000 blocks")]
fn too_much_for_a_cpu() {
    let _ = host().stacks(&[4_000, 4_001]);
}

/// The free words of a list are its user's: each is a word of its own, and no operation on blocks looks at them.
#[test]
fn free_words_are_apart_from_all_else() {
    use bursar_machine::pages::StackWord;
    use bursar_machine::{AtomicWord, MemoryOrder};
    const WORDS: [StackWord; 4] = [
        StackWord::First,
        StackWord::Second,
        StackWord::Third,
        StackWord::Last,
    ];
    let host = host();
    let stacks = host.stacks(&[2, 3]).unwrap();
    hop(0);
    for list in [0, 1] {
        battery::set_bounds(&host, &stacks, list, Bounds::up_to(2));
    }
    let places: Vec<_> = battery::shards(&host)
        .flat_map(|shard| [0, 1].map(|list| (shard, list)))
        .flat_map(|(shard, list)| WORDS.map(|word| stacks.word(shard, list, word)))
        .collect();
    for (number, word) in (0..).zip(&places) {
        word.store(u64::MAX - number, MemoryOrder::Full);
    }
    for list in [0, 1] {
        assert_eq!(battery::sum(&host, &stacks, list, |head| head), 0);
        let mut blocks = battery::pages(&host, 3);
        assert_eq!(stacks.push_many(list, &mut blocks), 2);
        let block = stacks.pop(list).unwrap();
        assert!(stacks.push(list, block).is_ok());
    }
    for (number, word) in (0..).zip(&places) {
        assert_eq!(word.load(MemoryOrder::Full), u64::MAX - number);
    }
}
