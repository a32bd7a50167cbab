//! Keeps the shared library in memory.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // Threads, thread-local storage and restartable sequences point into it: `dlclose` must not unmap it.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
