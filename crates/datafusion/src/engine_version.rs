//! Behaviour of DataFusion 55.2 that this crate works around. A move to another version begins here.
//!
//! | here | goes with, or changes with |
//! |---|---|
//! | [`NEVER_REFUSED`] | a repartition that does not hang: apache/datafusion#24891 |
//! | [`of_sorted_rows`], for the bytes kept in `sort.rs` | a sort that keeps its workspace while it spills: apache/datafusion#24740 |
//! | [`aggregate_in_share`], [`is_aggregate`], [`may_be_asked`] | an aggregate that leaves room for its groups when it reads its files |
//! | [`spills`] | an ordered aggregate that says whether it can spill: apache/datafusion#17334 |
//! | [`exhausted`] | a sort-merge join whose refusal stays `ResourcesExhausted` without a disk |
//! | [`loses_rows`], [`without_spill`] | a nested loop join that spills and keeps rows without a partner: apache/datafusion#24745 |
//! | [`RUNTIME`] | a pool that `SET` can resize: apache/datafusion#22626 |
//! | [`MAY_SET`], [`SIZED_BY_ARGUMENTS`], [`KEEPS_ITS_PLACE`], [`PART_BYTES`] | options, functions, operators and sizes of a plan that are new |
//!
//! `tests/engine_version.rs` shows each of the first seven. Its tests fail with a version that behaves otherwise, and say what to remove.
//!
//! One change needs nothing here. A sort-merge join of 55.2 spills, and registers as a consumer that cannot. With
//! apache/datafusion#25250 it says that it can. The pool goes by that word, so shares and requests to spill reach it then.

#[cfg(feature = "sql")]
use std::sync::Arc;

#[cfg(feature = "sql")]
use datafusion::common::{JoinType, tree_node::TreeNode};
#[cfg(feature = "sql")]
use datafusion::physical_plan::{ExecutionPlan, joins::NestedLoopJoinExec};
use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::MemoryConsumer;

use crate::refusal::REFUSED;

/// The consumer of this crate's own sink of Parquet files. Each file has a reservation, and a refusal of any one flushes the largest file.
pub(crate) const SINK: &str = "ParquetSink";

/// Operators that `TenantEngine` never refuses. A repartition that is refused while two of its inputs write to disk may never end.
#[cfg(feature = "sql")]
pub(crate) const NEVER_REFUSED: [&str; 1] = ["RepartitionExec"];

/// Returns the name of the consumer that holds the rows of a sort, for the name of the one that merges them:
/// `ExternalSorter[3]` for `ExternalSorterMerge[3]`. `None` for the name of another consumer.
///
/// A sort of 55.2 returns the bytes of its merge before it spills, and requests them again. So `sort.rs` keeps them charged. A sort
/// that keeps them by itself needs `sort.rs` only to be one spiller of a share.
pub(crate) fn of_sorted_rows(consumer: &str) -> Option<String> {
    let (operator, partition) = consumer.split_at(consumer.find('[')?);
    Some(format!("{}{partition}", operator.strip_suffix("Merge")?))
}

/// Returns whether a consumer merges the sorted outputs of others.
pub(crate) fn is_merge(consumer: &str) -> bool {
    consumer.starts_with("SortPreservingMergeExec")
}

/// Returns whether a spiller that holds bytes may be refused for the needs of others. An aggregate that has spilled fails if it is
/// refused while it reads its files.
pub(crate) fn may_be_asked(consumer: &str, has_spilled: bool, is_sort: bool) -> bool {
    is_sort || consumer == SINK || !has_spilled
}

/// Returns whether a consumer says that it can spill, and does. An aggregate of ordered rows says so, and fails in place of it if all its groups are ordered.
pub(crate) fn spills(consumer: &MemoryConsumer) -> bool {
    consumer.can_spill() && !consumer.name().starts_with("OrderedFinalAggregateStream")
}

/// Returns whether a consumer is an aggregate.
pub(crate) fn is_aggregate(consumer: &str) -> bool {
    consumer.contains("AggregateStream")
}

/// Returns the bytes that a share compares for a request of an aggregate that has spilled: those held, and those requested.
///
/// At its end the aggregate reads its files by one reservation, as many at a time as it gets bytes for. Then it requests bytes for its
/// groups by another reservation, fewer than for a file, and fails if they are refused. So a reservation with all its bytes, `size` of
/// `held`, must leave as many bytes as it requests. Any other reservation counts by itself, because the rest cannot be spilled.
pub(crate) fn aggregate_in_share(held: u64, size: u64, requested: u64) -> (u64, u64) {
    match size > 0 && size == held {
        true => (held, requested.saturating_mul(2)),
        false => (size, requested),
    }
}

