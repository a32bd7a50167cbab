//! One connection: login, statements, and their end by cancel, timeout or a closed connection.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bursar::Charge;
use bursar_datafusion::PreparedQuery;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ParamValues;
use datafusion_postgres::arrow_pg::datatypes::df::deserialize_parameters_with_server_types;
use datafusion_postgres::arrow_pg::datatypes::{
    arrow_schema_to_pg_fields, encode_recordbatch, into_pg_type,
};
use datafusion_postgres::pgwire::api::auth::{
    DefaultServerParameterProvider, StartupHandler, finish_authentication, protocol_negotiation,
    save_startup_parameters_to_metadata,
};
use datafusion_postgres::pgwire::api::cancel::CancelHandler;
use datafusion_postgres::pgwire::api::copy::CopyHandler;
use datafusion_postgres::pgwire::api::portal::{Format, Portal, PortalExecutionState};
use datafusion_postgres::pgwire::api::query::{
    ExtendedQueryHandler, SimpleQueryHandler, send_execution_response, send_partial_query_response,
    send_query_response, send_ready_for_query,
};
use datafusion_postgres::pgwire::api::results::{
    DataRowEncoder, FieldFormat, FieldInfo, QueryResponse, Response, Tag,
};
use datafusion_postgres::pgwire::api::stmt::{QueryParser, StoredStatement};
use datafusion_postgres::pgwire::api::store::{Entry, PortalStore};
use datafusion_postgres::pgwire::api::{
    ClientInfo, ClientPortalStore, DEFAULT_NAME, METADATA_USER, PgWireConnectionState,
    PidSecretKeyGenerator, RandomPidSecretKeyGenerator, Type,
};
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::cancel::CancelRequest;
use datafusion_postgres::pgwire::messages::copy::{CopyData, CopyDone};
use datafusion_postgres::pgwire::messages::data::DataRow;
use datafusion_postgres::pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Execute, Parse, ParseComplete, Sync as PgSync,
    TARGET_TYPE_BYTE_STATEMENT,
};
use datafusion_postgres::pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};
use datafusion_postgres::pgwire::messages::simplequery::Query;
use datafusion_postgres::pgwire::messages::startup::Authentication;
use datafusion_postgres::pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinError;
use tokio::time::{Sleep, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::command::{self, Command};
use crate::errors;
use crate::server::{Server, User, lock};

/// Most bytes of a command: nothing is charged for the settings that a session keeps. 1,024 is judgement.
const COMMAND_BYTES_MAX: usize = 1024;
/// Bytes that a statement or portal takes beside its texts and parameters. 512 is judgement.
const KEPT_BYTES: usize = 512;
/// Bytes of a parameter's type, or of the place of its value: at most four words.
const PARAMETER_BYTES: usize = 32;

/// The state of a connection.
pub struct Session {
    pub server: Arc<Server>,
    /// Whether there are too many connections. The client gets an error at its login.
    pub is_full: bool,
    user: OnceLock<String>,
    number: OnceLock<i32>,
    /// Ends the statement that runs.
    cancel: Arc<Notify>,
    /// `statement_timeout` in milliseconds, 0 for none.
    timeout_ms: AtomicU64,
    /// The prepared statements that it keeps, by name, each with its charge.
    prepared: Mutex<BTreeMap<String, Charge>>,
    /// The same of portals.
    portals: Mutex<BTreeMap<String, Charge>>,
}

/// A handle of a session, which handles its client's messages.
#[derive(Clone)]
pub struct Handler(pub Arc<Session>);

/// A statement that was read.
pub enum Parsed {
    Query(PreparedQuery),
    Command(Command),
}

impl Session {
    pub fn new(server: &Arc<Server>, is_full: bool) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            is_full,
            user: OnceLock::new(),
            number: OnceLock::new(),
            cancel: Arc::default(),
            timeout_ms: AtomicU64::new(0),
            prepared: Mutex::default(),
            portals: Mutex::default(),
        })
    }

    /// The user's name; empty before the login.
    pub fn name(&self) -> &str {
        self.user.get().map_or("", String::as_str)
    }

    /// The user as it is now: the file of users may have changed since the login.
    fn user(&self) -> PgWireResult<Arc<User>> {
        let name = self.name();
        let gone = || errors::fatal("28000", format!("role \"{name}\" does not exist any more"));
        self.server.user(name).ok_or_else(gone)
    }

    /// Notices what ends the statement that begins now.
    fn watch(&self) -> Watch {
        let timeout_ms = self.timeout_ms.load(Relaxed);
        let timeout = || Box::pin(sleep(Duration::from_millis(timeout_ms)));
        Watch {
            cancelled: Box::pin(self.cancel.clone().notified_owned()),
            timeout: (timeout_ms > 0).then(timeout),
        }
    }

    async fn read(&self, text: &str) -> PgWireResult<Parsed> {
        match command::parse(text) {
            Some(_) if text.len() > COMMAND_BYTES_MAX => Err(errors::error(
                "54000",
                format!("a command has at most {COMMAND_BYTES_MAX} bytes"),
            )),
            Some(Ok(command)) => Ok(Parsed::Command(command)),
            Some(Err((code, text))) => Err(errors::error(code, text)),
            None => {
                let (user, text) = (self.user()?, text.to_owned());
                let planned = self.server.queries.spawn(async move {
                    let prepared = user.prepare(&text).await;
                    prepared.map_err(|error| errors::of_statement(&error, &user.sees()))
                });
                let mut watch = self.watch();
                let prepared = tokio::select! {
                    prepared = AbortOnDropHandle::new(planned) => prepared,
                    ended = poll_fn(|context| watch.poll(context)) => return Err(ended),
                };
                Ok(Parsed::Query(prepared.map_err(failed)??))
            }
        }
    }

    /// Charges a statement or portal that is about to be kept to the user.
    fn charge(&self, name: &str, bytes: usize) -> PgWireResult<Charge> {
        // The name is there three times.
        let bytes = KEPT_BYTES + 3 * name.len() + bytes;
        let charged = self.user()?.charge(bytes as u64);
        charged
            .map_err(|_| errors::error("53200", "there is no memory to keep a statement or portal"))
    }

    /// Runs a query, from its place in the user's queue on.
    fn run(
        &self,
        prepared: &PreparedQuery,
        values: ParamValues,
        format: &Format,
    ) -> PgWireResult<Response> {
        let fields = Arc::new(arrow_schema_to_pg_fields(&prepared.schema(), format, None)?);
        let (sender, batches) = mpsc::channel(1);
        let query = query(
            self.server.clone(),
            self.user()?,
            prepared.clone(),
            values,
            sender,
        );
        let batches = Watched {
            batches,
            watch: self.watch(),
            query: Some(AbortOnDropHandle::new(self.server.queries.spawn(query))),
        };
        let shape = fields.clone();
        let rows = batches.flat_map(move |batch| {
            let rows: Box<dyn Iterator<Item = PgWireResult<DataRow>> + Send> = match batch {
                Ok(batch) => Box::new(encode_recordbatch(shape.clone(), batch)),
                Err(error) => Box::new(std::iter::once(Err(error))),
            };
            futures::stream::iter(rows)
        });
        Ok(Response::Query(QueryResponse::new(fields, rows)))
    }

    fn command<C>(&self, client: &mut C, command: &Command) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore,
        C::PortalStore: PortalStore,
    {
        let done = |tag: &str| Ok(Response::Execution(Tag::new(tag)));
        if matches!(command, Command::Commit | Command::Rollback) {
            self.end_portals(client);
        }
        match command {
            Command::Begin => Ok(Response::TransactionStart(Tag::new("BEGIN"))),
            Command::Commit if client.transaction_status() == TransactionStatus::Error => {
                Ok(Response::TransactionEnd(Tag::new("ROLLBACK")))
            }
            Command::Commit => Ok(Response::TransactionEnd(Tag::new("COMMIT"))),
            Command::Rollback => Ok(Response::TransactionEnd(Tag::new("ROLLBACK"))),
            Command::Set(name, value) => {
                client.metadata_mut().insert(name.clone(), value.clone());
                done("SET")
            }
            Command::Timeout(timeout) => {
                let timeout_ms = timeout.map_or(0, |timeout| timeout.as_millis() as u64);
                self.timeout_ms.store(timeout_ms, Relaxed);
                done("SET")
            }
            Command::Show(name) => {
                let fields = Arc::new(shown(name));
                let value = match (&**name, client.metadata().get(name)) {
                    ("statement_timeout", _) => format!("{}ms", self.timeout_ms.load(Relaxed)),
                    ("server_version", _) => "16.6".to_owned(),
                    ("transaction_isolation", _) => "read committed".to_owned(),
                    (_, Some(value)) => value.clone(),
                    (_, None) => {
                        let text = format!("unrecognized configuration parameter \"{name}\"");
                        return Err(errors::error("42704", text));
                    }
                };
                let mut row = DataRowEncoder::new(fields.clone());
                row.encode_field(&value)?;
                let row = futures::stream::iter([Ok(row.take_row())]);
                Ok(Response::Query(QueryResponse::new(fields, row)))
            }
            Command::Deallocate(name) => {
                let mut prepared = lock(&self.prepared);
                match name {
                    None => prepared
                        .keys()
                        .for_each(|name| client.portal_store().rm_statement(name)),
                    Some(name) if !prepared.contains_key(name) => {
                        let text = format!("prepared statement \"{name}\" does not exist");
                        return Err(errors::error("26000", text));
                    }
                    Some(name) => client.portal_store().rm_statement(name),
                }
                prepared.retain(|kept, _| name.as_ref().is_some_and(|name| kept != name));
                done("DEALLOCATE")
            }
            Command::Reset => done("RESET"),
        }
    }

    /// Ends all portals, and their queries, as the end of a transaction does.
    fn end_portals<C>(&self, client: &C)
    where
        C: ClientPortalStore,
        C::PortalStore: PortalStore,
    {
        client.portal_store().clear_portals();
        lock(&self.portals).clear();
    }

    /// Refuses all but the end of a transaction after an error inside it.
    fn check_transaction<C: ClientInfo>(&self, client: &C, parsed: &Parsed) -> PgWireResult<()> {
        let ends = matches!(parsed, Parsed::Command(Command::Commit | Command::Rollback));
        match client.transaction_status() == TransactionStatus::Error && !ends {
            true => Err(errors::error(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            )),
            false => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            lock(&self.server.sessions).remove(number);
        }
    }
}

