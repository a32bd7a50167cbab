//! Refusals of statements, as sentences.

use std::fmt;

use bursar::Bytes;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::dml::WriteOp;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement};

/// Error of [`TenantSession::sql`](super::TenantSession::sql).
#[non_exhaustive]
pub enum TenantSqlError {
    /// The statement might leave the group, and was not run.
    Forbidden {
        /// The part of the statement that is forbidden.
        what: String,
    },
    /// The text is too long, and was not read.
    TooLong {
        /// Bytes of the text.
        bytes: usize,
        /// [`TenantSession::statement_bytes_max`](super::TenantSession::statement_bytes_max).
        max: usize,
    },
    /// The statement nests too deep, and was not run.
    TooDeep {
        /// [`TenantSession::depth_max`](super::TenantSession::depth_max).
        max: usize,
    },
    /// Parts nest so that the parser might read them again and again. The statement was not parsed.
    TooManyReadings {
        /// Readings of words and signs, together.
        max: u64,
    },
    /// The statement's plan has too many parts once each reference to a common table expression or view has a copy of it.
    TooLarge {
        /// Parts that a plan may have.
        max: usize,
    },
    /// Functions of the statement, or copies of its parameters, would have too many bytes, and it was not run.
    ValueTooLarge {
        /// The function whose value is too large, beside those before it; or a word for parameters.
        function: String,
        /// Bytes of its value, and of those before it. `u64::MAX` if they have no end.
        bytes: u64,
        /// [`TenantSession::value_bytes_max`](super::TenantSession::value_bytes_max).
        max: u64,
    },
    /// The tenant keeps as many prepared statements as it may.
    TooManyPrepared {
        /// [`TenantSession::prepared_max`](super::TenantSession::prepared_max).
        max: usize,
    },
    /// Code of the program has changed the session's runtime, so the session may have another pool. No statement runs any more.
    RuntimeChanged,
    /// DataFusion's, of planning or of running.
    DataFusion(DataFusionError),
}

impl fmt::Display for TenantSqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden { what } => write!(f, "a tenant may not use {what}"),
            Self::TooLong { bytes, max } => write!(
                f,
                "the statement has {bytes} bytes, and a tenant's may have at most {max}"
            ),
            Self::TooDeep { max } => write!(
                f,
                "the statement nests more than {max} levels of operators, expressions and queries: split it, or use IN for a \
                 long chain of OR"
            ),
            Self::TooManyReadings { max } => write!(
                f,
                "the parser might read words of the statement more than {max} times: nest fewer calls, CAST and CASE inside each \
                 other"
            ),
            Self::TooLarge { max } => write!(
                f,
                "the statement's plan has more than {max} parts: each reference to a common table expression or view is a copy"
            ),
            Self::ValueTooLarge {
                function,
                bytes,
                max,
            } => write!(
                f,
                "with {function}, the statement makes values of {}, and a tenant's may make {} at most: ask for shorter values",
                Bytes(*bytes),
                Bytes(*max)
            ),
            Self::TooManyPrepared { max } => write!(
                f,
                "the tenant has {max} prepared statements, as many as it may: DEALLOCATE one first"
            ),
            Self::RuntimeChanged => f.write_str(
                "the session has another runtime than at its start, and so perhaps another memory pool: make a new session",
            ),
            Self::DataFusion(error) => error.fmt(f),
        }
    }
}

bursar::debug_as_message!(
    enum TenantSqlError {
        Forbidden { what },
        TooLong { bytes, max },
        TooDeep { max },
        TooManyReadings { max },
        TooLarge { max },
        ValueTooLarge {
            function,
            bytes,
            max
        },
        TooManyPrepared { max },
        RuntimeChanged,
        DataFusion(error),
    }
);

impl std::error::Error for TenantSqlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::DataFusion(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DataFusionError> for TenantSqlError {
    fn from(error: DataFusionError) -> Self {
        Self::DataFusion(error)
    }
}

/// Words of SQL for what a node does besides reading; none for a part of a query.
pub(super) fn words(node: &LogicalPlan) -> Option<&'static str> {
    Some(match node {
        LogicalPlan::Ddl(ddl) => match ddl {
            DdlStatement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE",
            DdlStatement::CreateMemoryTable(_) => "CREATE TABLE",
            DdlStatement::CreateView(_) => "CREATE VIEW",
            DdlStatement::CreateCatalogSchema(_) => "CREATE SCHEMA",
            DdlStatement::CreateCatalog(_) => "CREATE DATABASE",
            DdlStatement::CreateIndex(_) => "CREATE INDEX",
            DdlStatement::DropTable(_) => "DROP TABLE",
            DdlStatement::DropView(_) => "DROP VIEW",
            DdlStatement::DropCatalogSchema(_) => "DROP SCHEMA",
            DdlStatement::CreateFunction(_) => "CREATE FUNCTION",
            DdlStatement::DropFunction(_) => "DROP FUNCTION",
        },
        LogicalPlan::Dml(dml) => match dml.op {
            WriteOp::Insert(_) => "INSERT",
            WriteOp::Delete => "DELETE",
            WriteOp::Update => "UPDATE",
            WriteOp::Ctas => "CREATE TABLE AS",
            WriteOp::Truncate => "TRUNCATE",
            WriteOp::MergeInto(_) => "MERGE",
            _ => "DML",
        },
        LogicalPlan::Copy(_) => "COPY",
        LogicalPlan::Statement(statement) => match statement {
            Statement::TransactionStart(_) => "BEGIN",
            Statement::TransactionEnd(_) => "COMMIT or ROLLBACK",
            Statement::SetVariable(_) => "SET",
            Statement::ResetVariable(_) => "RESET",
            Statement::Prepare(_) => "PREPARE",
            Statement::Execute(_) => "EXECUTE",
            Statement::Deallocate(_) => "DEALLOCATE",
        },
        _ => return None,
    })
}
