//! Documents for who knows nothing but the box's address (SPEC DISC-1): what it speaks and where that is described.
//!
//! They are the same for everybody and hold nothing about what is on the box, so anyone may read and cache them. They
//! name only what is there: a box that serves no MCP has no MCP server card, one without OAuth no RFC 9728 metadata.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::routing::get;

/// The OpenAPI document: the golden file, compared with the code by a test.
pub(crate) const OPENAPI: &str = include_str!("../openapi.json");
const CATALOG: &str = include_str!("../ai-catalog.json");
const LLMS: &str = include_str!("../llms.txt");

/// Caches ask again after an hour, so that an update of the box is seen the same day.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// Path, media type and text of each.
pub(crate) const DOCUMENTS: &[(&str, &str, &str)] = &[
    ("/v1/openapi.json", "application/json", OPENAPI),
    ("/.well-known/ai-catalog.json", "application/json", CATALOG),
    ("/llms.txt", "text/plain; charset=utf-8", LLMS),
];

/// The documents as routes.
pub(crate) fn documents<S: Clone + Send + Sync + 'static>() -> Router<S> {
    DOCUMENTS.iter().fold(Router::new(), |router, (path, media, text)| {
        let headers: [(HeaderName, HeaderValue); 2] =
            [(header::CONTENT_TYPE, HeaderValue::from_static(media)), (header::CACHE_CONTROL, CACHED)];
        router.route(path, get(async move || (headers, *text)))
    })
}
