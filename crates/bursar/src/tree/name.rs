//! Names of groups: rules for them, errors, and escaping of paths that are shown to people.

use std::borrow::Cow;
use std::fmt;

use crate::room;

/// Maximum length of a group's name, bytes.
pub const NAME_MAX: usize = 255;
/// Deepest level below the root: enough for any nesting of tenants and operators, and the bound of every walk.
pub(super) const DEPTH_MAX: u32 = 64;

/// Reason why a group could not be created.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The name is empty.
    EmptyName,
    /// The name is longer than [`NAME_MAX`] bytes.
    LongName {
        /// Its length, bytes.
        bytes: usize,
    },
    /// The name is `.` or `..`, or contains a slash, which separates names in paths, or a NUL. The kernel refuses these too.
    BadName {
        /// The name.
        name: String,
    },
    /// The parent has a child of that name.
    Exists {
        /// The existing group's path.
        path: String,
    },
    /// The parent was removed, or is being closed.
    ParentRemoved {
        /// The parent's path before its removal.
        path: String,
    },
    /// The group would be more than 64 levels below the root.
    TooDeep,
    /// No memory is left for another group.
    OutOfMemory,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("a group needs a name"),
            Self::LongName { bytes } => {
                write!(
                    f,
                    "a group's name has at most {NAME_MAX} bytes, this one {bytes}"
                )
            }
            Self::BadName { name } => {
                write!(
                    f,
                    "a group's name is not '.' or '..' and contains no '/' and no NUL: {name:?}"
                )
            }
            Self::Exists { path } => {
                write!(f, "there is a group {} already", printable(path))
            }
            Self::ParentRemoved { path } => write!(f, "{} was removed", printable(path)),
            Self::TooDeep => write!(f, "groups nest at most {DEPTH_MAX} levels deep"),
            Self::OutOfMemory => f.write_str("no memory for another group"),
        }
    }
}

bursar_machine::debug_as_message!(
    enum CreateError {
        EmptyName,
        LongName { bytes },
        BadName { name },
        Exists { path },
        ParentRemoved { path },
        TooDeep,
        OutOfMemory,
    }
);

impl std::error::Error for CreateError {}

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
        return Err(match room::text(name) {
            Some(name) => CreateError::BadName { name: name.into() },
            None => CreateError::OutOfMemory,
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
