//! A cache of moka fills the memory that queries leave, and gives it back when they need it.
//!
//! `cargo run --release -p bursar-cache --features moka --example cache_moka`

use bursar::{Bytes, Freshness, Group, Limits, Memory};
use bursar_cache::{Held, Place, evict_from};
use moka::sync::Cache;

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
    let cache = Cache::builder()
        .eviction_listener(|_, place: Place<_>, _| place.empty())
        .build();
    let _reclaimer = evict_from(&blocks, 0, cache.clone());

    for round in 0..3 {
        for block in 0..200u64 {
            if cache.get(&block).and_then(|place| place.get()).is_none() {
                cache.insert(
                    block,
                    Held::charged(&blocks, MIB, || vec![block as u8; MIB as usize])?.into(),
                );
            }
        }
        println!(
            "round {round}: the cache has {} in {} blocks",
            usage(&blocks),
            cache.entry_count()
        );
        let query = queries.try_charge(40 * MIB)?;
        println!("  a query took 40 MiB: the cache has {}", usage(&blocks));
        drop(query);
    }
    println!("{memory}");
    Ok(())
}
