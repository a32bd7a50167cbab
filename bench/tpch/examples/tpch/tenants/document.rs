//! The printed document: the limits before, and each tenant's use after.

use std::fmt;
use std::time::Duration;

use bursar::{Bytes, Group};
use bursar_datafusion::OperatorReport;
use bursar_tpch::Tables;
use comfy_table::Table;

use super::list::Tenant;
use super::options::Options;
use super::queries::{Engine, Finished};
use crate::output::table;

/// Operators shown: the largest of all queries.
const OPERATORS: usize = 8;

/// Text on the run that follows.
pub fn introduction(tables: &Tables, tenants: &[Tenant], options: &Options) -> String {
    let mut text = format!(
        "TPC-H at scale {}: {} rows, {} in memory that is not charged; {} partitions and threads\n\n",
        options.scale,
        tables.rows(),
        Bytes(tables.bytes() as u64),
        options.partitions.count(),
    );
    let mut table = table(
        ["tenant", "limit", "queries", "at once", "its limit is"],
        1..4,
    );
    for tenant in tenants {
        table.add_row([
            tenant.name.clone(),
            Bytes(tenant.limit).to_string(),
            tenant.queries(options.rounds).len().to_string(),
            tenant.at_once.to_string(),
            tenant.about.to_owned(),
        ]);
    }
    text += &format!("{}\n\n", table.trim_fmt());
    text
}

/// Results of the run.
pub struct Document<'a> {
    tenants: &'a [Tenant],
    groups: Vec<Group>,
    queries: Vec<Finished>,
    elapsed: Duration,
}

impl<'a> Document<'a> {
    pub fn new(
        engine: &Engine,
        tenants: &'a [Tenant],
        finished: Vec<Vec<Finished>>,
        elapsed: Duration,
    ) -> Self {
        Self {
            tenants,
            groups: engine.tenants().cloned().collect(),
            queries: finished.into_iter().flatten().collect(),
            elapsed,
        }
    }

    /// The queries, tenant by tenant, in the order in which they ended.
    pub fn queries(&self) -> &[Finished] {
        &self.queries
    }

    /// After [`Engine::check`].
    pub fn conclusion(&self) -> String {
        format!(
            "after the last query: 0 bytes charged to each of the {} queries, to each of the {} tenants, and to all together\n",
            self.queries.len(),
            self.tenants.len()
        )
    }

    fn tenant_table(&self) -> Table {
        let header = [
            "tenant", "limit", "peak", "done", "failed", "spilled", "refusals",
        ];
        let mut table = table(header, 1..7);
        for (index, (tenant, group)) in self.tenants.iter().zip(&self.groups).enumerate() {
            let own = || self.queries.iter().filter(|query| query.tenant == index);
            let spilled = |query: &&Finished| {
                let by_metrics = query
                    .outcome
                    .as_ref()
                    .is_ok_and(|spilled| spilled.bytes > 0);
                by_metrics || query.report.spills > 0
            };
            let refusals: u64 = own().map(|query| query.report.refused).sum();
            table.add_row([
                tenant.name.clone(),
                Bytes(tenant.limit).to_string(),
                Bytes(group.peak()).to_string(),
                own()
                    .filter(|query| query.outcome.is_ok())
                    .count()
                    .to_string(),
                own()
                    .filter(|query| query.outcome.is_err())
                    .count()
                    .to_string(),
                own().filter(spilled).count().to_string(),
                refusals.to_string(),
            ]);
        }
        table
    }

    fn query_table(&self) -> Table {
        let header = [
            "query", "outcome", "seconds", "rows", "reserved", "held", "refusals", "spills",
            "spilled",
        ];
        let mut table = table(header, 2..9);
        for query in &self.queries {
            let (outcome, spilled) = match &query.outcome {
                Ok(spilled) => ("done", Bytes(spilled.bytes as u64).to_string()),
                Err(_) => ("failed", String::new()),
            };
            table.add_row([
                format!("{}/{}", self.tenants[query.tenant].name, query.name),
                outcome.to_owned(),
                format!("{:.2}", query.elapsed.as_secs_f64()),
                query.rows.to_string(),
                Bytes(query.report.peak).to_string(),
                query
                    .report
                    .real
                    .map_or_else(String::new, |real| Bytes(real.peak).to_string()),
                query.report.refused.to_string(),
                query.report.spills.to_string(),
                spilled,
            ]);
        }
        table
    }

    fn operator_table(&self) -> Table {
        let mut all: Vec<(String, &OperatorReport)> = Vec::new();
        for query in &self.queries {
            let path = format!("{}/{}", self.tenants[query.tenant].name, query.name);
            all.extend(
                query
                    .report
                    .operators
                    .iter()
                    .map(|operator| (path.clone(), operator)),
            );
        }
        all.sort_by_key(|(_, operator)| std::cmp::Reverse(operator.peak));
        let mut table = table(
            [
                "query",
                "operator",
                "consumers",
                "peak",
                "refusals",
                "spills",
            ],
            2..6,
        );
        for (path, operator) in all.into_iter().take(OPERATORS) {
            table.add_row([
                path,
                operator.name.clone(),
                operator.consumers.to_string(),
                Bytes(operator.peak).to_string(),
                operator.refused.to_string(),
                if operator.can_spill {
                    operator.spills.to_string()
                } else {
                    "cannot".to_owned()
                },
            ]);
        }
        table
    }
}

impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        writeln!(
            f,
            "tenants, after {seconds:.1} s:\n{}\n",
            self.tenant_table().trim_fmt()
        )?;
        writeln!(
            f,
            "queries, in the order in which they ended:\n{}\n",
            self.query_table().trim_fmt()
        )?;
        writeln!(
            f,
            "operators with the highest peaks:\n{}\n",
            self.operator_table().trim_fmt()
        )?;
        for query in &self.queries {
            if let Err(error) = &query.outcome {
                let tenant = &self.tenants[query.tenant].name;
                writeln!(f, "{tenant}/{} failed:", query.name)?;
                for line in error.to_string().lines() {
                    writeln!(f, "    {line}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
