//! Documents as JSON.

use serde::Serialize;

use crate::failure::Failure;

/// An indented JSON document.
pub fn json(document: &impl Serialize) -> Result<String, Failure> {
    let written = serde_json::to_string_pretty(document).map_err(Failure::unavailable)?;
    Ok(written + "\n")
}
