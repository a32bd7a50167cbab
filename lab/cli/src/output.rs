//! Destination of the document: standard output, or a file that is checked before anything runs.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::markup::Markup;
use crate::options::{Color, Global};
use crate::width;

/// The place for one document.
#[derive(Debug)]
pub struct Output {
    file: Option<Place>,
    color: bool,
    width: Option<usize>,
}

/// A file to be written.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// The file that is there already, unchanged. A new one is made when there is something to write.
    old: Option<File>,
}

impl Output {
    /// Checks that the place can be written, so that a run of minutes does not end in a refusal. An older document stays as it
    /// is, and no new file is made, until [`Self::write`].
    pub fn open(global: &Global) -> Result<Self, Failure> {
        let file = match &global.output {
            Some(path) => Some(Place::new(path)?),
            None => None,
        };
        Ok(Self::of(file, global))
    }

    fn of(file: Option<Place>, global: &Global) -> Self {
        let to_terminal = || file.is_none() && io::stdout().is_terminal();
        let unwanted = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => to_terminal() && !unwanted(),
        };
        let width = match file {
            Some(_) => None,
            None => width::of_stdout(),
        };
        Self { file, color, width }
    }

    /// Standard output, wherever the document goes.
    pub fn standard(global: &Global) -> Self {
        Self::of(None, global)
    }

    /// The form of a text for people: with the colours and the width of its place.
    pub fn terminal(&self) -> Markup {
        Markup::Terminal {
            color: self.color,
            width: self.width,
        }
    }

    /// Writes the document. A reader that has gone away (`| head`) has what it wanted.
    pub fn write(self, document: &str) -> Result<(), Failure> {
        let written = match &self.file {
            Some(place) => place.write(document),
            None => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(document.as_bytes());
                written.and_then(|()| stdout.flush())
            }
        };
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::unavailable(
                format!("cannot write {self}: {error}"),
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(place) => write!(f, "{}", place.path.display()),
            None => f.write_str("standard output"),
        }
    }
}

impl Place {
    fn new(path: &Path) -> Result<Self, Failure> {
        let refused = |error: io::Error| {
            let message = format!("cannot write {}: {error}", path.display());
            match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    Failure::unavailable(message)
                }
                _ => Failure::usage(message),
            }
        };
        let old = match OpenOptions::new().write(true).open(path) {
            Ok(file) => Some(file),
            // Not a link to a file that does not exist: `path` itself is there.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                try_beside(path).map_err(refused)?;
                None
            }
            Err(error) => return Err(refused(error)),
        };
        Ok(Self {
            path: path.to_owned(),
            old,
        })
    }

    fn write(&self, document: &str) -> io::Result<()> {
        let new;
        let mut file = match &self.old {
            Some(file) => file,
            None => {
                new = File::create(&self.path)?;
                &new
            }
        };
        // Devices and pipes have no length to set.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        file.write_all(document.as_bytes())?;
        file.flush()
    }
}

/// Refuses to write one of the files that are read: a result is not lost by a slip.
pub fn refuse_to_replace<'a>(
    inputs: impl IntoIterator<Item = &'a PathBuf>,
    output: Option<&Path>,
) -> Result<(), Failure> {
    let Some(output) = output else {
        return Ok(());
    };
    // What does not exist, or cannot be looked at, is said where it is opened.
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        metadata.map(|metadata| (metadata.dev(), metadata.ino()))
    };
    let Some(written) = identity(output) else {
        return Ok(());
    };
    let is_written = |input: &&PathBuf| identity(input) == Some(written);
    inputs.into_iter().find(is_written).map_or(Ok(()), |input| {
        Err(Failure::usage(format!(
            "{} would replace {}, which is read; name another file",
            output.display(),
            input.display()
        )))
    })
}

/// Makes a file beside `path` and removes it again: what fails for it would fail for `path`.
fn try_beside(path: &Path) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".bursar-{}", std::process::id()));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)?;
    fs::remove_file(&beside)
}
