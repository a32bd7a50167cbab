//! Long lists of numbers on one line, in documents that are otherwise indented.

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::to_raw_value;

/// Writes a value on one line, in any format of the document around it.
pub(crate) fn serialize<T: Serialize, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    to_raw_value(value)
        .map_err(S::Error::custom)?
        .serialize(serializer)
}

/// A field that is written on one line, for values whose serialization is written by hand.
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: Serialize> Serialize for OneLine<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}
