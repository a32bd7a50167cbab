//! Threads that unregister from restartable sequences.

use core::arch::asm;

/// The kernel's `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: libc::c_int = 1;
/// Signature that glibc registers with.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") {
    0x5305_3053
} else {
    0xd428_bc00
};

/// Takes sections away from the calling thread until it ends. Does nothing where it has none.
pub fn leave() {
    // SAFETY: looks a symbol up by a name that ends with a zero.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return;
    }
    let thread: usize;
    // SAFETY: (1) glibc defines the symbol as `ptrdiff_t`; (2) on x86-64 `fs:0` holds the address of the thread control block,
    // and on Arm `tpidr_el0` does; (3) the kernel checks that the area is the registered one, and of that length.
    unsafe {
        let offset = *offset.cast::<isize>();
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        asm!("mrs {}, tpidr_el0", out(reg) thread, options(nomem, nostack, preserves_flags));
        let area = thread.wrapping_add_signed(offset);
        for length in [32_usize, 28, 64] {
            libc::syscall(libc::SYS_rseq, area, length, UNREGISTER, SIGNATURE);
        }
    }
}