/// The column of `SHOW`.
fn shown(name: &str) -> Vec<FieldInfo> {
    vec![FieldInfo::new(
        name.to_owned(),
        None,
        None,
        Type::TEXT,
        FieldFormat::Text,
    )]
}

/// Events that end a statement early.
struct Watch {
    cancelled: Pin<Box<OwnedNotified>>,
    timeout: Option<Pin<Box<Sleep>>>,
}

impl Watch {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<PgWireError> {
        if self.cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(errors::cancelled());
        }
        match &mut self.timeout {
            Some(timeout) => timeout.as_mut().poll(context).map(|()| errors::timed_out()),
            None => Poll::Pending,
        }
    }
}

/// A query from its place in the user's queue to its last row, on the runtime of queries. At its end it has nothing left.
async fn query(
    server: Arc<Server>,
    user: Arc<User>,
    prepared: PreparedQuery,
    values: ParamValues,
    sender: mpsc::Sender<RecordBatch>,
) -> PgWireResult<()> {
    let _place = user.queries.clone().acquire_owned().await;
    let sees = user.sees();
    let stream = server.execute(&user, &prepared, values).await;
    let mut stream = stream.map_err(|error| errors::of_statement(&error, &sees))?;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(|error| errors::of_query(&error, &sees))?;
        // Without a receiver this task is about to be stopped.
        let _ = sender.send(batch).await;
    }
    Ok(())
}

