//! Names of groups: rules for them, and escaping of paths that are shown to people.

use std::borrow::Cow;

use super::CreateError;

/// Maximum length of a group's name, bytes.
pub const NAME_MAX: usize = 255;

/// Checks the name of a new group.
///
/// # Errors
/// The rule that the name breaks.
pub(super) fn check_name(name: &str) -> Result<(), CreateError> {
    if name.is_empty() {
        return Err(CreateError::EmptyName);
    }
    if name.len() > NAME_MAX {
        return Err(CreateError::LongName { bytes: name.len() });
    }
    // `.` and `..` are refused as in `cgroup_mkdir`: in a path they mean other things to a file system than here.
    if name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(CreateError::BadName {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// Escapes everything in a group's name or path that could forge a log line or control a terminal.
///
/// A group may have almost any name ([`CreateError::BadName`] lists the exceptions), and tenants often choose their
/// own. `Display` of [`crate::Group`] and of all errors escapes names already. [`crate::Group::path`] and the fields of
/// errors do not escape, so that they compare with other paths. Call this function before you print them.
///
/// It escapes control characters, line separators, and marks that change the direction of text, as Rust's string
/// literals do. A backslash stays as it is.
///
/// ```
/// assert_eq!(bursar::printable("/tenant\n\u{1b}[2J"), r"/tenant\n\u{1b}[2J");
/// assert_eq!(bursar::printable("/Zürich"), "/Zürich");
/// ```
pub fn printable(path: &str) -> Cow<'_, str> {
    if !path.contains(must_be_escaped) {
        return Cow::Borrowed(path);
    }
    let mut shown = String::with_capacity(path.len() + 16);
    for character in path.chars() {
        if must_be_escaped(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

fn must_be_escaped(character: char) -> bool {
    let changes_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || changes_direction || matches!(character, '\u{2028}' | '\u{2029}')
}
