//! Where the document goes: standard output, or a file that is checked before anything runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::args::{Color, Global};
use crate::failure::Failure;

/// A file that this process made and has not written yet. An interruption removes it.
static UNWRITTEN: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The place for one document.
#[derive(Debug)]
pub struct Output {
    file: Option<(File, PathBuf)>,
    color: bool,
}

impl Output {
    /// Opens the place and keeps what it holds, so that a run of minutes does not end in a refusal, nor an interrupted
    /// one in the loss of an older document.
    pub fn open(global: &Global) -> Result<Self, Failure> {
        let file = match &global.output {
            Some(path) => Some((open(path)?, path.clone())),
            None => None,
        };
        let to_terminal = || file.is_none() && io::stdout().is_terminal();
        let unwanted = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => to_terminal() && !unwanted(),
        };
        Ok(Self { file, color })
    }

    /// Whether the document may have colours.
    pub fn has_color(&self) -> bool {
        self.color
    }

    /// Writes the document. A reader that has gone away (`| head`) has what it wanted.
    pub fn write(self, document: &str) -> Result<(), Failure> {
        let (written, place) = match &self.file {
            Some((file, path)) => {
                let written = replace(file, document);
                forget_unwritten();
                (written, path.display().to_string())
            }
            None => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(document.as_bytes());
                (
                    written.and_then(|()| stdout.flush()),
                    "standard output".to_owned(),
                )
            }
        };
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::unavailable(
                format!("cannot write {place}: {error}"),
            )),
            _ => Ok(()),
        }
    }
}

/// Removes a file that was made for a document which will not come.
pub fn abandon() {
    let unwritten = UNWRITTEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(path) = unwritten {
        // Nothing better can be done about a file that is gone already.
        let _ = fs::remove_file(path);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        abandon();
    }
}

fn forget_unwritten() {
    UNWRITTEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
}

fn open(path: &Path) -> Result<File, Failure> {
    let refused = |error: io::Error| {
        let message = format!("cannot write {}: {error}", path.display());
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Failure::unavailable(message)
            }
            _ => Failure::usage(message),
        }
    };
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => {
            *UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path).map_err(refused)
        }
        Err(error) => Err(refused(error)),
    }
}

fn replace(mut file: &File, document: &str) -> io::Result<()> {
    // Devices and pipes have no length to set.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(document.as_bytes())?;
    file.flush()
}
