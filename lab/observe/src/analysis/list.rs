//! Lists with a bound.

/// Bound of each list of results, so that memory does not grow with the length of a run. Of 56 bytes each.
const ITEMS: usize = 2_000_000;

/// Adds an item to a list with a bound. Returns whether there was room.
pub(super) fn add<T>(list: &mut Vec<T>, item: T) -> bool {
    let has_room = list.len() < ITEMS;
    if has_room {
        list.push(item);
    }
    has_room
}
