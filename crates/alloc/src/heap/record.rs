//! Records: one word that names a group's account, until the process ends.
//!
//! A block in use names the account that it was charged to by one word. A record is made when its place in a memory is
//! first entered. It is never freed: like the group's record in the books it is reused, and it adds 40 bytes to that
//! kilobyte.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::{iter, ptr};

use bursar::Group;
use bursar::engine::Account;

/// Bits of a record's address, so that a label has room for the address and 16 bits more.
pub(super) const ADDRESS_BITS: u32 = 48;

/// An account that its address names.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) account: Account,
    /// Next record in the same bucket.
    next: Option<&'static Record>,
}

/// Takes 128 KiB of address space, and memory only where it is used.
const BUCKETS: usize = 1 << 14;

/// Records by their keys, in lists that grow only at their heads. There is no lock, so a fork or a signal never finds
/// one taken.
static RECORDS: [AtomicPtr<Record>; BUCKETS] = [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];

fn bucket((memory, index): (usize, u32)) -> &'static AtomicPtr<Record> {
    // Neighbouring groups are used together; the books of memories lie on pages of their own.
    &RECORDS[(index as usize ^ (memory >> 12).wrapping_mul(0x9e37_79b9)) % BUCKETS]
}

impl Record {
    /// Returns the record of a group's place.
    pub(super) fn of(group: &Group) -> &'static Record {
        let account = group.engine().account();
        let bucket = bucket(account.key());
        // Acquire, here and below: pairs with the Release of the thread that added it.
        let mut head = bucket.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a record, which is never freed and was complete when its address was stored.
            let first = unsafe { head.as_ref() };
            let mut list = iter::successors(first, |record| record.next);
            if let Some(found) = list.find(|record| record.account == account) {
                return found;
            }
            let new = Box::leak(Box::new(Record {
                account,
                next: first,
            }));
            let address = ptr::from_mut(new).addr() as u64;
            assert!(
                address >> ADDRESS_BITS == 0,
                "{address:#x} is a higher address than a label has room for"
            );
            // AcqRel: the Release pairs with the Acquire of each search of the bucket, and the Acquire as above.
            let added = bucket.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire);
            match added {
                Ok(_) => return new,
                // Another thread added a record meanwhile: perhaps this one. That is rare.
                Err(now) => head = now,
            }
            // SAFETY: it came from a box, and its address is nowhere else.
            drop(unsafe { Box::from_raw(ptr::from_mut(new)) });
        }
    }
}
