//! Allocations whose failure is an error of the caller, where the standard library would end the process.

/// Makes a slice of `count` values; `None` if there is no memory for it.
pub(crate) fn boxed<T>(count: usize, make: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    values.resize_with(count, make);
    Some(values.into_boxed_slice())
}

/// Copies a text; `None` if there is no memory for it.
pub(crate) fn text(text: &str) -> Option<Box<str>> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).ok()?;
    copy.push_str(text);
    Some(copy.into_boxed_str())
}

/// Collects items as long as there is memory for more. The rest is left to a later call.
pub(crate) fn as_many_as_fit<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if all.try_reserve(1).is_err() {
            break;
        }
        all.push(item);
    }
    all
}
