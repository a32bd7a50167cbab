//! All that is allocated in no group charged to one: by all threads, and in a forked child.
#![cfg(target_os = "linux")]

mod common;

use std::alloc::System;

use bursar::Memory;
use bursar_alloc::{Charged, GroupExt, current};
use common::{Short, usage};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

#[test]
fn what_is_in_no_group_is_the_rest() {
    let memory = Memory::host().unwrap();
    let rest = memory.make("rest");
    let query = memory.make("query");
    let before = vec![1_u8; 1 << 20];
    HEAP.charge_rest_to(&rest);
    // It pays; nobody is in it.
    assert_eq!(current(), None);
    drop(before);
    let kept = std::thread::spawn(|| vec![1_u8; 1 << 20]).join().unwrap();
    assert!(usage(&rest) >= 1 << 20);
    let (others, rests) = (usage(&query), usage(&rest));
    let own = query.scope(|| vec![1_u8; 1 << 20]);
    // Nobody can end the process to have its memory back.
    let victim = memory.root().choose_victim().unwrap();
    assert_eq!(victim.map(|(group, _)| group), Some(query.clone()));
    assert!(usage(&query) >= others + (1 << 20) && usage(&rest) < rests + (1 << 20));
    // SAFETY: the child does what the memory allows, and ends without returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // Whatever the first operation allocates is charged to the books that it puts right.
        let more = vec![1_u8; 1 << 20];
        let with = usage(&rest);
        drop(kept);
        drop(own);
        let (without, queries) = (usage(&rest), usage(&query));
        let right = with >= 2 << 20 && without >= 1 << 20 && without < with && queries == 0;
        drop(more);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's books are not right");
    // The group stays, though nobody has a handle any more.
    drop(rest);
    assert!(usage(&memory.find("rest").unwrap()) >= 1 << 20);
    drop((kept, own));
    assert_eq!(usage(&query), 0);
}
