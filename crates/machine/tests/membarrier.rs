//! A kernel that refuses `membarrier`: another backend is chosen, and the report says why.
#![cfg(target_os = "linux")]

use std::env;

use bursar_machine::Host;
use bursar_machine::host::{Backend, StartError};

/// Lets `membarrier` fail as on a kernel that lacks it, in this thread and in those that it starts. Returns whether the system allows that.
fn refuse_membarrier() -> bool {
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut filter = [
        // The number of the call is at the begin of `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_membarrier as u32,
            1,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            0,
        ),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
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

#[test]
fn a_kernel_without_membarrier() {
    if !refuse_membarrier() {
        eprintln!("left out: this system takes no seccomp filter");
        return;
    }
    let forced = env::var("BURSAR_BACKEND").unwrap_or_default();
    match Host::start() {
        Ok(host) => {
            let report = host.report();
            assert_ne!(report.backend, Backend::Rseq);
            let is_registered = report
                .checks
                .iter()
                .any(|check| check.name == "rseq registration" && check.passed);
            if is_registered {
                let check = report
                    .checks
                    .iter()
                    .find(|check| check.name == "membarrier for rseq")
                    .expect("it was tried");
                assert!(!check.passed && check.detail.contains("Linux 5.10"));
            }
        }
        Err(StartError::Unavailable { backend, reason }) => {
            assert_eq!((backend, &*forced), (Backend::Rseq, "rseq"));
            assert!(
                reason.contains("MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ"),
                "{reason}"
            );
        }
        Err(error) => panic!("{error}"),
    }
}
