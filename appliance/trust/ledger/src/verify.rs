//! Recomputing the chain from the stored bytes (SPEC REC-3): an edited, deleted, inserted or moved record is found, and, with an anchored head, a cut tail.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::record::{COLUMNS, HASHED};
use crate::{Head, LedgerError};

/// Records checked in one go; others may use the ledger in between.
const PAGE_ROWS: i64 = 4096;

/// What does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A number is left out.
    #[error("the record is missing")]
    Missing,
    /// The previous hash is not that of the record before.
    #[error("it does not follow from the record before it")]
    Unlinked,
    /// The content does not give the stored hash.
    #[error("its content does not fit its hash: it was changed")]
    Changed,
    /// A day falls back.
    #[error("its day lies before that of the record before it")]
    DayFalls,
    /// The anchored record is not there: the end was cut off.
    #[error("the anchored head names this record, but the chain ends before it: the end was cut off")]
    Cut,
    /// The anchored record is another one.
    #[error("the anchored head has another hash: the chain was rewritten")]
    Rewritten,
}

/// A day of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// Days since 1970-01-01.
    pub day: i64,
    /// Its first record.
    pub first: u64,
    /// Its last record and hash: the head of that day's chain.
    pub head: Head,
}

/// What verification found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Records that fit, from the first on.
    pub count: u64,
    /// The last of them.
    pub head: Head,
    /// Days with records that fit.
    pub days: Vec<Day>,
    /// The first record that does not fit, and why.
    pub fault: Option<(u64, Fault)>,
}

impl Report {
    /// Everything fits.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.fault.is_none()
    }
}

/// A verification under way.
pub(crate) struct Check {
    report: Report,
    anchor: Option<Head>,
    anchor_met: bool,
}

impl Check {
    pub(crate) fn new(anchor: Option<Head>) -> Self {
        let report = Report { count: 0, head: Head::default(), days: Vec::new(), fault: None };
        // The head of an empty ledger is met by every chain.
        let anchor_met = anchor.is_none_or(|anchor| anchor == Head::default());
        Self { report, anchor, anchor_met }
    }

    /// Checks the next page. Returns whether there may be more.
    pub(crate) fn page(&mut self, conn: &Connection) -> Result<bool, LedgerError> {
        let sql = LedgerError::sql;
        let text = format!("SELECT {} FROM records WHERE seq > ?1 ORDER BY seq LIMIT {PAGE_ROWS}", COLUMNS.join(", "));
        let mut statement = conn.prepare_cached(&text).map_err(sql("verifying"))?;
        let after = i64::try_from(self.report.head.seq).unwrap_or(i64::MAX);
        let mut rows = statement.query([after]).map_err(sql("verifying"))?;
        let mut met = 0;
        while let Some(row) = rows.next().map_err(sql("verifying"))? {
            met += 1;
            if let Err(fault) = self.record(row) {
                self.report.fault = Some(fault);
                return Ok(false);
            }
        }
        Ok(met == PAGE_ROWS)
    }

    fn record(&mut self, row: &rusqlite::Row<'_>) -> Result<(), (u64, Fault)> {
        let expected = self.report.head.seq + 1;
        let value = |at: usize| row.get_ref(at).unwrap_or(ValueRef::Null);
        let (ValueRef::Integer(seq), ValueRef::Integer(day)) = (value(1), value(2)) else {
            return Err((expected, Fault::Changed));
        };
        if u64::try_from(seq) != Ok(expected) {
            return Err((expected, Fault::Missing));
        }
        let hash = crate::record::hash((0..HASHED).map(value));
        if value(HASHED) != ValueRef::Blob(&hash) {
            return Err((expected, Fault::Changed));
        }
        if value(HASHED - 1) != ValueRef::Blob(&self.report.head.hash) {
            return Err((expected, Fault::Unlinked));
        }
        let head = Head { seq: expected, hash };
        match self.report.days.last_mut() {
            Some(last) if day < last.day => return Err((expected, Fault::DayFalls)),
            Some(last) if day == last.day => last.head = head,
            _ => self.report.days.push(Day { day, first: expected, head }),
        }
        if self.anchor.is_some_and(|anchor| anchor.seq == expected) {
            if self.anchor != Some(head) {
                return Err((expected, Fault::Rewritten));
            }
            self.anchor_met = true;
        }
        (self.report.count, self.report.head) = (expected, head);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Report {
        if let (None, false, Some(anchor)) = (self.report.fault, self.anchor_met, self.anchor) {
            let fault = if anchor.seq == 0 { Fault::Rewritten } else { Fault::Cut };
            self.report.fault = Some((anchor.seq, fault));
        }
        self.report
    }
}

/// Verifies a ledger that no daemon has open, without changing it.
pub fn verify_file(path: &Path, anchor: Option<Head>) -> Result<Report, LedgerError> {
    let fail = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            LedgerError::InUse { path: path.to_owned() }
        }
        _ => LedgerError::sql("opening")(source),
    };
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(fail)?;
    conn.busy_timeout(std::time::Duration::ZERO).map_err(fail)?;
    // As in the daemon: without a shared-memory file. Read-only connections cannot recover a WAL, hence the flag plus this pragma.
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;")
        .map_err(fail)?;
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(fail)?;
    let mut check = Check::new(anchor);
    while check.page(&conn)? {}
    Ok(check.finish())
}
