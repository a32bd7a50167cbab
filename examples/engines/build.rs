//! Compiles the store in C, beside the SQLite that `libsqlite3-sys` compiles.

fn main() {
    println!("cargo:rerun-if-changed=src/store.c");
    println!("cargo:rerun-if-changed=../../crates/capi/include/bursar.h");
    let sqlite =
        std::env::var("DEP_SQLITE3_INCLUDE").expect("libsqlite3-sys tells where its header is");
    cc::Build::new()
        .file("src/store.c")
        .include(sqlite)
        .include("../../crates/capi/include")
        .warnings_into_errors(true)
        .compile("store");
}
