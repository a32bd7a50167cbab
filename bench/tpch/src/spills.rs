//! Spills of a plan, from the metrics of its operators.

use datafusion::physical_plan::ExecutionPlan;

/// Spills of a plan and everything below it. Complete once the plan has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// Files.
    pub files: usize,
    /// Rows.
    pub rows: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Spilled {
    /// Returns what the operators of `plan` have spilled so far.
    pub fn by(plan: &dyn ExecutionPlan) -> Self {
        let mut sum = plan.metrics().map_or_else(Self::default, |metrics| Self {
            files: metrics.spill_count().unwrap_or(0),
            rows: metrics.spilled_rows().unwrap_or(0),
            bytes: metrics.spilled_bytes().unwrap_or(0),
        });
        for child in plan.children() {
            let below = Self::by(child.as_ref());
            sum.files += below.files;
            sum.rows += below.rows;
            sum.bytes += below.bytes;
        }
        sum
    }
}
