//! Each query runs, and what can be computed without an engine is right.

use bursar_tpch::{Answer, EXTRA, QUERIES, Tables, named, run};
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::context::SessionContext;
use tpchgen::generators::LineItemGenerator;

const SCALE: f64 = 0.01;

fn session() -> SessionContext {
    let tables = Tables::generate(SCALE, 2, |_| ()).unwrap();
    let session = SessionContext::new();
    tables.register(&session).unwrap();
    session
}

async fn answer(session: &SessionContext, name: &str) -> Answer {
    let mut batches: Vec<RecordBatch> = Vec::new();
    let sql = named(name).unwrap().sql(SCALE);
    let ran = run(session, &sql, |batch| batches.push(batch)).await;
    ran.unwrap_or_else(|error| panic!("{name}: {error}"));
    Answer::of(&batches).unwrap()
}

/// Two queries find nothing among so few rows; the others find what they look for.
#[tokio::test(flavor = "multi_thread")]
async fn each_query_runs() {
    let session = session();
    let mut rows = Vec::new();
    for query in QUERIES.iter().chain(&EXTRA) {
        rows.push((query.name, answer(&session, query.name).await.rows().len()));
    }
    println!("{rows:?}");
    let empty: Vec<&str> = rows
        .iter()
        .filter(|(_, rows)| *rows == 0)
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(empty, [""; 0]);
    let rows_of = |name| rows.iter().find(|(query, _)| *query == name).unwrap().1;
    assert_eq!(rows_of("lines_by_price"), 60_175);
    assert_eq!(rows_of("lines_per_order"), 15_000);
    // By the specification: four pairs of flag and status, five priorities, two nations both ways in two years, seven codes.
    assert_eq!(
        [rows_of("q1"), rows_of("q4"), rows_of("q7"), rows_of("q22")],
        [4, 5, 4, 7]
    );
}

/// Q1 and Q6 again, from the generator's rows in plain integers: hundredths, and their products.
#[tokio::test(flavor = "multi_thread")]
async fn sums_agree_with_sums_made_by_hand() {
    let session = session();
    let mut revenue = 0_i64;
    // By flag and status: quantity, base, discounted and charged price, discount, count.
    let mut groups = std::collections::BTreeMap::<(String, String), [i128; 6]>::new();
    for line in LineItemGenerator::new(SCALE, 1, 1).iter() {
        let (quantity, price) = (line.l_quantity, line.l_extendedprice.0);
        let (discount, tax) = (line.l_discount.0, line.l_tax.0);
        let shipped = line.l_shipdate.to_string();
        if ("1994-01-01".."1995-01-01").contains(&shipped.as_str())
            && (5..=7).contains(&discount)
            && quantity < 24
        {
            revenue += price * discount;
        }
        if shipped.as_str() <= "1998-09-02" {
            let key = (line.l_returnflag.to_string(), line.l_linestatus.to_string());
            let sums = groups.entry(key).or_default();
            let discounted = price * (100 - discount);
            for (sum, value) in sums.iter_mut().zip([
                quantity,
                price,
                discounted,
                discounted * (100 + tax),
                discount,
                1,
            ]) {
                *sum += i128::from(value);
            }
        }
    }
    assert_eq!(
        answer(&session, "q6").await.rows(),
        [decimal(revenue.into(), 4)]
    );
    let expected: Vec<String> = groups
        .into_iter()
        .map(
            |((flag, status), [quantity, base, discounted, charged, discount, count])| {
                let sums = [
                    decimal(quantity * 100, 2),
                    decimal(base, 2),
                    decimal(discounted, 4),
                    decimal(charged, 6),
                ];
                // Averages have six places, and what is beyond is cut.
                let averages =
                    [quantity * 100, base, discount].map(|sum| decimal(sum * 10_000 / count, 6));
                format!(
                    "{flag}|{status}|{}|{}|{count}",
                    sums.join("|"),
                    averages.join("|")
                )
            },
        )
        .collect();
    assert_eq!(answer(&session, "q1").await.rows(), expected);
}

/// A number with so many places behind the point.
fn decimal(value: i128, places: u32) -> String {
    let unit = 10_i128.pow(places);
    format!(
        "{}.{:0width$}",
        value / unit,
        value % unit,
        width = places as usize
    )
}
