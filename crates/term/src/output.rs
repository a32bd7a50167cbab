//! Destination of the document: standard output, or a file that is checked before anything runs.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::markup::Markup;
use crate::options::{Color, Global};
use crate::place::Place;
use crate::width;

/// The place for one document.
#[derive(Debug)]
pub struct Output {
    file: Option<Place>,
    /// The form of a text for people there, and on standard output.
    form: Markup,
    standard_form: Markup,
}

impl Output {
    /// Checks that the place can be written, so that a run of minutes does not end in a refusal. An older document stays as it
    /// is, and no new file is made, until [`Self::write`].
    pub fn open(global: &Global) -> Result<Self, Failure> {
        let file = global.output.as_deref().map(Place::new).transpose()?;
        Ok(Self::of(file, global))
    }

    fn of(file: Option<Place>, global: &Global) -> Self {
        let unwanted = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let form = |is_standard: bool| Markup::Terminal {
            color: match global.color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => is_standard && io::stdout().is_terminal() && !unwanted(),
            },
            width: is_standard.then(width::of_stdout).flatten(),
        };
        Self {
            form: form(file.is_none()),
            standard_form: form(true),
            file,
        }
    }

    /// Refuses a further file that is the document's: one would replace the other.
    pub fn refuse_to_share(&self, further: Option<&Place>) -> Result<(), Failure> {
        match (&self.file, further) {
            (Some(own), Some(further)) if own.is_file_of(further) => Err(Failure::usage(format!(
                "{own} and {further} are one file; name another one"
            ))),
            _ => Ok(()),
        }
    }

    /// Standard output, wherever the document goes.
    pub fn standard(global: &Global) -> Self {
        Self::of(None, global)
    }

    /// The form of a text for people: with the colours and the width of its place.
    pub fn terminal(&self) -> Markup {
        self.form
    }

    /// Writes the document. If its file cannot be written, the file stays as it was, and `table` goes to standard output instead: a
    /// result is not lost. A reader that has gone away (`| head`) has what it wanted.
    pub fn write(
        self,
        document: &str,
        table: impl FnOnce(Markup) -> String,
    ) -> Result<(), Failure> {
        let written = match &self.file {
            Some(place) => place.write(|mut file| file.write_all(document.as_bytes())),
            None => to_standard(document),
        };
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                if self.file.is_some() {
                    // The file's failure is the one to tell.
                    let _ = to_standard(&table(self.standard_form));
                }
                Err(Failure::unavailable(format!(
                    "cannot write {self}: {error}"
                )))
            }
            _ => Ok(()),
        }
    }
}

fn to_standard(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(place) => place.fmt(f),
            None => f.write_str("standard output"),
        }
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
    // The call that opens a path reports one that does not exist or cannot be looked at.
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
