//! Two engines in one process and one tree of memory groups: DataFusion, in Rust, runs a query of TPC-H; SQLite, in C, writes. One limit is above
//! both. SQLite's cache grows into what nobody needs, and gives it back when the query needs it.
//!
//! The store (`store.c`) knows the C interface alone: a handle of its group.
//!
//! `cargo run --release` in this directory. With `--features duckdb`, DuckDB is a third engine.

#[cfg(feature = "duckdb")]
mod duck;
mod query;

use std::error::Error;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bursar::{Bytes, Limits, Memory};
use bursar_capi::GroupHandle;
use bursar_tpch::Tables;
// The store calls it.
use libsqlite3_sys as _;

use crate::query::{MIB, query, usage};

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

/// Limit of both engines together, bytes.
const MAX: u64 = 160 * MIB;
/// Size of SQLite's cache before the query begins.
const CACHE: u64 = 110 * MIB;
const SCALE: f64 = 0.1;

/// `struct store` of C.
#[repr(C)]
struct RawStore {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn store_configure() -> c_int;
    fn store_open(group: GroupHandle, path: *const c_char) -> *mut RawStore;
    fn store_write(store: *mut RawStore) -> c_int;
    fn store_share(store: *mut RawStore) -> c_int;
    fn store_close(store: *mut RawStore);
}

/// The store in C. It closes itself.
struct Store(*mut RawStore);

// SAFETY: `write` uses the connection alone, which is open for several threads at a time (`SQLITE_OPEN_FULLMUTEX`).
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    fn open(group: GroupHandle, path: &Path) -> Result<Self, Box<dyn Error>> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: SQLite refuses a late `store_configure`; the handle is in use, and the path ends with NUL.
        let store = unsafe {
            if store_configure() != 0 {
                return Err("SQLite takes no functions for its memory".into());
            }
            store_open(group, path.as_ptr())
        };
        match store.is_null() {
            true => Err("SQLite cannot open its file".into()),
            false => Ok(Self(store)),
        }
    }

    /// Lets the cache give memory back from now on, when others need it.
    fn share(&mut self) -> Result<(), Box<dyn Error>> {
        // SAFETY: it is open, and no other thread uses it now, because the call changes it.
        match unsafe { store_share(self.0) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error).into()),
        }
    }

    /// Writes a thousand events.
    fn write(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        // SAFETY: it is open.
        match unsafe { store_write(self.0) } {
            0 => Ok(()),
            error => Err(format!("SQLite's error {error} at a write").into()),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: it is open, and not used again.
        unsafe { store_close(self.0) };
    }
}

fn show(step: &str, memory: &Memory) {
    println!("{step}\n{memory}\n");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let memory = Memory::builder().max(MAX).build()?;
    let [sqlite, datafusion] =
        ["sqlite", "datafusion"].map(|name| memory.root().child(name, Limits::none()));
    let (sqlite, datafusion) = (sqlite?, datafusion?);
    // The tables are in memory, and belong to nobody.
    let tables = Tables::generate(SCALE, 2, |_| ())?;

    let directory = tempfile::tempdir()?;
    let handle = GroupHandle::of(&sqlite).ok_or("too many handles")?;
    let mut store = Store::open(handle, &directory.path().join("events.db"))?;
    while usage(&sqlite) < CACHE {
        store.write().map_err(|error| error.to_string())?;
    }
    show("SQLite has written, and its cache has filled:", &memory);

    let refused = query(&datafusion, "q18-alone", &tables).await;
    let Err(refusal) = refused else {
        return Err("the query fits beside SQLite's cache".into());
    };
    // The lines after the first show the query's operators, and the tree.
    let refusal = refusal.to_string();
    let first = refusal.lines().next().unwrap_or_default();
    println!("The query, while SQLite gives nothing back:\n{first}\n");
    store.share()?;

    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcome = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut most, mut tree) = (0, String::new());
            // Relaxed, here and below: one more turn, and a number to be shown.
            while !is_over.load(Ordering::Relaxed) {
                let now = usage(&datafusion);
                if now > most {
                    (most, tree) = (now, memory.to_string());
                }
                thread::sleep(Duration::from_millis(1));
            }
            tree
        });
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                store.write()?;
                written.fetch_add(1000, Ordering::Relaxed);
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
        let outcome = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(query(&datafusion, "q18", &tables))
        });
        is_over.store(true, Ordering::Relaxed);
        let tree = watcher.join().expect("it does not panic");
        println!("When the query had most, as seen once a millisecond:\n{tree}\n");
        writer
            .join()
            .expect("it does not panic")
            .map_err(|error| error.to_string())?;
        outcome
    })?;
    show("After the query:", &memory);
    println!(
        "{outcome}\nSQLite wrote {} events meanwhile.",
        written.into_inner()
    );
    let reclaimed = sqlite.events().reclaimed_bytes;
    println!(
        "SQLite gave {} back, so the query fitted.",
        Bytes(reclaimed)
    );
    #[cfg(feature = "duckdb")]
    duck::story(&memory, &datafusion, &tables).await?;
    drop(store);
    handle.release();
    let left = usage(&memory.root());
    println!("After both: {left} bytes are charged.");
    match left == 0 && reclaimed > 0 {
        true => Ok(()),
        false => Err("bytes are left, or SQLite gave nothing back".into()),
    }
}
