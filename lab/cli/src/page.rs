//! The page of `bursar-lab run` alone, which is written beside the screen without being asked for.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use bursar_term::place;

/// The page, in the current directory.
pub const NAME: &str = "bursar-run.html";
/// The last line of a page that this program wrote of its own accord, and may replace.
const MARK: &str = "<!-- written by `bursar-lab run`, which replaces this file -->\n";

/// Writes the page into a directory. A file of that name is replaced only if an earlier run wrote it.
///
/// # Errors
/// Why it is not written.
pub fn write(directory: &Path, page: &str) -> Result<(), String> {
    let path = &directory.join(NAME);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
        Ok(metadata) if !metadata.is_file() => return Err("there is something else".to_owned()),
        Ok(_) => {
            let old = fs::read(path).map_err(|error| error.to_string())?;
            if !old.ends_with(MARK.as_bytes()) {
                return Err("there is a file that `bursar-lab run` did not write".to_owned());
            }
        }
    }
    let written = place::replace(path, |mut file| write!(file, "{page}{MARK}"));
    written.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_earlier_runs_are_replaced() {
        let name = format!("bursar-page-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let refused = write(&directory, "first").expect_err("no such directory");
        assert!(refused.contains("No such file"), "{refused}");
        fs::create_dir_all(&directory).expect("a temporary directory");
        let page = directory.join(NAME);
        let read = || fs::read_to_string(&page).expect("the page");
        for text in ["first", "second"] {
            assert_eq!(write(&directory, text), Ok(()));
            assert!(read().starts_with(text), "{}", read());
        }
        for other in ["mine".to_owned(), format!("{MARK}mine")] {
            fs::write(&page, &other).expect("a file");
            let refused = write(&directory, "third").expect_err("another file");
            assert!(refused.contains("did not write"), "{refused}");
            assert_eq!(read(), other);
        }
        fs::remove_file(&page).expect("the file");
        std::os::unix::fs::symlink(directory.join("elsewhere"), &page).expect("a link");
        let refused = write(&directory, "fourth").expect_err("a link");
        assert!(refused.contains("something else"), "{refused}");
        let left = fs::read_dir(&directory).expect("readable").count();
        assert_eq!(left, 1, "a file was left beside it");
        fs::remove_dir_all(&directory).expect("a temporary directory");
    }
}
