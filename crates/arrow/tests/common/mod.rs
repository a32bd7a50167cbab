//! Helpers of all tests.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bursar::{Freshness, Group, Limits, Memory};
use bursar_rig::random::Random;

/// A group with that limit.
pub fn group(max: u64) -> Group {
    let memory = Memory::host().unwrap();
    memory.root().child("tenant", Limits::max(max)).unwrap()
}

pub fn usage(group: &Group) -> u64 {
    group.read(Freshness::Exact).unwrap().usage_bytes()
}

/// Rows that do not compress.
pub fn batch(random: &mut Random, rows: usize) -> RecordBatch {
    let numbers: Vec<i64> = (0..rows).map(|_| random.below(u64::MAX) as i64).collect();
    let texts: Vec<String> = numbers.iter().map(|n| format!("{n:x}")).collect();
    RecordBatch::try_from_iter([
        ("number", Arc::new(Int64Array::from(numbers)) as ArrayRef),
        ("text", Arc::new(StringArray::from(texts)) as ArrayRef),
    ])
    .unwrap()
}

/// An empty directory for one test.
pub fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
