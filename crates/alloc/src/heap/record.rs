//! Records: one word that names a group's account, for good.
//!
//! A block in use tells by one word whom it was charged to. A record is made when its place in a memory is first entered, and
//! never freed: as long as the group's record in the books, which is reused like it, and 40 bytes beside its kilobyte.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use bursar::{Account, Group};

/// An account that can be named by its address.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) account: Account,
    /// The next in the same bucket.
    next: *mut Record,
}

// SAFETY: `next` is set before the record is shared, never changes, and points to what is never freed.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

/// 128 KiB of address space; of memory, what is used.
const BUCKETS: usize = 1 << 14;

/// Records by their keys: lists that only grow, at their heads. No lock, so that a fork or a signal finds none taken.
static RECORDS: [AtomicPtr<Record>; BUCKETS] = [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];

fn bucket((memory, index): (usize, u32)) -> &'static AtomicPtr<Record> {
    // Neighbouring groups are used together; the books of memories lie on pages of their own.
    &RECORDS[(index as usize ^ (memory >> 12).wrapping_mul(0x9e37_79b9)) % BUCKETS]
}

/// A list from `at` on.
fn list(mut at: *const Record) -> impl Iterator<Item = &'static Record> {
    std::iter::from_fn(move || {
        // SAFETY: null, or a record, which is never freed and was complete when its address was stored (Acquire in `of`).
        let record = unsafe { at.as_ref() }?;
        at = record.next;
        Some(record)
    })
}

impl Record {
    /// The record of a group's place.
    pub(super) fn of(group: &Group) -> &'static Record {
        let account = group.account();
        let bucket = bucket(account.key());
        // Acquire, here and below: pairs with the Release of whoever added it.
        let mut head = bucket.load(Ordering::Acquire);
        if let Some(found) = list(head).find(|record| record.account == account) {
            return found;
        }
        let new = Box::leak(Box::new(Record {
            account,
            next: head,
        }));
        loop {
            new.next = head;
            let added = bucket.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire);
            match added {
                Ok(_) => return new,
                Err(now) => head = now,
            }
            // What was added meanwhile is at the head. The list is short, and this rare: all of it again.
            if let Some(found) = list(head).find(|record| record.account == account) {
                // SAFETY: it came from a box, and its address is nowhere else.
                drop(unsafe { Box::from_raw(ptr::from_mut(new)) });
                return found;
            }
        }
    }
}
