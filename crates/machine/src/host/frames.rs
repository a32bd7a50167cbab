//! Page memory of the host: reserved address space that is backed at its first use and given back page by page.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::path::PathBuf;

use super::cgroup::cgroup_max;
use super::resident::page_bytes;
use crate::pages::{
    Block, Content, Frames, HugePages, NodeBinding, Order, Owner, PAGE_BYTES, Pfn, ReserveError,
    ReserveOptions, SPAN_PAGES, Span, simulated,
};

/// Number of bytes of a block of the largest order; reservations begin at a multiple of it.
const SPAN_BYTES: usize = PAGE_BYTES * SPAN_PAGES as usize;
/// Maximum number of blocks of the largest order. The other half of all numbers is for pages without memory.
const SPANS_MAX: u64 = simulated::SPANS_MAX as u64;

/// Number of blocks of the largest order numbered so far.
static SPANS: AtomicU64 = AtomicU64::new(0);

/// Reservation of page memory on the host. It stays mapped until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct HostFrames {
    base: NonNull<u8>,
    first: Pfn,
    pages: u32,
}

// SAFETY: the memory stays mapped until the process ends, and is reached only through the blocks that own it.
unsafe impl Send for HostFrames {}
// SAFETY: as above.
unsafe impl Sync for HostFrames {}

/// Reserves address space.
pub(super) fn reserve(
    options: &ReserveOptions,
    nodes: usize,
) -> Result<(HostFrames, Span), ReserveError> {
    if options.pages == 0 {
        return Err(ReserveError::NoPages);
    }
    if options.node >= nodes {
        return Err(ReserveError::NoSuchNode {
            node: options.node,
            nodes,
        });
    }
    let spans = options.pages.div_ceil(u64::from(SPAN_PAGES));
    let Some(bytes) = usize::try_from(spans)
        .ok()
        .and_then(|spans| spans.checked_mul(SPAN_BYTES))
        .filter(|_| spans <= SPANS_MAX)
    else {
        return Err(too_large(options.pages));
    };
    refuse_beyond(cgroup_max(), bytes as u64)?;
    let base = map(bytes)?;
    let unmap = |error| {
        // SAFETY: mapped above, and no other code knows of it.
        unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
        Err(error)
    };
    advise(base, bytes, options.huge_pages);
    if nodes > 1
        && let Err(error) = bind(base, bytes, options)
        && options.binding == NodeBinding::Strict
    {
        return unmap(error);
    }
    // Relaxed: numbers only have to be different.
    let numbered = SPANS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        Some(used + spans).filter(|&all| all <= SPANS_MAX)
    });
    let Ok(first) = numbered else {
        return unmap(too_large(options.pages));
    };
    let first = Pfn(first as u32 * SPAN_PAGES);
    let frames = HostFrames {
        base,
        first,
        pages: spans as u32 * SPAN_PAGES,
    };
    assert!(
        first.0 + frames.pages <= simulated::FIRST.0,
        "numbers of pages with memory"
    );
    Ok((frames, Span::forge(first, spans as u32)))
}

/// Refuses more than the limit of a cgroup. The kernel would grant it, and kill the process when it uses the memory.
fn refuse_beyond(limit: Option<(u64, PathBuf)>, bytes: u64) -> Result<(), ReserveError> {
    let Some((max, directory)) = limit else {
        return Ok(());
    };
    if bytes <= max.next_multiple_of(SPAN_BYTES as u64) {
        return Ok(());
    }
    let directory = directory.display();
    Err(ReserveError::Refused {
        bytes,
        reason: format!(
            "the limit of this process's cgroup, {directory}, is {max} bytes: reserve less (PageOptions::bytes_per_node), or raise it"
        ),
    })
}

fn too_large(pages: u64) -> ReserveError {
    ReserveError::TooLarge {
        pages,
        available: (SPANS_MAX - SPANS.load(Ordering::Relaxed)) * u64::from(SPAN_PAGES),
    }
}

/// Maps `bytes` of zeroes at a multiple of the largest block.
fn map(bytes: usize) -> Result<NonNull<u8>, ReserveError> {
    let refused = |reason| ReserveError::Refused {
        bytes: bytes as u64,
        reason,
    };
    let Some(padded) = bytes.checked_add(SPAN_BYTES) else {
        return Err(refused("no machine has that much".to_owned()));
    };
    // SAFETY: an anonymous private mapping at an address of the system's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            padded,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    let base = NonNull::new(address.cast::<u8>());
    let Some(base) = base.filter(|_| address != libc::MAP_FAILED) else {
        return Err(refused(why_refused(&io::Error::last_os_error(), padded)));
    };
    let before = base.as_ptr().align_offset(SPAN_BYTES);
    // SAFETY: the parts before and behind the aligned part were mapped just above, and no code uses them. Neither
    // length is beyond the padding. A failure to unmap only wastes address space.
    unsafe {
        if before > 0 {
            libc::munmap(address, before);
        }
        let base = base.add(before);
        // Less than the padding is before the aligned part, so some of it is behind.
        libc::munmap(base.add(bytes).as_ptr().cast(), SPAN_BYTES - before);
        Ok(base)
    }
}

