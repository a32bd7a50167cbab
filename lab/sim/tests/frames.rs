//! Page memory without bytes.

use bursar_machine::Machine;
use bursar_machine::pages::{
    Block, Content, Frames, HugePages, NodeBinding, Order, ReserveError, ReserveOptions,
    SPAN_PAGES, simulated,
};
use bursar_rig::Tasks;
use bursar_sim::{CostModel, Settings, Sim, Simulator, Topology};

fn simulator() -> Simulator {
    Simulator::new(Settings::new(Topology::new(4, 2, 1000), 1))
}

fn page_of(block: Block) -> Block {
    if block.order() == Order::ZERO {
        return block;
    }
    page_of(block.split().0)
}

#[test]
fn each_simulator_numbers_its_pages_from_the_first_on() {
    for _ in 0..2 {
        let simulator = simulator();
        let machine = simulator.machine();
        let (first, mut span) = machine.reserve(&ReserveOptions::pages(1)).unwrap();
        let (second, _) = machine.reserve(&ReserveOptions::pages(1025)).unwrap();
        assert_eq!(first.first(), simulated::FIRST);
        assert_eq!(first.pages(), u64::from(SPAN_PAGES), "rounded up");
        assert_eq!(second.first().0, first.first().0 + SPAN_PAGES);
        assert_eq!(second.pages(), 2 * u64::from(SPAN_PAGES));
        assert_eq!(span.take().unwrap().pfn(), first.first());
        assert!(span.take().is_none());
    }
}

#[test]
fn bad_reservations_are_refused() {
    let simulator = simulator();
    let machine = simulator.machine();
    let error = |options: &ReserveOptions| machine.reserve(options).unwrap_err();
    assert_eq!(error(&ReserveOptions::pages(0)), ReserveError::NoPages);
    let mut options = ReserveOptions::pages(1);
    options.node = 2;
    assert_eq!(
        error(&options),
        ReserveError::NoSuchNode { node: 2, nodes: 2 }
    );
    options.node = 1;
    options.binding = NodeBinding::Strict;
    options.huge_pages = HugePages::Never;
    let _ = machine.reserve(&options).unwrap();
    let all = u64::from(simulated::SPANS_MAX) * u64::from(SPAN_PAGES);
    for pages in [all, u64::MAX] {
        let available = all - u64::from(SPAN_PAGES);
        assert_eq!(
            error(&ReserveOptions::pages(pages)),
            ReserveError::TooLarge { pages, available }
        );
    }
    let (_, rest) = machine
        .reserve(&ReserveOptions::pages(all - u64::from(SPAN_PAGES)))
        .unwrap();
    assert_eq!(rest.pages(), all - u64::from(SPAN_PAGES));
    assert!(machine.reserve(&ReserveOptions::pages(1)).is_err());
}

#[test]
#[should_panic(expected = "another reservation")]
fn foreign_blocks_are_noticed() {
    let simulator = simulator();
    let machine = simulator.machine();
    let (_, mut span) = machine.reserve(&ReserveOptions::pages(1)).unwrap();
    let (frames, _) = machine.reserve(&ReserveOptions::pages(1)).unwrap();
    let _ = frames.bytes(&span.take().unwrap());
}

#[test]
fn what_is_known_of_the_bytes_changes_as_on_the_host() {
    let simulator = simulator();
    let (frames, mut span) = simulator
        .machine()
        .reserve(&ReserveOptions::pages(1))
        .unwrap();
    let mut block = span.take().unwrap();
    assert_eq!(block.content(), Content::Unbacked);
    frames.zero(&mut block);
    assert_eq!(block.content(), Content::Unbacked, "zeroes already");
    assert!(frames.bytes(&block).unwrap().is_empty());
    assert!(frames.bytes_mut(&mut block).unwrap().is_empty());
    assert_eq!(block.content(), Content::Initialized);
    assert!(frames.uninit(&mut block).is_empty());
    assert_eq!(block.content(), Content::Unknown);
    assert!(frames.bytes(&block).is_none() && frames.bytes_mut(&mut block).is_none());
    assert_eq!(block.content(), Content::Unknown);
    frames.zero(&mut block);
    assert_eq!(block.content(), Content::Zero);
    assert!(frames.discard(&mut block));
    assert_eq!(block.content(), Content::Unbacked);
}

/// Time of `work` on a machine where another task computes, with one block of each content in turn.
fn cost_of(work: fn(&<Sim as Machine>::Frames, &mut Block), content: Content, whole: bool) -> u64 {
    let simulator = simulator();
    let machine = simulator.machine();
    let (frames, mut span) = machine.reserve(&ReserveOptions::pages(1)).unwrap();
    let mut block = span.take().unwrap();
    if !whole {
        block = page_of(block);
    }
    match content {
        Content::Unbacked => {}
        _ => _ = frames.uninit(&mut block),
    }
    let mut took_ns = 0;
    machine.run(vec![
        Box::new(|| {
            let before_ns = machine.now_ns();
            work(&frames, &mut block);
            took_ns = machine.now_ns() - before_ns - CostModel::default().clock_ns;
        }),
        Box::new(|| machine.compute(10_000_000)),
    ]);
    took_ns
}

#[test]
fn zeroing_and_discarding_take_time() {
    let costs = CostModel::default();
    let pages = u64::from(SPAN_PAGES);
    let zero = |frames: &<Sim as Machine>::Frames, block: &mut Block| frames.zero(block);
    assert_eq!(cost_of(zero, Content::Unbacked, true), 0);
    assert_eq!(cost_of(zero, Content::Unknown, false), costs.page_zero_ns);
    assert_eq!(
        cost_of(zero, Content::Unknown, true),
        pages * costs.page_zero_ns
    );
    let discard = |frames: &<Sim as Machine>::Frames, block: &mut Block| {
        assert!(frames.discard(block));
    };
    assert_eq!(
        cost_of(discard, Content::Unbacked, true),
        costs.syscall_ns,
        "no translation of what is not there"
    );
    // One other CPU runs the process.
    let shootdown_ns = costs.fence_base_ns + costs.fence_wait_ns + costs.fence_cpu_ns;
    assert_eq!(
        cost_of(discard, Content::Unknown, true),
        costs.syscall_ns + pages * costs.page_free_ns + shootdown_ns
    );
}

#[test]
fn the_draws_on_file_are_of_this_model() {
    let mut costs = CostModel::default();
    let identity = costs.hash();
    costs.set("page_zero_ns", 700).unwrap();
    assert_ne!(costs.hash(), identity);
    let draws = include_str!("../../../experiments/memcg-flush.draws.toml");
    assert!(draws.contains(&identity), "the draws are of another model");
}

#[test]
fn a_discard_takes_from_others_only_the_interrupt() {
    let simulator = simulator();
    let machine = &simulator.machine();
    let (frames, mut span) = machine.reserve(&ReserveOptions::pages(1)).unwrap();
    let mut block = span.take().unwrap();
    let _ = frames.uninit(&mut block);
    let mut other_ns = 0;
    machine.run(vec![
        Box::new(|| assert!(frames.discard(&mut block))),
        Box::new(|| {
            machine.compute(1_000);
            other_ns = machine.now_ns();
        }),
    ]);
    let CostModel {
        page_free_ns,
        fence_interrupt_ns,
        ..
    } = CostModel::default();
    assert!(u64::from(SPAN_PAGES) * page_free_ns > 20_000);
    assert!(other_ns <= 1_000 + fence_interrupt_ns, "{other_ns}");
}
