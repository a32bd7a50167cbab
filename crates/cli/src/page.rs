//! The page of `bursar run` alone, which is written beside the screen without being asked for.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The page, in the current directory.
pub const NAME: &str = "bursar-run.html";
/// The last line of a page that this program wrote of its own accord, and may replace.
const MARK: &str = "<!-- written by `bursar run`, which replaces this file -->\n";

/// Writes the page. A file of that name is replaced only if an earlier run wrote it.
///
/// # Errors
/// Why it is not written.
pub fn write(page: &str) -> Result<(), String> {
    let path = Path::new(NAME);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
        Ok(metadata) if !metadata.is_file() => return Err("there is something else".to_owned()),
        Ok(_) => {
            let old = fs::read(path).map_err(|error| error.to_string())?;
            if !old.ends_with(MARK.as_bytes()) {
                return Err("there is a file that `bursar run` did not write".to_owned());
            }
        }
    }
    // Beside it first: a page that is cut off would not have the mark.
    let beside = format!("{NAME}.bursar-{}", std::process::id());
    let written = fs::write(&beside, format!("{page}{MARK}"));
    let written = written.and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        error.to_string()
    })
}
