//! Recordings of other programs: containers of the same pages and formats that a live session reads.

pub mod trace_dat;
