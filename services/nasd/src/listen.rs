//! Listening sockets: handed over by systemd (named `http` and `nfs`), or bound here.

use std::net::SocketAddr;
use std::os::fd::{FromRawFd as _, OwnedFd};

use anyhow::{Context, Result};
use tokio::net::TcpListener;

/// The two sockets.
pub(crate) struct Listeners {
    pub(crate) http: TcpListener,
    pub(crate) nfs: TcpListener,
}

/// Takes the sockets that systemd passed, and binds those it did not. Must run inside the runtime.
pub(crate) async fn listeners(http: SocketAddr, nfs: SocketAddr) -> Result<Listeners> {
    let (mut passed_http, mut passed_nfs) = (None, None);
    for (name, socket) in passed()? {
        let slot = match name.as_str() {
            "http" => &mut passed_http,
            "nfs" => &mut passed_nfs,
            other => anyhow::bail!("systemd passed a socket named '{other}'; nasd knows 'http' and 'nfs'"),
        };
        let socket = std::net::TcpListener::from(socket);
        socket.set_nonblocking(true).context("making a passed socket non-blocking")?;
        *slot = Some(TcpListener::from_std(socket).context("using a passed socket")?);
    }
    Ok(Listeners { http: bound(passed_http, http, "HTTP").await?, nfs: bound(passed_nfs, nfs, "NFS").await? })
}

async fn bound(passed: Option<TcpListener>, addr: SocketAddr, what: &str) -> Result<TcpListener> {
    match passed {
        Some(listener) => Ok(listener),
        None => TcpListener::bind(addr)
            .await
            .with_context(|| format!("listening for {what} on {addr}: is another nasd running, or is the port taken?")),
    }
}

/// Descriptors of systemd's protocol with their names (sd_listen_fds_with_names(3)).
fn passed() -> Result<Vec<(String, OwnedFd)>> {
    let passed = sd_notify::listen_fds_with_names().context("reading the sockets that systemd passed")?;
    Ok(passed.map(|(fd, name)| (name, own(fd))).collect())
}

#[allow(unsafe_code, reason = "systemd hands descriptors over by number")]
fn own(fd: i32) -> OwnedFd {
    // SAFETY: the protocol gives each of these descriptors to this process, once, and nothing else here opened them.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
