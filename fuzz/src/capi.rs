//! C calls in any order, also with handles that were released, with NULL, and with numbers out of range.
//!
//! Books are kept beside the calls: the bytes that each group was charged and has not returned. Each exact read must agree with
//! them. At the end everything is returned, and the root must have no byte left.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

// Its functions are those of the block below.
use bursar_capi as _;

/// A handle of any kind. All zeros is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Handle {
    bits: u64,
}

#[repr(C)]
struct Limits {
    size: usize,
    min: u64,
    low: u64,
    high: u64,
    max: u64,
}

#[repr(C)]
#[derive(Default)]
struct Reading {
    size: usize,
    usage: [i64; 3],
    peak: u64,
    age_ns: u64,
    over_returned: u64,
}

#[repr(C)]
struct Engine {
    size: usize,
    reclaimable: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
    ask: Option<unsafe extern "C" fn(*mut c_void, u64, Handle)>,
    stop: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
}

type Reclaim = unsafe extern "C" fn(*mut c_void, u64) -> u64;
type Tell = unsafe extern "C" fn(*mut c_void, c_int);
type Destroy = unsafe extern "C" fn(*mut c_void);
/// Place of an error.
type Place = *mut *mut c_void;

unsafe extern "C" {
    fn bursar_error_number(error: *const c_void) -> c_int;
    fn bursar_error_text(error: *const c_void) -> *const c_char;
    fn bursar_error_free(error: *mut c_void);
    fn bursar_create(options: *const c_void, root: *mut Handle, error: Place) -> c_int;
    fn bursar_child(
        parent: Handle,
        name: *const c_char,
        max: u64,
        child: *mut Handle,
        error: Place,
    ) -> c_int;
    fn bursar_find(from: Handle, path: *const c_char, found: *mut Handle, error: Place) -> c_int;
    fn bursar_release(group: Handle) -> c_int;
    fn bursar_tick(group: Handle) -> c_int;
    fn bursar_close(group: Handle, error: Place) -> c_int;
    fn bursar_get_limits(group: Handle, limits: *mut Limits) -> c_int;
    fn bursar_set_limits(group: Handle, limits: *const Limits, error: Place) -> c_int;
    fn bursar_path(group: Handle, buffer: *mut c_char, length: usize) -> i64;
    fn bursar_try_charge(group: Handle, bytes: u64, error: Place) -> c_int;
    fn bursar_charge(group: Handle, bytes: u64) -> i64;
    fn bursar_try_charge_nowait(group: Handle, bytes: u64) -> c_int;
    fn bursar_charge_nowait(group: Handle, bytes: u64) -> i64;
    fn bursar_uncharge(group: Handle, bytes: u64) -> c_int;
    fn bursar_uncharge_nowait(group: Handle, bytes: u64) -> c_int;
    fn bursar_add(group: Handle, statistic: u32, delta: i64) -> c_int;
    fn bursar_enter(group: Handle, error: Place) -> c_int;
    fn bursar_leave() -> c_int;
    fn bursar_malloc(size: usize) -> *mut c_void;
    fn bursar_calloc(count: usize, size: usize) -> *mut c_void;
    fn bursar_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn bursar_free(block: *mut c_void);
    fn bursar_malloc_size(block: *const c_void) -> usize;
    fn bursar_pages_alloc(
        group: Handle,
        order: u32,
        is_zeroed: c_int,
        pages: *mut *mut c_void,
        error: Place,
    ) -> c_int;
    fn bursar_pages_free(group: Handle, pages: *mut c_void, error: Place) -> c_int;
    fn bursar_read(
        group: Handle,
        freshness: u32,
        bound: u64,
        reading: *mut Reading,
        values: *mut c_void,
        count: usize,
        error: Place,
    ) -> c_int;
    fn bursar_snapshot_json(
        group: Handle,
        freshness: u32,
        bound: u64,
        json: *mut *mut c_char,
        error: Place,
    ) -> c_int;
    fn bursar_refusals(group: Handle, text: *mut *mut c_char, error: Place) -> c_int;
    fn bursar_text_free(text: *mut c_char);
    fn bursar_add_reclaimer(
        group: Handle,
        order: c_int,
        function: Option<Reclaim>,
        data: *mut c_void,
        destroy: Option<Destroy>,
        registration: *mut Handle,
        error: Place,
    ) -> c_int;
    fn bursar_on_pressure(
        group: Handle,
        function: Option<Tell>,
        data: *mut c_void,
        destroy: Option<Destroy>,
        registration: *mut Handle,
        error: Place,
    ) -> c_int;
    fn bursar_unregister(registration: Handle) -> c_int;
    fn bursar_arbiter_create(
        root: Handle,
        options: *const c_void,
        arbiter: *mut Handle,
        error: Place,
    ) -> c_int;
    fn bursar_admit(
        arbiter: Handle,
        group: Handle,
        name: *const c_char,
        least: u64,
        wanted: u64,
        score: c_int,
        patience_ms: i64,
        grant: *mut Handle,
        error: Place,
    ) -> c_int;
    fn bursar_grant_group(grant: Handle, group: *mut Handle) -> c_int;
    fn bursar_grant_close(grant: Handle) -> c_int;
    fn bursar_grant_try_charge(grant: Handle, bytes: u64, error: Place) -> c_int;
    fn bursar_grant_grow(grant: Handle, bytes: u64, timeout_ms: i64, error: Place) -> c_int;
    fn bursar_grant_attach(grant: Handle, engine: *const Engine, error: Place) -> c_int;
    fn bursar_answer_cannot(answer: Handle) -> c_int;
}