/// The error of a task that panicked.
fn failed(error: JoinError) -> PgWireError {
    errors::error("XX000", format!("the query failed: {error}"))
}

/// The rows of a query, until they end or are stopped. Then the query's task is dropped, and its memory is returned.
struct Watched {
    batches: mpsc::Receiver<RecordBatch>,
    watch: Watch,
    query: Option<AbortOnDropHandle<PgWireResult<()>>>,
}

impl Stream for Watched {
    type Item = PgWireResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(query) = &mut this.query else {
            return Poll::Ready(None);
        };
        let end = match this.watch.poll(context) {
            Poll::Ready(error) => Some(Err(error)),
            Poll::Pending => match ready!(this.batches.poll_recv(context)) {
                Some(batch) => return Poll::Ready(Some(Ok(batch))),
                None => match ready!(Pin::new(query).poll(context)) {
                    Ok(ended) => ended.err().map(Err),
                    Err(error) => Some(Err(failed(error))),
                },
            },
        };
        this.query = None;
        Poll::Ready(end)
    }
}

/// Sends the answer to a statement.
async fn send<C>(client: &mut C, response: Response, describe: bool) -> PgWireResult<()>
where
    C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    match response {
        Response::Query(rows) => send_query_response(client, rows, describe).await,
        Response::Execution(tag) => send_execution_response(client, tag).await,
        Response::TransactionStart(tag) => {
            client.set_transaction_status(TransactionStatus::Transaction);
            send_execution_response(client, tag).await
        }
        Response::TransactionEnd(tag) => {
            client.set_transaction_status(TransactionStatus::Idle);
            send_execution_response(client, tag).await
        }
        _ => Err(no_copy()),
    }
}

