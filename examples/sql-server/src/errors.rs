//! Errors as clients of PostgreSQL expect them: SQLSTATE, message, DETAIL and HINT.

use bursar_arbiter::AdmitError;
use bursar_datafusion::{RefusalText, Resource, TenantEngineError, TenantSqlError};
use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion_postgres::pgwire::error::{ErrorInfo, PgWireError};

pub fn error(code: &str, message: impl Into<String>) -> PgWireError {
    info("ERROR", code, message, None, None)
}

/// An error after which the connection is closed.
pub fn fatal(code: &str, message: impl Into<String>) -> PgWireError {
    info("FATAL", code, message, None, None)
}

pub fn hinted(code: &str, message: impl Into<String>, hint: &str) -> PgWireError {
    info("ERROR", code, message, None, Some(hint))
}

fn info(
    severity: &str,
    code: &str,
    message: impl Into<String>,
    detail: Option<&str>,
    hint: Option<&str>,
) -> PgWireError {
    let mut info = ErrorInfo::new(severity.to_owned(), code.to_owned(), message.into());
    info.severity_nonlocalized = Some(severity.to_owned());
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    info.detail = detail.and_then(some);
    info.hint = hint.and_then(some);
    PgWireError::UserError(Box::new(info))
}

pub fn cancelled() -> PgWireError {
    error("57014", "canceling statement due to user request")
}

pub fn timed_out() -> PgWireError {
    error("57014", "canceling statement due to statement timeout")
}

/// The error of a statement. `sees` is the path below which the user may see groups.
pub fn of_statement(failed: &TenantEngineError, sees: &str) -> PgWireError {
    let text = failed.to_string();
    match failed {
        TenantEngineError::DataFusion(failed) => of_query(failed, sees),
        TenantEngineError::Statement(failed) => match failed {
            TenantSqlError::DataFusion(failed) => of_query(failed, sees),
            TenantSqlError::Forbidden { .. } => error("42501", text),
            TenantSqlError::RuntimeChanged => error("XX000", text),
            // Too long, too deep, or too much to plan.
            _ => error("54001", text),
        },
        TenantEngineError::NotAdmitted(failed) => match failed {
            AdmitError::NeverFits { limited, .. } => {
                let hint = format!("Raise the limit of {limited}.");
                info("ERROR", "53200", text, None, Some(&hint))
            }
            AdmitError::TimedOut { .. } => hinted("53200", text, "Try again later."),
            _ => error("XX000", text),
        },
        _ => error("XX000", text),
    }
}

/// The error of a query that runs.
pub fn of_query(failed: &DataFusionError, sees: &str) -> PgWireError {
    if let Some(refusal) = RefusalText::of(failed) {
        let refusal = refusal.within(sees);
        let code = match refusal.resource {
            Resource::SpillSpace => "53100",
            _ => "53200",
        };
        let (detail, hint) = (Some(&*refusal.detail), Some(&*refusal.hint));
        return info("ERROR", code, refusal.message, detail, hint);
    }
    let root = failed.find_root();
    let text = root.strip_backtrace();
    let code = match root {
        DataFusionError::SQL(..) => "42601",
        DataFusionError::SchemaError(failed, _) => match **failed {
            SchemaError::FieldNotFound { .. } => "42703",
            SchemaError::AmbiguousReference { .. } => "42702",
            _ => "42000",
        },
        DataFusionError::Plan(text) if text.contains("table '") && text.contains("not found") => {
            "42P01"
        }
        DataFusionError::Plan(text) if text.contains("Invalid function") => "42883",
        DataFusionError::Plan(_) => "42000",
        DataFusionError::NotImplemented(_) => "0A000",
        DataFusionError::ArrowError(failed, _) => match **failed {
            ArrowError::DivideByZero => "22012",
            ArrowError::CastError(_) | ArrowError::ParseError(_) => "22P02",
            ArrowError::ArithmeticOverflow(_) => "22003",
            _ => "22000",
        },
        DataFusionError::Execution(_) => "22000",
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => "58030",
        _ => "XX000",
    };
    error(code, text)
}