/// `BURSAR_EXACT`.
const EXACT: u32 = 3;
/// Groups and other things of one input, at most.
const THINGS_MAX: usize = 64;

/// `data` of callbacks that were not destroyed yet.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Memory of a callback, so that AddressSanitizer sees a call after its end, and a second end.
fn data() -> *mut c_void {
    // Relaxed: a count.
    LIVE.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(Box::new(1_u64)).cast()
}

/// SAFETY: `data` is of the function above, and this its only end.
unsafe extern "C" fn destroy(data: *mut c_void) {
    // SAFETY: as the caller's.
    drop(unsafe { Box::from_raw(data.cast::<u64>()) });
    // Relaxed: a count.
    LIVE.fetch_sub(1, Ordering::Relaxed);
}

/// SAFETY: `data` lives.
unsafe extern "C" fn reclaim(data: *mut c_void, target: u64) -> u64 {
    assert!(target > 0);
    touch(data);
    0
}

/// SAFETY: `data` lives.
unsafe extern "C" fn tell(data: *mut c_void, level: c_int) {
    assert!((0..=3).contains(&level));
    touch(data);
}

/// SAFETY: `data` lives.
unsafe extern "C" fn reclaimable(data: *mut c_void) -> u64 {
    touch(data);
    4096
}

/// SAFETY: `data` lives.
unsafe extern "C" fn ask(data: *mut c_void, _: u64, answer: Handle) {
    touch(data);
    // SAFETY: any handle may be given.
    unsafe { bursar_answer_cannot(answer) };
}

fn touch(data: *mut c_void) {
    // SAFETY: the callers say that it lives; other threads only read it too.
    assert_eq!(unsafe { data.cast::<u64>().read() }, 1);
}

/// A tree of the process, and its arbiter. Trees live as long as the process.
fn shared() -> (Handle, Handle) {
    static SHARED: OnceLock<(Handle, Handle)> = OnceLock::new();
    *SHARED.get_or_init(|| {
        let (mut root, mut arbiter) = (Handle::default(), Handle::default());
        // SAFETY: places of this function.
        let made = unsafe { bursar_create(ptr::null(), &mut root, null_mut()) };
        // SAFETY: as above.
        let also = unsafe { bursar_arbiter_create(root, ptr::null(), &mut arbiter, null_mut()) };
        assert_eq!((made, also), (0, 0));
        (root, arbiter)
    })
}

/// Bytes of an input that choose calls and arguments; 0 at their end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    /// A number of bytes of any magnitude up to that of `bits`.
    fn bytes(&mut self, bits: u32) -> u64 {
        let shift = u32::from(self.byte()) % bits;
        (u64::from(self.byte()) << shift) & ((1 << bits) - 1)
    }
}

/// A group, and what is charged to it.
struct Book {
    handle: Handle,
    is_released: bool,
    parent: Option<usize>,
    /// `u64::MAX` for the group of a grant, whose limit moves.
    max: u64,
    is_of_grant: bool,
    charged: u64,
}

