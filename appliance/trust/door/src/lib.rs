//! The Door: the only public face of trust and store, and the only point of authorisation (DESIGN §1, §4).
//!
//! Every act goes the same way: permit → intent record → act → outcome record. Gateways call it with what a client sent
//! and who it proved to be; they get answers, never the store.
//!
//! Read in this order:
//! - [`Door`] (here): opening, and what a start finishes that a crash left.
//! - [`caller`]: who calls a control verb, and whether it may call it at all.
//! - `verb`: the control verbs, one file a noun, as in [`nas_types::verb`].
//! - `merge`: the one way main changes. `card`: what a person is shown before.
//! - [`file`]: the file verbs of a mount. `mount`: making and finding mounts; `ticket`: what a mount costs.
//! - `lease`: the hot part of leases; `authority`: leases between ledger and memory.
//! - `once`: calls that are made again under the same idempotency key.
//! - `standing`: a person's own edits, merged by themselves.
//! - `upkeep`: what happens with time. `recorder`: refusals and commits on their way to the ledger.
//! - `clock`, `passphrase`: the two things that are read from outside.
//!
//! Not here: deciding without I/O (`nas-trust-core`), rules (`nas-policy`), keeping (`nas-ledger`), bytes (`nas-store`).

mod authority;
pub mod caller;
mod card;
mod clock;
mod error;
pub mod file;
mod inner;
mod lease;
mod merge;
mod mount;
mod once;
mod passphrase;
mod recorder;
mod standing;
mod ticket;
mod upkeep;
mod verb;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::thread::JoinHandle;

use nas_ledger::{Anchor, GenerationRow, Ledger, LedgerError, NewRecord, TokenKind, TokenRow};
use nas_policy::{BuiltIn, Decision};
use nas_store::{Pointer, Store, StoreError};
use nas_trust_core::clock::{Snapshot, Trust};
use nas_trust_core::degradation::Degradation;
use nas_trust_core::gate::GATE_TTL_MS;
use nas_trust_core::refusals::Refusals;
use nas_types::fs::FsError;
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use parking_lot::{Mutex, RwLock};

pub use caller::{Caller, DoorVerb};
pub use clock::{Clocks, SystemClocks};
pub use error::DoorError;
pub use file::Mounted;
pub use once::{Answered, KEY_BYTES_MAX, Once, changes};
pub use passphrase::{PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN};

use inner::Inner;

/// Tickets whose mount is remembered for UMNT.
const TICKETS_REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("because 1024 is not 0");

/// How the Door behaves. The defaults are those of the appliance.
#[derive(Debug, Clone)]
pub struct DoorOptions {
    /// Where NFS listens: told to those who ask for a ticket.
    pub nfs: SocketAddr,
    /// The file with the one-time bootstrap token; removed once it is used.
    pub bootstrap_file: PathBuf,
    /// How long reads go on after a lease is over (SPEC MOUNT-5).
    pub read_grace_ms: i64,
    /// Life of a branch (SPEC BRANCH-6).
    pub branch_ttl_ms: i64,
    /// Quota of a branch when none is asked for, in bytes.
    pub branch_quota_bytes: u64,
    /// Files and directories that a branch may change.
    pub branch_files_max: u64,
    /// How long a deletion from main is listed in the trash (SPEC BRANCH-4).
    pub trash_ms: i64,
    /// Live branches of the box.
    pub branches_max: usize,
    /// Life of a gate without an answer (SPEC GATE-3).
    pub gate_ttl_ms: i64,
    /// How long nobody writes to a standing branch before it is merged (DESIGN §3).
    pub standing_quiet: std::time::Duration,
}

impl DoorOptions {
    /// The defaults, for a box that listens at `nfs`.
    #[must_use]
    pub fn new(nfs: SocketAddr, bootstrap_file: PathBuf) -> Self {
        Self {
            nfs,
            bootstrap_file,
            read_grace_ms: 60_000,
            branch_ttl_ms: 7 * 24 * 3_600_000,
            branch_quota_bytes: 20 << 30,
            branch_files_max: 2_000_000,
            trash_ms: 7 * 24 * 3_600_000,
            branches_max: 1000,
            gate_ttl_ms: GATE_TTL_MS,
            standing_quiet: std::time::Duration::from_secs(60),
        }
    }
}

/// The Door. Shared by reference among gateways; closing it (drop) persists what is only in memory.
pub struct Door {
    pub(crate) inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    stop: crossbeam_channel::Sender<()>,
}

