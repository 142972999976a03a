//! `nasd`, the daemon: one process that serves NFS and HTTP from one store, with no capability (DESIGN §2).
//!
//! This is the composition root and nothing else: [`args`] says what can be set, [`privileges`] drops what root would
//! have, [`listen`] takes or binds the sockets, and [`run`] here puts ledger, store, Door and gateways together.

mod args;
mod listen;
mod privileges;

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser as _;
use nas_door::Door;
use nas_ledger::{Anchor, Ledger};
use nas_store::Store;
use nas_store::embed::Pool;
use rustix::fs::FlockOperation;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use args::Args;
use listen::Listeners;

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("NAS_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nasd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&args.data)
        .with_context(|| format!("making the data folder {}", args.data.display()))?;
    let _lock = lock(&args.data)?;
    let listeners = listen::listeners(args.http, args.nfs)?;
    // The one thing that needs root, and only for an embedded store on a developer's machine.
    let pool = Pool::open(&args.data, args.pool_options()).context("opening the pool")?;
    // Nothing starts a thread before this.
    privileges::drop_all().context("giving up privileges")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(64)
        .build()
        .context("starting the runtime")?;
    runtime.block_on(serve(args, &pool.path, listeners))
}

/// One daemon for one data folder.
fn lock(data: &Path) -> Result<File> {
    let path = data.join("nasd.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => bail!("another nasd serves {}: stop it first", data.display()),
        Err(errno) => Err(errno).with_context(|| format!("locking {}", path.display())),
    }
}

async fn serve(args: &Args, pool: &Path, listeners: Listeners) -> Result<()> {
    // Before anyone can know that it runs: from here on a signal means a clean stop.
    let signals = Signals::new()?;
    let (http, nfs) = (listeners.http.local_addr()?, listeners.nfs.local_addr()?);
    let web = TcpListener::from_std(listeners.http).context("using the HTTP socket")?;
    let files = TcpListener::from_std(listeners.nfs).context("using the NFS socket")?;
    let door = {
        let (args, pool) = (args.clone(), pool.to_owned());
        tokio::task::spawn_blocking(move || open_door(&args, &pool, nfs)).await.context("opening the store")??
    };
    if let Some(path) = door.offer_bootstrap()? {
        tracing::info!(file = %path.display(), "no owner yet: run 'nas owner init --bootstrap-file' with this file");
    }
    let (stop, stopped) = watch::channel(false);
    let mut until = stopped.clone();
    let web = nas_http::serve(web, Arc::clone(&door), args.http_options(), async move {
        // An error means that the sender is gone: then it is over as well.
        let _ = until.wait_for(|stop| *stop).await;
    });
    let files = nas_nfs::NfsServer::serve(files, Arc::clone(&door), nas_nfs::Options::default(), stopped);
    let (web, files) = (tokio::spawn(web), tokio::spawn(files));
    println!("nasd ready http={http} nfs={nfs}");
    sd_notify::notify(&[sd_notify::NotifyState::Ready]).context("telling systemd that it is ready")?;
    signals.stop().await;
    tracing::info!("stopping");
    stop.send_replace(true);
    web.await.context("the HTTP gateway")?.context("the HTTP gateway")?;
    files.await.context("the NFS gateway")?.context("the NFS gateway")?;
    // The last reference: what is only in memory is written.
    tokio::task::spawn_blocking(move || drop(door)).await.context("closing the store")
}

fn open_door(args: &Args, pool: &Path, nfs: std::net::SocketAddr) -> Result<Arc<Door>> {
    let ledger = Ledger::open(&args.data.join("ledger.db"), args.ledger_options()).context("opening the ledger")?;
    let anchor = Anchor::open(&args.data.join("anchor.log")).context("opening the anchor")?;
    let pointer = nas_door::pointer(&ledger).context("reading where main stands")?;
    let store = Store::open(pool, pointer, args.store_options()).context("opening the store")?;
    tracing::info!(engine = store.engine_name(), "store");
    Ok(Arc::new(Door::open(ledger, anchor, store, args.door_options(nfs)).context("opening the Door")?))
}

/// The signals that ask for a stop.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let term = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
        let int = signal(SignalKind::interrupt()).context("waiting for SIGINT")?;
        Ok(Self { term, int })
    }

    async fn stop(mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