#[derive(Default)]
struct Books {
    groups: Vec<Book>,
    /// Further handles.
    found: Vec<Handle>,
    registrations: Vec<Handle>,
    /// Grants, with the places of their groups.
    grants: Vec<(Handle, usize)>,
    blocks: Vec<*mut c_void>,
    /// Pages, with the places of their groups and their orders.
    pages: Vec<(*mut c_void, usize, u32)>,
    entered: usize,
    /// Whether a charge that neither waits nor is refused, or a block, may have gone above a limit. It leaves what CPUs have reserved,
    /// from which the next charges come: docs/guarantees.md. After all others no charge that may be refused ends above a limit.
    may_exceed: bool,
}

/// Calls a function that makes an error, and checks that there is one exactly if it fails.
fn call(function: impl FnOnce(Place) -> c_int) -> c_int {
    let mut error = null_mut();
    let result = function(&mut error);
    assert_eq!(result == 0, error.is_null(), "{result}");
    if !error.is_null() {
        // SAFETY: an error that was just made, and its text, which lives as long.
        unsafe {
            assert_eq!(bursar_error_number(error), -result);
            let text = CStr::from_ptr(bursar_error_text(error));
            assert!(!text.to_str().expect("UTF-8").is_empty());
            bursar_error_free(error);
        }
    }
    result
}

pub(crate) fn run(input: &[u8]) {
    let (root, arbiter) = shared();
    let mut books = Books::default();
    let mut choices = Choices(input);
    // Relaxed: a number of its own. The arbiter's thread may still hold the group of the run before.
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let name = CString::new(RUNS.fetch_add(1, Ordering::Relaxed).to_string());
    books.child(root, None, &name.expect("no NUL"), u64::MAX);
    while !choices.0.is_empty() {
        books.step(&mut choices, arbiter);
    }
    books.end();
    assert_eq!(read(root), Some(0), "the root has bytes left");
    // An engine ends when the arbiter's thread does not call it.
    while LIVE.load(Ordering::Relaxed) > 0 {
        std::thread::yield_now();
    }
}

/// Exact usage of a group; `None` if its handle was released.
fn read(group: Handle) -> Option<u64> {
    let mut reading = Reading {
        size: size_of::<Reading>(),
        ..Reading::default()
    };
    // SAFETY: a place of this function that says its size.
    let result =
        call(|error| unsafe { bursar_read(group, EXACT, 0, &mut reading, null_mut(), 0, error) });
    let [value, lo, hi] = reading.usage;
    assert!(lo <= value && value <= hi && reading.over_returned == 0);
    (result == 0).then(|| u64::try_from(value).expect("a usage is not negative"))
}

impl Books {
    fn child(&mut self, parent: Handle, above: Option<usize>, name: &CStr, max: u64) {
        let mut child = Handle::default();
        // SAFETY: a text, and a place of this function.
        let result =
            call(|error| unsafe { bursar_child(parent, name.as_ptr(), max, &mut child, error) });
        assert_eq!(result == 0, child != Handle::default());
        if result == 0 {
            self.add(child, above, max);
        }
    }

    fn add(&mut self, handle: Handle, parent: Option<usize>, max: u64) -> usize {
        self.groups.push(Book {
            handle,
            is_released: false,
            parent,
            max,
            is_of_grant: false,
            charged: 0,
        });
        self.groups.len() - 1
    }

    /// Whether a group is another, or below it.
    fn is_below(&self, mut group: usize, above: usize) -> bool {
        while let (false, Some(parent)) = (group == above, self.groups[group].parent) {
            group = parent;
        }
        group == above
    }

    /// Bytes of a group and those below it, without blocks of the heap.
    fn usage(&self, above: usize) -> u64 {
        let groups = (0..self.groups.len()).filter(|&it| self.is_below(it, above));
        let charged: u64 = groups.map(|it| self.groups[it].charged).sum();
        let pages = self
            .pages
            .iter()
            .filter(|(_, it, _)| self.is_below(*it, above));
        charged + pages.map(|(.., order)| 4096 << order).sum::<u64>()
    }

