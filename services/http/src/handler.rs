//! What happens to one request: who calls, reading the body, one call of the Door on a bounded pool.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderName;
use axum::response::{IntoResponse, Response};
use nas_door::{Answered, DoorError, DoorVerb, Once};
use nas_types::id::RequestId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::{drain, read_json};
use crate::control::{Control, Share};
use crate::error::ApiError;
use crate::guard::{Peer, bearer, check_content_type};
use crate::limits::Options;
use crate::metrics::Metrics;
use crate::rate::{Allowance, Payer, Rates};
use crate::routes::request_id;
use crate::workers::Workers;

/// What all handlers share.
pub(crate) struct Shared<C> {
    pub(crate) control: Arc<C>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) imports: Arc<Semaphore>,
    pub(crate) rates: Arc<Rates>,
    pub(crate) metrics: Arc<Metrics>,
}

impl<C> Shared<C> {
    pub(crate) fn new(control: Arc<C>, options: &Options) -> Self {
        Self {
            control,
            workers: Workers::new(options),
            imports: Arc::new(Semaphore::new(options.imports_max)),
            rates: Arc::new(Rates::new(options.rate_owner, options.rate_per_run, options.rate_per_address)),
            metrics: Arc::default(),
        }
    }
}

impl<C> Clone for Shared<C> {
    fn clone(&self) -> Self {
        Self {
            control: self.control.clone(),
            workers: self.workers.clone(),
            imports: self.imports.clone(),
            rates: self.rates.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

impl<C: Control> Shared<C> {
    /// Who calls, after a call was taken from the bucket of whoever it is. Blocks.
    pub(crate) fn admit(&self, from: &Sender, allowance: &OnceLock<Allowance>) -> Result<C::Caller, DoorError> {
        let address = Payer::Address(from.peer);
        let caller = match self.control.authenticate(from.token.as_deref(), from.peer) {
            Ok(caller) => caller,
            // Guessing costs a call too.
            Err(error) => return Err(self.rates.take(address, Instant::now()).err().unwrap_or(error)),
        };
        let payer = match self.control.share(&caller) {
            Share::Nobody => address,
            share @ (Share::Owner | Share::Run(_)) => Payer::Known(share),
        };
        let left = self.rates.take(payer, Instant::now())?;
        allowance.get_or_init(|| left);
        Ok(caller)
    }
}

/// Says that an answer is that of an earlier call under the same idempotency key.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// One verb.
pub(crate) async fn handle<C: Control, V: DoorVerb>(State(shared): State<Shared<C>>, request: Request) -> Response {
    let id = request_id(&request);
    let started = Instant::now();
    let allowance = Arc::new(OnceLock::new());
    let mut response = match try_handle::<C, V>(&shared, request, id, &allowance).await {
        Ok(Answered { answer, replayed: false }) => Json(answer).into_response(),
        Ok(Answered { answer, replayed: true }) => ([(REPLAYED, "true")], Json(answer)).into_response(),
        Err(error) => error.respond(id),
    };
    if let Some(allowance) = allowance.get() {
        allowance.tell(&mut response);
    }
    shared.metrics.count(V::NAME, response.status(), started.elapsed());
    response
}

async fn try_handle<C: Control, V: DoorVerb>(
    shared: &Shared<C>,
    request: Request,
    id: RequestId,
    allowance: &Arc<OnceLock<Allowance>>,
) -> Result<Answered<V::Answer>, ApiError> {
    let (from, body) = accept(request, "application/json").await?;
    let (verb, key): (V, _) = read_json(body).await?;
    let permit = shared.workers.take()?;
    let (shared, allowance) = (shared.clone(), allowance.clone());
    blocking(permit, id, move || {
        let caller = shared.admit(&from, &allowance)?;
        let control = &shared.control;
        let _held = shared.workers.keep(control.share(&caller))?;
        let Some(key) = key else {
            return control.call(&caller, verb).map(|answer| Answered { answer, replayed: false });
        };
        let token = from.token.as_deref().ok_or_else(|| DoorError::Invalid {
            field: "idempotency_key",
            reason: "keys belong to a token, and this call came without one: leave the key out".to_owned(),
        })?;
        control.call_once(&caller, verb, &Once::new(token, &key)?)
    })
    .await
}

/// Who sent a request whose headers are in order, and its body. One that is refused here is read to its end first.
pub(crate) async fn accept(request: Request, content_type: &str) -> Result<(Sender, Body), ApiError> {
    let from = Sender::of(&request).and_then(|from| check_content_type(request.headers(), content_type).map(|()| from));
    let mut body = request.into_body();
    match from {
        Ok(from) => Ok((from, body)),
        Err(error) => {
            drain(&mut body).await;
            Err(error)
        }
    }
}

/// Who sent a request, as far as HTTP can tell. No `Debug`: it holds the token.
pub(crate) struct Sender {
    pub(crate) token: Option<String>,
    pub(crate) peer: IpAddr,
}

impl Sender {
    pub(crate) fn of(request: &Request) -> Result<Self, ApiError> {
        let peer = request.extensions().get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |p| p.ip());
        Ok(Self { token: bearer(request.headers())?.map(str::to_owned), peer })
    }
}

/// Runs `act` where it may block. The permit travels with it: a client that hangs up does not free the
/// worker that is still at work for it.
pub(crate) async fn blocking<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    id: RequestId,
    act: impl FnOnce() -> Result<T, DoorError> + Send + 'static,
) -> Result<T, ApiError> {
    let joined = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        act()
    })
    .await;
    match joined {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ApiError::from_door_logged(&error, id)),
        Err(_) => {
            tracing::error!(request = %id, "a control verb panicked");
            Err(ApiError::internal())
        }
    }
}
