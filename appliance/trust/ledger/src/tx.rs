//! What can be done inside a transaction: typed methods, no SQL outside this crate.

use std::cell::RefCell;
use std::ops::Deref;

use nas_trust_core::gate::GateState;
use nas_trust_core::read_manifest::{ManifestEntry, Ranges, Version};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::column::{Column, Row, load};
use crate::record::{self, Appended, DAY_MS, Head, NewRecord, Phase, Record};
use crate::rows::{BranchRow, GateRow, GenerationRow, LeaseRow, MountRow, ReadManifestRow, RefusalCount, RingEntry};
use crate::{LedgerError, error};

/// Most rows one listing returns: a page of the API, and the row that tells of a next one.
pub const LIST_ROWS_MAX: u32 = 1001;

/// The newest record, for the next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainEnd {
    head: Head,
    day: i64,
}

impl ChainEnd {
    pub(crate) fn load(conn: &Connection) -> Result<Self, LedgerError> {
        let reader = Reader { conn };
        let last = reader.record_query("ORDER BY seq DESC LIMIT 1", &[])?.pop();
        Ok(last.map_or(Self { head: Head::default(), day: i64::MIN }, |last| Self {
            head: Head { seq: last.seq, hash: last.hash },
            day: last.day,
        }))
    }
}

/// Reads.
#[derive(Debug)]
pub struct Reader<'c> {
    pub(crate) conn: &'c Connection,
}

/// Reads and writes, inside one savepoint.
#[derive(Debug)]
pub struct Tx<'c> {
    reader: Reader<'c>,
    end: ChainEnd,
    lost: RefCell<Option<rusqlite::Error>>,
}

impl<'c> Deref for Tx<'c> {
    type Target = Reader<'c>;
    fn deref(&self) -> &Reader<'c> {
        &self.reader
    }
}

/// What came of moving main.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advanced {
    /// The new generation is current.
    Moved,
    /// Another one is current; nothing was changed.
    Lost {
        /// The current one.
        current: Option<u64>,
    },
}

fn columns<R: Row>() -> String {
    R::COLUMNS.iter().map(|c| format!("\"{c}\"")).collect::<Vec<_>>().join(", ")
}

