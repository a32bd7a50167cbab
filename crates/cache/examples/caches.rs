//! Caches fill the memory that queries leave, and give it back when they need it: one of quick_cache, one of moka.
//!
//! `cargo run --release -p bursar-cache --features moka,quick_cache --example caches`

use std::error::Error;
use std::sync::Arc;

use bursar::{Bytes, ChargeError, Freshness, Group, Limits, Memory};
use bursar_cache::{Held, Place, QuickCache, evict_from};

const MIB: u64 = 1 << 20;

type Block = Held<Vec<u8>>;

fn usage(group: &Group) -> Bytes {
    let reading = group.read(Freshness::Exact);
    Bytes(reading.map_or(0, |reading| reading.usage_bytes()))
}

fn load(blocks: &Group, block: u64) -> Result<Block, ChargeError> {
    Held::charged(blocks, MIB, || vec![block as u8; MIB as usize])
}

/// Reads all blocks again and again, which are more than fit, with a query after each time.
fn run(
    name: &str,
    memory: &Memory,
    blocks: &Group,
    read: impl Fn(u64) -> Result<Block, ChargeError>,
) -> Result<(), Box<dyn Error>> {
    let queries = memory
        .root()
        .child(format!("{name}-queries"), Limits::none())?;
    for round in 0..3 {
        for block in 0..200 {
            assert_eq!(read(block)?[0], block as u8);
        }
        println!("{name}, round {round}: the cache has {}", usage(blocks));
        let query = queries.try_charge(40 * MIB)?;
        println!("  a query took 40 MiB: the cache has {}", usage(blocks));
        drop(query);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let memory = Memory::builder().max(64 * MIB).build()?;

    let blocks = memory.root().child("quick_cache", Limits::none())?;
    let cache = Arc::new(QuickCache::new(64));
    let reclaimer = evict_from(&blocks, 0, cache.clone());
    run("quick_cache", &memory, &blocks, |block| {
        cache.get_or_insert_with(&block, || load(&blocks, block))
    })?;
    cache.clear();
    drop(reclaimer);

    let blocks = memory.root().child("moka", Limits::none())?;
    let cache = moka::sync::Cache::builder()
        .eviction_listener(|_, place: Place<_>, _| place.empty())
        .build();
    let _reclaimer = evict_from(&blocks, 0, cache.clone());
    run("moka", &memory, &blocks, |block| {
        if let Some(held) = cache.get(&block).and_then(|place| place.get()) {
            return Ok(held);
        }
        let held = load(&blocks, block)?;
        cache.insert(block, held.clone().into());
        Ok(held)
    })?;
    println!("{memory}");
    Ok(())
}
