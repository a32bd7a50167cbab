//! SQL over PostgreSQL's protocol for many tenants, with limits that hold. README.md has three commands to begin with.

#![forbid(unsafe_code)]

mod command;
mod errors;
mod metrics;
mod server;
mod session;
mod users;
mod wire;

use std::alloc::System;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bursar::{Bytes, Memory};
use bursar_alloc::Charged;
use bursar_datafusion::RealBytes;
use clap::Parser;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_postgres::pgwire::api::{ClientInfo, DefaultClient, PgWireConnectionState};
use datafusion_postgres::pgwire::error::{ErrorInfo, PgWireError};
use datafusion_postgres::pgwire::messages::response::GssEncResponse;
use datafusion_postgres::pgwire::messages::response::SslResponse;
use datafusion_postgres::pgwire::messages::{
    PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage,
};
use datafusion_postgres::pgwire::tokio::server::{
    PgWireMessageServerCodec, process_error, process_message,
};
use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::codec::Framed;

use server::{Counted, Pool, Server, told};
use session::{Handler, Session};
use wire::{MESSAGE_BYTES_MAX, Wire, accept, closed};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

/// Time for a client to log in.
const LOGIN: Duration = Duration::from_secs(10);
/// Connections beyond the limit that get an error message. Further ones are closed without one.
const TOLD_MAX: usize = 100;

/// SQL over PostgreSQL's protocol for many tenants, with limits that hold.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Address to listen on; port 0 is a free one
    #[arg(long, default_value = "127.0.0.1:5433")]
    listen: SocketAddr,
    /// Users, read again on SIGHUP
    #[arg(long, default_value = "users.toml")]
    users: PathBuf,
    /// Most bytes of the process
    #[arg(long, default_value = "1GiB", value_parser = users::bytes)]
    memory: u64,
    /// Part of it that is left for bytes that no query reserves, percent (15 is judgement)
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=90))]
    unreserved: u64,
    /// Memory pool
    #[arg(long, value_enum, default_value = "bursar")]
    pool: Pool,
    /// Scale of the tables of TPC-H
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Serve the parquet files of a directory instead, each as a table
    #[arg(long, conflicts_with = "scale")]
    parquet: Option<PathBuf>,
    /// Partitions of a query; as many as there are CPUs unless set
    #[arg(long)]
    partitions: Option<usize>,
    /// Directory of spill files; a temporary one unless set
    #[arg(long)]
    spill_dir: Option<PathBuf>,
    /// Most bytes of all spill files
    #[arg(long, default_value = "8GiB", value_parser = users::bytes)]
    spill: u64,
    /// Most connections
    #[arg(long, default_value_t = 2000)]
    connections: usize,
    /// Address of /metrics; none unless set
    #[arg(long)]
    metrics: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sql-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> Result<(), String> {
    let runtime = || {
        let built = Builder::new_multi_thread().enable_all().build();
        built.map_err(|error| format!("cannot start threads: {error}"))
    };
    // Queries have threads of their own, so they never keep the connections waiting.
    let (connections, queries) = (runtime()?, runtime()?);
    let ended = connections.block_on(run(args, queries.handle().clone()));
    // Queries that run end with the process.
    queries.shutdown_background();
    connections.shutdown_background();
    ended
}