#[async_trait]
impl StartupHandler for Handler {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Self(session) = self;
        match message {
            PgWireFrontendMessage::Startup(startup) => {
                protocol_negotiation(client, &startup).await?;
                if session.is_full {
                    return Err(errors::fatal("53300", "sorry, too many clients already"));
                }
                save_startup_parameters_to_metadata(client, &startup);
                client.set_state(PgWireConnectionState::AuthenticationInProgress);
                let ask = PgWireBackendMessage::Authentication(Authentication::CleartextPassword);
                client.send(ask).await?;
            }
            PgWireFrontendMessage::PasswordMessageFamily(password) => {
                let password = password.into_password()?.password;
                let name = client
                    .metadata()
                    .get(METADATA_USER)
                    .cloned()
                    .unwrap_or_default();
                let user = session.server.user(&name);
                let Some(user) = user.filter(|user| user.settings.password == password) else {
                    let text = format!("password authentication failed for user \"{name}\"");
                    return Err(errors::fatal("28P01", text));
                };
                let is_admin = user.settings.admin;
                static KEYS: OnceLock<RandomPidSecretKeyGenerator> = OnceLock::new();
                let (number, key) = KEYS.get_or_init(Default::default).generate(client);
                client.set_pid_and_secret_key(number, key.clone());
                let _ = session.user.set(name);
                let _ = session.number.set(number);
                lock(&session.server.sessions).insert(number, (key, session.cancel.clone()));
                let mut parameters = DefaultServerParameterProvider::default();
                parameters.is_superuser = is_admin;
                finish_authentication(client, &parameters).await?;
            }
            _ => {
                return Err(errors::fatal(
                    "08P01",
                    "a startup message and a password come first",
                ));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl CancelHandler for Handler {
    async fn on_cancel_request(&self, request: CancelRequest) {
        if let Some((key, cancel)) = lock(&self.0.server.sessions).get(&request.pid)
            && key.eq_value(&request.secret_key)
        {
            // Only what runs now.
            cancel.notify_waiters();
        }
    }
}

/// The text to a client that sends rows of a COPY that never began.
fn no_copy() -> PgWireError {
    errors::error("0A000", "COPY is not supported")
}

#[async_trait]
impl CopyHandler for Handler {
    async fn on_copy_data<C>(&self, _: &mut C, _: CopyData) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(no_copy())
    }

    async fn on_copy_done<C>(&self, _: &mut C, _: CopyDone) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(no_copy())
    }
}

#[async_trait]
impl SimpleQueryHandler for Handler {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        // As in PostgreSQL: who asks anew wants no more rows of an unnamed portal.
        match client.transaction_status() {
            TransactionStatus::Transaction => {
                client.portal_store().rm_portal(DEFAULT_NAME);
                lock(&self.0.portals).remove(DEFAULT_NAME);
            }
            _ => self.0.end_portals(client),
        }
        let statements = command::statements(&query.query);
        if statements.is_empty() {
            client
                .feed(PgWireBackendMessage::EmptyQueryResponse(
                    EmptyQueryResponse::new(),
                ))
                .await?;
        }
        // One after the other: a query gives its memory back before the next one asks.
        for statement in statements {
            for response in SimpleQueryHandler::do_query(self, client, statement).await? {
                send(client, response, true).await?;
            }
        }
        let status = client.transaction_status();
        send_ready_for_query(client, status).await
    }

