//! Numbers that may fall and not rise, against their bounds in `ratchet.txt`.

use std::path::Path;

use bursar_check::source::{Bounds, numbers, workspace};

#[test]
fn no_number_exceeds_its_bound() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let numbers = numbers(&workspace(here.parent().expect("the workspace")));
    let bounds = Bounds::read(&here.join("ratchet.txt"));
    for number in &numbers {
        let Some(bound) = bounds.of(number) else {
            panic!("{} has no bound in ratchet.txt", number.name);
        };
        let (name, value) = (&number.name, number.value);
        assert!(
            value <= bound,
            "{name}: {value} > {bound}: {}",
            number.places
        );
    }
    assert_eq!(bounds.unused(&numbers), Vec::<&str>::new());
}
