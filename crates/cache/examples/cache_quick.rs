//! A cache of quick_cache fills the memory that queries leave, and gives it back when they need it.
//!
//! `cargo run --release -p bursar-cache --features quick_cache --example cache_quick`

use std::sync::Arc;

use bursar::{Bytes, Freshness, Group, Limits, Memory};
use bursar_cache::{ByCharge, Held, evict_from};
use quick_cache::sync::Cache;

const MIB: u64 = 1 << 20;

fn usage(group: &Group) -> Bytes {
    Bytes(
        group
            .read(Freshness::Exact)
            .map_or(0, |reading| reading.usage_bytes()),
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::builder().max(64 * MIB).build()?;
    let (blocks, queries) = (
        memory.root().child("blocks", Limits::none())?,
        memory.root().child("queries", Limits::none())?,
    );
    let cache = Arc::new(Cache::with_weighter(1000, u64::MAX, ByCharge));
    let _reclaimer = evict_from(&blocks, 0, cache.clone());

    for round in 0..3 {
        for block in 0..200u64 {
            if cache.get(&block).is_none() {
                cache.insert(
                    block,
                    Held::charged(&blocks, MIB, || vec![block as u8; MIB as usize])?,
                );
            }
        }
        println!(
            "round {round}: the cache has {} in {} blocks",
            usage(&blocks),
            cache.len()
        );
        let query = queries.try_charge(40 * MIB)?;
        println!("  a query took 40 MiB: the cache has {}", usage(&blocks));
        drop(query);
    }
    println!("{memory}");
    Ok(())
}
