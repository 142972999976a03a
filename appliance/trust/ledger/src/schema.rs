//! Tables, triggers, and how formats change.
//!
//! Formats change by expand and contract (DESIGN §4): an upgrade only adds (tables, nullable columns, indexes), and `needs` in the database
//! says which program format is the oldest that can still open it. So version N−1 opens what N wrote, and an update can be rolled back.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::LedgerError;

/// What a program knows of formats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Formats {
    /// The format it writes.
    pub(crate) format: i64,
    /// The oldest program format that can open what it writes.
    pub(crate) needs: i64,
    /// Upgrades by one format each: `upgrades[n]` leads from format n+1 to n+2. They only add.
    pub(crate) upgrades: &'static [&'static str],
}

/// This program.
pub(crate) const CURRENT: Formats = Formats { format: 5, needs: 1, upgrades: &[TREES, ANSWERS, LISTINGS, COMMITS] };

/// Format 2: unprotected trees.
const TREES: &str = "
CREATE TABLE trees (name TEXT PRIMARY KEY, created_at INTEGER NOT NULL, removed_at INTEGER) STRICT;
ALTER TABLE runs ADD COLUMN tree TEXT;";

/// Format 3: answers kept for idempotency keys.
const ANSWERS: &str = "
CREATE TABLE kept_answers (
    id BLOB PRIMARY KEY CHECK (length(id) = 32), holder BLOB NOT NULL, request BLOB NOT NULL, made_at INTEGER NOT NULL,
    state TEXT NOT NULL, answer TEXT
) STRICT;
CREATE INDEX kept_answers_by_holder ON kept_answers (holder);
CREATE INDEX kept_answers_by_age ON kept_answers (made_at);";

/// Format 4: indexes for listings by pages. The keys are in them: they end the order.
const LISTINGS: &str = "
CREATE INDEX runs_by_start ON runs (started_at, id);
CREATE INDEX runs_by_role ON runs (role, started_at, id);
CREATE INDEX leases_by_age ON leases (created_at, id);
CREATE INDEX leases_usable_by_age ON leases (created_at, id) WHERE state = 'active' AND remaining_ms > 0;
CREATE INDEX gates_by_age ON gates (created_at, id);
CREATE INDEX gates_in_state_by_age ON gates (state, created_at, id);
CREATE INDEX gates_of_run_by_age ON gates (run, created_at, id);";

/// Format 5: mounts of a commit.
const COMMITS: &str = "ALTER TABLE mounts ADD COLUMN commit_oid TEXT;";

/// Marks an SQLite file as a ledger ("NASL").
const APPLICATION_ID: i64 = 0x4E41_534C;

const CREATE: &str = r#"
CREATE TABLE format (one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL, needs INTEGER NOT NULL) STRICT;

CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    format INTEGER NOT NULL, seq INTEGER PRIMARY KEY, day INTEGER NOT NULL, time INTEGER NOT NULL, kind TEXT NOT NULL,
    phase TEXT NOT NULL, run TEXT, principal TEXT, on_behalf_of TEXT, lease TEXT, purpose TEXT, path TEXT, commit_oid TEXT,
    read_manifest BLOB, effect TEXT, rule TEXT, taint_external TEXT NOT NULL, taint_sensitivity TEXT NOT NULL, detail TEXT,
    intent INTEGER REFERENCES records (seq), prev_hash BLOB NOT NULL, hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX records_one_outcome ON records (intent) WHERE intent IS NOT NULL;
CREATE INDEX records_intents ON records (seq) WHERE phase = 'intent';
CREATE INDEX records_by_run ON records (run, seq) WHERE run IS NOT NULL;
CREATE INDEX records_by_commit ON records (commit_oid, seq) WHERE commit_oid IS NOT NULL;
CREATE INDEX records_by_kind ON records (kind, seq);
CREATE TRIGGER records_no_update BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER records_no_delete BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER records_in_order BEFORE INSERT ON records
    WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM records)
    BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;

