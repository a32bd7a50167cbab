//! Texts of tracefs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Text of a file of tracefs. Some of these files end after the first read, so that read must be large.
pub(super) fn text(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; 1 << 16];
    let length = file.read(&mut bytes)?;
    bytes.truncate(length);
    file.read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
