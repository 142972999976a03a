//! Sockets: accepting, limits and time-outs of a connection, shutting down.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use nas_door::Door;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower_service::Service as _;

use crate::control::Control;
use crate::guard::Peer;
use crate::limits::{HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX, Options, SHUTDOWN_TIME_MAX};
use crate::routes::router;

/// Wait after an error of `accept` that is about us (out of descriptors), not about one client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is ready; then open requests get a while to end.
pub async fn serve(
    listener: TcpListener,
    door: Arc<Door>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_control(listener, door, options, shutdown).await
}

pub(crate) async fn serve_control<C: Control>(
    listener: TcpListener,
    control: Arc<C>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let router = router(control, &options);
    let slots = Arc::new(Semaphore::new(options.connections_max));
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        // A full house leaves new connections in the listen queue: full means later.
        let next = async {
            let slot = slots.clone().acquire_owned().await.expect("because the semaphore is never closed");
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            next = next => next,
            () = &mut shutdown => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = graceful.watch(connection(stream, Peer(peer), router.clone()));
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = connection.await {
                tracing::debug!(%error, %peer, "a connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(SHUTDOWN_TIME_MAX, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still open when the server stopped");
    }
    Ok(())
}

type Connection<S> = http1::Connection<TokioIo<TcpStream>, S>;

fn connection(
    stream: TcpStream,
    peer: Peer,
    router: Router,
) -> Connection<
    impl hyper::service::Service<
        hyper::Request<Incoming>,
        Response = hyper::Response<Body>,
        Error = std::convert::Infallible,
        Future: Send,
    >,
> {
    // Answers are small: waiting to fill a packet only delays them. Not worth failing over.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.clone().call(request)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
}
