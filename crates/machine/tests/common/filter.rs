//! System calls that the kernel refuses, by a filter of the calling thread and of those that it starts.

/// Lets some system calls fail with an error's number, until the process ends. Returns whether the system has filters.
pub fn refuse(calls: &[libc::c_long], errno: libc::c_int) -> bool {
    let step = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    // The number of the call is at the begin of `seccomp_data`.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (at, &call) in calls.iter().enumerate() {
        // To the last step.
        let to_refusal = (calls.len() - at) as u8;
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(step(equal, call as u32, to_refusal));
    }
    let end = libc::BPF_RET | libc::BPF_K;
    filter.push(step(end, libc::SECCOMP_RET_ALLOW, 0));
    filter.push(step(end, libc::SECCOMP_RET_ERRNO | errno as u32, 0));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the filter, which has as many steps as the program says.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}
