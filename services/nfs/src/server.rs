//! The server: accepts connections within limits and gives each to the flow.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nas_door::Door;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::flow::buffers::Buffers;
use crate::flow::connection::{self, Shared};
use crate::flow::pool::Pool;
use crate::gateway::Gateway;
use crate::limits::{CONNECTIONS_MAX, CONNECTIONS_PER_PEER_MAX};

/// Pause after a failed accept (out of descriptors): what is missing then does not come back at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Settings of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Threads that serve requests. They wait for disks most of the time, so there are more than processors.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 32 }
    }
}

/// NFSv3 and MOUNTv3 over one Door.
pub struct NfsServer {
    shared: Shared<Gateway>,
}

impl NfsServer {
    /// Starts the worker threads. They end, after what is queued, when the server is dropped (which waits for them).
    pub fn new(door: Arc<Door>, options: Options) -> io::Result<Self> {
        let buffers = Arc::new(Buffers::default());
        let service = Arc::new(Gateway::new(door, Arc::clone(&buffers)));
        let pool = Pool::start(&service, options.workers)?;
        Ok(Self { shared: Shared { service, pool, buffers } })
    }

    /// Serves `listener` until `shutdown` holds `true` or its sender is gone. Requests that were accepted by then are
    /// answered before it returns.
    pub async fn serve(
        listener: TcpListener,
        door: Arc<Door>,
        options: Options,
        shutdown: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let server = Arc::new(Self::new(door, options)?);
        server.accept(&listener, shutdown).await;
        // Joining the workers blocks.
        tokio::task::spawn_blocking(move || drop(server)).await.map_err(io::Error::other)
    }

    /// Serves one connection of `peer` over any stream.
    pub async fn serve_connection(
        &self,
        stream: impl AsyncRead + AsyncWrite,
        peer: IpAddr,
        shutdown: watch::Receiver<bool>,
    ) {
        let (reader, writer) = tokio::io::split(stream);
        // A `ReadHalf` is `Unpin` whatever it is the half of.
        log_end(peer, connection::run(&self.shared, reader, writer, peer, shutdown)).await;
    }

    async fn serve_tcp(&self, stream: TcpStream, peer: IpAddr, shutdown: watch::Receiver<bool>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "TCP_NODELAY cannot be set");
        }
        let (reader, writer) = stream.into_split();
        log_end(peer, connection::run(&self.shared, reader, writer, peer, shutdown)).await;
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener, mut shutdown: watch::Receiver<bool>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let peers = Arc::new(Peers::default());
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = shutdown.wait_for(|stop| *stop) => break,
                Some(ended) = connections.join_next() => {
                    if ended.is_err() {
                        tracing::error!("an NFS connection ended by a panic");
                    }
                    continue;
                }
                accepted = async {
                    let place = Arc::clone(&room).acquire_owned().await.expect("because it is never closed");
                    (listener.accept().await, place)
                } => accepted,
            };
            let (stream, address, place) = match accepted {
                (Ok((stream, address)), place) => (stream, address, place),
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // One address, however a dual-stack socket spells it: mounts are bound to it.
            let peer = address.ip().to_canonical();
            let Some(counted) = peers.enter(peer) else {
                tracing::warn!(%peer, "closed: {CONNECTIONS_PER_PEER_MAX} connections from this address");
                continue;
            };
            let (server, shutdown) = (Arc::clone(self), shutdown.clone());
            connections.spawn(async move {
                let _held = (place, counted);
                server.serve_tcp(stream, peer, shutdown).await;
            });
        }
        while connections.join_next().await.is_some() {}
    }
}

async fn log_end(peer: IpAddr, connection: impl Future<Output = Result<(), connection::ConnectionError>>) {
    tracing::debug!(%peer, "connected");
    match connection.await {
        Ok(()) => tracing::debug!(%peer, "disconnected"),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::debug!(%peer, %error, cause, "connection closed");
        }
    }
}

/// Connections of each address.
#[derive(Default)]
struct Peers {
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection that counts.
struct Counted {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Peers {
    /// Counts a connection, if there is room.
    fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Counted> {
        let mut counts = self.counts.lock();
        let count = counts.entry(peer).or_insert(0);
        if *count == CONNECTIONS_PER_PEER_MAX {
            return None;
        }
        *count += 1;
        Some(Counted { peers: Arc::clone(self), peer })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.peers.counts.lock();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an address gets its connections and no more, and gets them back.
    #[test]
    fn connections_per_peer() {
        let peers = Arc::new(Peers::default());
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        let mut held: Vec<_> = (0..CONNECTIONS_PER_PEER_MAX).map(|_| peers.enter(peer).unwrap()).collect();
        assert!(peers.enter(peer).is_none());
        assert!(peers.enter("192.0.2.2".parse().unwrap()).is_some());
        held.pop();
        assert!(peers.enter(peer).is_some());
        drop(held);
        assert!(peers.counts.lock().is_empty());
    }
}
