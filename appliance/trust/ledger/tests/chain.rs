//! The chain (SPEC REC-3, L1.6): what verification finds when someone edits the database behind our back.
#![allow(clippy::unwrap_used, reason = "a test")]

mod sample;

use std::path::{Path, PathBuf};

use nas_ledger::verify::{Fault, Report};
use nas_ledger::{Head, NewRecord, verify_file};
use proptest::prelude::*;
use sample::{T, open};

const DAY_MS: i64 = 86_400_000;

/// A closed ledger with `count` records over three days.
fn chain(dir: &Path, count: u64) -> (PathBuf, Head) {
    let ledger = open(dir);
    ledger
        .write(|tx| -> Result<(), nas_ledger::LedgerError> {
            for n in 0..count {
                let time = T.plus_ms(i64::try_from(n * 3 / count.max(1)).unwrap() * DAY_MS);
                let detail = serde_json::json!({ "n": n });
                tx.append(&NewRecord { detail, ..NewRecord::event("test", time) })?;
            }
            Ok(())
        })
        .unwrap();
    (ledger.path().to_owned(), ledger.head().unwrap())
}

/// Does what the triggers forbid, the way someone with the file would.
fn tamper(path: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    let drop = "PRAGMA foreign_keys = OFF; DROP TRIGGER records_no_update; DROP TRIGGER records_no_delete; DROP TRIGGER records_in_order;";
    conn.execute_batch(drop).unwrap();
    conn.execute_batch(sql).unwrap();
}

fn verify(path: &Path, anchor: Option<Head>) -> Report {
    verify_file(path, anchor).unwrap()
}

/// Goal: an untouched chain verifies, with its days, and with any earlier head as anchor.
#[test]
fn untouched() {
    let dir = tempfile::tempdir().unwrap();
    let (path, head) = chain(dir.path(), 30);
    let report = verify(&path, Some(head));
    assert_eq!((report.fault, report.count, report.head), (None, 30, head));
    let days: Vec<_> = report.days.iter().map(|d| (d.day, d.first, d.head.seq)).collect();
    let first = T.0 / DAY_MS;
    assert_eq!(days, [(first, 1, 10), (first + 1, 11, 20), (first + 2, 21, 30)]);
    assert!(verify(&path, Some(report.days[0].head)).is_ok());
    assert!(verify(&path, Some(Head::default())).is_ok());
    assert!(verify(&path, None).is_ok());
}

/// Goal: an empty ledger verifies, unless it was anchored with records.
#[test]
fn empty() {
    let dir = tempfile::tempdir().unwrap();
    let (path, head) = chain(dir.path(), 0);
    assert_eq!(head, Head::default());
    assert!(verify(&path, Some(head)).is_ok());
    assert_eq!(verify(&path, Some(Head { seq: 1, hash: [1; 32] })).fault, Some((1, Fault::Cut)));
}

/// Goal: the triggers stop the ledger's own connection and any other that does not first remove them.
#[test]
fn append_only() {
    let dir = tempfile::tempdir().unwrap();
    let (path, head) = chain(dir.path(), 3);
    let conn = rusqlite::Connection::open(&path).unwrap();
    for sql in [
        "UPDATE records SET kind = 'x' WHERE seq = 1",
        "DELETE FROM records WHERE seq = 3",
        "INSERT OR REPLACE INTO records SELECT * FROM records WHERE seq = 2",
        "INSERT INTO records SELECT format, 9, day, time, kind, phase, run, principal, on_behalf_of, lease, purpose, path, commit_oid, \
         read_manifest, effect, rule, taint_external, taint_sensitivity, detail, intent, prev_hash, hash FROM records WHERE seq = 3",
    ] {
        let error = conn.execute(sql, []).unwrap_err();
        assert!(error.to_string().contains("append-only"), "{sql}: {error}");
    }
    drop(conn);
    assert!(verify(&path, Some(head)).is_ok());
}

/// Goal: L1.6. Each column of a record is covered: changing any of them is found at that record.
#[test]
fn every_column_is_covered() {
    for (column, value) in [
        ("format", "2"),
        ("day", "day + 1"),
        ("time", "time + 1"),
        ("kind", "'other'"),
        ("phase", "'intent'"),
        ("run", "'run_222222222222'"),
        ("principal", "'human:owner'"),
        ("on_behalf_of", "''"),
        ("lease", "'x'"),
        ("purpose", "'x'"),
        ("path", "'/x'"),
        ("commit_oid", "'x'"),
        ("read_manifest", "x'00'"),
        ("effect", "'allow'"),
        ("rule", "'x'"),
        ("taint_external", "'false'"),
        ("taint_sensitivity", "'public'"),
        ("detail", "'{\"n\": 4}'"),
        ("intent", "1"),
        ("prev_hash", "zeroblob(32)"),
        ("hash", "zeroblob(32)"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = chain(dir.path(), 9);
        tamper(&path, &format!("UPDATE records SET {column} = {value} WHERE seq = 5"));
        assert_eq!(verify(&path, None).fault, Some((5, Fault::Changed)), "{column}");
    }
}

/// Goal: deleted, inserted, swapped and re-hashed records are found.
#[test]
fn structure() {
    let columns = "format, day, time, kind, phase, run, principal, on_behalf_of, lease, purpose, path, commit_oid, read_manifest, effect, \
                   rule, taint_external, taint_sensitivity, detail, intent, prev_hash, hash";
    let insert = format!(
        "UPDATE records SET seq = -seq WHERE seq >= 5; UPDATE records SET seq = 1 - seq WHERE seq < 0; \
         INSERT INTO records (seq, {columns}) SELECT 5, {columns} FROM records WHERE seq = 4;"
    );
    let cases: [(&str, (u64, Fault)); 5] = [
        ("DELETE FROM records WHERE seq = 5", (5, Fault::Missing)),
        ("DELETE FROM records WHERE seq = 1", (1, Fault::Missing)),
        ("UPDATE records SET seq = 99 WHERE seq = 9", (9, Fault::Missing)),
        (
            "UPDATE records SET seq = -1 WHERE seq = 4; UPDATE records SET seq = 4 WHERE seq = 5; UPDATE records SET seq = 5 WHERE seq = -1",
            (4, Fault::Changed),
        ),
        (&insert, (5, Fault::Changed)),
    ];
    for (sql, fault) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = chain(dir.path(), 9);
        tamper(&path, sql);
        assert_eq!(verify(&path, None).fault, Some(fault), "{sql}");
    }
}