impl Reader<'_> {
    /// The row with this key.
    pub fn get<R: Row>(&self, key: &R::Key) -> Result<Option<R>, LedgerError> {
        Ok(self.select(&format!("WHERE \"{}\" = ?1", R::KEY), &[key.store()])?.pop())
    }

    /// The row with this key, or [`LedgerError::Missing`].
    pub fn need<R: Row>(&self, key: &R::Key) -> Result<R, LedgerError> {
        self.get(key)?.ok_or(LedgerError::Missing { table: R::TABLE })
    }

    /// All rows, by key. For small tables.
    pub fn all<R: Row>(&self) -> Result<Vec<R>, LedgerError> {
        self.select(&format!("ORDER BY \"{}\"", R::KEY), &[])
    }

    pub(crate) fn select<R: Row>(&self, tail: &str, values: &[Value]) -> Result<Vec<R>, LedgerError> {
        let sql = format!("SELECT {} FROM {} {tail}", columns::<R>(), R::TABLE);
        self.rows(R::TABLE, &sql, values, R::from_row)
    }

    pub(crate) fn rows<T>(
        &self,
        doing: &'static str,
        sql: &str,
        values: &[Value],
        each: impl Fn(&rusqlite::Row<'_>) -> Result<T, LedgerError>,
    ) -> Result<Vec<T>, LedgerError> {
        let fail = || LedgerError::sql(doing);
        let mut statement = self.conn.prepare_cached(sql).map_err(fail())?;
        let mut rows = statement.query(params_from_iter(values)).map_err(fail())?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(fail())? {
            out.push(each(row)?);
        }
        Ok(out)
    }

    pub(crate) fn record_query(&self, tail: &str, values: &[Value]) -> Result<Vec<Record>, LedgerError> {
        let sql = format!("SELECT {} FROM records {tail}", record::COLUMNS.join(", "));
        self.rows("records", &sql, values, Record::from_row)
    }

    /// Number and hash of the newest record.
    pub fn head(&self) -> Result<Head, LedgerError> {
        Ok(ChainEnd::load(self.conn)?.head)
    }

    /// Time of the newest record; the clock must not be behind it.
    pub fn last_time(&self) -> Result<Option<Timestamp>, LedgerError> {
        let latest = self.record_query("ORDER BY seq DESC LIMIT 1", &[])?.pop();
        Ok(latest.map(|record| record.fields.time))
    }

    /// One record.
    pub fn record(&self, seq: u64) -> Result<Option<Record>, LedgerError> {
        Ok(self.record_query("WHERE seq = ?1", &[seq.store()])?.pop())
    }

    /// Records after `seq`, oldest first.
    pub fn records_after(&self, seq: u64, limit: u32) -> Result<Vec<Record>, LedgerError> {
        self.record_query("WHERE seq > ?1 ORDER BY seq LIMIT ?2", &[seq.store(), limit.min(LIST_ROWS_MAX).store()])
    }

    /// Records before `seq` (`None`: from the newest), newest first, of one run and kind if given.
    pub fn records_before(
        &self,
        seq: Option<u64>,
        run: Option<RunId>,
        kind: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Record>, LedgerError> {
        let mut tail = String::from("WHERE seq < ?1");
        let mut values = vec![seq.unwrap_or(u64::MAX).store(), limit.min(LIST_ROWS_MAX).store()];
        if let Some(run) = run {
            values.push(run.store());
            tail.push_str(&format!(" AND run = ?{}", values.len()));
        }
        if let Some(kind) = kind {
            values.push(Value::Text(kind.to_owned()));
            tail.push_str(&format!(" AND kind = ?{}", values.len()));
        }
        tail.push_str(" ORDER BY seq DESC LIMIT ?2");
        self.record_query(&tail, &values)
    }

    /// Records about a commit, oldest first (SPEC REC-4).
    pub fn records_of_commit(&self, commit: Oid) -> Result<Vec<Record>, LedgerError> {
        self.record_query("WHERE commit_oid = ?1 ORDER BY seq LIMIT 1000", &[commit.store()])
    }

    /// Commits that records are about and whose id begins with these hexadecimal digits, `limit` at most.
    pub fn commits_named(&self, digits: &str, limit: u32) -> Result<Vec<Oid>, LedgerError> {
        let sql = "SELECT DISTINCT commit_oid FROM records WHERE commit_oid >= ?1 AND commit_oid < ?1 || 'g' LIMIT ?2";
        let values = [Value::Text(digits.to_ascii_lowercase()), limit.store()];
        self.rows("records", sql, &values, |row| load(row, 0, "records", "commit_oid"))
    }

    /// Intents without an outcome, oldest first. At start each becomes `aborted` (DESIGN §4).
    pub fn open_intents(&self) -> Result<Vec<Record>, LedgerError> {
        self.record_query(
            "WHERE phase = 'intent' AND NOT EXISTS (SELECT 1 FROM records AS o WHERE o.intent = records.seq) ORDER BY seq",
            &[],
        )
    }

    /// The outcome of an intent.
    pub fn outcome_of(&self, intent: u64) -> Result<Option<Record>, LedgerError> {
        Ok(self.record_query("WHERE intent = ?1", &[intent.store()])?.pop())
    }

    /// The lease with this token hash.
    pub fn lease_by_token(&self, token_hash: &[u8; 32]) -> Result<Option<LeaseRow>, LedgerError> {
        Ok(self.select("WHERE token_hash = ?1", &[token_hash.store()])?.pop())
    }

    /// Leases of a run, oldest first.
    pub fn leases_of_run(&self, run: RunId) -> Result<Vec<LeaseRow>, LedgerError> {
        self.select("WHERE run = ?1 ORDER BY created_at, id", &[run.store()])
    }

    /// Leases that were neither revoked nor found expired: those whose time goes on.
    pub fn leases_usable(&self) -> Result<Vec<LeaseRow>, LedgerError> {
        self.select("WHERE state = 'active' AND remaining_ms > 0 ORDER BY id", &[])
    }

    /// A lease and all its descendants (SPEC LEASE-3), ancestors before descendants.
    pub fn lease_and_descendants(&self, lease: LeaseId) -> Result<Vec<LeaseRow>, LedgerError> {
        let tail = "JOIN (WITH RECURSIVE below (below_id, depth) AS (VALUES (?1, 0) UNION ALL SELECT l.id, depth + 1 FROM leases AS l \
                    JOIN below ON l.parent = below_id) SELECT below_id, depth FROM below) ON below_id = id ORDER BY depth, id";
        self.select(tail, &[lease.store()])
    }

    /// Mounts that have not ended.
    pub fn mounts_live(&self) -> Result<Vec<MountRow>, LedgerError> {
        self.select("WHERE ended_at IS NULL ORDER BY id", &[])
    }

    /// Mounts of a lease, oldest first.
    pub fn mounts_of_lease(&self, lease: LeaseId) -> Result<Vec<MountRow>, LedgerError> {
        self.select("WHERE lease = ?1 ORDER BY created_at, id", &[lease.store()])
    }

    /// Every gate that waits, with the lease that asked, oldest first. Their cards are not read: there may be any number of them.
    pub fn gates_waiting(&self) -> Result<Vec<(GateId, LeaseId)>, LedgerError> {
        let sql = "SELECT id, lease FROM gates WHERE state = ?1 ORDER BY created_at, id";
        self.rows("gates", sql, &[GateState::Pending.store()], |row| {
            Ok((load(row, 0, "gates", "id")?, load(row, 1, "gates", "lease")?))
        })
    }

    /// Number of gates that wait.
    pub fn gates_waiting_count(&self) -> Result<u64, LedgerError> {
        let sql = "SELECT count(*) FROM gates WHERE state = ?1";
        let count = self.rows("gates", sql, &[GateState::Pending.store()], |row| load(row, 0, "gates", "state"))?;
        Ok(count.into_iter().next().unwrap_or(0))
    }

    /// Gates of a run, oldest first.
    pub fn gates_of_run(&self, run: RunId) -> Result<Vec<GateRow>, LedgerError> {
        self.select("WHERE run = ?1 ORDER BY created_at, id", &[run.store()])
    }

    /// Those of them that wait, oldest first. A run may have had many: their cards are not read for this.
    pub fn pending_gates_of_run(&self, run: RunId) -> Result<Vec<GateRow>, LedgerError> {
        self.select("WHERE run = ?1 AND state = ?2 ORDER BY created_at, id", &[run.store(), GateState::Pending.store()])
    }

    /// The gate whose approval made this commit.
    pub fn gate_of_merge(&self, commit: Oid) -> Result<Option<GateRow>, LedgerError> {
        Ok(self.select("WHERE merge_commit = ?1", &[commit.store()])?.pop())
    }

    /// Number of answers kept for one token.
    pub fn answers_held(&self, holder: &[u8; 32]) -> Result<u64, LedgerError> {
        let sql = "SELECT count(*) FROM kept_answers WHERE holder = ?1";
        let count = self.rows("kept_answers", sql, &[holder.store()], |row| load(row, 0, "kept_answers", "holder"))?;
        Ok(count.into_iter().next().unwrap_or(0))
    }

    /// The current generation of main.
    pub fn generation(&self) -> Result<Option<GenerationRow>, LedgerError> {
        Ok(self.select("ORDER BY number DESC LIMIT 1", &[])?.pop())
    }

    /// All generations that are not forgotten, oldest first.
    pub fn generations(&self) -> Result<Vec<GenerationRow>, LedgerError> {
        self.all()
    }

    /// Branches that are not recycled.
    pub fn branches_kept(&self) -> Result<Vec<BranchRow>, LedgerError> {
        self.select("WHERE state <> 'recycled' ORDER BY name", &[])
    }

    /// A value kept by name.
    pub fn kv(&self, key: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        let key = Value::Text(key.to_owned());
        let found =
            self.rows("kv", "SELECT value FROM kv WHERE key = ?1", &[key], |row| load(row, 0, "kv", "value"))?;
        Ok(found.into_iter().next())
    }

    /// The lines of a run's read manifest.
    pub fn read_entries(&self, run: RunId) -> Result<Vec<ManifestEntry>, LedgerError> {
        const TABLE: &str = "read_entries";
        let sql = "SELECT path, commit_oid, content, ranges FROM read_entries WHERE run = ?1 ORDER BY path, commit_oid, content";
        self.rows(TABLE, sql, &[run.store()], |row| {
            let oid = |at, column| -> Result<Option<Oid>, LedgerError> {
                let text: String = load(row, at, TABLE, column)?;
                let parsed = if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
                parsed.ok_or(LedgerError::Corrupt { table: TABLE, column })
            };
            let version = Version { commit: oid(1, "commit_oid")?, content: oid(2, "content")? };
            let path: TreePath = load(row, 0, TABLE, "path")?;
            let ranges: Ranges = load(row, 3, TABLE, "ranges")?;
            Ok(ManifestEntry { path, version, ranges })
        })
    }

    /// Counted refusals since a minute, oldest first.
    pub fn refusal_counts(&self, since: Timestamp) -> Result<Vec<RefusalCount>, LedgerError> {
        const TABLE: &str = "refusal_counts";
        let sql = "SELECT minute, source, rule, prefix, count FROM refusal_counts WHERE minute >= ?1 ORDER BY minute, source, rule, prefix";
        self.rows(TABLE, sql, &[since.store()], |row| {
            Ok(RefusalCount {
                minute: load(row, 0, TABLE, "minute")?,
                source: load(row, 1, TABLE, "source")?,
                rule: load(row, 2, TABLE, "rule")?,
                prefix: load(row, 3, TABLE, "prefix")?,
                count: load(row, 4, TABLE, "count")?,
            })
        })
    }

    /// The ring of refusals of callers that proved nothing, by slot.
    pub fn refusal_ring(&self) -> Result<Vec<RingEntry>, LedgerError> {
        const TABLE: &str = "refusal_ring";
        self.rows(TABLE, "SELECT slot, time, source, rule, path FROM refusal_ring ORDER BY slot", &[], |row| {
            Ok(RingEntry {
                slot: load(row, 0, TABLE, "slot")?,
                time: load(row, 1, TABLE, "time")?,
                source: load(row, 2, TABLE, "source")?,
                rule: load(row, 3, TABLE, "rule")?,
                path: load(row, 4, TABLE, "path")?,
            })
        })
    }
}

impl<'c> Tx<'c> {
    pub(crate) fn new(conn: &'c Connection, end: ChainEnd) -> Self {
        Self { reader: Reader { conn }, end, lost: RefCell::new(None) }
    }

    pub(crate) fn into_end(self) -> (ChainEnd, Option<rusqlite::Error>) {
        (self.end, self.lost.into_inner())
    }

    /// Was the transaction lost under this closure (no space, device error)?
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.borrow().is_some() || self.conn.is_autocommit()
    }

    /// Runs one statement. Once the transaction is lost nothing more is run: it would stand alone, outside any transaction.
    fn execute(&self, table: &'static str, sql: &str, values: &[Value]) -> Result<usize, LedgerError> {
        if self.is_lost() {
            return Err(LedgerError::NotWritten { why: "the transaction was lost by an earlier error".to_owned() });
        }
        let result = self.conn.prepare_cached(sql).and_then(|mut s| s.execute(params_from_iter(values)));
        result.map_err(|source| {
            use rusqlite::ErrorCode as Code;
            let fatal = matches!(
                source.sqlite_error_code(),
                Some(Code::DiskFull | Code::SystemIoFailure | Code::OutOfMemory | Code::CannotOpen)
            );
            if fatal || self.conn.is_autocommit() {
                let shared = LedgerError::shared(&source);
                *self.lost.borrow_mut() = Some(source);
                return shared;
            }
            debug_assert!(!error::is_full(&source));
            LedgerError::row(table)(source)
        })
    }

    /// Appends a record to the chain. An outcome must name an intent that has none yet.
    pub fn append(&mut self, new: &NewRecord) -> Result<Appended, LedgerError> {
        if new.intent.is_some() != (new.phase == Phase::Outcome) {
            return Err(LedgerError::Dangling { table: "records" });
        }
        if let Some(intent) = new.intent {
            // The foreign key says that it exists, not that it is an intent.
            let named = self.record(intent)?;
            if named.is_none_or(|record| record.fields.phase != Phase::Intent) {
                return Err(LedgerError::Dangling { table: "records" });
            }
        }
        let seq = self.end.head.seq + 1;
        // Days never fall, so a clock that is set back does not tear a day's chain apart.
        let day = self.end.day.max(new.time.0.div_euclid(DAY_MS));
        let (values, hash) = record::seal(seq, day, &self.end.head.hash, new);
        let marks = (1..=values.len()).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ");
        let sql = format!("INSERT INTO records ({}) VALUES ({marks})", record::COLUMNS.join(", "));
        self.execute("records", &sql, &values)?;
        self.end = ChainEnd { head: Head { seq, hash }, day };
        Ok(self.end.head)
    }

    /// Adds a row; [`LedgerError::Exists`] when its key is taken.
    pub fn insert<R: Row>(&mut self, row: &R) -> Result<(), LedgerError> {
        let values = row.values();
        let marks = (1..=values.len()).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES ({marks})", R::TABLE, columns::<R>());
        self.execute(R::TABLE, &sql, &values).map(drop)
    }

    /// Replaces a row; [`LedgerError::Missing`] when it is not there.
    pub fn update<R: Row>(&mut self, row: &R) -> Result<(), LedgerError> {
        let mut values = row.values();
        let sets: Vec<_> = R::COLUMNS.iter().enumerate().map(|(at, c)| format!("\"{c}\" = ?{}", at + 1)).collect();
        values.push(row.key().store());
        let sql = format!("UPDATE {} SET {} WHERE \"{}\" = ?{}", R::TABLE, sets.join(", "), R::KEY, values.len());
        match self.execute(R::TABLE, &sql, &values)? {
            0 => Err(LedgerError::Missing { table: R::TABLE }),
            _ => Ok(()),
        }
    }

    /// Adds a row, or replaces the one with its key.
    pub fn put<R: Row>(&mut self, row: &R) -> Result<(), LedgerError> {
        match self.update(row) {
            Err(LedgerError::Missing { .. }) => self.insert(row),
            done => done,
        }
    }

    /// Takes a row away; [`LedgerError::Missing`] when it is not there. For what the chain tells of in its own record.
    pub fn delete<R: Row>(&mut self, key: &R::Key) -> Result<(), LedgerError> {
        let sql = format!("DELETE FROM {} WHERE \"{}\" = ?1", R::TABLE, R::KEY);
        match self.execute(R::TABLE, &sql, &[key.store()])? {
            0 => Err(LedgerError::Missing { table: R::TABLE }),
            _ => Ok(()),
        }
    }

    /// Moves main from `expected` (`None`: there is no generation yet) to `new`, whose number is the next one; or says which one is current.
    pub fn advance_generation(&mut self, expected: Option<u64>, new: &GenerationRow) -> Result<Advanced, LedgerError> {
        let current = self.generation()?;
        let number = current.as_ref().map(|g| g.number);
        let next = number.map_or(new.number, |n| n + 1);
        if number != expected || new.number != next {
            return Ok(Advanced::Lost { current: number });
        }
        if let Some(mut old) = current {
            old.retired_at = Some(new.made_at);
            self.update(&old)?;
        }
        self.insert(new)?;
        Ok(Advanced::Moved)
    }

    /// Forgets a retired generation whose files are gone; the current one is never forgotten.
    pub fn forget_generation(&mut self, number: u64) -> Result<(), LedgerError> {
        let sql = "DELETE FROM generations WHERE number = ?1 AND number < (SELECT max(number) FROM generations)";
        match self.execute("generations", sql, &[number.store()])? {
            0 => Err(LedgerError::Missing { table: "generations" }),
            _ => Ok(()),
        }
    }

    /// Persists the time of a lease.
    pub fn store_lease_time(
        &mut self,
        lease: LeaseId,
        clock: &nas_trust_core::lease_time::LeaseClock,
    ) -> Result<(), LedgerError> {
        let values = [clock.remaining_ms.store(), clock.boot_id.store(), clock.boottime_ms.store(), lease.store()];
        let sql = "UPDATE leases SET remaining_ms = ?1, boot_id = ?2, boottime_ms = ?3 WHERE id = ?4";
        match self.execute("leases", sql, &values)? {
            0 => Err(LedgerError::Missing { table: "leases" }),
            _ => Ok(()),
        }
    }

    /// Revokes a lease and all its descendants (SPEC LEASE-3). Returns those that were not revoked before.
    pub fn revoke_lease(&mut self, lease: LeaseId, now: Timestamp) -> Result<Vec<LeaseId>, LedgerError> {
        let mut revoked = Vec::new();
        for row in self.lease_and_descendants(lease)? {
            let sql = "UPDATE leases SET state = 'revoked', revoked_at = ?1 WHERE id = ?2 AND state <> 'revoked'";
            if self.execute("leases", sql, &[now.store(), row.id.store()])? > 0 {
                revoked.push(row.id);
            }
        }
        Ok(revoked)
    }

    /// Moves a gate out of `pending`, once: false when it was decided before.
    pub fn decide_gate(&mut self, gate: &GateRow) -> Result<bool, LedgerError> {
        let pending = self.get::<GateRow>(&gate.id)?.ok_or(LedgerError::Missing { table: "gates" })?;
        if pending.state != GateState::Pending {
            return Ok(false);
        }
        self.update(gate)?;
        Ok(true)
    }

    /// Names the fresh card that took the place of a void one.
    pub fn set_successor(&mut self, gate: GateId, successor: GateId) -> Result<(), LedgerError> {
        let sql = "UPDATE gates SET successor = ?1 WHERE id = ?2 AND state = 'void'";
        match self.execute("gates", sql, &[successor.store(), gate.store()])? {
            0 => Err(LedgerError::Missing { table: "gates" }),
            _ => Ok(()),
        }
    }

    /// Forgets answers of calls that began before `before`. Returns how many.
    pub fn forget_answers(&mut self, before: Timestamp) -> Result<usize, LedgerError> {
        self.execute("kept_answers", "DELETE FROM kept_answers WHERE made_at < ?1", &[before.store()])
    }

    /// Keeps a value by name.
    pub fn put_kv(&mut self, key: &str, value: &[u8]) -> Result<(), LedgerError> {
        let sql = "INSERT INTO kv (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.execute("kv", sql, &[Value::Text(key.to_owned()), Value::Blob(value.to_vec())]).map(drop)
    }

    /// Forgets a value kept by name. Returns whether there was one.
    pub fn delete_kv(&mut self, key: &str) -> Result<bool, LedgerError> {
        Ok(self.execute("kv", "DELETE FROM kv WHERE key = ?1", &[Value::Text(key.to_owned())])? > 0)
    }

    /// Stores lines of a run's read manifest and its totals. Lines that did not change need not be given again.
    pub fn put_read_manifest(
        &mut self,
        totals: &ReadManifestRow,
        changed: &[ManifestEntry],
    ) -> Result<(), LedgerError> {
        let sql = "INSERT INTO read_entries (run, path, commit_oid, content, ranges) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (run, path, commit_oid, content) DO UPDATE SET ranges = excluded.ranges \
                   WHERE ranges <> excluded.ranges";
        let text = |oid: Option<Oid>| Value::Text(oid.map(|oid| oid.to_string()).unwrap_or_default());
        for entry in changed {
            let Version { commit, content } = entry.version;
            let values = [totals.run.store(), entry.path.store(), text(commit), text(content), entry.ranges.store()];
            self.execute("read_entries", sql, &values)?;
        }
        self.put(totals)
    }

    /// Adds up counted refusals.
    pub fn add_refusals(&mut self, counted: &RefusalCount) -> Result<(), LedgerError> {
        let sql = "INSERT INTO refusal_counts (minute, source, rule, prefix, count) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (minute, source, rule, prefix) DO UPDATE SET count = count + excluded.count";
        let RefusalCount { minute, source, rule, prefix, count } = counted;
        let values = [minute.store(), source.store(), rule.store(), prefix.store(), count.store()];
        self.execute("refusal_counts", sql, &values).map(drop)
    }

    /// Writes a slot of the ring.
    pub fn put_ring(&mut self, entry: &RingEntry) -> Result<(), LedgerError> {
        let sql = "INSERT INTO refusal_ring (slot, time, source, rule, path) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (slot) \
                   DO UPDATE SET time = excluded.time, source = excluded.source, rule = excluded.rule, path = excluded.path";
        let RingEntry { slot, time, source, rule, path } = entry;
        self.execute("refusal_ring", sql, &[slot.store(), time.store(), source.store(), rule.store(), path.store()])
            .map(drop)
    }
}
