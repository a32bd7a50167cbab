//! Costs of reclaim and faults beyond the steps that the machine charges for: every constant, with its source and
//! range.
//!
//! They are computing times, on real machines too: no page is compressed, and no file read.

/// Taking one page off a list or moving it, under the lock. Judgement: a cache miss or less; 10 to 100.
pub(super) const ISOLATE_NS: u64 = 30;
/// Finding one page's mappings and undoing them, with its part of the TLB flush. Judgement; 200 to 2,000.
pub(super) const UNMAP_NS: u64 = 500;
/// Compressing a page. Judgement, from the speeds that LZO and LZ4 state (0.5 to 0.8 GB/s, one core); 5,000 to 10,000.
pub(super) const COMPRESS_NS: u64 = 7_000;
/// Decompressing a page. Judgement, likewise (1 to 4 GB/s, and the tree's look-up); 2,000 to 4,000.
pub(super) const DECOMPRESS_NS: u64 = 3_000;
/// Handing one page to the device. It writes on its own; nobody waits. Judgement; 1,000 to 5,000.
pub(super) const SUBMIT_NS: u64 = 2_000;
/// Pages of anonymous memory that fill a page when compressed. Judgement; 2 to 4.
pub(super) const COMPRESSED_IN_ONE: u32 = 3;
