//! Arrow's buffers, claimed from a pool.

use arrow_buffer::{Buffer, MemoryPool};
use bursar_datafusion::PoolExt;

use crate::common::{MIB, child, exhausted, fixed, tenant, usage};

#[test]
fn claimed_buffers_are_charged() {
    let tenant = tenant(10 * MIB);
    let pool = child(&tenant, "query").pool();
    let buffer = Buffer::from_vec(vec![0_u8; MIB]);
    buffer.claim(&*pool);
    // Once, however many share it.
    let slice = buffer.slice_with_length(0, 10);
    slice.claim(&*pool);
    assert_eq!(usage(&tenant), MIB);
    assert_eq!(
        (pool.used(), pool.capacity(), pool.available()),
        (MIB, 10 * MIB, 9 * MIB as isize)
    );
    drop(buffer);
    assert_eq!(usage(&tenant), MIB);
    drop(slice);
    assert_eq!(usage(&tenant), 0);
}

/// Arrow 59 charges a repeated claim before it returns the one before: apache/arrow-rs#10301.
#[test]
fn a_buffer_claimed_again_counts_twice_for_a_moment() {
    let tenant = tenant(10 * MIB);
    let pool = child(&tenant, "query").pool();
    let buffer = Buffer::from_vec(vec![0_u8; MIB]);
    buffer.claim(&*pool);
    assert_eq!(tenant.peak(), MIB as u64);
    buffer.claim(&*pool);
    assert_eq!(usage(&tenant), MIB);
    assert_eq!(
        tenant.peak(),
        2 * MIB as u64,
        "Arrow counts a repeated claim once: remove this test, and what arrow.rs and docs/guides/real-bytes.md say of it"
    );
    drop(buffer);
    assert_eq!(usage(&tenant), 0);
}

#[test]
fn reservations_change_their_size() {
    let tenant = tenant(10 * MIB);
    let pool = child(&tenant, "query").pool();
    let mut reservation = pool.reserve(0);
    for size in [0, 5, 3 * MIB, MIB, 0, 7, 12 * MIB] {
        reservation.resize(size);
        assert_eq!((reservation.size(), usage(&tenant)), (size, size));
    }
    // Above the limit, and the next request that can fail does.
    assert_eq!(pool.available(), -2 * MIB as isize);
    let operator = fixed(&pool, "a");
    exhausted(operator.try_grow(1));
    drop(pool);
    reservation.resize(3);
    operator.try_grow(MIB).unwrap();
    drop((reservation, operator));
    assert_eq!(usage(&tenant), 0);
}

#[test]
fn without_a_limit_all_is_available() {
    let tenant = tenant(MIB);
    tenant.set_max(u64::MAX);
    let pool = child(&tenant, "query").pool();
    assert_eq!(
        (pool.capacity(), pool.available()),
        (usize::MAX, isize::MAX)
    );
}
