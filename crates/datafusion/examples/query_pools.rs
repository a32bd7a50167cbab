//! Two tenants of one DataFusion, each with a limit of its own. A query of one asks for too much and fails alone.
//!
//! `cargo run --release -p bursar-datafusion --example query_pools`

use std::error::Error;

use bursar::{Group, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool, History};
use datafusion::error::DataFusionError;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

/// A join keeps one side in memory, and cannot spill.
const LARGE: &str =
    "SELECT count(*) FROM range(0, 1000000) AS a JOIN range(0, 1000000) AS b ON a.value = b.value";
const SMALL: &str = "SELECT count(*) FROM range(0, 1000000) WHERE value % 7 = 0";

/// A tenant: a group with a limit, below which each query gets a group.
struct Tenant {
    group: Group,
    /// Divides the limit among operators that can spill.
    share: FairShare,
    history: History,
}

impl Tenant {
    fn new(memory: &Memory, name: &str, limit: u64) -> Result<Self, Box<dyn Error>> {
        let group = memory.root().child(name, Limits::max(limit))?;
        Ok(Self {
            share: FairShare::new(&group),
            history: History::new(10),
            group,
        })
    }

    /// Runs a query on a pool of its own.
    async fn query(
        &self,
        shared: &RuntimeEnv,
        name: &str,
        sql: &str,
    ) -> Result<(), DataFusionError> {
        let group = self.group.child(name, Limits::none());
        let group = group.map_err(|error| DataFusionError::External(error.into()))?;
        let pool = GroupPool::builder(group)
            .share(&self.share)
            .never_refuse(["RepartitionExec"])
            .history(&self.history)
            .build();
        let runtime = RuntimeEnvBuilder::from_runtime_env(shared)
            .with_memory_pool(pool)
            .build_arc()?;
        let session = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
        let rows = session.sql(sql).await?.to_string().await?;
        println!("{rows}");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let memory = Memory::builder().max(1 << 30).build()?;
    // Disk, caches and object stores: one of each for all queries.
    let shared = RuntimeEnv::default();
    let roomy = Tenant::new(&memory, "roomy", 512 << 20)?;
    let narrow = Tenant::new(&memory, "narrow", 4 << 20)?;

    for (tenant, name, sql) in [
        (&roomy, "large", LARGE),
        (&narrow, "small", SMALL),
        (&narrow, "large", LARGE),
        (&roomy, "large-again", LARGE),
    ] {
        match tenant.query(&shared, name, sql).await {
            Ok(()) => println!("{}/{name}: done", tenant.group),
            Err(refused) => println!("{}/{name}: {refused}", tenant.group),
        }
    }
    for tenant in [&roomy, &narrow] {
        for report in tenant.history.finished() {
            println!("\n{report}");
        }
    }
    println!("\n{memory}");
    Ok(())
}
