//! Cost of the C interface, beside the same in Rust or of the C library: nanoseconds a pair, in turns within
//! one run.
//!
//! `cargo build --release -p bursar-capi && cargo run --release -p bursar-capi --example c_cost`

use std::env;
use std::error::Error;
use std::ffi::{CString, c_int, c_void};
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use bursar::{Limits, Memory};
use bursar_capi::GroupHandle;

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

const PAIRS: u32 = 2_000_000;
const ROUNDS: usize = 31;
const BYTES: u64 = 64;
/// More than a CPU reserves ahead: such a charge goes to the counters.
const MANY_BYTES: u64 = 1 << 20;

type Create = unsafe extern "C" fn(*const c_void, *mut GroupHandle, *mut c_void) -> c_int;
type TryCharge = unsafe extern "C" fn(GroupHandle, u64, *mut c_void) -> c_int;
type Uncharge = unsafe extern "C" fn(GroupHandle, u64) -> c_int;

unsafe extern "C" {
    fn bursar_try_charge(group: GroupHandle, bytes: u64, error: *mut c_void) -> c_int;
    fn bursar_uncharge(group: GroupHandle, bytes: u64) -> c_int;
    fn bursar_enter(group: GroupHandle, error: *mut c_void) -> c_int;
    fn bursar_leave() -> c_int;
    fn bursar_malloc(size: usize) -> *mut c_void;
    fn bursar_free(block: *mut c_void);
}

/// The shared library, with a tree of its own.
struct Shared {
    root: GroupHandle,
    try_charge: TryCharge,
    uncharge: Uncharge,
}

impl Shared {
    fn open() -> Result<Self, Box<dyn Error>> {
        let this = env::current_exe()?;
        let library = this
            .ancestors()
            .nth(2)
            .ok_or("no directory")?
            .join("libbursar_capi.so");
        let path = CString::new(library.to_str().ok_or("the path is no text")?)?;
        // SAFETY: a library that runs nothing when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(format!(
                "cannot load {path:?}: run `cargo build --release -p bursar-capi` first"
            )
            .into());
        }
        let symbol = |name: &std::ffi::CStr| {
            // SAFETY: the library is loaded, and the name ends with NUL.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            if found.is_null() {
                Err(format!("the library has no {name:?}"))
            } else {
                Ok(found)
            }
        };
        // SAFETY: that is a group's handle of none.
        let mut root = unsafe { std::mem::zeroed() };
        // SAFETY: the types are those of the header.
        unsafe {
            let create: Create = std::mem::transmute(symbol(c"bursar_create")?);
            if create(ptr::null(), &raw mut root, ptr::null_mut()) != 0 {
                return Err("no tree in the shared library".into());
            }
            Ok(Self {
                root,
                try_charge: std::mem::transmute::<*mut c_void, TryCharge>(symbol(
                    c"bursar_try_charge",
                )?),
                uncharge: std::mem::transmute::<*mut c_void, Uncharge>(symbol(c"bursar_uncharge")?),
            })
        }
    }
}

/// A name, and a turn: nanoseconds a pair.
type Pair = (&'static str, Box<dyn FnMut() -> f64>);

#[expect(clippy::disallowed_methods, reason = "a time to be shown")]
fn time(mut pair: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..PAIRS {
        pair();
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS)
}

fn main() -> Result<(), Box<dyn Error>> {
    let shared = Shared::open()?;
    let memory = Memory::host()?;
    let group = memory.root().child("group", Limits::none())?;
    let handle = GroupHandle::of(&group).ok_or("too many handles")?;
    let other = group.clone();
    let mut pairs: Vec<Pair> = vec![
        (
            "charge, return: in Rust",
            Box::new(move || time(|| drop(group.try_charge(black_box(BYTES))))),
        ),
        (
            "charge, return: from C, static",
            Box::new(move || {
                time(|| {
                    // SAFETY: the handle is in use, and no error is wanted.
                    unsafe {
                        black_box(
                            bursar_try_charge(handle, black_box(BYTES), ptr::null_mut())
                                + bursar_uncharge(handle, BYTES),
                        )
                    };
                })
            }),
        ),
        (
            "charge, return: from C, shared",
            Box::new(move || {
                time(|| {
                    // SAFETY: as above.
                    unsafe {
                        black_box(
                            (shared.try_charge)(shared.root, black_box(BYTES), ptr::null_mut())
                                + (shared.uncharge)(shared.root, BYTES),
                        );
                    }
                })
            }),
        ),
        (
            "1 MiB: charge, return: in Rust",
            Box::new(move || time(|| drop(other.try_charge(black_box(MANY_BYTES))))),
        ),
        (
            "1 MiB: charge, return: from C",
            Box::new(move || {
                time(|| {
                    // SAFETY: as above.
                    unsafe {
                        black_box(
                            bursar_try_charge(handle, black_box(MANY_BYTES), ptr::null_mut())
                                + bursar_uncharge(handle, MANY_BYTES),
                        )
                    };
                })
            }),
        ),
        (
            "bursar_enter, bursar_leave",
            Box::new(move || {
                time(|| {
                    // SAFETY: the handle is in use, and no error is wanted.
                    unsafe { black_box(bursar_enter(handle, ptr::null_mut()) + bursar_leave()) };
                })
            }),
        ),
        (
            "malloc, free: the C library's",
            Box::new(|| {
                // SAFETY: what was allocated is freed once.
                time(|| unsafe { libc::free(black_box(libc::malloc(black_box(BYTES as usize)))) })
            }),
        ),
        (
            "malloc, free: bursar_malloc",
            Box::new(move || {
                // SAFETY: the handle is in use, and what was allocated is freed once.
                unsafe {
                    bursar_enter(handle, ptr::null_mut());
                    let taken =
                        time(|| bursar_free(black_box(bursar_malloc(black_box(BYTES as usize)))));
                    bursar_leave();
                    taken
                }
            }),
        ),
    ];
    let mut times = vec![Vec::new(); pairs.len()];
    for _ in 0..ROUNDS {
        for ((_, pair), times) in pairs.iter_mut().zip(&mut times) {
            times.push(pair());
        }
    }
    println!("{BYTES} bytes, ns: median of {ROUNDS} turns (least to most)");
    for ((name, _), times) in pairs.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (middle, most) = (times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("  {name:<30}  {middle:6.2} ({:.2} to {most:.2})", times[0]);
    }
    handle.release();
    Ok(())
}
