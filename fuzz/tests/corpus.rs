//! Each file of each corpus passes, without a fuzzer.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use bursar_fuzz::targets;

#[test]
fn every_input_of_every_corpus_passes() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut failed = Vec::new();
    for (name, target) in targets() {
        let files = fs::read_dir(corpora.join(name)).expect("each target has a corpus");
        let mut count = 0;
        for file in files {
            let file = file.expect("an entry").path();
            let input = fs::read(&file).expect("a file");
            if catch_unwind(|| target(&input)).is_err() {
                failed.push(file);
            }
            count += 1;
        }
        assert!(count > 0, "{name}: its corpus is empty");
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
