//! Opening the ledger, and the group commit.
//!
//! One connection behind one fair lock. A writer runs its closure in a savepoint of the open transaction, then steps back once, so that whoever
//! waits can join the same transaction; the first to return commits for all: one fsync. Nobody is told of success before that. A closure's error
//! undoes only its own savepoint; a failed commit fails everyone in it. (Closures run on their caller's thread, so they may borrow.)

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nas_types::failpoint;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OpenFlags};

use crate::ballast::{BALLAST_BYTES_DEFAULT, Ballast};
use crate::schema::{self, Found};
use crate::tx::{ChainEnd, Reader, Tx};
use crate::{Head, LedgerError};

/// Most callers that wait at once; more are told to come back.
pub(crate) const WAITERS_MAX: usize = 1024;
/// Most closures in one transaction.
pub(crate) const BATCH_CLOSURES_MAX: usize = 128;
/// Prepared statements kept.
const STATEMENTS_MAX: usize = 128;

/// How to open a ledger.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes set aside for a full disk; 0 for none.
    pub ballast_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { ballast_bytes: BALLAST_BYTES_DEFAULT }
    }
}

/// What the group commit did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions committed: each one fsync.
    pub commits: u64,
    /// Closures they held.
    pub closures: u64,
}

/// The ledger. Shared by reference among threads.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    inner: Mutex<Inner>,
    callers: AtomicUsize,
    ballast: Ballast,
    spent_ballast: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    conn: Connection,
    end: ChainEnd,
    batch: Option<OpenBatch>,
    stats: Stats,
}

/// A transaction that is open for more closures.
#[derive(Debug)]
struct OpenBatch {
    shared: Arc<Batch>,
    end_before: ChainEnd,
    closures: usize,
}

/// What those who wait for a transaction look at.
#[derive(Debug, Default)]
struct Batch {
    result: OnceLock<Result<(), Lost>>,
}

/// Why a transaction was lost, for each of those who were in it.
#[derive(Debug, Clone)]
enum Lost {
    Full,
    NotWritten(String),
}

impl Lost {
    fn why(error: &rusqlite::Error) -> Self {
        match LedgerError::shared(error) {
            LedgerError::Full => Self::Full,
            other => Self::NotWritten(other.to_string()),
        }
    }
}

impl From<Lost> for LedgerError {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Full => Self::Full,
            Lost::NotWritten(why) => Self::NotWritten { why },
        }
    }
}

thread_local! {
    /// This thread is inside a closure of some ledger.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A place among the callers; given back when dropped.
struct Caller<'l>(&'l Ledger);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Less free space than this on the ledger's disk is none: a day of records fits.
const ROOM_BYTES_MIN: u64 = 1 << 20;

