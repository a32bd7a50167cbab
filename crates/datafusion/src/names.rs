//! Names of operators: DataFusion's names of consumers as names of groups.

use bursar::NAME_MAX;

/// Returns the operator's name, without the partition that DataFusion puts in brackets and the text behind it.
///
/// `ExternalSorter[3]` and `ExternalSorter[7]` are partitions of one operator; two sorts of one query have the same name.
pub(crate) fn of_operator(consumer: &str) -> String {
    let name = consumer.split('[').next().unwrap_or_default().trim_end();
    cleaned(name, NAME_MAX)
}

/// Returns a name for the consumer alone.
pub(crate) fn of_consumer(consumer: &str, id: usize) -> String {
    let suffix = format!("#{id}");
    cleaned(consumer, NAME_MAX - suffix.len()) + &suffix
}

/// Makes a valid name of a group: no `/`, no NUL, not empty, at most `bytes_max` bytes.
fn cleaned(name: &str, bytes_max: usize) -> String {
    if name.is_empty() {
        return "unnamed".to_owned();
    }
    let mut clean = name.replace(['/', '\0'], "_");
    clean.truncate(clean.floor_char_boundary(bytes_max));
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_have_one_name() {
        let cases = [
            ("ExternalSorter[3]", "ExternalSorter"),
            ("RepartitionExec[Merge 12]", "RepartitionExec"),
            ("NestedLoopJoinLoad[fallback]", "NestedLoopJoinLoad"),
            ("CrossJoinExec", "CrossJoinExec"),
            ("of a/b\0c [1]", "of a_b_c"),
            ("[1]", "unnamed"),
            ("", "unnamed"),
        ];
        for (consumer, operator) in cases {
            assert_eq!(of_operator(consumer), operator, "{consumer:?}");
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let long = "ä".repeat(NAME_MAX);
        assert_eq!(of_operator(&long).len(), NAME_MAX - 1);
        let named = of_consumer(&long, 12_345);
        assert!(
            named.len() <= NAME_MAX && named.ends_with("ä#12345"),
            "{named}"
        );
        assert_eq!(of_consumer("Sort[1]", 7), "Sort[1]#7");
    }
}
