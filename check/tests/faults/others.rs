//! Calls of other crates: of the C interface, of the server, and of the allocator's twin.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use bursar::{Freshness, Limits};
// Its functions are those of the block below.
use bursar_capi as _;

use crate::allocations::{Case, Fault, Outcome, case, outcome};
use crate::library::{MIB, with_world};

/// A group's handle of C.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    bits: u64,
}

const NONE: Handle = Handle { bits: 0 };

unsafe extern "C" {
    fn bursar_create(options: *const c_void, root: *mut Handle, error: *mut *mut c_void) -> c_int;
    fn bursar_child(
        parent: Handle,
        name: *const c_char,
        max: u64,
        child: *mut Handle,
        error: *mut *mut c_void,
    ) -> c_int;
    fn bursar_find(
        from: Handle,
        path: *const c_char,
        found: *mut Handle,
        error: *mut *mut c_void,
    ) -> c_int;
    fn bursar_try_charge(group: Handle, bytes: u64, error: *mut *mut c_void) -> c_int;
    fn bursar_try_charge_nowait(group: Handle, bytes: u64) -> c_int;
    fn bursar_uncharge(group: Handle, bytes: u64) -> c_int;
    fn bursar_release(group: Handle) -> c_int;
}

#[rustfmt::skip]
pub const CASES: &[Case] = &[
    case("bursar_create", |fault| {
        let mut root = NONE;
        let code = fault.during(|| create(&mut root));
        if code == 0 {
            release(root);
        }
        outcome_of(code)
    }),
    case("bursar_child", |fault| with_root(fault, |fault, root| {
        let mut made = NONE;
        let code = fault.during(|| child(root, &mut made));
        match code {
            0 => release(made),
            _ => {
                // The group may exist without a handle, and then ends at once.
                let mut again = NONE;
                assert_eq!(child(root, &mut again), 0);
                release(again);
            }
        }
        outcome_of(code)
    })),
    case("bursar_find", |fault| with_root(fault, |fault, root| {
        let (mut made, mut found) = (NONE, NONE);
        assert_eq!(child(root, &mut made), 0);
        // SAFETY: the name ends with 0, the place is ours, and no error is asked for.
        let code = fault.during(|| unsafe { bursar_find(root, c"made".as_ptr(), &mut found, null_mut()) });
        if code == 0 {
            release(found);
        }
        release(made);
        outcome_of(code)
    })),
    case("bursar_try_charge", |fault| with_root(fault, |fault, root| {
        let code = fault.during(|| try_charge(root, 4 * MIB));
        if code == 0 {
            uncharge(root, 4 * MIB);
        }
        outcome_of(code)
    })),
    case("bursar_try_charge that is refused", |fault| with_root(fault, |fault, root| {
        let mut made = NONE;
        assert_eq!(child(root, &mut made), 0);
        let code = fault.during(|| try_charge(made, 4 * MIB));
        assert_eq!(code, -libc::ENOMEM);
        release(made);
        Outcome::Error
    })),
    case("bursar_try_charge_nowait that is refused", |fault| with_root(fault, |fault, root| {
        let mut made = NONE;
        assert_eq!(child(root, &mut made), 0);
        // SAFETY: numbers only.
        let code = fault.during(|| unsafe { bursar_try_charge_nowait(made, 4 * MIB) });
        assert_eq!(code, -libc::ENOMEM);
        release(made);
        Outcome::Error
    })),
    case("bursar_uncharge", |fault| with_root(fault, |fault, root| {
        assert_eq!(try_charge(root, 4 * MIB), 0);
        fault.during(|| uncharge(root, 4 * MIB));
        Outcome::Done
    })),
    case("Server::start", |fault| with_world(fault, |fault, world| {
        let directory = tempfile::tempdir().unwrap();
        // A directory that the server makes, for its user alone.
        let path = directory.path().join("own").join("bursar.sock");
        let builder = bursar_serve::Server::builder().path(&path);
        let server = fault.during(|| builder.start(&world.memory));
        let outcome = outcome(&server);
        drop(server);
        let again = bursar_serve::Server::builder().path(&path).start(&world.memory);
        drop(again.expect("nothing is left in its way"));
        outcome
    })),
    case("Twin::of", |fault| with_world(fault, |fault, world| {
        let twin = bursar_alloc::Twin::new().unwrap();
        let made = fault.during(|| twin.of(&world.query));
        drop(twin.of(&world.query).unwrap());
        outcome(&made)
    })),
    case("NowaitError", |fault| with_world(fault, |fault, world| {
        let small = world.tenant.child("small", Limits::max(10)).unwrap();
        let refused = fault.during(|| small.engine().try_charge_nowait(MIB));
        assert!(refused.is_err());
        assert_eq!(small.read(Freshness::Exact).unwrap().usage_bytes(), 0);
        Outcome::Error
    })),
];

fn outcome_of(code: c_int) -> Outcome {
    match code {
        0 => Outcome::Done,
        _ => {
            assert_eq!(code, -libc::ENOMEM);
            Outcome::Error
        }
    }
}

fn create(root: &mut Handle) -> c_int {
    // SAFETY: no options, a place of ours, and no error asked for.
    unsafe { bursar_create(std::ptr::null(), root, null_mut()) }
}

fn child(parent: Handle, made: &mut Handle) -> c_int {
    // SAFETY: the name ends with 0, the place is ours, and no error is asked for.
    unsafe { bursar_child(parent, c"made".as_ptr(), MIB, made, null_mut()) }
}

fn try_charge(group: Handle, bytes: u64) -> c_int {
    // SAFETY: numbers, and no error asked for.
    unsafe { bursar_try_charge(group, bytes, null_mut()) }
}

fn uncharge(group: Handle, bytes: u64) {
    // SAFETY: numbers only.
    assert_eq!(unsafe { bursar_uncharge(group, bytes) }, 0);
}

fn release(group: Handle) {
    // SAFETY: numbers only.
    assert_eq!(unsafe { bursar_release(group) }, 0);
}

/// Runs a call with the handle of a root, and charges once more without a fault.
fn with_root(fault: &mut Fault, call: impl Fn(&mut Fault, Handle) -> Outcome) -> Outcome {
    let mut root = NONE;
    assert_eq!(create(&mut root), 0);
    let outcome = call(fault, root);
    assert_eq!(try_charge(root, 64 * MIB), 0);
    uncharge(root, 64 * MIB);
    release(root);
    outcome
}
