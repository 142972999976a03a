//! What happens around every request: its id, the log line, the headers of the answer, and what is
//! refused before any verb is looked at.
//!
//! The Host and Origin checks keep a web page that somebody on the same network has open from talking to
//! the box through their browser, also when its name was made to resolve to the box (DNS rebinding).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use nas_types::id::RequestId;

use crate::error::ApiError;
use crate::limits::CLIENT_REQUEST_ID_BYTES_MAX;

/// Address of the other end of the connection, put there by `connection`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Peer {
    /// The address a lease or a refusal is tied to; an IPv4 client of an IPv6 socket is an IPv4 client.
    pub(crate) fn ip(self) -> IpAddr {
        self.0.ip().to_canonical()
    }
}

/// Longest part of a path that is logged.
const LOGGED_PATH_BYTES_MAX: usize = 128;

/// Outermost layer. Logs method, path, status, duration, request id and peer; never a header or a body.
pub(crate) async fn around(State(names): State<Arc<[String]>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::random();
    request.extensions_mut().insert(id);
    let method = request.method().clone();
    let path: String = request.uri().path().chars().take(LOGGED_PATH_BYTES_MAX).collect();
    let peer = request.extensions().get::<Peer>().copied();
    let theirs = client_request_id(request.headers()).cloned();

    let mut response = match check_host(request.headers(), &names) {
        Ok(()) => next.run(request).await,
        Err(error) => error.respond(id),
    };
    let headers = response.headers_mut();
    headers.insert(
        HeaderName::from_static("x-request-id"),
        HeaderValue::from_str(&id.to_string()).expect("because a request id is ASCII"),
    );
    if let Some(theirs) = &theirs {
        headers.insert(HeaderName::from_static("x-client-request-id"), theirs.clone());
    }
    // The documents that are for everybody say themselves how long they hold.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    tracing::info!(
        request = %id,
        client_request = theirs.as_ref().and_then(|theirs| theirs.to_str().ok()).unwrap_or("-"),
        peer = %peer.map_or_else(|| "-".to_owned(), |p| p.ip().to_string()),
        %method,
        path,
        status = response.status().as_u16(),
        ms = started.elapsed().as_millis(),
        "http"
    );
    response
}

/// The id that the client gave its request, when it is one that a log can hold: letters, digits, `.`, `_` and `-`.
fn client_request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get("x-request-id").filter(|id| {
        let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        (1..=CLIENT_REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(legal)
    })
}

/// Is the request meant for us, and not sent by a foreign page?
pub(crate) fn check_host(headers: &HeaderMap, names: &[String]) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts
        .next()
        .and_then(|h| h.to_str().ok())
        .filter(|h| hosts.next().is_none() && host_is_ours(h, names))
        .ok_or_else(|| {
            ApiError::request(
                StatusCode::MISDIRECTED_REQUEST,
                "unknown_host",
                "this box does not know itself by the name in the Host header: use its IP address, or have the name \
                 added to the box's configuration",
            )
        })?;
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let same = origin
        .to_str()
        .ok()
        .and_then(|o| o.strip_prefix("http://").or_else(|| o.strip_prefix("https://")))
        .is_some_and(|authority| authority.eq_ignore_ascii_case(host));
    if same && origins.next().is_none() {
        Ok(())
    } else {
        Err(ApiError::request(
            StatusCode::FORBIDDEN,
            "foreign_origin",
            "the request was sent by a page of another site (Origin header); only the box's own pages may call it from \
             a browser",
        ))
    }
}

fn host_is_ours(authority: &str, names: &[String]) -> bool {
    let host = if let Some(rest) = authority.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) && address.parse::<Ipv6Addr>().is_ok();
    } else if let Some((host, port)) = authority.split_once(':') {
        if !is_port(port) {
            return false;
        }
        host
    } else {
        authority
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    host.parse::<Ipv4Addr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 512;

/// The bearer token (RFC 6750 §2.1), if there is an `Authorization` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let token = value.to_str().ok().and_then(|text| text.split_once(' ')).and_then(|(scheme, token)| {
        let token = token.trim_matches(' ');
        (scheme.eq_ignore_ascii_case("bearer")
            && (1..=TOKEN_BYTES_MAX).contains(&token.len())
            && token.bytes().all(|b| b.is_ascii_graphic()))
        .then_some(token)
    });
    match token {
        Some(token) if values.next().is_none() => Ok(Some(token)),
        _ => Err(ApiError::request(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "the Authorization header must be one 'Bearer <token>', with the token of a lease or of the owner",
        )),
    }
}

/// The media type without its parameters is `wanted`.
pub(crate) fn check_content_type(headers: &HeaderMap, wanted: &str) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case(wanted) {
        Ok(())
    } else {
        Err(ApiError::request(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content_type",
            format!("send the header 'content-type: {wanted}'"),
        ))
    }
}