impl Ledger {
    /// Opens or creates the ledger at `path`; its ballast lies beside it. On a full disk the ballast is given up to open it.
    pub fn open(path: &Path, options: Options) -> Result<Self, LedgerError> {
        let mut ballast_path = path.as_os_str().to_owned();
        ballast_path.push(".ballast");
        let ballast = Ballast::new(ballast_path.into(), options.ballast_bytes);
        let (opened, spent) = match Inner::open(path) {
            Err(error) if error.may_be_full() && ballast.release()? => (Inner::open(path), true),
            opened => (opened, false),
        };
        let inner = opened?;
        // Not while the space is still needed for what made us give it up.
        let held = !spent && ballast.hold()?;
        Ok(Self {
            path: path.to_owned(),
            inner: Mutex::new(inner),
            callers: AtomicUsize::new(0),
            ballast,
            spent_ballast: AtomicBool::new(!held),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `f` in a transaction and returns when it is durable. An error of `f` undoes what `f` did; [`LedgerError::Full`] and
    /// [`LedgerError::NotWritten`] mean that nothing was kept. Must not be called from within another closure.
    pub fn write<T, E>(&self, f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>) -> Result<T, E>
    where
        E: From<LedgerError>,
    {
        let _caller = self.enter()?;
        let mut inner = self.inner.lock();
        let batch = inner.join()?;
        let outcome = inner.run(f);
        if batch.result.get().is_none() {
            if inner.batch.as_ref().is_some_and(|open| open.closures < BATCH_CLOSURES_MAX) {
                // Those who wait now are served first and join this transaction.
                MutexGuard::unlock_fair(inner);
                inner = self.inner.lock();
            }
            if batch.result.get().is_none() {
                inner.commit();
            }
        }
        drop(inner);
        match batch.result.get() {
            Some(Ok(())) => outcome.unwrap_or_else(|panic| Err(panicked(&*panic).into())),
            Some(Err(lost)) => Err(LedgerError::from(lost.clone()).into()),
            None => Err(LedgerError::NotWritten { why: "the transaction was not finished".to_owned() }.into()),
        }
    }

    /// Like [`write`](Self::write), for what must be possible on a full disk: denying, revoking, recovery. When there is no space the ballast is
    /// given up and `f` runs once more. [`restore_ballast`](Self::restore_ballast) sets the space aside again.
    pub fn write_essential<T, E>(&self, mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E>) -> Result<T, E>
    where
        E: From<LedgerError>,
    {
        let first = self.write(|tx| f(tx).map_err(Tried::Caller));
        match first {
            Ok(done) => Ok(done),
            Err(Tried::Caller(error)) => Err(error),
            Err(Tried::Ledger(error)) if !matches!(error, LedgerError::Full | LedgerError::NotWritten { .. }) => {
                Err(error.into())
            }
            Err(_) => {
                self.release_ballast()?;
                self.write(f)
            }
        }
    }

    /// Runs `f` on what is durable. Must not be called from within another closure.
    pub fn read<T, E>(&self, f: impl FnOnce(&Reader<'_>) -> Result<T, E>) -> Result<T, E>
    where
        E: From<LedgerError>,
    {
        let _caller = self.enter()?;
        let mut inner = self.inner.lock();
        // What is not committed yet may still be lost: finish it first.
        inner.commit();
        let outcome = guarded(|| f(&Reader { conn: &inner.conn }));
        outcome.unwrap_or_else(|panic| Err(panicked(&*panic).into()))
    }

    /// Number and hash of the newest durable record.
    pub fn head(&self) -> Result<Head, LedgerError> {
        self.read(|r| r.head())
    }

    /// Recomputes the whole chain from the stored bytes and compares it with `anchor`, letting others in between pages.
    pub fn verify(&self, anchor: Option<Head>) -> Result<crate::Report, LedgerError> {
        let mut check = crate::verify::Check::new(anchor);
        while self.read(|r| check.page(r.conn))? {}
        Ok(check.finish())
    }

    /// Gives the ballast up. Returns whether there was any.
    pub fn release_ballast(&self) -> Result<bool, LedgerError> {
        self.spent_ballast.store(true, Ordering::Relaxed);
        self.ballast.release()
    }

    /// Sets the space aside again. `Ok(false)`: there is no space for it now.
    pub fn restore_ballast(&self) -> Result<bool, LedgerError> {
        let held = self.ballast.hold()?;
        self.spent_ballast.store(!held, Ordering::Relaxed);
        Ok(held)
    }

    /// Is the ballast in place? If not, the box should say so and run degraded.
    #[must_use]
    pub fn has_ballast(&self) -> bool {
        !self.spent_ballast.load(Ordering::Relaxed)
    }

    /// Is there room on its disk for ordinary records, the ballast left alone? If not, the box should say so before a write fails.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A disk that cannot be asked is not said to be full: the next write tells.
        rustix::fs::statvfs(dir).map_or(true, |fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM_BYTES_MIN)
    }

    /// What the group commit did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.lock().stats
    }

    /// Callers that are inside or wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.callers.load(Ordering::Relaxed)
    }

    fn enter(&self) -> Result<Caller<'_>, LedgerError> {
        if INSIDE.get() {
            return Err(LedgerError::Nested);
        }
        let caller = Caller(self);
        if self.callers.fetch_add(1, Ordering::Relaxed) >= WAITERS_MAX {
            return Err(LedgerError::Busy);
        }
        Ok(caller)
    }
}

/// Tells the caller's own error from the ledger's.
enum Tried<E> {
    Caller(E),
    Ledger(LedgerError),
}

impl<E> From<LedgerError> for Tried<E> {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

type Panic = Box<dyn Any + Send>;

/// Runs `f` marked as inside, catching a panic.
fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
    INSIDE.set(true);
    // The closure's own data is the caller's, who gets an error; the connection is put right by the savepoint.
    let outcome = catch_unwind(AssertUnwindSafe(f));
    INSIDE.set(false);
    outcome
}

fn panicked(panic: &(dyn Any + Send)) -> LedgerError {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let message = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned());
    LedgerError::Panicked { message }
}

/// Creates the file readable by its owner only (it holds hashes of tokens and the passphrase; SQLite gives its WAL the same mode), and makes
/// its name durable.
fn create_private(path: &Path) -> Result<(), LedgerError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let fail = |source| LedgerError::File { doing: "creating", path: path.to_owned(), source };
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Err(LedgerError::Full),
        Err(error) => Err(fail(error)),
    }
}