async fn run(args: Args, queries: Handle) -> Result<(), String> {
    // Reports a mistake in the file before it makes the tables.
    users::read(&args.users)?;
    let memory = Memory::builder()
        .build()
        .map_err(|error| error.to_string())?;
    let real = RealBytes::install().map_err(|error| error.to_string())?;
    let shared = tables(&args).await?;
    let idle = metrics::resident();
    let unreserved = args.memory.saturating_sub(idle) / 100 * args.unreserved;
    let tree = args.memory.saturating_sub(idle + unreserved);
    if tree < 16 << 20 {
        return Err(format!(
            "--memory {} leaves {} for queries: the process with its tables takes {} before the first query. Raise --memory to {} or more",
            Bytes(args.memory),
            Bytes(tree),
            Bytes(idle),
            Bytes(idle * 2 + (64 << 20))
        ));
    }
    println!(
        "memory {}: idle process and tables {}, unreserved part {}, for queries {}",
        Bytes(args.memory),
        Bytes(idle),
        Bytes(unreserved),
        Bytes(tree)
    );
    let made = Server::new(
        args.pool,
        (tree, args.spill),
        (shared, memory, real),
        args.connections,
        args.users.clone(),
        queries,
    );
    let server = Arc::new(made?);
    let _ticker = server
        .arbiter
        .start_ticker(Duration::from_millis(100))
        .map_err(|error| error.to_string())?;
    let socket = bursar_serve::Server::builder()
        .arbiter(&server.arbiter)
        .start(&server.memory);
    let _socket = socket
        .inspect_err(|error| eprintln!("sql-server: no socket for `bursar top`: {error}"))
        .ok();
    let bind = async |address: SocketAddr| {
        let bound = TcpListener::bind(address).await;
        bound.map_err(|error| format!("cannot listen on {address}: {error}"))
    };
    if let Some(address) = args.metrics {
        let listener = bind(address).await?;
        println!(
            "metrics on http://{}/metrics",
            listener.local_addr().map_err(|error| error.to_string())?
        );
        tokio::spawn(metrics::serve(listener, server.clone(), args.memory));
    }
    let listener = bind(args.listen).await?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!(
        "listening on {address}: psql -h {} -p {} -U acme",
        address.ip(),
        address.port()
    );
    let on = |kind| signal(kind).map_err(|error| error.to_string());
    let (mut again, mut end, mut stop) = (
        on(SignalKind::hangup())?,
        on(SignalKind::terminate())?,
        on(SignalKind::interrupt())?,
    );
    loop {
        tokio::select! {
            _ = end.recv() => return Ok(()),
            _ = stop.recv() => return Ok(()),
            _ = again.recv() => match server.reload() {
                Ok(users) => println!("{users} users"),
                Err(error) => eprintln!("sql-server: {error}: the old users stay"),
            },
            stream = accept(&listener) => {
                // Counted before the next connection, so that exactly those beyond the limit get the error.
                let counted = Counted::new(&server);
                tokio::spawn(connection(stream, server.clone(), counted));
            }
        }
    }
}

/// The session with the tables of all.
async fn tables(args: &Args) -> Result<SessionContext, String> {
    let mut config = SessionConfig::new()
        // Each partition of a sort keeps this for its merge. The default is 10 MiB.
        .with_sort_spill_reservation_bytes(1 << 20)
        .set_str("datafusion.sql_parser.dialect", "postgresql");
    if let Some(partitions) = args.partitions {
        config = config.with_target_partitions(partitions.max(1));
    }
    let partitions = config.target_partitions();
    let mut files = DiskManagerBuilder::default().with_max_temp_directory_size(args.spill);
    if let Some(directory) = &args.spill_dir {
        files = files.with_mode(DiskManagerMode::Directories(vec![directory.clone()]));
    }
    let runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(files)
        .build_arc()
        .map_err(told)?;
    let context = SessionContext::new_with_config_rt(config, runtime);
    let Some(directory) = &args.parquet else {
        let tables = bursar_tpch::Tables::generate(args.scale, partitions, |_| ());
        let tables = tables.map_err(|error| error.to_string())?;
        tables.register(&context).map_err(told)?;
        return Ok(context);
    };
    let shown = directory.display();
    let entries =
        std::fs::read_dir(directory).map_err(|error| format!("--parquet {shown}: {error}"))?;
    let mut count = 0;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if let (Some("parquet"), Some(name)) = (
            path.extension().and_then(|end| end.to_str()),
            path.file_stem(),
        ) {
            let (name, path) = (name.to_string_lossy(), path.to_string_lossy());
            context
                .register_parquet(&*name, &*path, ParquetReadOptions::default())
                .await
                .map_err(told)?;
            count += 1;
        }
    }
    match count {
        0 => Err(format!(
            "--parquet {shown}: there is no file whose name ends in .parquet"
        )),
        _ => Ok(context),
    }
}

