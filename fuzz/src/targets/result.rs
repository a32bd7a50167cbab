//! Documents of `bursar-lab run`, as `report` and `compare` read them.

use bursar_experiments::compare::{Comparison, Judgement, comparable};

use crate::common::assert_harmless;
use crate::meter;
use crate::result_file::parse;

/// Memory of a reader, and for each byte of the file. It reads the file twice, and an empty seed takes 2 bytes of it.
const BYTES: usize = 1 << 20;
const BYTES_A_BYTE: usize = 200;

pub(super) fn run(input: &[u8]) {
    let bytes_max = BYTES + BYTES_A_BYTE * input.len();
    let source = match meter::within(bytes_max, || parse("file".to_owned(), input)) {
        Ok(source) => source,
        Err(failure) => return assert_harmless(failure.message()),
    };
    for document in &source.documents {
        assert!(comparable(document, document));
        let comparison = Comparison::new(document, document);
        let is_changed = |judgement| comparison.count(judgement) > 0;
        assert!(
            ![Judgement::Better, Judgement::Worse]
                .into_iter()
                .any(is_changed)
        );
        assert!(comparison.unmatched.iter().all(Vec::is_empty));
        let mut concluded = document.clone();
        concluded.conclude();
    }
    let printed = serde_json::to_string(&source.documents).expect("documents print");
    let again = parse("file".to_owned(), printed.as_bytes()).expect("and parse");
    assert_eq!(again.documents, source.documents, "to the same");
}
