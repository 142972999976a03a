//! The group commit: durability for all, errors for one, and what a full or broken closure does to others.
#![allow(clippy::unwrap_used, reason = "a test")]

mod sample;

use std::sync::Barrier;

use nas_ledger::{LedgerError, NewRecord};
use sample::{T, open};

fn event(kind: &str) -> NewRecord {
    NewRecord::event(kind, T)
}

/// Goal: more than one closure shares an fsync. While one closure is held open, seven others come to wait; they must all end up in
/// fewer transactions than closures.
#[test]
fn one_fsync_for_many() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let before = ledger.stats();
    let started = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ledger
                .write(|tx| {
                    started.wait();
                    // Holds the transaction open until the others are in line.
                    while ledger.waiting() < 8 {
                        std::thread::yield_now();
                    }
                    tx.append(&event("first"))
                })
                .unwrap();
        });
        started.wait();
        for n in 0..7 {
            let ledger = &ledger;
            scope.spawn(move || ledger.write(|tx| tx.append(&event(&format!("other{n}")))).unwrap());
        }
    });
    let after = ledger.stats();
    assert_eq!(after.closures - before.closures, 8);
    assert!(after.commits - before.commits < 8, "{after:?}");
    let report = ledger.verify(None).unwrap();
    assert!(report.is_ok() && report.count == 8);
}

/// Goal: many threads at once: every append that returned is there, in a chain, at the number it was told.
#[test]
fn many_threads() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let told: Vec<(u64, String)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let ledger = &ledger;
                scope.spawn(move || {
                    let mut told = Vec::new();
                    for n in 0..25 {
                        let kind = format!("{worker}.{n}");
                        let result = ledger.write(|tx| {
                            let head = tx.append(&event(&kind))?;
                            if n % 5 == 4 { Err(LedgerError::Busy) } else { Ok(head) }
                        });
                        if let Ok(head) = result {
                            told.push((head.seq, kind));
                        }
                    }
                    told
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let report = ledger.verify(Some(ledger.head().unwrap())).unwrap();
    assert!(report.is_ok());
    assert_eq!((report.count, told.len()), (160, 160));
    for (seq, kind) in told {
        assert_eq!(ledger.read(|r| r.record(seq)).unwrap().unwrap().fields.kind, kind);
    }
}

/// Goal: an error or a panic undoes its own closure only, and the ledger goes on.
#[test]
fn errors_and_panics_undo_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let head = ledger.write(|tx| tx.append(&event("kept"))).unwrap();
    let error = ledger.write(|tx| {
        tx.append(&event("undone"))?;
        tx.put_kv("k", b"v")?;
        Err::<(), _>(LedgerError::Busy)
    });
    assert!(matches!(error, Err(LedgerError::Busy)));
    let panic = ledger.write(|tx| -> Result<(), LedgerError> {
        tx.append(&event("undone"))?;
        panic!("a bug in {}", "a closure");
    });
    assert!(matches!(panic, Err(LedgerError::Panicked { message }) if message == "a bug in a closure"));
    let read_panic = ledger.read(|_| -> Result<(), LedgerError> { panic!("another") });
    assert!(matches!(read_panic, Err(LedgerError::Panicked { .. })));
    assert_eq!(ledger.head().unwrap(), head);
    assert_eq!(ledger.read(|r| r.kv("k")).unwrap(), None);
    assert_eq!(ledger.write(|tx| tx.append(&event("next"))).unwrap().seq, 2);
    assert!(ledger.verify(None).unwrap().is_ok());
}

/// Goal: a failed statement inside a closure that goes on regardless leaves the chain right.
#[test]
fn swallowed_errors() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let kept = ledger.write(|tx| {
        assert!(tx.append(&NewRecord::outcome("bad", T, 99)).is_err());
        tx.append(&event("good"))
    });
    assert_eq!(kept.unwrap().seq, 1);
    assert!(ledger.verify(None).unwrap().is_ok());
}

/// Goal: calling the ledger from within itself is an error, not a deadlock.
#[test]
fn nested_calls() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    ledger
        .write(|tx| {
            assert!(matches!(ledger.head(), Err(LedgerError::Nested)));
            assert!(matches!(ledger.write(|tx| tx.append(&event("inner"))), Err(LedgerError::Nested)));
            tx.append(&event("outer"))
        })
        .unwrap();
    assert_eq!(ledger.head().unwrap().seq, 1);
}

/// Goal: a reader never sees what may still be lost: a read finishes the open transaction first.
#[test]
fn reads_see_durable_state_only() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let ledger = &ledger;
            scope.spawn(move || {
                for n in 0..20 {
                    ledger.write(|tx| tx.append(&event(&format!("{worker}.{n}")))).unwrap();
                    let head = ledger.head().unwrap();
                    assert!(ledger.stats().closures >= head.seq, "a record was shown before its commit");
                }
            });
        }
    });
    assert_eq!(ledger.head().unwrap().seq, 80);
}

/// Goal: the chain can be verified while others write; what is appended meanwhile is part of it.
#[test]
fn verify_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let fill = |tx: &mut nas_ledger::Tx<'_>| (0..5000).try_for_each(|_| tx.append(&event("fill")).map(drop));
    ledger.write(fill).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..50 {
                ledger.write(|tx| tx.append(&event("more"))).unwrap();
            }
        });
        let report = ledger.verify(None).unwrap();
        assert!(report.is_ok() && report.count >= 5000);
        writer.join().unwrap();
    });
    assert_eq!(ledger.verify(Some(ledger.head().unwrap())).unwrap().count, 5050);
}