    async fn do_query<C>(&self, client: &mut C, text: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let parsed = self.0.read(text).await?;
        self.0.check_transaction(client, &parsed)?;
        Ok(vec![match parsed {
            Parsed::Command(command) => self.0.command(client, &command)?,
            Parsed::Query(prepared) => {
                let none = ParamValues::List(Vec::new());
                self.0.run(&prepared, none, &Format::UnifiedText)?
            }
        }])
    }
}

#[async_trait]
impl QueryParser for Handler {
    type Statement = Arc<Parsed>;

    async fn parse_sql<C>(
        &self,
        _: &C,
        sql: &str,
        _: &[Option<Type>],
    ) -> PgWireResult<Option<Arc<Parsed>>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        match command::statements(sql)[..] {
            [] => Ok(None),
            [statement] => Ok(Some(Arc::new(self.0.read(statement).await?))),
            _ => Err(errors::error(
                "42601",
                "cannot insert multiple commands into a prepared statement",
            )),
        }
    }

    fn get_parameter_types(&self, parsed: &Arc<Parsed>) -> PgWireResult<Vec<Type>> {
        match &**parsed {
            Parsed::Command(_) => Ok(Vec::new()),
            Parsed::Query(prepared) => prepared.parameters().iter().map(wire_type).collect(),
        }
    }

    fn get_result_schema(
        &self,
        parsed: &Arc<Parsed>,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        match &**parsed {
            Parsed::Command(Command::Show(name)) => Ok(shown(name)),
            Parsed::Command(_) => Ok(Vec::new()),
            Parsed::Query(prepared) => {
                let format = format.unwrap_or(&Format::UnifiedText);
                arrow_schema_to_pg_fields(&prepared.schema(), format, None)
            }
        }
    }
}

/// Refuses format codes that are neither none, one for all, nor one for each: pgwire would look for one that is not there.
fn check_formats(codes: &[i16], count: usize) -> PgWireResult<()> {
    match codes.len() > 1 && codes.len() != count {
        true => Err(errors::error(
            "08P01",
            format!(
                "bind message has {} formats for {count} values",
                codes.len()
            ),
        )),
        false => Ok(()),
    }
}

fn wire_type(kind: &Option<DataType>) -> PgWireResult<Type> {
    kind.as_ref().map_or(Ok(Type::UNKNOWN), into_pg_type)
}

#[async_trait]
impl ExtendedQueryHandler for Handler {
    type Statement = Arc<Parsed>;
    type QueryParser = Self;

    fn query_parser(&self) -> Arc<Self> {
        Arc::new(self.clone())
    }

