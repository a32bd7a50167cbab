//! The targets but for `capi`, one a file.

mod answer;
mod cgroup;
mod experiment;
mod foreign;
mod format;
mod http;
mod live;
mod name;
mod recording;
mod result;
mod settings;
mod users;

use crate::Target;

/// The targets without `unsafe` behind them, by the names of their corpora.
pub(crate) const PARSERS: [(&str, Target); 13] = [
    ("answer", answer::run),
    ("cgroup", cgroup::run),
    ("experiment", experiment::run),
    ("format", format::run),
    ("http", http::run),
    ("live", live::run),
    ("name", name::run),
    ("perf-data", foreign::perf_data),
    ("recording", recording::run),
    ("result", result::run),
    ("settings", settings::run),
    ("trace-dat", foreign::trace_dat),
    ("users", users::run),
];
