//! Files that the tool writes. A new file is written beside the old one and then takes its name: a failure leaves the old one as it was.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file to be written.
#[derive(Debug)]
pub struct Place {
    /// The path as it was given.
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A device or a pipe, which is open.
    Stream(File),
    /// A file, with all links followed. It may be there already.
    File(PathBuf),
}

impl Place {
    /// Checks that the file can be written, so that a run of minutes does not end in a refusal. Changes nothing.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let kind = Kind::of(path).map_err(|error| {
            let message = format!("cannot write {}: {error}", path.display());
            match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    Failure::unavailable(message)
                }
                _ => Failure::usage(message),
            }
        })?;
        let path = path.to_owned();
        Ok(Self { path, kind })
    }

    /// Whether both are one file, which need not be there yet.
    pub fn is_file_of(&self, other: &Self) -> bool {
        matches!((&self.kind, &other.kind), (Kind::File(one), Kind::File(other)) if one == other)
    }

    /// Writes what `write` writes.
    pub fn write(&self, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        match &self.kind {
            Kind::Stream(stream) => write(stream),
            Kind::File(path) => replace(path, write),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

impl Kind {
    fn of(path: &Path) -> io::Result<Self> {
        let file = match OpenOptions::new().write(true).open(path) {
            Ok(file) if file.metadata()?.is_file() => path.canonicalize()?,
            Ok(stream) => return Ok(Self::Stream(stream)),
            // Not a link to a file that does not exist: `path` itself is there.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                let directory = match path.parent() {
                    Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
                    Some(directory) => directory,
                    None => return Err(error),
                };
                // `file_name` leaves out what says that it is a directory.
                let bytes = path.as_os_str().as_encoded_bytes();
                let is_directory = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
                let name = path.file_name().filter(|_| !is_directory).ok_or(error)?;
                directory.canonicalize()?.join(name)
            }
            Err(error) => return Err(error),
        };
        // An error for a file beside it would come for the document as well.
        let (beside, _) = create_beside(&file)?;
        fs::remove_file(beside)?;
        Ok(Self::File(file))
    }
}

/// Replaces a file, or makes it, by what `write` writes. The old file stays if anything fails. The new file has its permissions and,
/// where the system lets it, its owner.
pub fn replace(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let (beside, file) = create_beside(path)?;
    let written = write(&file).and_then(|()| {
        if let Ok(old) = path.metadata() {
            // Only root may give a file away.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(old.permissions())?;
        }
        // Some file systems tell only now that the disk is full.
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Makes a file beside `path`, and returns its path too.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".bursar-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    // Of a process that had this number and was killed.
    let _ = fs::remove_file(&beside);
    // `create_new`: another user may have put a link into a directory that all can write.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside);
    match file {
        Ok(file) => Ok((beside, file)),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("no file can be made beside it: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn two_names_of_one_file_are_one_file() {
        let of = |path: &str| Place::new(Path::new(path)).expect("it can be made");
        assert!(of("one.json").is_file_of(&of("./one.json")));
        assert!(!of("one.json").is_file_of(&of("two.json")));
        for directory in ["none/", "none/."] {
            Place::new(Path::new(directory)).expect_err("no directory");
        }
        let null = of("/dev/null");
        assert!(!null.is_file_of(&null), "all may write to it");
    }

    #[test]
    fn what_cannot_be_replaced_stays_and_nothing_is_left_beside_it() {
        let name = format!("bursar-place-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let taken = directory.join("taken");
        fs::create_dir_all(taken.join("below")).expect("a temporary directory");
        let text = |mut file: &File| file.write_all(b"new");
        replace(&taken, text).expect_err("a directory does not give way");
        let file = directory.join("file");
        fs::write(&file, "old").expect("a file");
        let fails = |file: &File| text(file).and(Err(io::Error::other("no room")));
        let error = replace(&file, fails).expect_err("it fails");
        assert_eq!(error.to_string(), "no room");
        assert_eq!(fs::read(&file).expect("the file"), b"old");
        replace(&file, text).expect("room");
        assert_eq!(fs::read(&file).expect("the file"), b"new");
        let left = fs::read_dir(&directory).expect("readable").count();
        assert_eq!(left, 2, "a file was left");
        fs::remove_dir_all(&directory).expect("a temporary directory");
    }
}
