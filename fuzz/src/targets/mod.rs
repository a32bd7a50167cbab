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

/// The text of an input, if it is one.
fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

/// The parts of an input, the missing ones empty.
fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut parts = input.splitn(N, |&byte| byte == 0);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Checks that a text shown to a person cannot forge lines or control a terminal.
fn assert_harmless(text: &str) {
    let mut lines = text.split('\n');
    let harmful = lines.find(|line| *line != bursar::printable(line));
    assert_eq!(harmful, None, "shown as it is");
}
