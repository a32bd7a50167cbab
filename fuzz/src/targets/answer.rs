//! Answers of a server to `bursar top` and `bursar stat`, before their documents are read.

use std::io::{self, Read};
use std::path::Path;

use crate::client::receive;
use crate::common::assert_harmless;

/// An answer that arrives in pieces of this many bytes.
struct Pieces<'a> {
    rest: &'a [u8],
    bytes: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.bytes.min(buffer.len());
        self.rest.read(&mut buffer[..length])
    }
}

/// The answer; its last byte is the length of its pieces.
pub(super) fn run(input: &[u8]) {
    let Some((last, answer)) = input.split_last() else {
        return;
    };
    let bytes = usize::from(*last).max(1);
    let in_pieces = receive(
        Pieces {
            rest: answer,
            bytes,
        },
        Path::new("socket"),
    );
    match (receive(answer, Path::new("socket")), in_pieces) {
        (Ok(whole), Ok(in_pieces)) => assert_eq!(whole, in_pieces),
        (Err(whole), Err(in_pieces)) => {
            assert_eq!(whole.message(), in_pieces.message());
            assert_harmless(whole.message());
        }
        (whole, in_pieces) => panic!("{whole:?} at once, {in_pieces:?} in pieces"),
    }
}
