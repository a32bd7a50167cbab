//! Keeps the shared library in memory, and gives its functions versions.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // Threads, thread-local storage and restartable sequences point into it: `dlclose` must not unmap it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if env::var_os("CARGO_FEATURE_VERSIONED").is_some() {
        let directory = env::var("OUT_DIR").expect("Cargo sets it");
        let map = Path::new(&directory).join("bursar.map");
        fs::write(&map, "BURSAR_1 {};\n").expect("Cargo's directory takes files");
        println!(
            "cargo:rustc-cdylib-link-arg=-Wl,--version-script={}",
            map.display()
        );
    }
}
