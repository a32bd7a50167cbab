//! The README shows what compiles. Its examples of other crates cannot be compiled from here: each line of one must be a line of
//! that crate's documentation, in the same order.

fn is_compiled(shown_with: &str, documentation: &str) {
    let readme = include_str!("../../../README.md");
    let shown = readme
        .split("```")
        .find(|block| block.starts_with("rust,ignore") && block.contains(shown_with))
        .expect("the README has the example");
    let mut lines = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("//! "));
    for line in shown.lines().skip(1).filter(|line| !line.is_empty()) {
        assert!(
            lines.any(|compiled| compiled == line),
            "not compiled: {line}"
        );
    }
}

#[test]
fn of_datafusion() {
    let documentation = include_str!("../../datafusion/src/lib.rs");
    is_compiled("GroupPool::builder", documentation);
}

#[test]
fn of_the_allocator() {
    let documentation = include_str!("../../alloc/src/lib.rs");
    is_compiled("Charged::new", documentation);
}