CREATE TABLE principals (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, created_at INTEGER NOT NULL, passphrase_hash TEXT, disabled_at INTEGER
) STRICT;
CREATE TABLE tokens (
    token_hash BLOB PRIMARY KEY CHECK (length(token_hash) = 32), kind TEXT NOT NULL,
    principal TEXT NOT NULL REFERENCES principals (id), created_at INTEGER NOT NULL, expires_at INTEGER, revoked_at INTEGER
) STRICT;
CREATE TABLE runs (
    id TEXT PRIMARY KEY, role TEXT NOT NULL, principal TEXT NOT NULL REFERENCES principals (id), on_behalf_of TEXT,
    purpose TEXT, started_at INTEGER NOT NULL, ended_at INTEGER, state TEXT NOT NULL
) STRICT;
CREATE INDEX runs_by_state ON runs (state);
CREATE TABLE leases (
    id TEXT PRIMARY KEY, token_hash BLOB NOT NULL UNIQUE CHECK (length(token_hash) = 32),
    run TEXT NOT NULL REFERENCES runs (id), principal TEXT NOT NULL, on_behalf_of TEXT, parent TEXT REFERENCES leases (id),
    purpose TEXT, paths TEXT NOT NULL, actions TEXT NOT NULL, branch TEXT NOT NULL, read_only INTEGER NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, remaining_ms INTEGER NOT NULL, boot_id TEXT NOT NULL,
    boottime_ms INTEGER NOT NULL, state TEXT NOT NULL, revoked_at INTEGER
) STRICT;
CREATE INDEX leases_by_run ON leases (run);
CREATE INDEX leases_by_parent ON leases (parent) WHERE parent IS NOT NULL;
CREATE INDEX leases_usable ON leases (id) WHERE state = 'active' AND remaining_ms > 0;
CREATE TABLE mounts (
    id TEXT PRIMARY KEY, lease TEXT NOT NULL REFERENCES leases (id), view TEXT NOT NULL, root TEXT NOT NULL,
    peer TEXT NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, read_only INTEGER NOT NULL,
    created_at INTEGER NOT NULL, ended_at INTEGER
) STRICT;
CREATE INDEX mounts_by_lease ON mounts (lease);
CREATE INDEX mounts_live ON mounts (id) WHERE ended_at IS NULL;
CREATE TABLE gates (
    id TEXT PRIMARY KEY, run TEXT NOT NULL REFERENCES runs (id), lease TEXT NOT NULL REFERENCES leases (id),
    branch TEXT NOT NULL, target TEXT NOT NULL, base TEXT NOT NULL, pin TEXT NOT NULL, digest TEXT NOT NULL,
    changes INTEGER NOT NULL, why TEXT, card TEXT NOT NULL, state TEXT NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL, decided_at INTEGER, decided_by TEXT, reason TEXT, merge_commit TEXT,
    successor TEXT REFERENCES gates (id)
) STRICT;
CREATE INDEX gates_by_run ON gates (run);
CREATE INDEX gates_by_state ON gates (state, created_at);
CREATE INDEX gates_by_merge ON gates (merge_commit) WHERE merge_commit IS NOT NULL;
CREATE TRIGGER gates_final BEFORE UPDATE OF state ON gates
    WHEN OLD.state <> 'pending' AND NEW.state <> OLD.state
    BEGIN SELECT RAISE(ABORT, 'a decided gate never changes'); END;
CREATE TABLE generations (
    number INTEGER PRIMARY KEY, commit_oid TEXT NOT NULL, made_at INTEGER NOT NULL, retired_at INTEGER
) STRICT;
CREATE TABLE branches (
    name TEXT PRIMARY KEY, run TEXT NOT NULL REFERENCES runs (id), base TEXT NOT NULL, fork_generation INTEGER NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, quota_bytes INTEGER, state TEXT NOT NULL
) STRICT;
CREATE INDEX branches_by_state ON branches (state);

