//! A disk that is really full (issue test 5): a clear error, nothing lost, deny and recovery still possible, work goes on once space is freed.
#![allow(clippy::unwrap_used, reason = "a test")]

mod sample;

use nas_ledger::{Head, Ledger, LedgerError, NewRecord, Options};
use nas_testkit::disk::{MIB, SmallDisk};
use sample::T;

const OPTIONS: Options = Options { ballast_bytes: 4 << 20 };

fn event(kind: &str, bytes: usize) -> NewRecord {
    NewRecord { purpose: Some("x".repeat(bytes)), ..NewRecord::event(kind, T) }
}

/// Appends until there is no space; the head that was acknowledged last.
fn append_until_full(ledger: &Ledger) -> Head {
    let mut head = ledger.head().unwrap();
    for _ in 0..50_000 {
        match ledger.write(|tx| tx.append(&event("filler", 2000))) {
            Ok(told) => head = told,
            Err(error) => {
                assert!(matches!(error, LedgerError::Full | LedgerError::NotWritten { .. }), "{error:?}");
                return head;
            }
        }
    }
    unreachable!("the disk never got full");
}

fn full_disk(disk: &SmallDisk) {
    let path = disk.join("ledger.db");
    let ledger = Ledger::open(&path, OPTIONS).unwrap();
    assert!(ledger.has_ballast());
    ledger.write(|tx| tx.append(&event("first", 10))).unwrap();
    disk.fill("filler").unwrap();
    let head = append_until_full(&ledger);

    // Nothing is lost, reading and verifying work, and ordinary writes go on failing clearly.
    assert_eq!(ledger.head().unwrap(), head);
    assert_eq!(ledger.verify(Some(head)).unwrap().fault, None);
    let errors: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| ledger.write(|tx| tx.append(&event("more", 200_000))).unwrap_err()))
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert!(errors.iter().all(|e| matches!(e, LedgerError::Full | LedgerError::NotWritten { .. })), "{errors:?}");
    assert_eq!(ledger.head().unwrap(), head);

    // The owner denies a gate: the ballast makes room.
    let denied = ledger.write_essential(|tx| tx.append(&event("gate.deny", 20_000))).unwrap();
    assert_eq!(denied.seq, head.seq + 1);
    assert!(!ledger.has_ballast());

    // A restart while full. (What the ballast freed is filled up again first.)
    disk.fill("filler2").unwrap();
    drop(ledger);
    let ledger = Ledger::open(&path, OPTIONS).unwrap();
    assert_eq!(ledger.verify(Some(denied)).unwrap().fault, None);
    assert!(!ledger.has_ballast(), "there is no space for it yet");
    assert!(!ledger.restore_ballast().unwrap());

    // Space is freed: work goes on, and space is set aside again.
    std::fs::remove_file(disk.join("filler")).unwrap();
    std::fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    let head = ledger.write_essential(|tx| tx.append(&event("after", 10))).unwrap();
    assert!(ledger.restore_ballast().unwrap() && ledger.has_ballast());
    let head2 = ledger.write(|tx| tx.append(&event("after", 10))).unwrap();
    assert_eq!(head2.seq, head.seq + 1);
    assert_eq!(ledger.verify(Some(head2)).unwrap().fault, None);
}

#[test]
fn full_ext4() {
    match SmallDisk::ext4(24 * MIB) {
        Ok(disk) => full_disk(&disk),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

#[test]
fn full_btrfs() {
    match SmallDisk::btrfs(128 * MIB) {
        Ok(disk) => full_disk(&disk),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

/// Goal: the ledger opens on a full disk by giving up its ballast, when it was stopped with the ballast in place.
fn opens_while_full(disk: &SmallDisk) {
    let path = disk.join("ledger.db");
    let ledger = Ledger::open(&path, OPTIONS).unwrap();
    let head = ledger.write(|tx| tx.append(&event("first", 10))).unwrap();
    drop(ledger);
    disk.fill("filler").unwrap();
    let ledger = Ledger::open(&path, OPTIONS).unwrap();
    assert_eq!(ledger.head().unwrap(), head);
    let next = ledger.write_essential(|tx| tx.append(&event("run.aborted", 10_000))).unwrap();
    assert_eq!(next.seq, head.seq + 1);
    assert_eq!(ledger.verify(Some(next)).unwrap().fault, None);
}

#[test]
fn opens_on_full_ext4() {
    match SmallDisk::ext4(24 * MIB) {
        Ok(disk) => opens_while_full(&disk),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

#[test]
fn opens_on_full_btrfs() {
    match SmallDisk::btrfs(128 * MIB) {
        Ok(disk) => opens_while_full(&disk),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

/// Goal: many rounds of filling and freeing on one ledger: never a lost acknowledgement, never a stuck ledger.
#[test]
fn full_again_and_again() {
    let disk = match SmallDisk::btrfs(64 * MIB) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let path = disk.join("ledger.db");
    let mut ledger = Ledger::open(&path, Options { ballast_bytes: 2 << 20 }).unwrap();
    for round in 0..4 {
        disk.fill("filler").unwrap();
        let head = append_until_full(&ledger);
        let head = ledger.write_essential(|tx| tx.append(&event("essential", 500))).unwrap_or(head);
        if round % 2 == 1 {
            drop(ledger);
            ledger = Ledger::open(&path, Options { ballast_bytes: 2 << 20 }).unwrap();
        }
        assert_eq!(ledger.verify(Some(head)).unwrap().fault, None);
        std::fs::remove_file(disk.join("filler")).unwrap();
        assert!(ledger.restore_ballast().unwrap());
        let next = ledger.write_essential(|tx| tx.append(&event("after", 10))).unwrap();
        assert_eq!(next.seq, head.seq + 1);
    }
}