/// The system's error, and the limit that is known to cause it.
fn why_refused(error: &io::Error, bytes: usize) -> String {
    for (resource, name, flag) in [
        (libc::RLIMIT_AS, "RLIMIT_AS", "-v"),
        (libc::RLIMIT_DATA, "RLIMIT_DATA", "-d"),
    ] {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call writes the struct that it is given.
        let known = unsafe { libc::getrlimit(resource, &mut limit) } == 0;
        if known && limit.rlim_cur != libc::RLIM_INFINITY {
            let current = limit.rlim_cur;
            return format!("{error}; {name} is {current} bytes (raise it with ulimit {flag})");
        }
    }
    let strict = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if strict.is_ok_and(|mode| mode.trim() == "2") {
        return format!("{error}; vm.overcommit_memory is 2, which counts reservations as memory");
    }
    format!("{error} for {bytes} bytes")
}

#[cfg(target_os = "linux")]
fn advise(base: NonNull<u8>, bytes: usize, huge_pages: HugePages) {
    let advice = match huge_pages {
        HugePages::System => return,
        HugePages::Advise => libc::MADV_HUGEPAGE,
        HugePages::Never => libc::MADV_NOHUGEPAGE,
    };
    // SAFETY: advice about a mapping of our own; a kernel without huge pages refuses, and nothing changes.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_base: NonNull<u8>, _bytes: usize, _huge_pages: HugePages) {}

#[cfg(target_os = "linux")]
fn bind(base: NonNull<u8>, bytes: usize, options: &ReserveOptions) -> Result<(), ReserveError> {
    let mode = match options.binding {
        NodeBinding::None => return Ok(()),
        NodeBinding::Preferred => libc::MPOL_PREFERRED,
        NodeBinding::Strict => libc::MPOL_BIND,
    };
    // Linux can be built for at most 1,024 nodes.
    let mut mask = [0_u64; 16];
    let node = options.node;
    let error = |reason| ReserveError::CannotBind { node, reason };
    let Some(word) = mask.get_mut(node / 64) else {
        return Err(error("its number is above 1,023".to_owned()));
    };
    *word |= 1 << (node % 64);
    // SAFETY: the kernel reads the mask, whose size in bits it is told (plus one, because it subtracts one), and
    // changes the policy of a mapping of our own.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            base.as_ptr(),
            bytes,
            mode,
            mask.as_ptr(),
            mask.len() * 64 + 1,
            0,
        )
    };
    if failed != 0 {
        return Err(error(io::Error::last_os_error().to_string()));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn bind(_base: NonNull<u8>, _bytes: usize, options: &ReserveOptions) -> Result<(), ReserveError> {
    match options.binding {
        NodeBinding::Strict => Err(ReserveError::CannotBind {
            node: options.node,
            reason: "memory is bound on Linux only".to_owned(),
        }),
        _ => Ok(()),
    }
}

impl HostFrames {
    /// Address of a block. Only the block's owner may use the memory there. The token does not note what is written
    /// through the address: call [`Frames::uninit`] before the token is used again.
    #[inline]
    pub fn address(&self, block: &Block) -> NonNull<u8> {
        let at = block.pfn().0.wrapping_sub(self.first.0);
        // Blocks are aligned and never reach beyond the reservation of their first page.
        assert!(at < self.pages, "the block is of another reservation");
        // SAFETY: inside the reservation.
        unsafe { self.base.add(at as usize * PAGE_BYTES) }
    }

    /// Page that contains an address, and the address's offset in it; `None` if it is not in this reservation.
    pub fn page_at(&self, address: NonNull<u8>) -> Option<(Pfn, usize)> {
        let offset = address.addr().get().checked_sub(self.base.addr().get())?;
        let page = u32::try_from(offset / PAGE_BYTES).ok()?;
        let is_ours = page < self.pages;
        is_ours.then(|| (Pfn(self.first.0 + page), offset % PAGE_BYTES))
    }

    /// Makes the token of the block that begins at a page again, after its holder gave it up. Nothing is known of its
    /// bytes.
    ///
    /// # Safety
    /// The block is one of this reservation's. The caller owns all its pages, and no other token for any of them
    /// exists.
    pub unsafe fn reclaim(&self, pfn: Pfn, order: Order, owner: Owner) -> Block {
        debug_assert!(pfn.0.wrapping_sub(self.first.0) < self.pages);
        let mut block = Block::forge(pfn, order);
        block.set_owner(owner);
        block.set_content(Content::Unknown);
        block
    }

    fn slice(&self, block: &Block) -> *mut [u8] {
        let start = self.address(block).as_ptr();
        core::ptr::slice_from_raw_parts_mut(start, block.order().bytes())
    }
}

impl Frames for HostFrames {
    fn first(&self) -> Pfn {
        self.first
    }

    fn pages(&self) -> u64 {
        u64::from(self.pages)
    }

    fn uninit<'a>(&self, block: &'a mut Block) -> &'a mut [MaybeUninit<u8>] {
        block.set_content(Content::Unknown);
        let slice = self.slice(block) as *mut [MaybeUninit<u8>];
        // SAFETY: mapped until the process ends; the block is borrowed for as long as the slice lives, and the block's
        // holder owns the bytes.
        unsafe { &mut *slice }
    }

    fn bytes<'a>(&self, block: &'a Block) -> Option<&'a [u8]> {
        if block.content() == Content::Unknown {
            return None;
        }
        // SAFETY: as in `uninit`; the bytes are initialized: zeroes of a mapping, or written.
        Some(unsafe { &*self.slice(block) })
    }

    fn bytes_mut<'a>(&self, block: &'a mut Block) -> Option<&'a mut [u8]> {
        if block.content() == Content::Unknown {
            return None;
        }
        block.set_content(Content::Initialized);
        // SAFETY: as in `bytes`.
        Some(unsafe { &mut *self.slice(block) })
    }

    fn init(
        &self,
        block: &mut Block,
        write: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) -> bool {
        let wanted: *const [u8] = self.slice(block);
        let written: *const [u8] = write(self.uninit(block));
        // A reference to initialized bytes in that very place: only code that initialized them can have one.
        let is_all = core::ptr::eq(wanted, written);
        if is_all {
            block.set_content(Content::Initialized);
        }
        is_all
    }

    fn zero(&self, block: &mut Block) {
        if block.content().is_zero() {
            return;
        }
        // SAFETY: as in `uninit`.
        unsafe {
            self.slice(block)
                .cast::<u8>()
                .write_bytes(0, block.order().bytes());
        }
        block.set_content(Content::Zero);
    }

    fn discard(&self, block: &mut Block) -> bool {
        let slice = self.slice(block);
        // Blocks are aligned to their size. One smaller than the system's page shares that page with other blocks.
        let has_whole_pages = slice.len().is_multiple_of(page_bytes() as usize);
        let discarded = has_whole_pages && discard(slice.cast(), slice.len());
        if discarded {
            block.set_content(Content::Unbacked);
        }
        discarded
    }
}

