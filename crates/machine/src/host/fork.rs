//! Operations that a fork waits for.

/// A task in the middle of something that a fork must not cut in two, until dropped.
#[derive(Debug)]
pub struct HostOperation(());

pub(super) fn operation() -> HostOperation {
    HostOperation(())
}

pub(super) fn forks() -> u64 {
    0
}

thread_local! {
    /// Its address tells threads apart. Constant and without a destructor: usable at any moment of a thread's life.
    static HERE: u8 = const { 0 };
}

pub(super) fn task() -> u64 {
    HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
}
