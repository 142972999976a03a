//! Tables, triggers, and how formats change.
//!
//! Formats change by expand and contract (DESIGN §4): an upgrade only adds (tables, nullable columns, indexes), and `needs` in the database
//! says which program format is the oldest that can still open it. So version N−1 opens what N wrote, and an update can be rolled back.

use rusqlite::Connection;

use crate::LedgerError;

/// The format this program writes.
pub(crate) const FORMAT: i64 = 1;
/// The oldest program format that can open what this program writes.
pub(crate) const NEEDS: i64 = 1;
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

/// Upgrades by one format each: `UPGRADES[n]` leads from format n+1 to n+2. They only add. Empty while there is one format.
const UPGRADES: [&str; (FORMAT - 1) as usize] = [];

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
pub(crate) fn inspect(conn: &Connection) -> Result<Found, LedgerError> {
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
    if needs > FORMAT {
        return Err(LedgerError::TooNew { format, needs, known: FORMAT });
    }
    Ok(Found::Ledger(format))
}

/// Creates the tables, or upgrades them to [`FORMAT`], in one transaction. A newer format is left as it is.
pub(crate) fn prepare(conn: &Connection, found: &Found) -> Result<(), LedgerError> {
    let from = match found {
        Found::Ledger(format) if *format >= FORMAT => return Ok(()),
        Found::Ledger(format) => *format,
        Found::Nothing | Found::Foreign => 0,
    };
    let mut steps = String::from("BEGIN IMMEDIATE;");
    if from == 0 {
        steps.push_str(CREATE);
        steps.push_str(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; INSERT INTO format VALUES (1, {FORMAT}, {NEEDS});"
        ));
    } else {
        let done = usize::try_from(from - 1).unwrap_or(usize::MAX);
        for upgrade in UPGRADES.iter().skip(done) {
            steps.push_str(upgrade);
        }
        steps.push_str(&format!("UPDATE format SET format = {FORMAT}, needs = {NEEDS};"));
    }
    steps.push_str("COMMIT;");
    let result = conn.execute_batch(&steps);
    if result.is_err() && !conn.is_autocommit() {
        // The error that counts is the first one.
        let _ = conn.execute_batch("ROLLBACK");
    }
    result.map_err(LedgerError::sql("creating the tables"))
}
