//! Lists with a bound.

use crate::seen::ITEMS;

/// Adds an item to a list with a bound. Returns whether there was room.
pub(super) fn add<T>(list: &mut Vec<T>, item: T) -> bool {
    let has_room = list.len() < ITEMS;
    if has_room {
        list.push(item);
    }
    has_room
}