    /// Notes a charge that was not refused: it must fit into all limits above.
    fn note(&mut self, group: usize, bytes: u64) {
        self.groups[group].charged += bytes;
        let mut above = Some(group).filter(|_| bytes > 0 && !self.may_exceed);
        while let Some(at) = above {
            assert!(self.usage(at) <= self.groups[at].max, "above a limit");
            above = self.groups[at].parent;
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>, arbiter: Handle) {
        let kind = choices.byte() % 32;
        let at = choices.below(self.groups.len());
        let group = self.groups[at].handle;
        let is_live = !self.groups[at].is_released;
        let is_full = self.groups.len() >= THINGS_MAX;
        // SAFETY: in each call handles are of any kind, texts end, places are of this function, blocks and pages are live.
        unsafe {
            match kind {
                0 if !is_full => {
                    let name = name(choices);
                    let max = match choices.byte() {
                        0..128 => u64::MAX,
                        other => u64::from(other) << 14,
                    };
                    self.child(group, Some(at), &name, max);
                }
                1 if self.found.len() < THINGS_MAX => {
                    let mut found = Handle::default();
                    let path = name(choices);
                    if call(|error| bursar_find(group, path.as_ptr(), &mut found, error)) == 0 {
                        self.found.push(found);
                    }
                }
                2 if at > 0 => {
                    self.give_back(at);
                    let result = bursar_release(group);
                    assert_eq!(result == 0, is_live);
                    self.groups[at].is_released = true;
                }
                3 => {
                    let bytes = choices.bytes(40);
                    if call(|error| bursar_try_charge(group, bytes, error)) == 0 {
                        assert!(is_live);
                        self.note(at, bytes);
                    }
                }
                4 => {
                    let bytes = choices.bytes(40);
                    if bursar_try_charge_nowait(group, bytes) == 0 {
                        assert!(is_live);
                        self.note(at, bytes);
                    }
                }
                5 | 6 => {
                    self.may_exceed |= kind == 6;
                    let bytes = choices.bytes(50);
                    let charged = match kind {
                        5 => bursar_charge(group, bytes),
                        _ => bursar_charge_nowait(group, bytes),
                    };
                    assert_eq!(charged >= 0, is_live);
                    self.groups[at].charged += u64::try_from(charged).unwrap_or(0);
                }
                7 | 8 => {
                    let bytes = choices.bytes(50).min(self.groups[at].charged);
                    let result = match kind {
                        7 => bursar_uncharge(group, bytes),
                        _ => bursar_uncharge_nowait(group, bytes),
                    };
                    assert_eq!(result == 0, is_live);
                    self.groups[at].charged -= bytes;
                }
                9 => {
                    let [min, low, high] = [0; 3].map(|_: u64| choices.bytes(30));
                    let max = choices.bytes(34).max(1 << 12);
                    let limits = Limits {
                        size: size_of::<Limits>(),
                        min,
                        low,
                        high,
                        max,
                    };
                    let is_set = call(|error| bursar_set_limits(group, &limits, error)) == 0;
                    if is_set && !self.groups[at].is_of_grant {
                        self.groups[at].max = max;
                    }
                }
                10 => {
                    let mut limits = Limits {
                        size: size_of::<Limits>(),
                        min: 0,
                        low: 0,
                        high: 0,
                        max: 0,
                    };
                    let result = bursar_get_limits(group, &mut limits);
                    assert_eq!(result == 0, is_live);
                    let is_known = is_live && !self.groups[at].is_of_grant;
                    assert!(!is_known || limits.max == self.groups[at].max);
                }
                11 => {
                    let mut text = [1; 300];
                    let length = choices.below(text.len());
                    let whole = bursar_path(group, text.as_mut_ptr(), length);
                    assert_eq!(whole >= 0, is_live);
                    assert!(text[length..].iter().all(|&byte| byte == 1));
                }
                12 if at > 0 => {
                    call(|error| bursar_close(group, error));
                }
                13 => assert_eq!(bursar_tick(group) == 0, is_live),
                14 if self.entered < THINGS_MAX => {
                    let is_in = call(|error| bursar_enter(group, error)) == 0;
                    assert_eq!(is_in, is_live);
                    self.entered += usize::from(is_in);
                    self.may_exceed = true;
                }
                15 => {
                    let is_out = bursar_leave() == 0;
                    assert_eq!(is_out, self.entered > 0);
                    self.entered -= usize::from(is_out);
                }
                16 | 17 if self.blocks.len() < THINGS_MAX => {
                    let size = choices.bytes(16) as usize;
                    let block = match kind {
                        16 => bursar_malloc(size),
                        _ => bursar_calloc(size, 1 + choices.below(2)),
                    };
                    self.write(block, if kind == 16 { Some(size) } else { None });
                    self.blocks.push(block);
                }
                18 if !self.blocks.is_empty() => {
                    let at = choices.below(self.blocks.len());
                    let size = choices.bytes(16) as usize;
                    let block = bursar_realloc(self.blocks[at], size);
                    self.write(block, Some(size));
                    self.blocks[at] = block;
                }
                19 if !self.blocks.is_empty() => {
                    let block = self.blocks.swap_remove(choices.below(self.blocks.len()));
                    bursar_free(block);
                }
                20 if self.pages.len() < THINGS_MAX => {
                    let mut pages = null_mut();
                    // Most are small, and some larger than any block.
                    let order = u32::from(choices.byte()) % 12;
                    let order = if order < 8 { order % 3 } else { order };
                    let is_zeroed = c_int::from(choices.byte() % 2);
                    if call(|error| bursar_pages_alloc(group, order, is_zeroed, &mut pages, error))
                        == 0
                    {
                        self.pages.push((pages, at, order));
                        let block =
                            std::slice::from_raw_parts_mut(pages.cast::<u8>(), 4096 << order);
                        assert!(is_zeroed == 0 || block.iter().all(|&byte| byte == 0));
                        block.fill(7);
                        self.note(at, 0);
                    }
                }
                21 if !self.pages.is_empty() => {
                    let place = choices.below(self.pages.len());
                    let (pages, ..) = self.pages[place];
                    // An address inside of a page is refused.
                    let inside = choices.byte().is_multiple_of(4);
                    let address = pages.wrapping_byte_add(usize::from(inside) * 64);
                    let result = call(|error| bursar_pages_free(group, address, error));
                    assert_eq!(result == 0, is_live && !inside);
                    if result == 0 {
                        self.pages.swap_remove(place);
                        // A second free is refused.
                        assert_ne!(call(|error| bursar_pages_free(group, pages, error)), 0);
                    }
                }
                22 => {
                    let usage = read(group);
                    assert_eq!(usage.is_some(), is_live);
                    let expected = self.usage(at);
                    assert!(usage.is_none_or(
                        |it| it == expected || !self.blocks.is_empty() && it > expected
                    ));
                }
                23 => {
                    let mut text = null_mut();
                    let freshness = u32::from(choices.byte()) % 6;
                    let result = match choices.byte() % 2 {
                        0 => call(|error| {
                            bursar_snapshot_json(group, freshness, 0, &mut text, error)
                        }),
                        _ => call(|error| bursar_refusals(group, &mut text, error)),
                    };
                    assert_eq!(result == 0, !text.is_null());
                    bursar_text_free(text);
                }
                24 | 25 if self.registrations.len() < THINGS_MAX => {
                    let (data, mut made) = (data(), Handle::default());
                    let order = c_int::from(choices.byte() as i8);
                    let result = call(|error| match kind {
                        24 => bursar_add_reclaimer(
                            group,
                            order,
                            Some(reclaim),
                            data,
                            Some(destroy),
                            &mut made,
                            error,
                        ),
                        _ => bursar_on_pressure(
                            group,
                            Some(tell),
                            data,
                            Some(destroy),
                            &mut made,
                            error,
                        ),
                    });
                    match result {
                        0 => self.registrations.push(made),
                        _ => destroy(data),
                    }
                }
                26 if !self.registrations.is_empty() => {
                    let made = self
                        .registrations
                        .swap_remove(choices.below(self.registrations.len()));
                    assert_eq!(bursar_unregister(made), 0);
                    assert_ne!(bursar_unregister(made), 0);
                }
                27 if !is_full && self.grants.len() < THINGS_MAX => {
                    self.admit(choices, arbiter, at)
                }
                28 | 29 if !self.grants.is_empty() => {
                    let (grant, of) = self.grants[choices.below(self.grants.len())];
                    let bytes = choices.bytes(30);
                    // Its charges are returned by the handle of its group.
                    if self.groups[of].is_released {
                        return;
                    }
                    let result = call(|error| match kind {
                        28 => bursar_grant_try_charge(grant, bytes, error),
                        _ => bursar_grant_grow(grant, bytes, 0, error),
                    });
                    if result == 0 {
                        self.groups[of].charged += bytes;
                    }
                }
                30 if !self.grants.is_empty() => {
                    let place = choices.below(self.grants.len());
                    let (grant, _) = self.grants[place];
                    if choices.byte().is_multiple_of(2) {
                        self.attach(grant);
                    } else {
                        self.grants.swap_remove(place);
                        assert_eq!(bursar_grant_close(grant), 0);
                        assert_ne!(bursar_grant_close(grant), 0);
                    }
                }
                31 => self.refused(choices, group),
                _ => {}
            }
        }
    }

    fn admit(&mut self, choices: &mut Choices<'_>, arbiter: Handle, at: usize) {
        let (mut grant, mut group) = (Handle::default(), Handle::default());
        let name = name(choices);
        let (least, wanted) = (choices.bytes(30), choices.bytes(30));
        let score = c_int::from(choices.byte() as i8);
        let above = self.groups[at].handle;
        // SAFETY: texts end, and places are of this function.
        let result = call(|error| unsafe {
            bursar_admit(
                arbiter,
                above,
                name.as_ptr(),
                least,
                wanted,
                score,
                0,
                &mut grant,
                error,
            )
        });
        if result == 0 {
            // SAFETY: as above.
            assert_eq!(unsafe { bursar_grant_group(grant, &mut group) }, 0);
            let of = self.add(group, Some(at), u64::MAX);
            self.groups[of].is_of_grant = true;
            self.grants.push((grant, of));
        }
    }

    fn attach(&mut self, grant: Handle) {
        let data = data();
        let engine = Engine {
            size: size_of::<Engine>(),
            reclaimable: Some(reclaimable),
            ask: Some(ask),
            stop: None,
            destroy: Some(destroy),
            data,
        };
        // SAFETY: functions for this `data`, which lives until `destroy`.
        if call(|error| unsafe { bursar_grant_attach(grant, &engine, error) }) != 0 {
            // SAFETY: it is still ours.
            unsafe { destroy(data) };
        }
    }

    /// Calls with arguments that no function takes.
    fn refused(&mut self, choices: &mut Choices<'_>, group: Handle) {
        let never = Handle {
            bits: choices.bytes(60) | 1 << 63,
        };
        // SAFETY: NULL and handles that were never given are refused.
        unsafe {
            let result = match choices.byte() % 8 {
                0 => bursar_child(group, ptr::null(), 0, null_mut(), null_mut()),
                1 => bursar_try_charge(never, 1, null_mut()),
                2 => bursar_read(group, 9, 0, null_mut(), null_mut(), 0, null_mut()),
                3 => bursar_unregister(never),
                4 => bursar_grant_close(never),
                5 => bursar_pages_free(group, null_mut(), null_mut()),
                6 => bursar_add(group, 300, 1),
                _ => bursar_on_pressure(group, None, null_mut(), None, null_mut(), null_mut()),
            };
            assert!(result < 0, "{result}");
        }
    }

    /// Writes to all of a block that a call gave.
    fn write(&self, block: *mut c_void, size: Option<usize>) {
        assert!(!block.is_null() && block.addr().is_multiple_of(16));
        // SAFETY: a block that was just given.
        unsafe {
            let all = bursar_malloc_size(block);
            assert!(size.is_none_or(|size| size == all));
            block.cast::<u8>().write_bytes(7, all);
        }
    }

    /// Returns the bytes of a group.
    fn give_back(&mut self, at: usize) {
        let book = &mut self.groups[at];
        if !book.is_released {
            let bytes = std::mem::take(&mut book.charged);
            // SAFETY: no pointers.
            assert_eq!(unsafe { bursar_uncharge(book.handle, bytes) }, 0);
        }
    }

    /// Returns and ends everything.
    fn end(&mut self) {
        // SAFETY: each is live, and ends once.
        unsafe {
            while self.entered > 0 {
                assert_eq!(bursar_leave(), 0);
                self.entered -= 1;
            }
            self.blocks.drain(..).for_each(|block| bursar_free(block));
            for (pages, ..) in self.pages.drain(..) {
                assert_eq!(
                    bursar_pages_free(self.groups[0].handle, pages, null_mut()),
                    0
                );
            }
            for made in self.registrations.drain(..) {
                assert_eq!(bursar_unregister(made), 0);
            }
            for (grant, _) in self.grants.drain(..) {
                assert_eq!(bursar_grant_close(grant), 0);
            }
            for at in 0..self.groups.len() {
                self.give_back(at);
            }
            assert_eq!(read(self.groups[0].handle), Some(0), "bytes are left");
            self.found
                .drain(..)
                .for_each(|found| assert_eq!(bursar_release(found), 0));
            for book in self.groups.drain(..).filter(|it| !it.is_released) {
                assert_eq!(bursar_release(book.handle), 0);
            }
        }
    }
}

/// One of a few names, so that some repeat.
fn name(choices: &mut Choices<'_>) -> CString {
    let name = match choices.byte() {
        letter @ 0..200 => vec![b'a' + letter % 20],
        200..210 => vec![0xff],
        210..220 => b"a/b".to_vec(),
        220..230 => vec![b'x'; 256],
        _ => Vec::new(),
    };
    CString::new(name).expect("no NUL")
}
