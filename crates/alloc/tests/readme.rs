//! The README shows what compiles: each line of its example is one of the crate's documentation, in the same order.

#[test]
fn the_readme_shows_the_compiled_example() {
    let readme = include_str!("../../../README.md");
    let compiled = include_str!("../src/lib.rs");
    let shown = readme
        .split("```")
        .find(|block| block.starts_with("rust,ignore") && block.contains("Charged::new"))
        .expect("the README has the example");
    let mut lines = compiled
        .lines()
        .filter_map(|line| line.strip_prefix("//! "));
    for line in shown.lines().skip(1).filter(|line| !line.is_empty()) {
        assert!(
            lines.any(|compiled| compiled == line),
            "not compiled: {line}"
        );
    }
}