    async fn on_parse<C>(&self, client: &mut C, message: Parse) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message
            .name
            .clone()
            .unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let bytes = message.query.len() + PARAMETER_BYTES * message.type_oids.len();
        let charge = self.0.charge(&name, bytes)?;
        match StoredStatement::parse(client, &message, self.query_parser()).await? {
            Some(statement) => client.portal_store().put_statement(Arc::new(statement)),
            None => client.portal_store().put_empty_statement(&name),
        }
        lock(&self.0.prepared).insert(name, charge);
        client
            .feed(PgWireBackendMessage::ParseComplete(ParseComplete::new()))
            .await?;
        Ok(())
    }

    async fn on_bind<C>(&self, client: &mut C, message: Bind) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement = message.statement_name.as_deref().unwrap_or(DEFAULT_NAME);
        let name = message.portal_name.as_deref().unwrap_or(DEFAULT_NAME);
        let values = message.parameters.iter().flatten().map(|value| value.len());
        let mut bytes = values.sum::<usize>() + PARAMETER_BYTES * message.parameters.len();
        let found = client.portal_store().get_statement(statement);
        if let Some(Entry::Value(statement)) = &found {
            // The portal keeps the statement, also if that is closed or replaced.
            bytes += statement.id.len() + PARAMETER_BYTES * statement.parameter_types.len();
        }
        let charge = self.0.charge(name, bytes)?;
        match found {
            Some(Entry::Value(statement)) => {
                let columns = self.get_result_schema(&statement.statement, None)?.len();
                check_formats(&message.parameter_format_codes, message.parameters.len())?;
                check_formats(&message.result_column_format_codes, columns)?;
                let portal = Portal::try_new(&message, statement)?;
                client.portal_store().put_portal(Arc::new(portal));
            }
            Some(Entry::Empty) if !message.parameters.is_empty() => {
                let count = message.parameters.len();
                let text = format!(
                    "bind message supplies {count} parameters, but prepared statement requires 0"
                );
                return Err(errors::error("08P01", text));
            }
            Some(Entry::Empty) => client.portal_store().put_empty_portal(name),
            None => return Err(PgWireError::StatementNotFound(statement.to_owned())),
        }
        lock(&self.0.portals).insert(name.to_owned(), charge);
        client
            .feed(PgWireBackendMessage::BindComplete(BindComplete::new()))
            .await?;
        Ok(())
    }

    async fn on_close<C>(&self, client: &mut C, message: Close) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        let kept = match message.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                client.portal_store().rm_statement(name);
                &self.0.prepared
            }
            _ => {
                client.portal_store().rm_portal(name);
                &self.0.portals
            }
        };
        lock(kept).remove(name);
        client
            .feed(PgWireBackendMessage::CloseComplete(CloseComplete::new()))
            .await?;
        Ok(())
    }

    async fn on_sync<C>(&self, client: &mut C, _: PgSync) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let status = client.transaction_status();
        if status != TransactionStatus::Transaction {
            self.0.end_portals(client);
        }
        send_ready_for_query(client, status).await
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        // Below 1: all rows.
        let rows_max = usize::try_from(message.max_rows).unwrap_or(0);
        if let Some(Entry::Value(portal)) = client.portal_store().get_portal(name) {
            let state = portal.state();
            let mut state = state.lock().await;
            if let PortalExecutionState::Initial = *state {
                match ExtendedQueryHandler::do_query(self, client, &portal, rows_max).await? {
                    Response::Query(rows) if rows_max > 0 => {
                        *state = PortalExecutionState::Suspended(rows);
                    }
                    response => {
                        send(client, response, false).await?;
                        *state = PortalExecutionState::Finished;
                        return Ok(());
                    }
                }
            }
            // Row by row: the way of pgwire collects them first, and allocates for as many as the client names.
            if let PortalExecutionState::Suspended(rows) = &mut *state {
                if !send_partial_query_response(client, rows, rows_max).await? {
                    *state = PortalExecutionState::Finished;
                }
                return Ok(());
            }
        }
        self._on_execute(client, message).await
    }

    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<Arc<Parsed>>,
        _: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Parsed>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let parsed = &portal.statement.statement;
        self.0.check_transaction(client, parsed)?;
        match &**parsed {
            Parsed::Command(command) => self.0.command(client, command),
            Parsed::Query(prepared) => {
                let kinds = prepared.parameters();
                if portal.parameter_len() != kinds.len() {
                    let (given, needed) = (portal.parameter_len(), kinds.len());
                    let text = format!(
                        "bind message supplies {given} parameters, but prepared statement requires {needed}"
                    );
                    return Err(errors::error("08P01", text));
                }
                let types: Vec<Type> = kinds.iter().map(wire_type).collect::<PgWireResult<_>>()?;
                let kinds: Vec<_> = kinds.iter().map(Option::as_ref).collect();
                let types: Vec<_> = types.iter().map(Some).collect();
                let values = deserialize_parameters_with_server_types(portal, &kinds, &types);
                let values = values.map_err(|error| match error {
                    PgWireError::FailedToParseParameter(error) => {
                        errors::error("22P02", format!("a parameter cannot be read: {error}"))
                    }
                    error => error,
                })?;
                self.0.run(prepared, values, &portal.result_column_format)
            }
        }
    }
}
