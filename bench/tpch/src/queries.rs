//! The queries.

/// A query: its name and its text.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Short name, such as `q1`.
    pub name: &'static str,
    text: &'static str,
}

macro_rules! query {
    ($name:literal) => {
        Query {
            name: $name,
            text: include_str!(concat!("../queries/", $name, ".sql")),
        }
    };
}

/// The twenty-two queries of TPC-H, in their order.
pub const QUERIES: [Query; 22] = [
    query!("q1"),
    query!("q2"),
    query!("q3"),
    query!("q4"),
    query!("q5"),
    query!("q6"),
    query!("q7"),
    query!("q8"),
    query!("q9"),
    query!("q10"),
    query!("q11"),
    query!("q12"),
    query!("q13"),
    query!("q14"),
    query!("q15"),
    query!("q16"),
    query!("q17"),
    query!("q18"),
    query!("q19"),
    query!("q20"),
    query!("q21"),
    query!("q22"),
];

/// Two queries outside TPC-H that use much memory at any scale: a sort of the largest table, and an aggregation with a
/// group for each order. DataFusion spills both.
pub const EXTRA: [Query; 2] = [query!("lines_by_price"), query!("lines_per_order")];

/// Returns the query of that name, from both lists.
pub fn named(name: &str) -> Option<Query> {
    QUERIES
        .iter()
        .chain(&EXTRA)
        .find(|query| query.name == name)
        .copied()
}

impl Query {
    /// Returns the text for tables of some scale, which one of the queries depends on.
    pub fn sql(&self, scale: f64) -> String {
        self.text
            .replace("{fraction}", &format!("{:.10}", 0.0001 / scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_queries() {
        assert_eq!(named("q22").unwrap().name, "q22");
        assert!(named("lines_by_price").is_some() && named("q23").is_none());
    }

    #[test]
    fn the_stock_of_importance_depends_on_the_scale() {
        let q11 = named("q11").unwrap();
        assert!(q11.sql(1.0).contains("* 0.0001000000\n"));
        assert!(q11.sql(0.1).contains("* 0.0010000000\n"));
        let changed = QUERIES
            .iter()
            .chain(&EXTRA)
            .filter(|query| query.sql(1.0) != query.sql(0.5));
        assert_eq!(changed.count(), 1);
    }
}
