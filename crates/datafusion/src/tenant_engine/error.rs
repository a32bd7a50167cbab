//! Reasons why a query of an engine did not run.

use std::fmt;

use bursar::printable;
use bursar_arbiter::AdmitError;
use datafusion::error::DataFusionError;

use crate::tenant_session::TenantSqlError;

/// Error of a [`TenantEngine`](super::TenantEngine), before a stream began.
#[non_exhaustive]
pub enum TenantEngineError {
    /// There is no group for the tenant.
    NoTenant {
        /// The path that was asked for.
        path: String,
    },
    /// The statement is forbidden or cannot be planned.
    Statement(TenantSqlError),
    /// The query was not admitted.
    NotAdmitted(AdmitError),
    /// DataFusion's, of planning or of running.
    DataFusion(DataFusionError),
}

impl fmt::Display for TenantEngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTenant { path } => write!(
                f,
                "there is no group for the tenant {}: make it with its limits, and keep its handle",
                printable(path)
            ),
            Self::Statement(error) => error.fmt(f),
            Self::NotAdmitted(error) => write!(f, "the query was not admitted: {error}"),
            Self::DataFusion(error) => error.fmt(f),
        }
    }
}

bursar::debug_as_message!(
    enum TenantEngineError {
        NoTenant { path },
        Statement(error),
        NotAdmitted(error),
        DataFusion(error),
    }
);

impl std::error::Error for TenantEngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoTenant { .. } => None,
            Self::Statement(error) => Some(error),
            Self::NotAdmitted(error) => Some(error),
            Self::DataFusion(error) => Some(error),
        }
    }
}

impl From<DataFusionError> for TenantEngineError {
    fn from(error: DataFusionError) -> Self {
        Self::DataFusion(error)
    }
}
