//! CPUs on which other threads may run, which std does not offer.

/// The calling thread, for [`move_to`].
pub fn this_thread() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Makes another thread run on one CPU only. Whether that worked: the thread may have ended.
pub fn move_to(thread: libc::pid_t, cpu: usize) -> bool {
    assert!(cpu < libc::CPU_SETSIZE as usize);
    // SAFETY: `cpu_set_t` is plain data for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index was checked against the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the set, whose size it is told.
    unsafe { libc::sched_setaffinity(thread, std::mem::size_of::<libc::cpu_set_t>(), &set) == 0 }
}
