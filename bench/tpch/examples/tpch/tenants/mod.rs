//! Tenants that share one DataFusion, each with a limit of its own, and the tree of groups while their queries run.
//!
//! | file | content |
//! |---|---|
//! | `options.rs` | the command line |
//! | `list.rs` | the tenants: limits and queries |
//! | `queries.rs` | a query on a pool of its own |
//! | `watch.rs` | the tree while the queries run |
//! | `document.rs` | the text that is printed at the end |

mod document;
mod list;
mod options;
mod queries;
mod watch;

use std::sync::Arc;
use std::thread;

use bursar_tpch::Tables;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::oneshot;

use crate::output::{self, Stopped};
use document::Document;
pub use options::Options;
use queries::Engine;
use watch::Watch;

pub fn show(options: &Options) -> Result<(), Stopped> {
    // Ends the run as its end would, so that no spill file stays.
    let (interrupt, interrupted) = oneshot::channel::<()>();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().spawn(move || {
        signals.forever().next();
        // An error says that the run has ended already.
        let _ = interrupt.send(());
    })?;
    options.partitions.runtime()?.block_on(async {
        tokio::select! {
            shown = run(options) => shown,
            Ok(()) = interrupted => Err(Stopped::Interrupted),
        }
    })
}

async fn run(options: &Options) -> Result<(), Stopped> {
    let partitions = options.partitions.count();
    let bar = watch::bar();
    let tables = Tables::generate(options.scale, partitions, |share| {
        bar.set_message(format!("generating tables: {:.0} %", share * 100.0));
    })?;
    bar.finish_and_clear();

    let tenants = list::tenants(options);
    output::write(&document::introduction(&tables, &tenants, options))?;
    let engine = Arc::new(Engine::new(tables, &tenants, partitions)?);
    let watch = Watch::new(engine.clone());
    let running = tenants.iter().enumerate().map(|(index, tenant)| {
        let list = tenant.queries(options.rounds);
        Engine::run(engine.clone(), index, list, tenant.at_once)
    });
    let finished = watch.until(futures::future::try_join_all(running)).await?;

    let document = Document::new(&engine, &tenants, finished, watch.elapsed());
    output::write(&document.to_string())?;
    engine.check(document.queries())?;
    output::write(&document.conclusion())
}
