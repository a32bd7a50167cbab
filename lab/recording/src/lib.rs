//! Recordings of what a running kernel did: upkeep, page bursts, flushes, reads of statistics and waits for locks.
//!
//! `bursar observe --record` writes one, and `--replay` reads it. `docs/recording-format.md` documents the bytes.
//!
//! | part | file |
//! |---|---|
//! | the machine that was observed | `header.rs` |
//! | the records | `record.rs` |
//! | names of processes and cgroups, and their redaction | `names.rs` |
//! | a whole recording in memory | `recording.rs` |
//! | writing, as a stream | `write.rs` |
//! | reading, and what is wrong with a file | `read.rs` |
//! | blocks and numbers in bytes | `block.rs`, `number.rs`, `code.rs` |
//!
//! # Invariants
//! * A reader needs bounded memory, whatever the file says: see [`BLOCK_BYTES_MAX`] and [`RECORDS_MAX`].
//! * All numbers that a reader returns are at most [`TIME_NS_MAX`], so that adding two of them does not overflow.
//! * Names that a reader returns have no control characters, so a terminal can show them.

#![forbid(unsafe_code)]

mod block;
mod code;
mod header;
mod names;
mod number;
mod read;
mod record;
mod recording;
mod write;

pub use header::{Event, Events, Header, Node, Zone};
pub use names::Names;
pub use read::{Damage, DamageKind, ReadError};
pub use record::{
    Burst, BurstKind, Cause, CpuChange, End, Flush, Hold, LockKind, StatRead, Upkeep, Wait,
};
pub use recording::Recording;
pub use write::{WriteError, Writer};

/// Bytes at the beginning of every recording.
pub const MAGIC: [u8; 8] = *b"BURSAREC";

/// Version of the format that this crate writes. It reads no other.
pub const VERSION: u16 = 1;

/// Greatest length of a block's contents.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Greatest number of records that [`Recording::read`] keeps. The rest of a longer file is left unread, and said to be.
pub const RECORDS_MAX: usize = 1 << 22;

/// Greatest value of a time or count in a recording: 73 years in nanoseconds.
pub const TIME_NS_MAX: u64 = 1 << 61;

/// Greatest number of CPUs: CPU numbers are below it.
pub const CPUS_MAX: u32 = 1 << 16;