/// Returns whether a plan has a join that may lose or repeat rows once it spills, without an error.
#[cfg(feature = "sql")]
pub(crate) fn loses_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.exists(|node| {
        let join = node.downcast_ref::<NestedLoopJoinExec>();
        Ok(join.is_some_and(|join| *join.join_type() != JoinType::Inner))
    })
    // The closure does not fail.
    .unwrap_or(true)
}

/// Makes a refusal that a nested loop join passes on, for its request: it spills only if it finds the usual kind.
#[cfg(feature = "sql")]
pub(crate) fn without_spill(consumer: &str, refusal: DataFusionError) -> DataFusionError {
    match refusal {
        DataFusionError::ResourcesExhausted(text) if consumer.starts_with("NestedLoopJoinLoad") => {
            DataFusionError::Execution(text)
        }
        other => other,
    }
}

/// Returns the text of an error that is about memory. A sort-merge join that may not write files hides it in an error of another kind, as
/// [`without_spill`] does.
pub(crate) fn exhausted(root: &DataFusionError) -> Option<&str> {
    match root {
        DataFusionError::ResourcesExhausted(text) => Some(text),
        DataFusionError::Execution(text) => match text.strip_suffix(". Disk spilling disabled.") {
            Some(text) => Some(text.strip_prefix("Resources exhausted: ").unwrap_or(text)),
            None => text.starts_with(REFUSED).then_some(text),
        },
        _ => None,
    }
}

/// Prefix of the options of the runtime: its pool, its disk and its caches. No tenant may change them.
///
/// `SET datafusion.runtime.memory_limit` replaces the pool of any other session. From apache/datafusion#22626 on it asks the pool
/// first, by `MemoryPool::try_resize`, and replaces the pool if that fails. So `GroupPool` must then override the method and never
/// fail: the group's `max` becomes the smaller of the limit that it was made with and the new one.
#[cfg(feature = "sql")]
pub(crate) const RUNTIME: &str = "datafusion.runtime.";

/// Options that a tenant may set: those that change how text is read and shown, and nothing that runs.
#[cfg(feature = "sql")]
pub(crate) const MAY_SET: [&str; 9] = [
    "datafusion.execution.time_zone",
    "datafusion.explain.",
    "datafusion.format.",
    // Not the parser's recursion limit, nor what keeps more for each word.
    "datafusion.sql_parser.default_null_ordering",
    "datafusion.sql_parser.dialect",
    "datafusion.sql_parser.enable_ident_normalization",
    "datafusion.sql_parser.map_string_types_to_utf8view",
    "datafusion.sql_parser.parse_float_as_decimal",
    "datafusion.sql_parser.support_varchar_with_length",
];

/// Functions whose value may be much longer than their arguments. Other names of a function come after it.
#[cfg(feature = "sql")]
pub(crate) const SIZED_BY_ARGUMENTS: [&str; 24] = [
    "repeat",
    "lpad",
    "rpad",
    "range",
    "generate_series",
    "array_repeat",
    "list_repeat",
    "array_resize",
    "list_resize",
    // To a type of fixed length.
    "arrow_cast",
    "arrow_try_cast",
    // As long as the product of two.
    "replace",
    "regexp_replace",
    "array_to_string",
    "list_to_string",
    "array_join",
    "list_join",
    "array_replace_all",
    "list_replace_all",
    "array_replace_n",
    "list_replace_n",
    "arrays_zip",
    "list_zip",
    "concat_ws",
];

/// A source that must not be wrapped: the plan around it puts its rows there.
#[cfg(feature = "sql")]
pub(crate) const KEEPS_ITS_PLACE: &str = "WorkTableExec";

/// Bytes charged for each part of a plan. An expression takes 112 bytes and a node 176, beside what they point to.
#[cfg(feature = "sql")]
pub(crate) const PART_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_have_rows() {
        let rows = |merge| of_sorted_rows(merge);
        assert_eq!(
            rows("ExternalSorterMerge[3]").as_deref(),
            Some("ExternalSorter[3]")
        );
        for other in [
            "ExternalSorter[3]",
            "RepartitionExec[Merge 12]",
            "Merge",
            "",
        ] {
            assert_eq!(rows(other), None, "{other}");
        }
    }

    #[test]
    fn groups_find_room_beside_files() {
        // Of a share of 90 bytes, files of 30 bytes each get 60, and the groups get 30.
        assert_eq!(aggregate_in_share(0, 0, 30), (0, 30));
        assert_eq!(aggregate_in_share(30, 30, 30), (30, 60));
        assert_eq!(aggregate_in_share(60, 60, 30), (60, 60));
        assert_eq!(aggregate_in_share(60, 0, 30), (0, 30));
        assert_eq!(aggregate_in_share(60, 20, 30), (20, 30));
    }
}