CREATE TABLE read_manifests (
    run TEXT PRIMARY KEY REFERENCES runs (id), digest BLOB NOT NULL, entries INTEGER NOT NULL, unlisted INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE TABLE read_entries (
    run TEXT NOT NULL REFERENCES runs (id), path TEXT NOT NULL, commit_oid TEXT NOT NULL, content TEXT NOT NULL,
    ranges TEXT NOT NULL, PRIMARY KEY (run, path, commit_oid, content)
) STRICT, WITHOUT ROWID;

CREATE TABLE refusal_counts (
    minute INTEGER NOT NULL, source TEXT NOT NULL, rule TEXT NOT NULL, prefix TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (minute, source, rule, prefix)
) STRICT, WITHOUT ROWID;
CREATE TABLE refusal_ring (
    slot INTEGER PRIMARY KEY, time INTEGER NOT NULL, source TEXT NOT NULL, rule TEXT NOT NULL, path TEXT
) STRICT;
"#;

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An empty database.
    Nothing,
    /// A ledger of this format that this program can open.
    Ledger(i64),
    /// Something else.
    Foreign,
}

/// Looks at a database; fails when it is a ledger of a future that excludes this program.
pub(crate) fn inspect(conn: &Connection, known: &Formats) -> Result<Found, LedgerError> {
    let sql = LedgerError::sql;
    let id: i64 = conn.query_row("PRAGMA application_id", [], |r| r.get(0)).map_err(sql("looking at the file"))?;
    let objects: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)).map_err(sql("looking at the file"))?;
    match (id, objects) {
        (0, 0) => return Ok(Found::Nothing),
        (APPLICATION_ID, 1..) => {}
        _ => return Ok(Found::Foreign),
    }
    let (format, needs): (i64, i64) = conn
        .query_row("SELECT format, needs FROM format", [], |r| Ok((r.get(0)?, r.get(1)?)))
        .map_err(sql("reading the format"))?;
    if needs > known.format {
        return Err(LedgerError::TooNew { format, needs, known: known.format });
    }
    Ok(Found::Ledger(format))
}

/// Creates the tables, or upgrades them, in one transaction. A newer format is left as it is. Before an upgrade the ledger is copied to
/// `<path>.format-<n>`, so that whatever the upgrade does can be undone by hand.
pub(crate) fn prepare(conn: &Connection, found: &Found, known: &Formats, path: &Path) -> Result<(), LedgerError> {
    let Formats { format, needs, upgrades } = *known;
    let mut steps = String::from("BEGIN IMMEDIATE;");
    match *found {
        Found::Foreign => return Err(LedgerError::NotALedger { path: path.to_owned() }),
        Found::Ledger(stored) if stored >= format => return Ok(()),
        Found::Ledger(stored) => {
            keep_copy(conn, path, stored)?;
            let done = usize::try_from(stored - 1).unwrap_or(usize::MAX);
            for upgrade in upgrades.iter().skip(done) {
                steps.push_str(upgrade);
            }
            steps.push_str(&format!("UPDATE format SET format = {format}, needs = {needs};"));
        }
        Found::Nothing => {
            steps.push_str(CREATE);
            upgrades.iter().for_each(|upgrade| steps.push_str(upgrade));
            let mark =
                format!("PRAGMA application_id = {APPLICATION_ID}; INSERT INTO format VALUES (1, {format}, {needs});");
            steps.push_str(&mark);
        }
    }
    steps.push_str("COMMIT;");
    let result = conn.execute_batch(&steps);
    if result.is_err() && !conn.is_autocommit() {
        // The error that counts is the first one.
        let _ = conn.execute_batch("ROLLBACK");
    }
    result.map_err(LedgerError::sql("creating the tables"))
}

