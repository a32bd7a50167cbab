//! Names of groups: which are allowed, and how a path is shown to people.

use std::borrow::Cow;

use super::CreateError;

/// The longest name of a group, bytes.
pub const NAME_MAX: usize = 255;

/// Checks a name that a group is to have.
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
    // `.` and `..` as in `cgroup_mkdir`: a path means other things to a file system than to us.
    if name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(CreateError::BadName {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// Returns a name or path of a group with everything escaped that could forge a line of a log or control a terminal.
///
/// A group may have any name but for a few ([`CreateError::BadName`]), and tenants often choose their own. `Display` of
/// [`crate::Group`] and of all errors escapes names already. [`crate::Group::path`] and the fields of errors do not, so that
/// they compare with other paths: call this before you print them.
///
/// It escapes control characters, line separators, and marks that change the direction of text, as Rust's string literals do.
/// A backslash stays as it is.
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
