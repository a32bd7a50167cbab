//! The tenants.

use bursar_tpch::{QUERIES, Query, named};

use super::options::Options;

/// A tenant: a limit, and queries that it wants to run.
pub struct Tenant {
    /// Name of its group.
    pub name: String,
    /// Effect of its limit on it.
    pub about: &'static str,
    /// Bytes for all its queries together.
    pub limit: u64,
    /// Number of its queries that run at a time.
    pub at_once: usize,
    queries: Vec<Query>,
}

impl Tenant {
    /// Its queries with their names in the tree, round after round.
    pub fn queries(&self, rounds: u16) -> Vec<(String, Query)> {
        let name = |query: &Query, round| match rounds {
            1 => query.name.to_owned(),
            _ => format!("{}-{round}", query.name),
        };
        (1..=rounds)
            .flat_map(|round| {
                self.queries
                    .iter()
                    .map(move |query| (name(query, round), *query))
            })
            .collect()
    }
}

/// The tenants. Limits grow with the scale, as what the queries need does.
pub fn tenants(options: &Options) -> Vec<Tenant> {
    let mib = |at_scale_1: f64| ((at_scale_1 * options.scale).max(1.0) * 1048576.0) as u64;
    let list = |names: &[&str]| names.iter().filter_map(|name| named(name)).collect();
    let roomy = |name: String| Tenant {
        name,
        about: "more than its queries need",
        limit: mib(2560.0),
        at_once: 2,
        queries: QUERIES.to_vec(),
    };
    let mut tenants = vec![
        roomy("dashboards".to_owned()),
        Tenant {
            name: "exports".to_owned(),
            about: "less than its sort needs: that query spills",
            limit: mib(720.0),
            // A merge of what a sort spilled takes all it can get (DataFusion's `ExternalSorterMerge`), and cannot give it back.
            at_once: 1,
            queries: list(&["lines_by_price", "lines_per_order", "q3", "q13", "q10"]),
        },
        Tenant {
            name: "trial".to_owned(),
            about: "less than one of its joins needs: that query fails",
            limit: mib(64.0),
            at_once: 1,
            queries: list(&["q1", "q6", "q9", "q14", "q22"]),
        },
    ];
    for number in 2..=options.tenants - 2 {
        tenants.push(roomy(format!("dashboards-{number}")));
    }
    tenants
}