#[cfg(target_os = "linux")]
fn discard(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: whole pages of a private anonymous mapping, whose bytes the caller gives up. They read as zeroes.
    unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn discard(start: *mut u8, bytes: usize) -> bool {
    // On other systems that advice may leave the bytes as they are; a new mapping in the same place does not.
    // SAFETY: as above. If the call fails, the process ends below.
    let address = unsafe {
        libc::mmap(
            start.cast(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        // POSIX lets a call that fails remove the old mapping. Then other code may be given these addresses.
        eprintln!(
            "bursar: cannot map {bytes} bytes of zeroes in the place of a block: {}",
            io::Error::last_os_error()
        );
        std::process::abort();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(pages: u64) -> (HostFrames, Span) {
        reserve(&ReserveOptions::pages(pages), 1).unwrap()
    }

    #[test]
    fn fresh_memory_is_zero_and_ours() {
        let (frames, mut span) = reserved(1);
        assert_eq!(frames.pages(), u64::from(SPAN_PAGES), "rounded up");
        let mut block = span.take().unwrap();
        assert!(frames.bytes(&block).unwrap().iter().all(|&byte| byte == 0));
        frames.bytes_mut(&mut block).unwrap()[4096] = 7;
        let (low, high) = block.split();
        assert_eq!(frames.bytes(&low).unwrap()[4096], 7);
        assert_eq!(frames.address(&low).as_ptr().align_offset(SPAN_BYTES), 0);
        assert_eq!(high.content(), Content::Initialized);
    }

    #[test]
    fn blocks_are_aligned_wherever_the_system_maps_them() {
        let mut others = Vec::new();
        for _ in 0..16 {
            // A mapping in between, so that they are not all aligned by chance.
            others.push(vec![1_u8; 1 << 20]);
            let (frames, mut span) = reserved(1);
            let block = span.take().unwrap();
            assert_eq!(frames.address(&block).as_ptr().align_offset(SPAN_BYTES), 0);
        }
    }

    #[test]
    fn bytes_of_another_place_initialize_nothing() {
        let (frames, mut span) = reserved(1);
        let mut block = span.take().unwrap();
        let leaked = vec![1_u8; block.order().bytes()].leak();
        assert!(!frames.init(&mut block, move |_| leaked));
        assert!(!frames.init(&mut block, |bytes| bytes[..1].write_copy_of_slice(&[1])));
        assert!(frames.bytes(&block).is_none());
    }

    #[test]
    fn what_may_be_uninitialized_is_not_shown() {
        let (frames, mut span) = reserved(1);
        let mut block = span.take().unwrap();
        frames.uninit(&mut block)[0].write(1);
        assert!(frames.bytes(&block).is_none() && frames.bytes_mut(&mut block).is_none());
        frames.zero(&mut block);
        assert_eq!(frames.bytes(&block).unwrap()[0], 0);
    }

    #[test]
    fn discarded_memory_reads_as_zero() {
        let (frames, mut span) = reserved(1);
        let mut block = span.take().unwrap();
        frames.bytes_mut(&mut block).unwrap().fill(9);
        assert!(frames.discard(&mut block));
        assert_eq!(block.content(), Content::Unbacked);
        assert!(frames.bytes(&block).unwrap().iter().all(|&byte| byte == 0));
    }

    /// On systems with pages of 16 or 64 KiB, a block of 4 KiB stays, and so do its neighbours.
    #[test]
    fn parts_of_the_systems_pages_are_not_discarded() {
        let (frames, mut span) = reserved(1);
        let mut low = span.take().unwrap();
        frames.bytes_mut(&mut low).unwrap().fill(9);
        let mut neighbours = Vec::new();
        while low.order() > Order::ZERO {
            let high;
            (low, high) = low.split();
            neighbours.push(high);
        }
        let is_whole = page_bytes() as usize <= PAGE_BYTES;
        assert_eq!(frames.discard(&mut low), is_whole);
        let byte = if is_whole { 0 } else { 9 };
        assert_eq!(frames.bytes(&low).unwrap()[0], byte);
        let mut kept = neighbours.iter().map(|high| frames.bytes(high).unwrap());
        assert!(kept.all(|bytes| bytes.iter().all(|&byte| byte == 9)));
    }

    #[test]
    #[should_panic(expected = "another reservation")]
    fn foreign_blocks_are_noticed() {
        let (_, mut span) = reserved(1);
        let (frames, _) = reserved(1);
        let _ = frames.bytes(&span.take().unwrap());
    }

    #[test]
    fn addresses_name_pages() {
        let (frames, mut span) = reserved(1);
        let (_, high) = span.take().unwrap().split();
        let address = frames.address(&high);
        assert_eq!(frames.page_at(address), Some((high.pfn(), 0)));
        // SAFETY: inside the reservation.
        let inside = unsafe { address.add(1) };
        assert_eq!(frames.page_at(inside), Some((high.pfn(), 1)));
        assert_eq!(frames.page_at(NonNull::from(&mut 0_u8)), None);
    }

    /// The limit here is invented: `tests/pages_bad_input.rs` has a real one, where the machine allows it.
    #[test]
    fn what_a_cgroup_would_not_give_is_not_reserved() {
        let limit = |max| Some((max, PathBuf::from("/sys/fs/cgroup/a")));
        assert_eq!(refuse_beyond(None, u64::MAX), Ok(()));
        assert_eq!(refuse_beyond(limit(64 << 20), 64 << 20), Ok(()));
        assert_eq!(
            refuse_beyond(limit(1), SPAN_BYTES as u64),
            Ok(()),
            "one block at least"
        );
        let error = refuse_beyond(limit(63 << 20), 65 << 20)
            .unwrap_err()
            .to_string();
        for part in [
            "68157440 bytes",
            "/sys/fs/cgroup/a",
            "66060288",
            "reserve less",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn bad_reservations_are_refused() {
        let error = |pages| reserve(&ReserveOptions::pages(pages), 1).unwrap_err();
        assert_eq!(error(0), ReserveError::NoPages);
        assert!(matches!(error(u64::MAX), ReserveError::TooLarge { .. }));
        let mut options = ReserveOptions::pages(1);
        options.node = 3;
        let error = reserve(&options, 2).unwrap_err();
        assert_eq!(error, ReserveError::NoSuchNode { node: 3, nodes: 2 });
        assert_eq!(
            error.to_string(),
            "no node 3: this machine has nodes 0 to 1"
        );
    }

    #[test]
    fn an_error_tells_how_many_pages_can_still_be_numbered() {
        let error = reserve(&ReserveOptions::pages(u64::MAX), 1).unwrap_err();
        let ReserveError::TooLarge { pages, available } = error else {
            panic!("{error}");
        };
        assert_eq!(pages, u64::MAX);
        assert!(available > 1 << 30, "most of 2^31: {available}");
        assert!(available.is_multiple_of(u64::from(SPAN_PAGES)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_limits_that_there_are_explain_a_refusal() {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let is_limited = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name));
            !line.unwrap().trim_start().starts_with("unlimited")
        };
        let strict = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        let is_strict = strict.is_ok_and(|mode| mode == "2\n");
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        let reason = why_refused(&error, 4096);
        assert!(reason.starts_with(&error.to_string()), "{reason}");
        let space = is_limited("Max address space");
        let data = is_limited("Max data size");
        assert_eq!(reason.contains("RLIMIT_AS"), space, "{reason}");
        assert_eq!(reason.contains("RLIMIT_DATA"), data && !space, "{reason}");
        let is_unknown = reason.ends_with("for 4096 bytes");
        assert_eq!(is_unknown, !(space || data || is_strict), "{reason}");
    }

    /// The test above where each limit is set, to more than there is.
    #[test]
    #[cfg(target_os = "linux")]
    fn each_limit_explains_a_refusal() {
        let test = "host::frames::tests::only_limits_that_there_are_explain_a_refusal";
        for flag in ["-v", "-d"] {
            // `ulimit` fails only where there is a lower limit already.
            let limit = format!("ulimit -S {flag} 4000000000000; exec \"$0\" --exact {test}");
            let program = std::env::current_exe().unwrap();
            let output = std::process::Command::new("sh")
                .args(["-c".as_ref(), limit.as_ref(), program.as_os_str()])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("1 passed"),
                "{text}"
            );
        }
    }

    /// No machine of at most 63 nodes has one of these, and the kernel reads the whole mask, so it refuses.
    #[test]
    #[cfg(target_os = "linux")]
    fn memory_is_not_bound_to_a_node_that_does_not_exist() {
        let (frames, _) = reserved(1);
        for node in [63, 1022, 1023, 1024] {
            for binding in [NodeBinding::Preferred, NodeBinding::Strict] {
                let mut options = ReserveOptions::pages(1);
                (options.node, options.binding) = (node, binding);
                let error = bind(frames.base, SPAN_BYTES, &options).unwrap_err();
                let ReserveError::CannotBind {
                    node: named,
                    reason,
                } = error
                else {
                    panic!("{error}");
                };
                assert_eq!(named, node);
                assert_eq!(reason.contains("above 1,023"), node > 1023, "{reason}");
                let reserved = reserve(&options, 2000);
                assert_eq!(reserved.is_err(), binding == NodeBinding::Strict);
                options.binding = NodeBinding::None;
                assert_eq!(bind(frames.base, SPAN_BYTES, &options), Ok(()));
            }
        }
    }

    /// The kernel keeps the advice as a flag of the mapping, if it has huge pages. Emulators of other processors show no such flags.
    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn the_kernel_knows_whether_pages_may_be_huge() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        for (huge_pages, flag) in [(HugePages::Advise, "hg"), (HugePages::Never, "nh")] {
            let mut options = ReserveOptions::pages(1);
            options.huge_pages = huge_pages;
            let (frames, _) = reserve(&options, 1).unwrap();
            let base = frames.base.as_ptr() as usize;
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut is_ours = false;
            let flags = maps.lines().find_map(|line| {
                let address = |text| usize::from_str_radix(text, 16).ok();
                let range = line
                    .split(' ')
                    .next()
                    .and_then(|range| range.split_once('-'));
                if let Some((Some(start), Some(end))) =
                    range.map(|(start, end)| (address(start), address(end)))
                {
                    is_ours = (start..end).contains(&base);
                }
                line.strip_prefix("VmFlags:").filter(|_| is_ours)
            });
            let flags: Vec<&str> = flags.unwrap().split_whitespace().collect();
            assert!(flags.contains(&flag), "{flag} in {flags:?}");
        }
    }
}
