//! Results of an exploration, for programs.

use bursar_check::explore::Document;
use serde::Serialize;

use crate::format;
use bursar_term::failure::Failure;

/// Version of the document's form.
const SCHEMA: u32 = 1;
/// The revision of the source, noted when this was built.
pub const REVISION: &str = env!("BURSAR_REVISION");

/// A document with its form and origin.
#[derive(Serialize)]
struct Stamped<'a> {
    schema: u32,
    revision: &'static str,
    #[serde(flatten)]
    content: &'a Document,
}

pub fn json(document: &Document) -> Result<String, Failure> {
    format::json(&Stamped {
        schema: SCHEMA,
        revision: REVISION,
        content: document,
    })
}
