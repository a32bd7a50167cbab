//! Compiles the store in C, beside the SQLite that `libsqlite3-sys` compiles; and what DuckDB needs, if it is there.

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
    if std::env::var_os("CARGO_FEATURE_DUCKDB").is_some() {
        println!("cargo:rerun-if-changed=src/duck.cpp");
        let duckdb =
            std::env::var("DEP_DUCKDB_INCLUDE").expect("libduckdb-sys tells where its headers are");
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .file("src/duck.cpp")
            .include(duckdb)
            .include("../../crates/capi/include")
            // Its headers have many.
            .warnings(false)
            .compile("duck");
    }
}
