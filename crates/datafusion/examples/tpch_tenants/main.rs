//! Tenants that share one DataFusion, each with a limit of its own: TPC-H's queries, and the tree of groups while they run.
//!
//! `cargo run --release -p bursar-datafusion --example tpch_tenants -- --help`
//!
//! Whoever wants to do the same reads `queries.rs`: it has the lines that an engine needs.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line |
//! | `tenants.rs` | who they are, what they may use, what they run |
//! | `queries.rs` | a query on a pool of its own |
//! | `watch.rs` | the tree while the queries run |
//! | `document.rs` | what is printed at the end |
//! | `output.rs` | standard output, whose reader may go away |

mod document;
mod options;
mod output;
mod queries;
mod tenants;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use bursar_tpch::Tables;
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::oneshot;

use document::Document;
use options::Options;
use output::{Output, Stopped};
use queries::Engine;
use watch::Watch;

fn main() -> ExitCode {
    match show(&Options::parse()) {
        // A reader that went away (`| head`) has what it wanted.
        Ok(()) | Err(Stopped::NoReader) => ExitCode::SUCCESS,
        Err(Stopped::Interrupted) => ExitCode::from(130),
        Err(Stopped::Failed(failure)) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn show(options: &Options) -> Result<(), Stopped> {
    // Ends the run as its end would, so that no spill file stays.
    let (interrupt, interrupted) = oneshot::channel::<()>();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().spawn(move || {
        signals.forever().next();
        // An error says that the run has ended already.
        let _ = interrupt.send(());
    })?;
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.partitions())
        .enable_time()
        .build()?;
    threads.block_on(async {
        tokio::select! {
            shown = run(options) => shown,
            Ok(()) = interrupted => Err(Stopped::Interrupted),
        }
    })
}

async fn run(options: &Options) -> Result<(), Stopped> {
    let mut output = Output;
    let bar = watch::bar();
    let tables = Tables::generate(options.scale, options.partitions(), |share| {
        bar.set_message(format!("generating tables: {:.0} %", share * 100.0));
    })?;
    bar.finish_and_clear();

    let tenants = tenants::tenants(options);
    output.write(&document::introduction(&tables, &tenants, options))?;
    let engine = Arc::new(Engine::new(tables, &tenants, options.partitions())?);
    let mut watch = Watch::new(engine.clone());
    let running = tenants.iter().enumerate().map(|(index, tenant)| {
        let list = tenant.queries(options.rounds);
        Engine::run(engine.clone(), index, list, tenant.at_once)
    });
    let finished = watch
        .until(futures::future::try_join_all(running), &mut output)
        .await?;

    let document = Document::new(&engine, &tenants, finished, watch.elapsed());
    output.write(&document.to_string())?;
    engine.check(document.queries())?;
    output.write(&document.conclusion())
}
