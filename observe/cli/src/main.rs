//! Options of `bursar observe`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs};

use crate::options::whole;

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("redactable").args(["record", "read"]).multiple(true))]
pub struct Observe {
    /// Trace upkeep and flushes only, which costs next to nothing. The default
    #[arg(long, conflicts_with = "deep")]
    pub light: bool,
    /// Also trace each page under a zone lock, and waits for spin locks. Slows page frees while it runs
    #[arg(long)]
    pub deep: bool,
    /// Observe for N seconds at most [default: until COMMAND ends, or 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1..=86_400))]
    pub seconds: Option<u64>,
    /// Also read memory.stat of this cgroup ten times a second, for latency and staleness
    #[arg(long, value_name = "DIRECTORY")]
    pub probe_stat: Option<PathBuf>,
    /// Also write a recording, for --replay
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Leave names of processes and cgroups out of the recording, and with --read out of the document
    #[arg(long, requires = "redactable")]
    pub redact: bool,
    /// Print the document of a file: trace.dat of trace-cmd, perf.data, or a recording. Needs no root
    #[arg(long, value_name = "FILE", conflicts_with_all = ["light", "deep", "seconds", "probe_stat", "replay", "machine", "command"])]
    pub read: Option<PathBuf>,
    /// Addresses of functions, for a file of --read that has none: a copy of /proc/kallsyms of the same boot
    // `requires` alone gives way if another argument conflicts with --read.
    #[arg(long, value_name = "FILE", requires = "read", conflicts_with_all = ["light", "deep", "seconds", "probe_stat", "replay", "machine", "command"])]
    pub kallsyms: Option<PathBuf>,
    /// Replay a recording on a simulated machine, under its own policies and others. Needs no root
    #[arg(long, value_name = "FILE", conflicts_with_all = ["light", "deep", "seconds", "probe_stat", "record", "command"])]
    pub replay: Option<PathBuf>,
    /// Simulated machine for the other policies: `sim:KEY=VALUE,...` [default: the recorded one]
    #[arg(short, long, value_name = "MACHINE", requires = "replay", conflicts_with_all = ["light", "deep", "seconds", "probe_stat", "record", "command"])]
    pub machine: Option<String>,
    /// Command to run meanwhile
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Wait for the end of standard input, then remove this instance. For the tool itself
    #[arg(long, hide = true, value_name = "INSTANCE")]
    pub tidy: Option<PathBuf>,
    /// File system to unmount then
    #[arg(long, hide = true, requires = "tidy", value_name = "DIRECTORY")]
    pub tidy_mount: Option<PathBuf>,
}