/// Where main stands according to the ledger, for opening the store.
pub fn pointer(ledger: &Ledger) -> Result<Option<Pointer>, LedgerError> {
    let current = ledger.read(|reader| reader.generation())?;
    Ok(current.map(|row| Pointer { number: row.number, commit: row.commit_oid }))
}

impl Door {
    /// Opens the Door on a ledger and the store that was opened with its [`pointer`]. Finishes what a crash left: intents
    /// without outcome become `aborted`, branches whose recycling was begun go.
    pub fn open(ledger: Ledger, anchor: Anchor, store: Store, options: DoorOptions) -> Result<Self, DoorError> {
        Self::open_with_clocks(ledger, anchor, store, options, Arc::new(SystemClocks::open()?))
    }

    /// Like [`open`](Self::open), on other clocks than the kernel's.
    pub fn open_with_clocks(
        ledger: Ledger,
        anchor: Anchor,
        store: Store,
        options: DoorOptions,
        clocks: Arc<dyn Clocks>,
    ) -> Result<Self, DoorError> {
        let facts = first_facts(&ledger, &store, &*clocks)?;
        let (refusal_queue, refusals) = crossbeam_channel::bounded(inner::REFUSALS_QUEUED_MAX);
        let mut instance = [0; 8];
        random(&mut instance);
        let inner = Arc::new(Inner {
            store,
            ledger,
            anchor: Mutex::new(anchor),
            policy: Box::new(BuiltIn),
            options,
            clock_trust: Mutex::new(Trust::resume(facts.last_time, facts.trust.as_ref(), clocks.boot_id())),
            clocks,
            clock_trusted: AtomicBool::new(false),
            degradation: Mutex::new(Degradation::default()),
            level: AtomicU8::new(0),
            leases: RwLock::default(),
            lease_tokens: RwLock::default(),
            runs: RwLock::default(),
            mounts: RwLock::default(),
            tickets: Mutex::default(),
            mounts_by_ticket: Mutex::new(lru::LruCache::new(TICKETS_REMEMBERED_MAX)),
            passphrase: Mutex::default(),
            login: Mutex::default(),
            refusals: Mutex::new(Refusals::default()),
            refusal_queue,
            once: Mutex::default(),
            merging: Mutex::new(()),
            mounting_commit: Mutex::new(()),
            standing: Mutex::default(),
            trees: Mutex::new(()),
            handle_key: facts.handle_key,
            closing: AtomicBool::new(false),
            instance: u64::from_be_bytes(instance),
        });
        inner.look_at_clock();
        inner.look_at_ledger();
        inner.restore_authority().map_err(DoorError::Ledger)?;
        inner.restore_standing().map_err(DoorError::Ledger)?;
        inner.finish_intents().map_err(DoorError::Ledger)?;
        inner.store.set_commit_sink(Arc::new(recorder::Commits::new(&inner)));
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let threads = vec![
            recorder::start(&inner, refusals)?,
            standing::start(&inner, stopped.clone())?,
            upkeep::start(&inner, stopped)?,
        ];
        let door = Self { inner, threads, stop };
        door.finish_recycling()?;
        door.inner.settle_trees()?;
        door.inner.drop_views()?;
        Ok(door)
    }

    /// Writes the one-time bootstrap token when there is no owner yet. The file is readable by its owner alone.
    pub fn offer_bootstrap(&self) -> Result<Option<PathBuf>, DoorError> {
        let path = &self.inner.options.bootstrap_file;
        let owner = self.inner.ledger.read(|reader| reader.get::<nas_ledger::PrincipalRow>(&verb::OWNER.to_owned()));
        if owner.map_err(DoorError::Ledger)?.is_some_and(|owner| owner.passphrase_hash.is_some()) {
            return Ok(None);
        }
        if path.exists() {
            return Ok(Some(path.clone()));
        }
        let token = Secret::random("nas_bootstrap_");
        let now = self.inner.clocks.wall();
        let row = TokenRow {
            token_hash: *blake3::hash(token.reveal().as_bytes()).as_bytes(),
            kind: TokenKind::Bootstrap,
            principal: verb::OWNER.to_owned(),
            created_at: now,
            expires_at: None,
            revoked_at: None,
        };
        let owner = nas_ledger::PrincipalRow {
            id: verb::OWNER.to_owned(),
            kind: nas_ledger::PrincipalKind::Human,
            created_at: now,
            passphrase_hash: None,
            disabled_at: None,
        };
        let written = self.inner.ledger.write(|tx| {
            tx.put(&owner)?;
            tx.insert(&row)?;
            tx.append(&NewRecord::event("owner.bootstrap", now))
        });
        written.map_err(DoorError::Ledger)?;
        write_secret(path, &token)
            .map_err(|source| DoorError::Store { doing: "writing the bootstrap token", source: source.into() })?;
        Ok(Some(path.clone()))
    }