impl Inner {
    fn open(path: &Path) -> Result<Self, LedgerError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let in_use = |error: LedgerError| match &error {
            LedgerError::Sql { source, .. } => match source.sqlite_error_code() {
                Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                    LedgerError::InUse { path: path.to_owned() }
                }
                Some(rusqlite::ErrorCode::NotADatabase) => LedgerError::NotALedger { path: path.to_owned() },
                _ => error,
            },
            _ => error,
        };
        Self::open_file(path, flags).map_err(in_use)
    }

    fn open_file(path: &Path, flags: OpenFlags) -> Result<Self, LedgerError> {
        let sql = LedgerError::sql;
        create_private(path)?;
        let conn = Connection::open_with_flags(path, flags).map_err(sql("opening"))?;
        conn.busy_timeout(std::time::Duration::ZERO).map_err(sql("opening"))?;
        // EXCLUSIVE before the first access: then WAL needs no shared-memory file, whose page faults kill a process on a full disk
        // (FINDINGS §1). Nothing is read through mmap for the same reason, and temporary data stays in memory.
        conn.execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; \
             PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON;",
        )
        .map_err(sql("setting up"))?;
        let found = schema::inspect(&conn, &schema::CURRENT)?;
        if found == Found::Foreign {
            return Err(LedgerError::NotALedger { path: path.to_owned() });
        }
        let mode: String =
            conn.query_row("PRAGMA journal_mode = WAL", [], |r| r.get(0)).map_err(sql("switching to WAL"))?;
        if mode != "wal" {
            return Err(LedgerError::NotWritten {
                why: format!("this file system cannot hold a WAL (mode is {mode})"),
            });
        }
        conn.execute_batch("PRAGMA synchronous = FULL;").map_err(sql("setting up"))?;
        schema::prepare(&conn, &found, &schema::CURRENT, path)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        let end = ChainEnd::load(&conn)?;
        Ok(Self { conn, end, batch: None, stats: Stats::default() })
    }

    /// Joins the open transaction, or begins one.
    fn join(&mut self) -> Result<Arc<Batch>, LedgerError> {
        if let Some(open) = &mut self.batch {
            open.closures += 1;
            return Ok(Arc::clone(&open.shared));
        }
        if !self.conn.is_autocommit() {
            // A rollback failed earlier; nothing can be written before it is made up for.
            self.conn.execute_batch("ROLLBACK").map_err(LedgerError::sql("undoing a lost transaction"))?;
        }
        self.conn.execute_batch("BEGIN IMMEDIATE").map_err(LedgerError::sql("beginning"))?;
        let shared = Arc::new(Batch::default());
        self.batch = Some(OpenBatch { shared: Arc::clone(&shared), end_before: self.end, closures: 1 });
        Ok(shared)
    }

    /// Runs `f` in a savepoint of the open transaction.
    fn run<T, E>(&mut self, f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>) -> Result<Result<T, E>, Panic>
    where
        E: From<LedgerError>,
    {
        let end_before = self.end;
        if let Err(error) = self.conn.execute_batch("SAVEPOINT closure") {
            self.lose(&error);
            return Ok(Err(LedgerError::shared(&error).into()));
        }
        let mut tx = Tx::new(&self.conn, self.end);
        let outcome = guarded(|| f(&mut tx));
        let (end, lost) = tx.into_end();
        // On a full disk SQLite may have undone the whole transaction: then everyone in it has lost.
        if self.conn.is_autocommit() || lost.is_some() {
            self.lose(lost.as_ref().unwrap_or(&rusqlite::Error::InvalidQuery));
            return outcome;
        }
        let kept = matches!(outcome, Ok(Ok(_)));
        let finish = if kept { "RELEASE closure" } else { "ROLLBACK TO closure; RELEASE closure" };
        self.end = if kept { end } else { end_before };
        if let Err(error) = self.conn.execute_batch(finish) {
            self.lose(&error);
        }
        outcome
    }

    /// Commits the open transaction, if there is one, and tells everyone in it.
    fn commit(&mut self) {
        let Some(open) = &self.batch else { return };
        let closures = open.closures as u64;
        failpoint::hit("ledger.commit.before");
        match self.conn.execute_batch("COMMIT") {
            Ok(()) => {
                failpoint::hit("ledger.commit.after");
                self.stats.commits += 1;
                self.stats.closures += closures;
                self.settle(Ok(()));
            }
            Err(error) => {
                self.lose(&error);
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure) {
                    // The transaction may lie whole in the WAL though its sync failed, and would come back after a crash. Emptying the WAL takes
                    // it away; where the device fails at that too, only the next start shows what it kept.
                    let _ = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
                }
            }
        }
    }

    /// Undoes the open transaction and tells everyone in it.
    fn lose(&mut self, error: &rusqlite::Error) {
        if !self.conn.is_autocommit() {
            // A failing rollback leaves the transaction open; whoever comes next tries again.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        if let Some(open) = &self.batch {
            self.end = open.end_before;
        }
        self.settle(Err(Lost::why(error)));
    }

    fn settle(&mut self, result: Result<(), Lost>) {
        if let Some(open) = self.batch.take() {
            // Set once: only whoever holds the lock takes the batch.
            let _ = open.shared.result.set(result);
        }
    }
}