/// Goal: a chain rebuilt with right hashes from some record on links up in itself, and is found by the anchor.
#[test]
fn rewritten_history() {
    let (real, forged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, anchor) = chain(real.path(), 9);
    let ledger = open(forged.path());
    for n in 0..12 {
        ledger.write(|tx| tx.append(&NewRecord::event("forged", T.plus_ms(n)))).unwrap();
    }
    assert!(ledger.verify(None).unwrap().is_ok());
    assert_eq!(ledger.verify(Some(anchor)).unwrap().fault, Some((9, Fault::Rewritten)));
}

/// Goal: L1.6 when the last records are cut: nothing is wrong inside, only the anchor shows it.
#[test]
fn cut_tail() {
    let dir = tempfile::tempdir().unwrap();
    let (path, head) = chain(dir.path(), 9);
    tamper(&path, "DELETE FROM records WHERE seq > 7");
    assert!(verify(&path, None).is_ok());
    assert_eq!(verify(&path, Some(head)).fault, Some((9, Fault::Cut)));
    // Writing on over the cut does not hide it.
    let ledger = open(dir.path());
    for _ in 0..5 {
        ledger.write(|tx| tx.append(&NewRecord::event("later", T))).unwrap();
    }
    assert_eq!(ledger.verify(Some(head)).unwrap().fault, Some((9, Fault::Rewritten)));
}

/// Goal: a clock that is set back does not make days fall.
#[test]
fn clock_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    for time in [T, T.plus_ms(-10 * DAY_MS), T.plus_ms(DAY_MS)] {
        ledger.write(|tx| tx.append(&NewRecord::event("e", time))).unwrap();
    }
    let report = ledger.verify(None).unwrap();
    assert!(report.is_ok());
    assert_eq!(report.days.iter().map(|d| d.head.seq).collect::<Vec<_>>(), [2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Goal: a damaged file never panics, and never verifies as anything but the very chain that was written.
    #[test]
    fn damaged_file(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let dir = tempfile::tempdir().unwrap();
        let (path, head) = chain(dir.path(), 60);
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, value) in &damage {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(report) = verify_file(&path, Some(head)) {
            prop_assert!(!report.is_ok() || report.head == head);
        }
        if let Ok(ledger) = nas_ledger::Ledger::open(&path, nas_ledger::Options { ballast_bytes: 0 }) {
            let _ = ledger.read(|r| r.records_after(0, 1000));
            let _ = ledger.write(|tx| tx.append(&NewRecord::event("e", T)));
            let _ = ledger.read(|r| r.all::<nas_ledger::RunRow>());
        }
    }

    /// Goal: any sequence of kept and undone writes, with reopening in between, is a chain of exactly what was kept; and
    /// flipping any one bit of a stored hash is found.
    #[test]
    fn any_history(
        steps in prop::collection::vec((any::<bool>(), 1u8..4, ".{0,12}", any::<bool>()), 1..12),
        victim in any::<prop::sample::Index>(),
        at in 0usize..64,
        bit in 0u8..8,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = open(dir.path());
        let mut kept = Vec::new();
        for (keep, times, text, reopen) in steps {
            let result = ledger.write(|tx| {
                for _ in 0..times {
                    tx.append(&NewRecord { purpose: Some(text.clone()), ..NewRecord::event("e", T) })?;
                }
                if keep { Ok(()) } else { Err(nas_ledger::LedgerError::Busy) }
            });
            prop_assert_eq!(result.is_ok(), keep);
            if keep {
                kept.extend((0..times).map(|_| Some(text.clone())));
            }
            if reopen {
                drop(ledger);
                ledger = open(dir.path());
            }
        }
        let head = ledger.head().unwrap();
        let stored: Vec<_> = ledger.read(|r| r.records_after(0, 1000)).unwrap().into_iter().map(|r| r.fields.purpose).collect();
        prop_assert_eq!(&stored, &kept);
        let path = ledger.path().to_owned();
        drop(ledger);
        let report = verify(&path, Some(head));
        prop_assert!(report.is_ok());
        prop_assert_eq!(report.count, kept.len() as u64);
        if !kept.is_empty() {
            let seq = i64::try_from(victim.index(kept.len()) + 1).unwrap();
            let column = ["hash", "prev_hash"][usize::from(at >= 32)];
            tamper(&path, "");
            let conn = rusqlite::Connection::open(&path).unwrap();
            let mut bytes: Vec<u8> =
                conn.query_row(&format!("SELECT {column} FROM records WHERE seq = ?1"), [seq], |row| row.get(0)).unwrap();
            bytes[at % 32] ^= 1 << bit;
            conn.execute(&format!("UPDATE records SET {column} = ?1 WHERE seq = ?2"), (bytes, seq)).unwrap();
            drop(conn);
            prop_assert_eq!(verify(&path, None).fault, Some((seq.unsigned_abs(), Fault::Changed)));
        }
    }
}