    pub(crate) fn forget_bootstrap_file(&self) {
        if let Err(error) = std::fs::remove_file(&self.inner.options.bootstrap_file) {
            tracing::warn!(%error, "the used bootstrap token could not be removed; it works no more");
        }
    }

    /// Runs a control verb.
    pub fn call<V: DoorVerb>(&self, caller: &Caller, verb: V) -> Result<V::Answer, DoorError> {
        self.admit::<V>(caller)?;
        verb.run(self, caller)
    }

    /// Key of the MAC over handles: random, made once, kept in the ledger, never logged.
    #[must_use]
    pub fn handle_key(&self) -> &[u8; 32] {
        &self.inner.handle_key
    }

    /// Tells the recorder of a call that no lease could be found for (SPEC L1.1): forged handle, foreign peer, bad ticket.
    pub fn refuse_unauthenticated(&self, interface: &'static str, rule: &'static str, peer: IpAddr) {
        self.inner.refused_unauthenticated(interface, rule, &peer.to_string());
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        for mount in self.inner.mounts.write().drain() {
            mount.1.end();
        }
        // Both threads end when their channels close; what they still hold is written first.
        self.inner.closing.store(true, std::sync::atomic::Ordering::Release);
        let (never, _) = crossbeam_channel::bounded(0);
        drop(std::mem::replace(&mut self.stop, never));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the Door had panicked");
            }
        }
        if let Err(error) = self.inner.persist_time_and_reads() {
            tracing::error!(%error, "lease times and reads could not be persisted");
        }
        self.inner.push_anchor();
    }
}

/// What the ledger knows before anything else.
struct FirstFacts {
    /// When the last record was written.
    last_time: Timestamp,
    /// What was known about the clock when it was last persisted.
    trust: Option<Snapshot>,
    handle_key: [u8; 32],
}

/// What the ledger must hold before anything else: the first generation, and the key of handles.
fn first_facts(ledger: &Ledger, store: &Store, clocks: &dyn Clocks) -> Result<FirstFacts, DoorError> {
    let main = store.main().pointer();
    let now = clocks.wall();
    ledger
        .write_essential(|tx| {
            if tx.generation()?.is_none() {
                let row =
                    GenerationRow { number: main.number, commit_oid: main.commit, made_at: now, retired_at: None };
                tx.advance_generation(None, &row)?;
                tx.append(&NewRecord {
                    commit: Some(main.commit),
                    principal: Some("svc:store".to_owned()),
                    ..NewRecord::event("tree.create", now)
                })?;
            }
            let key = match tx.kv("handle-key")?.and_then(|key| <[u8; 32]>::try_from(key).ok()) {
                Some(key) => key,
                None => {
                    let mut key = [0; 32];
                    random(&mut key);
                    tx.put_kv("handle-key", &key)?;
                    key
                }
            };
            let trust = tx.kv(clock::TRUST_KEY)?.and_then(|json| serde_json::from_slice(&json).ok());
            Ok::<_, LedgerError>(FirstFacts { last_time: tx.last_time()?.unwrap_or(now), trust, handle_key: key })
        })
        .map_err(DoorError::Ledger)
}

fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("because the kernel's random source is always there once booted");
}

/// Written under another name and renamed, so that nobody finds half a token.
fn write_secret(path: &std::path::Path, secret: &Secret) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let part = path.with_extension("part");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    writeln!(file, "{}", secret.reveal())?;
    file.sync_all()?;
    std::fs::rename(&part, path)
}

fn denied(decision: &Decision) -> DoorError {
    DoorError::Denied { rule: decision.rule.as_str().to_owned().into(), reason: decision.reason.to_string() }
}

/// A failure of the store as a person can use it.
fn store_error(doing: &'static str, error: StoreError) -> DoorError {
    match error {
        StoreError::NoSpace | StoreError::Files { source: FsError::NoSpace, .. } => DoorError::NoSpace,
        StoreError::Files { source: FsError::Quota, .. } => DoorError::Quota,
        StoreError::Busy(path) => {
            tracing::info!(%path, doing, "busy");
            DoorError::Busy { retry_after_seconds: 1 }
        }
        error if error.is_no_space() => DoorError::NoSpace,
        error => {
            tracing::error!(error = &error as &dyn std::error::Error, doing, "the store failed");
            DoorError::Store { doing, source: Box::new(error) }
        }
    }
}
