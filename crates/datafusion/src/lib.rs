//! Pools.