fn keep_copy(conn: &Connection, path: &Path, stored: i64) -> Result<(), LedgerError> {
    let mut copy = path.as_os_str().to_owned();
    copy.push(format!(".format-{stored}"));
    let copy = PathBuf::from(copy);
    let fail = |source| LedgerError::File { doing: "replacing the copy", path: copy.clone(), source };
    // One left by an attempt that was interrupted may be incomplete.
    match std::fs::remove_file(&copy) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    let text = copy.to_str().ok_or_else(|| fail(std::io::ErrorKind::InvalidFilename.into()))?;
    conn.execute("VACUUM INTO ?1", [text]).map(drop).map_err(LedgerError::sql("copying the ledger before its upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Formats = Formats {
        format: CURRENT.format + 1,
        needs: 1,
        upgrades: &[
            TREES,
            ANSWERS,
            LISTINGS,
            COMMITS,
            "ALTER TABLE runs ADD COLUMN budget INTEGER; CREATE TABLE labels (path TEXT PRIMARY KEY) STRICT;",
        ],
    };
    const LATER: Formats = Formats {
        format: CURRENT.format + 2,
        needs: CURRENT.format + 2,
        upgrades: &[TREES, ANSWERS, LISTINGS, COMMITS, NEXT.upgrades[4], "DROP TABLE labels;"],
    };

    fn open(path: &Path, known: &Formats) -> Result<Connection, LedgerError> {
        let conn = Connection::open(path).map_err(LedgerError::sql("test"))?;
        let found = inspect(&conn, known)?;
        prepare(&conn, &found, known, path)?;
        Ok(conn)
    }
    fn formats(conn: &Connection) -> (i64, i64) {
        conn.query_row("SELECT format, needs FROM format", [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap()
    }

    /// Goal: an update can be rolled back. This program opens, reads and writes what the next one has expanded, and leaves its format
    /// alone; one that has been contracted beyond it is refused with words that help.
    #[test]
    fn expand_and_contract() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.db");
        drop(open(&path, &CURRENT).unwrap());
        let record = crate::NewRecord::event("e", nas_types::time::Timestamp(1));
        let append = || -> crate::Head {
            let ledger = crate::Ledger::open(&path, crate::Options { ballast_bytes: 0 }).unwrap();
            ledger.write(|tx| tx.append(&record)).unwrap()
        };
        assert_eq!(append().seq, 1);
        let conn = open(&path, &NEXT).unwrap();
        assert_eq!(formats(&conn), (NEXT.format, 1));
        conn.execute("INSERT INTO labels VALUES ('/a')", []).unwrap();
        drop(conn);
        // The copy is the ledger as it was.
        let copy = dir.path().join(format!("ledger.db.format-{}", CURRENT.format));
        assert_eq!(formats(&Connection::open(&copy).unwrap()), (CURRENT.format, 1));
        assert_eq!(crate::verify_file(&copy, None).unwrap().count, 1);

        let head = append();
        assert_eq!(head.seq, 2);
        assert!(crate::verify_file(&path, Some(head)).unwrap().is_ok());
        let conn = open(&path, &NEXT).unwrap();
        assert_eq!(formats(&conn), (NEXT.format, 1));
        assert_eq!(conn.query_row("SELECT count(*) FROM labels", [], |r| r.get::<_, i64>(0)).unwrap(), 1);
        drop(conn);

        drop(open(&path, &LATER).unwrap());
        let error = crate::Ledger::open(&path, crate::Options { ballast_bytes: 0 }).unwrap_err();
        assert!(
            matches!(error, LedgerError::TooNew { format, needs, known } if (format, needs, known) == (LATER.format, LATER.needs, CURRENT.format)),
            "{error:?}"
        );
        assert!(error.to_string().contains("newer program"));
    }

    /// Goal: a fresh ledger of the next format equals an upgraded one.
    #[test]
    fn fresh_equals_upgraded() {
        let dir = tempfile::tempdir().unwrap();
        let shape = |conn: &Connection| -> Vec<String> {
            let mut s = conn.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
            s.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect()
        };
        let (old, fresh) = (dir.path().join("old.db"), dir.path().join("fresh.db"));
        drop(open(&old, &CURRENT).unwrap());
        assert_eq!(shape(&open(&old, &NEXT).unwrap()), shape(&open(&fresh, &NEXT).unwrap()));
    }

    /// Goal: an upgrade that fails leaves the ledger at its old format, usable.
    #[test]
    fn failed_upgrade() {
        const BROKEN: Formats = Formats {
            format: CURRENT.format + 1,
            needs: 1,
            upgrades: &[TREES, ANSWERS, LISTINGS, COMMITS, "CREATE TABLE extra (x) ; CREATE TABLE runs (x);"],
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.db");
        drop(open(&path, &CURRENT).unwrap());
        assert!(open(&path, &BROKEN).is_err());
        let conn = open(&path, &CURRENT).unwrap();
        assert_eq!(formats(&conn), (CURRENT.format, 1));
        assert!(conn.prepare("SELECT * FROM extra").is_err());
    }
}
