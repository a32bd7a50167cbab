//! Builds `dpdk.c` into a shared library of its own, which only the process that measures DPDK loads. Where DPDK is not
//! installed there is none, and the benchmark says so.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/dpdk.c");
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let library = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("dpdk.so");
    println!("cargo::rustc-env=DPDK_SHIM={}", library.display());
    // What an earlier build left must not outlive DPDK.
    let _ = std::fs::remove_file(&library);
    if env::var_os("CARGO_FEATURE_NATIVE").is_none() {
        return;
    }
    let Some(flags) = pkg_config() else {
        return;
    };
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(compiler)
        .args(["-O2", "-shared", "-fPIC", "src/dpdk.c", "-o"])
        .arg(&library)
        .args(flags.split_whitespace())
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!(
            "cargo::warning=pkg-config finds DPDK, but src/dpdk.c does not compile; its row will be missing"
        );
    }
}

/// How to compile and link against DPDK, if it is installed.
fn pkg_config() -> Option<String> {
    let output = Command::new("pkg-config")
        .args(["--cflags", "--libs", "libdpdk"])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
