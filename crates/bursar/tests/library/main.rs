//! Tests of the library that share a process, by part. Apart from them, in `process`, are those that fork, move threads, handle
//! signals, set limits of their process or look at its memory.

#[path = "../common/mod.rs"]
mod common;

mod charging {
    mod limits;
    mod limits_bad_input;
    mod model_limits;
    mod never_fits;
    mod pressure;
    mod reclaim;
    mod reclaim_faults;
    mod refusals;
    mod unwinding;
    mod waiting;
}
mod groups {
    mod basics;
    mod closing;
    mod handles;
    mod leftovers;
    mod model;
    mod names;
}
mod pages {
    mod allocation;
    mod bytes;
    mod model;
    mod upkeep;
}
mod reading {
    mod exact;
    mod numbers;
    mod serial;
    mod shown;
    mod snapshot;
}
