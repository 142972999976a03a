//! Listening sockets: handed over by systemd (named `http` and `nfs`), or bound here.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd as _, OwnedFd};

use anyhow::{Context, Result};

/// The two sockets.
pub(crate) struct Listeners {
    pub(crate) http: TcpListener,
    pub(crate) nfs: TcpListener,
}

/// Takes the sockets that systemd passed, and binds those it did not. Comes before anything is made on disk, so that a
/// taken port leaves nothing behind; needs no runtime, since the pool has to be opened before there are threads.
pub(crate) fn listeners(http: SocketAddr, nfs: SocketAddr) -> Result<Listeners> {
    let (mut passed_http, mut passed_nfs) = (None, None);
    for (name, socket) in passed()? {
        let slot = match name.as_str() {
            "http" => &mut passed_http,
            "nfs" => &mut passed_nfs,
            other => anyhow::bail!("systemd passed a socket named '{other}'; nasd knows 'http' and 'nfs'"),
        };
        *slot = Some(TcpListener::from(socket));
    }
    Ok(Listeners { http: bound(passed_http, http, "HTTP")?, nfs: bound(passed_nfs, nfs, "NFS")? })
}

fn bound(passed: Option<TcpListener>, addr: SocketAddr, what: &str) -> Result<TcpListener> {
    let listener = match passed {
        Some(listener) => listener,
        None => TcpListener::bind(addr).with_context(|| {
            format!("listening for {what} on {addr}: is another nasd running, or is the port taken?")
        })?,
    };
    listener.set_nonblocking(true).with_context(|| format!("making the {what} socket non-blocking"))?;
    Ok(listener)
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
