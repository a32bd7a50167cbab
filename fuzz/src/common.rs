//! What targets share: the parts of an input, and a check of what is shown.

/// The text of an input, if it is one.
pub(crate) fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

/// The parts of an input, the missing ones empty.
pub(crate) fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut parts = input.splitn(N, |&byte| byte == 0);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Checks that a text shown to a person cannot forge lines or control a terminal.
pub(crate) fn assert_harmless(text: &str) {
    let mut lines = text.split('\n');
    let harmful = lines.find(|line| *line != bursar::printable(line));
    assert_eq!(harmful, None, "shown as it is");
}
