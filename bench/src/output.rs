//! Outputs of results: standard output, and files with the raw samples.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::series::Run;

/// Prints to standard output. Nobody reading any more is no error.
///
/// # Errors
/// If standard output cannot be written for another reason.
pub fn print(text: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// The files that raw samples are written to, opened before the run.
pub struct Output {
    files: Vec<(PathBuf, File)>,
    runs: Vec<Run>,
}

impl Output {
    /// Opens `json`, if given, and the file in `bench/runs/<date>-<host>`, if it shall be kept.
    ///
    /// # Errors
    /// Which file cannot be written, and why.
    pub fn open(kind: &str, json: Option<&Path>, keep: bool) -> Result<Self, String> {
        let mut paths: Vec<PathBuf> = json.map(Path::to_owned).into_iter().collect();
        if keep {
            let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs");
            let model = bursar_machine::host::cpu_model().unwrap_or_default();
            let run = runs.join(format!("{}-{}", bursar_conditions::today(), host(&model)));
            std::fs::create_dir_all(&run).map_err(|error| format!("{}: {error}", run.display()))?;
            paths.push(run.join(format!("{kind}.json")));
        }
        let open = |path: PathBuf| match File::create(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(format!("{}: {error}", path.display())),
        };
        Ok(Self {
            files: paths.into_iter().map(open).collect::<Result<_, _>>()?,
            runs: Vec::new(),
        })
    }

    /// Adds one benchmark's samples.
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Writes the files: a list of runs.
    ///
    /// # Errors
    /// Which file could not be written, and why.
    pub fn finish(mut self) -> Result<(), String> {
        let text = serde_json::to_string(&self.runs).map_err(|error| error.to_string())?;
        for (path, file) in &mut self.files {
            let written = file
                .write_all(text.as_bytes())
                .and_then(|()| file.write_all(b"\n"));
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// The first two words of a processor's name, for the name of a directory.
fn host(model: &str) -> String {
    let words = model.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| word.len() > 1 && *word != "TM").take(2);
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_host_is_named_by_its_processor() {
        for (model, name) in [
            ("Intel(R) Xeon(R) Processor", "intel-xeon"),
            ("Intel(R) Core(TM) i7-8550U CPU", "intel-core"),
            ("AMD EPYC", "amd-epyc"),
        ] {
            assert_eq!(super::host(model), name);
        }
    }
}
