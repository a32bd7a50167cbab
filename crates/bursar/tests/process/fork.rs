//! A process that forks while other threads are anywhere. The child's books are consistent, and the parent's do not
//! change.

use crate::common::child::fork_beside_threads;
use crate::common::seed;
use crate::common::world::FORKS;

#[test]
fn books_are_whole_in_the_child_and_untouched_in_the_parent() {
    let _alone = crate::common::fork::alone();
    fork_beside_threads(seed(), 1, |forks| forks < FORKS);
}
