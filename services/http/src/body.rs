//! Reading a small JSON body whole, within its limits.

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::limits::{DRAIN_BYTES_MAX, DRAIN_TIME_MAX, JSON_BYTES_MAX, JSON_TIME_MAX};

/// The next piece of a body; trailers are skipped. `None` is the true end: a cut body is an error.
pub(crate) async fn next_piece(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        match body.frame().await? {
            Ok(frame) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    return Some(Ok(data));
                }
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The body as a request, and its `idempotency_key`: a field beside those of the verb.
pub(crate) async fn read_json<T: DeserializeOwned>(mut body: Body) -> Result<(T, Option<String>), ApiError> {
    let read = tokio::time::timeout(JSON_TIME_MAX, read_all(&mut body)).await.map_err(|_| {
        ApiError::request(
            StatusCode::REQUEST_TIMEOUT,
            "too_slow",
            format!("the body did not arrive within {} s; send it again", JSON_TIME_MAX.as_secs()),
        )
    })?;
    if read.is_err() {
        drain(&mut body).await;
    }
    let bytes = read?;
    // Nearly all requests come without a key; their errors then name the line and the column.
    match serde_json::from_slice(&bytes) {
        Ok(Keyed { idempotency_key: Some(key), mut request }) => {
            request.remove("idempotency_key");
            let request = serde_json::from_value(Value::Object(request)).map_err(|error| unfit(&error, ""))?;
            Ok((request, Some(key)))
        }
        Ok(Keyed { idempotency_key: None, .. }) | Err(_) => Ok((parse_json(&bytes)?, None)),
    }
}

/// A request with its key.
#[derive(serde::Deserialize)]
struct Keyed {
    idempotency_key: Option<String>,
    #[serde(flatten)]
    request: Map<String, Value>,
}

async fn read_all(body: &mut Body) -> Result<BytesMut, ApiError> {
    let mut all = BytesMut::new();
    while let Some(piece) = next_piece(body).await {
        let piece = piece.map_err(|_| cut())?;
        if all.len() + piece.len() > JSON_BYTES_MAX {
            return Err(too_large(JSON_BYTES_MAX));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// Reads and throws away what is left of a body whose answer is known already, within limits: who still
/// writes when the connection is closed gets a reset instead of the answer.
pub(crate) async fn drain(body: &mut Body) {
    let all = async {
        let mut left = DRAIN_BYTES_MAX;
        while let Some(Ok(piece)) = next_piece(body).await {
            left = left.saturating_sub(piece.len() as u64);
            if left == 0 {
                return;
            }
        }
    };
    // Out of time only means that the client cannot be helped to its answer.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, all).await;
}

/// Bytes as a value; the message tells where the JSON is wrong.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // A list would be taken for the fields in their order, without a name on any of them.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        let message = "the body does not fit this verb: send a JSON object, not a list";
        return Err(ApiError::request(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message));
    }
    let hint = if bytes.is_empty() { "; send a JSON object, {} when there is nothing to say" } else { "" };
    serde_json::from_slice(bytes).map_err(|error| unfit(&error, hint))
}

fn unfit(error: &serde_json::Error, hint: &str) -> ApiError {
    let (status, code) = if error.is_data() {
        (StatusCode::UNPROCESSABLE_ENTITY, "invalid")
    } else {
        (StatusCode::BAD_REQUEST, "bad_json")
    };
    ApiError::request(status, code, format!("the body does not fit this verb: {error}{hint}"))
}

pub(crate) fn cut() -> ApiError {
    ApiError::request(StatusCode::BAD_REQUEST, "cut", "the body ended before it was complete; send it again")
}

pub(crate) fn too_large(bytes_max: usize) -> ApiError {
    ApiError::request(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("at most {bytes_max} bytes of JSON are read; send less"),
    )
}
