//! The one table of verbs. A verb that is missing here fails the test `every_verb_has_a_route`; one that
//! the Door cannot run does not compile.

use std::sync::Arc;

use axum::Router;
use axum::http::{Request, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use nas_types::id::RequestId;
use nas_types::verb::*;

use crate::body::drain;
use crate::control::Control;
use crate::discovery::documents;
use crate::error::ApiError;
use crate::guard::around;
use crate::handler::{Shared, handle};
use crate::import::handle_import;
use crate::limits::Options;
use crate::metrics::handle_metrics;

macro_rules! routes {
    ($($verb:ident)*) => {
        /// Every verb of one JSON request and one JSON answer that is served, as `noun/verb`.
        pub const ROUTES: &[&str] = &[$(<$verb as Verb>::NAME),*];

        fn verbs<C: Control>() -> Router<Shared<C>> {
            Router::new()$(.route(concat_path(<$verb as Verb>::NAME).as_str(), post(handle::<C, $verb>)))*
        }

        /// The OpenAPI document of these verbs and of the streamed one.
        #[cfg(test)]
        pub(crate) fn openapi() -> serde_json::Value {
            let mut document = crate::openapi::Document::new();
            $(document.verb::<$verb>();)*
            let (name, audience) = STREAMED[0];
            document.import(name, audience);
            document.finish()
        }
    };
}

routes! {
    BoxStatus BoxTrustClock BoxResume
    OwnerInit OwnerLogin OwnerLogout
    TreeList TreeLog TreeCreate TreeShow TreeRemove TreeRestore
    LeaseCreate LeaseList LeaseShow LeaseRevoke
    RunList RunShow RunEnd
    StandingOpen StandingShow StandingClose
    MountTicket MountList
    BranchList BranchShow BranchDiff BranchCommit BranchRecycle BranchRestore
    CheckpointCreate CheckpointList
    TrashList TrashRestore
    Propose GateList GateShow GateApprove GateDeny
    ExplainCommit
    RecordList RecordHead RecordVerify RecordAcceptLoss
}

/// Every verb with a streamed body that is served, as `noun/verb`.
pub const ROUTES_STREAMED: &[&str] = &["tree/import"];

fn concat_path(name: &str) -> String {
    format!("/v1/{name}")
}

/// The whole service.
pub(crate) fn router<C: Control>(control: Arc<C>, options: &Options) -> Router {
    let names: Arc<[String]> = options.names.clone().into();
    verbs::<C>()
        .route(concat_path(ROUTES_STREAMED[0]).as_str(), post(handle_import::<C>))
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(handle_metrics::<C>))
        .merge(documents())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Shared::new(control, options))
        .layer(from_fn_with_state(names, around))
}

/// The id that [`around`] gave to a request.
pub(crate) fn request_id<B>(request: &Request<B>) -> RequestId {
    request.extensions().get().copied().unwrap_or_else(RequestId::random)
}

async fn unknown_route(request: axum::extract::Request) -> Response {
    let id = request_id(&request);
    drain(&mut request.into_body()).await;
    ApiError::request(
        StatusCode::NOT_FOUND,
        "unknown_verb",
        "there is no such call: calls are POST /v1/<noun>/<verb>; GET /v1/openapi.json and 'nas --help' list them",
    )
    .respond(id)
}

async fn wrong_method(request: axum::extract::Request) -> Response {
    let id = request_id(&request);
    drain(&mut request.into_body()).await;
    ApiError::request(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "calls are made with POST and a JSON body")
        .respond(id)
}
