//! Source of the workspace, parsed: packages, files, modules and references between files.
//!
//! | part | file |
//! |---|---|
//! | files, and which parts of them are tests | `file.rs` |
//! | paths in code | `mention.rs` |
//! | modules of a crate, and the file that defines a name | `module.rs` |
//! | packages, their dependencies and their files | `package.rs` |
//! | files that refer to each other | `reference.rs` |
//! | numbers of the ratchet | `ratchet.rs` |

mod file;
mod mention;
mod module;
mod package;
mod ratchet;
mod reference;

pub use file::SourceFile;
pub use mention::{Mention, paths};
pub use module::{Crate, Module};
pub use package::{House, Package, workspace};
pub use ratchet::{Bounds, Number, numbers};
pub use reference::{Reference, circles};
