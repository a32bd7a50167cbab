//! DuckDB as a third engine: its tables give memory back when a query of DataFusion needs it, and a limit refuses its own query alone.

use std::error::Error;
use std::ffi::{CStr, CString, c_char};

use bursar::{Bytes, Group, Limits, Memory};
use bursar_capi::GroupHandle;
use bursar_tpch::Tables;
// `duck.cpp` calls it.
use libduckdb_sys as _;

use crate::query::{MIB, query, usage};

/// `struct duck` of C++.
#[repr(C)]
struct RawDuck {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn duck_open(group: GroupHandle, directory: *const c_char) -> *mut RawDuck;
    fn duck_run(
        duck: *mut RawDuck,
        sql: *const c_char,
        memory: u64,
        text: *mut c_char,
        length: usize,
    ) -> i64;
    fn duck_close(duck: *mut RawDuck);
}

/// A database of DuckDB. It closes itself.
struct Duck(*mut RawDuck);

impl Duck {
    fn open(group: GroupHandle, directory: &CStr) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the handle is in use, and the path ends with NUL.
        let duck = unsafe { duck_open(group, directory.as_ptr()) };
        match duck.is_null() {
            true => Err("DuckDB cannot be opened".into()),
            false => Ok(Self(duck)),
        }
    }

    /// Runs a statement; returns its first number.
    fn run(&mut self, sql: &str, memory: u64) -> Result<i64, Box<dyn Error>> {
        let sql = CString::new(sql)?;
        let mut text: [c_char; 512] = [0; 512];
        // SAFETY: it is open, the statement ends with NUL, and the text has this length.
        let value =
            unsafe { duck_run(self.0, sql.as_ptr(), memory, text.as_mut_ptr(), text.len()) };
        if value >= 0 {
            return Ok(value);
        }
        // SAFETY: it was zero before, and what was written ends with NUL.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Err(text.to_string_lossy().into())
    }
}

impl Drop for Duck {
    fn drop(&mut self) {
        // SAFETY: it is open, and not used again.
        unsafe { duck_close(self.0) };
    }
}

const ROWS: i64 = 8_000_000;
/// DuckDB's own limit: above it, it moves blocks to its file.
const MEMORY: u64 = 96 * MIB;
/// An own limit of DuckDB that is of no use, because its group has less.
const TOO_MUCH: u64 = 1 << 30;
/// An own limit of DuckDB that leaves room in its group.
const LITTLE: u64 = 64 * MIB;

/// Fills a table of DuckDB, runs a query of DataFusion that needs its memory, and one of DuckDB that a limit refuses.
pub async fn story(memory: &Memory, engine: &Group, tables: &Tables) -> Result<(), Box<dyn Error>> {
    let group = memory.root().child("duckdb", Limits::none())?;
    let handle = GroupHandle::of(&group).ok_or("too many handles")?;
    let directory = tempfile::tempdir()?;
    let path = CString::new(directory.path().as_os_str().as_encoded_bytes())?;
    let mut duck = Duck::open(handle, &path)?;
    // Hashes, because numbers in order would be compressed to nothing.
    let fill =
        format!("CREATE TABLE t AS SELECT range % 1000 AS id, hash(range) AS h FROM range({ROWS})");
    duck.run(&fill, MEMORY)?;
    println!("DuckDB has filled a table:\n{memory}\n");

    let outcome = query(engine, "q18-beside-duckdb", tables).await?;
    let reclaimed = group.events().reclaimed_bytes;
    println!(
        "{outcome}\nDuckDB moved {} to its file, so the query fitted:\n{memory}\n",
        Bytes(reclaimed)
    );
    if duck.run("SELECT count(*) FROM t", MEMORY)? != ROWS || reclaimed == 0 {
        return Err("DuckDB gave nothing back, or lost rows".into());
    }

    group.set_limits(Limits::max(MEMORY))?;
    let large = "SELECT count(*) FROM (SELECT h, list(id) FROM t GROUP BY h)";
    let Err(refusal) = duck.run(large, TOO_MUCH) else {
        return Err("DuckDB's query needs no more than its limit".into());
    };
    println!(
        "DuckDB's own query, by its group's limit: {}\n",
        refusal.to_string().lines().next().unwrap_or_default()
    );
    // With a limit of its own below that of the group, DuckDB spills.
    let spilled = duck.run(large, LITTLE)?;
    println!(
        "The same with a limit of DuckDB's own below the group's, so that it spills: {spilled} groups.\n"
    );
    drop(duck);
    handle.release();
    match usage(&group) {
        0 => Ok(()),
        left => Err(format!("{left} bytes of DuckDB are left").into()),
    }
}