/// Serves a connection until it ends. Dropping this future drops the connection's statements and queries.
async fn connection(stream: TcpStream, server: Arc<Server>, (_counted, count): (Counted, usize)) {
    let max = server.connections_max;
    if count > max + TOLD_MAX {
        return;
    }
    let Ok(address) = stream.peer_addr() else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let client = DefaultClient::new(address, false);
    let mut socket = Framed::new(
        Wire::new(stream.clone()),
        PgWireMessageServerCodec::new(client),
    );
    let handler = Arc::new(Handler(Session::new(&server, count > max)));
    tokio::select! {
        _ = serve(&mut socket, &handler) => {}
        () = closed(&stream) => {}
        // Also of a client that does not read its answers.
        () = late(&handler) => {}
    }
}

/// Ends when the time to log in is over, if the client has not.
async fn late(handler: &Handler) {
    tokio::time::sleep(LOGIN).await;
    if !handler.0.name().is_empty() {
        std::future::pending().await
    }
}

async fn serve(
    socket: &mut Framed<Wire, PgWireMessageServerCodec<Arc<session::Parsed>>>,
    handler: &Arc<Handler>,
) -> std::io::Result<()> {
    socket.set_state(PgWireConnectionState::AwaitingSslRequest);
    loop {
        let is_login = handler.0.name().is_empty();
        let message = match socket.next().await {
            None | Some(Ok(PgWireFrontendMessage::Terminate(_))) => return Ok(()),
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                let error = errors::fatal("08P01", error.to_string());
                return tell(socket, handler, error, false).await;
            }
        };
        if let PgWireFrontendMessage::SslNegotiation(request) = message {
            match request {
                SslNegotiationMetaMessage::PostgresSsl(_) => {
                    socket
                        .send(PgWireBackendMessage::SslResponse(SslResponse::Refuse))
                        .await?;
                }
                SslNegotiationMetaMessage::PostgresGss(_) => {
                    socket
                        .send(PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse))
                        .await?;
                }
                _ => socket.set_state(PgWireConnectionState::AwaitingStartup),
            }
            continue;
        }
        let (is_extended, is_cancel) = (
            message.is_extended_query(),
            matches!(message, PgWireFrontendMessage::CancelRequest(_)),
        );
        let all = || handler.clone();
        let processed = process_message(message, socket, all(), all(), all(), all(), all()).await;
        if let Err(error) = processed {
            tell(socket, handler, error, is_extended).await?;
        }
        if is_cancel {
            return Ok(());
        }
        if is_login && !handler.0.name().is_empty() {
            socket.get_mut().max = MESSAGE_BYTES_MAX;
        }
        // A client that never stops to send must not keep others waiting.
        tokio::task::consume_budget().await;
    }
}

/// Sends an error, and counts it. After a fatal one the connection ends.
async fn tell(
    socket: &mut Framed<Wire, PgWireMessageServerCodec<Arc<session::Parsed>>>,
    handler: &Handler,
    error: PgWireError,
    is_extended: bool,
) -> std::io::Result<()> {
    // The client is gone.
    if let PgWireError::IoError(error) = error {
        return Err(error);
    }
    let info = ErrorInfo::from(error);
    let is_fatal = info.is_fatal();
    handler.0.server.count_error(handler.0.name(), &info.code);
    process_error(socket, PgWireError::UserError(Box::new(info)), is_extended).await?;
    match is_fatal {
        true => Err(std::io::ErrorKind::ConnectionAborted.into()),
        false => Ok(()),
    }
}
