//! Every failure as a status, a stable code and a sentence that says what to do next.

use std::error::Error as _;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use nas_door::DoorError;
use nas_types::id::RequestId;
use nas_types::verb::{ErrorBody, ErrorInfo};
use serde_json::{Value, json};

use crate::limits::BUSY_RETRY_SECONDS;

/// A failed request, before it has its request id.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) retry_after_seconds: Option<u64>,
    pub(crate) details: Value,
}

impl ApiError {
    /// An error that comes from the request itself: trying again without a change does not help.
    pub(crate) fn request(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retryable: false,
            retry_after_seconds: None,
            details: Value::Null,
        }
    }

    /// All workers are taken.
    pub(crate) fn busy() -> Self {
        Self::from_door(&DoorError::Busy { retry_after_seconds: BUSY_RETRY_SECONDS })
    }

    /// A bug of ours: the panic is in the log.
    pub(crate) fn internal() -> Self {
        Self::request(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the box made a mistake; its log tells more under this request id",
        )
    }

    /// The Door's errors, exhaustively.
    pub(crate) fn from_door(error: &DoorError) -> Self {
        let mut message = error.to_string();
        let (status, details) = match error {
            DoorError::Unauthenticated(_) | DoorError::LeaseOver(_) => (StatusCode::UNAUTHORIZED, Value::Null),
            DoorError::WrongPassphrase => (StatusCode::FORBIDDEN, Value::Null),
            DoorError::Denied { rule, .. } => (StatusCode::FORBIDDEN, json!({ "rule": rule })),
            DoorError::NotFound { what, name } => (StatusCode::NOT_FOUND, json!({ "what": what, "name": name })),
            DoorError::Invalid { field, .. } => (StatusCode::UNPROCESSABLE_ENTITY, json!({ "field": field })),
            DoorError::State(_) => (StatusCode::CONFLICT, Value::Null),
            DoorError::Key(_) => (StatusCode::CONFLICT, json!({ "field": "idempotency_key" })),
            DoorError::DoneBefore { answer } => (StatusCode::CONFLICT, json!({ "answer": answer })),
            DoorError::Conflicts(conflicts) => (StatusCode::CONFLICT, json!({ "conflicts": conflicts })),
            DoorError::Degraded { level, causes } => {
                (StatusCode::SERVICE_UNAVAILABLE, json!({ "level": level, "causes": causes }))
            }
            DoorError::Quota | DoorError::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, Value::Null),
            DoorError::Busy { retry_after_seconds } => {
                (StatusCode::TOO_MANY_REQUESTS, json!({ "retry_after_seconds": retry_after_seconds }))
            }
            DoorError::Ledger(_) => (StatusCode::SERVICE_UNAVAILABLE, Value::Null),
            DoorError::Store { .. } => (StatusCode::INTERNAL_SERVER_ERROR, Value::Null),
        };
        if matches!(error, DoorError::Ledger(_) | DoorError::Store { .. }) {
            message.push_str("; the box's log tells more under this request id");
        }
        let retry_after_seconds = match error {
            DoorError::Busy { retry_after_seconds } => Some(*retry_after_seconds),
            _ => None,
        };
        Self { status, code: error.code(), message, retryable: error.retryable(), retry_after_seconds, details }
    }

    /// As [`Self::from_door`], and what the answer keeps to itself goes to the log.
    pub(crate) fn from_door_logged(error: &DoorError, request: RequestId) -> Self {
        if matches!(error, DoorError::Ledger(_) | DoorError::Store { .. }) {
            let mut causes = String::new();
            let mut source = error.source();
            while let Some(cause) = source {
                causes.push_str(": ");
                causes.push_str(&cause.to_string());
                source = cause.source();
            }
            tracing::error!(request = %request, "{error}{causes}");
        }
        Self::from_door(error)
    }

    /// The answer.
    pub(crate) fn respond(self, request: RequestId) -> Response {
        let body = ErrorBody {
            error: ErrorInfo {
                code: self.code.to_owned(),
                message: self.message,
                retryable: self.retryable,
                request_id: request.to_string(),
                details: self.details,
            },
        };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}
