//! A kernel that refuses `membarrier`: another backend is chosen, and the report says why.
#![cfg(target_os = "linux")]

#[path = "common/filter.rs"]
mod filter;

use std::env;

use bursar_machine::Host;
use bursar_machine::host::{Backend, StartError};

#[test]
fn a_kernel_without_membarrier() {
    if !filter::refuse(&[libc::SYS_membarrier], libc::ENOSYS) {
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
