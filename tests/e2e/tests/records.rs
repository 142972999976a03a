//! The chain of records tells when it was tampered with: SPEC L1.6, REC-3.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use nas_e2e::{TestBox, passphrase, refused};
use nas_nfsclient::Status;
use nas_testkit::Scratch;
use nas_types::secret::Secret;
use nas_types::verb::{
    BoxResume, BoxStatus, BoxStatusAnswer, Head, LeaseList, LeaseShow, OwnerLogin, RecordAcceptLoss, RecordHead,
    RecordList, RecordVerified, RecordVerify,
};

/// A box with some records.
fn box_with_records() -> Result<TestBox> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("a.txt", "a\n");
    nas.import(source.path(), "/shared/x").map_err(refused)?;
    for round in 0..2 {
        let run = nas.full_lease("/shared/x").map_err(refused)?;
        nas.mount(&run, "/shared/x")?.write_file("a.txt", format!("{round}\n").as_bytes())?;
        let proposed = nas.propose(&run).map_err(refused)?;
        nas.approve(&nas.card(&proposed).map_err(refused)?).map_err(refused)?;
    }
    Ok(nas)
}

/// Does to the stored records what nobody may, as root could while nasd is stopped; the triggers look untouched after it.
fn tamper(nas: &TestBox, sql: &str) -> Result<()> {
    let db = rusqlite::Connection::open(nas.data().join("ledger.db"))?;
    db.execute_batch("PRAGMA foreign_keys = OFF")?;
    let mut triggers =
        db.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'records'")?;
    let triggers: Vec<(String, String)> =
        triggers.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    anyhow::ensure!(!triggers.is_empty(), "the records are not append-only to begin with");
    for (name, _) in &triggers {
        db.execute_batch(&format!("DROP TRIGGER {name}"))?;
    }
    let changed = db.execute(sql, [])?;
    anyhow::ensure!(changed > 0, "nothing was tampered with");
    for (_, sql) in &triggers {
        db.execute_batch(sql)?;
    }
    Ok(())
}

fn verify(nas: &TestBox, anchor: Option<&Head>) -> Result<RecordVerified> {
    nas.as_owner(&RecordVerify { anchor: anchor.cloned() }).map_err(refused)
}

fn status(nas: &TestBox) -> Result<BoxStatusAnswer> {
    nas.call(None, &BoxStatus {}).map_err(refused)
}

fn anchor_log(nas: &TestBox) -> PathBuf {
    nas.data().join("anchor.log")
}

/// Counts in the box's own anchor file, oldest first.
fn anchored(nas: &TestBox) -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(anchor_log(nas))?;
    let count = |line: &str| -> Result<u64> { Ok(line.split(' ').nth(1).context("a line without a count")?.parse()?) };
    text.lines().map(count).collect()
}

/// Goal: the untouched chain verifies, also against a head that the owner kept and across restarts; after one record was
/// changed, removed or moved in time it does not, and the answer names that record (SPEC L1.6).
#[test]
fn one_changed_record_is_found() -> Result<()> {
    let mut nas = box_with_records()?;
    let kept = nas.as_owner(&RecordHead {}).map_err(refused)?;
    for anchor in [None, Some(&kept)] {
        let verified = verify(&nas, anchor)?;
        assert!(verified.ok, "{:?}", verified.because);
        assert!(verified.head.seq >= kept.seq && verified.days >= 1);
    }
    let forged = Head { seq: kept.seq, hash: "0".repeat(64) };
    assert!(!verify(&nas, Some(&forged))?.ok);
    let ahead = Head { seq: kept.seq + 1000, hash: kept.hash.clone() };
    assert!(!verify(&nas, Some(&ahead))?.ok);
    nas.restart()?;
    assert!(verify(&nas, Some(&kept))?.ok);

    // Each is undone again before the next, so that the answer is about this one.
    let cases = [
        ("UPDATE records SET principal = 'agent:nobody' WHERE seq = 5", "principal", 5),
        ("UPDATE records SET time = time + 1 WHERE seq = 6", "time", 6),
        ("UPDATE records SET detail = '{}' WHERE seq = 7", "detail", 7),
        ("UPDATE records SET hash = zeroblob(32) WHERE seq = 4", "hash", 4),
        ("DELETE FROM records WHERE seq = 3", "", 3),
    ];
    for (sql, column, seq) in cases {
        nas.stop()?;
        let ledger = nas.data().join("ledger.db");
        let before = std::fs::read(&ledger)?;
        tamper(&nas, sql)?;
        nas.boot()?;
        let verified = verify(&nas, Some(&kept))?;
        assert!(!verified.ok, "a changed {column} of record {seq} is not found");
        assert_eq!(verified.first_bad, Some(seq), "{sql}: {:?}", verified.because);
        nas.stop()?;
        std::fs::write(&ledger, before)?;
        std::fs::remove_file(anchor_log(&nas))?;
        nas.boot()?;
        assert!(verify(&nas, Some(&kept))?.ok, "the undone change of {column} is still found");
    }
    Ok(())
}

/// Goal: when the last records are cut off, the box finds it at its start by its own anchor, seals itself, says so, and
/// does not grow back into looking whole; the verification fails (SPEC L1.6, REC-3).
#[test]
fn a_cut_end_seals_the_box() -> Result<()> {
    let mut nas = box_with_records()?;
    let run = nas.full_lease("/shared/x").map_err(refused)?;
    let mut work = nas.mount(&run, "/shared/x")?;
    let kept = nas.as_owner(&RecordHead {}).map_err(refused)?;
    nas.stop()?;
    assert!(anchored(&nas)?.last() >= Some(&kept.seq));
    tamper(&nas, "DELETE FROM records WHERE seq > (SELECT max(seq) FROM records) - 3")?;

    // Looked at twice: the second time with more records than were anchored.
    for round in 0..2 {
        nas.boot()?;
        let status = status(&nas)?;
        assert_eq!(status.level, "sealed", "round {round}");
        assert!(status.causes.iter().any(|cause| cause.contains("cut off")), "{:?}", status.causes);
        for anchor in [None, Some(&kept)] {
            let verified = verify(&nas, anchor)?;
            assert!(!verified.ok, "round {round}, {anchor:?}");
            assert!(verified.because.is_some() && verified.first_bad.is_some());
        }
        assert_eq!(nas.as_owner(&LeaseList::default()).unwrap_err().code, "degraded");
        assert_eq!(nas.full_lease("/shared/x").map(|_| ()).unwrap_err().code, "degraded");
        work = work.reconnect()?;
        let root = work.root();
        assert_eq!(work.getattr(&root).unwrap_err().status(), Some(Status::NFS3ERR_JUKEBOX));
        assert_eq!(nas.as_owner(&BoxResume { passphrase: passphrase() }).unwrap_err().code, "state");
        for _ in 0..8 {
            nas.call(None, &OwnerLogin { passphrase: passphrase() }).map_err(refused)?;
        }
        assert!(!verify(&nas, None)?.ok, "the chain has grown past its anchor and looks whole");
        nas.stop()?;
    }
    Ok(())
}

/// Goal: whoever cuts the box's own anchor as well deceives the box, and not the head that a client kept (SPEC REC-3).
#[test]
fn a_kept_head_finds_what_the_box_cannot() -> Result<()> {
    let mut nas = box_with_records()?;
    let kept = nas.as_owner(&RecordHead {}).map_err(refused)?;
    nas.stop()?;
    let counts = anchored(&nas)?;
    let cut = *counts.iter().rev().find(|count| **count < kept.seq).context("one anchored head only")?;
    tamper(&nas, &format!("DELETE FROM records WHERE seq > {cut}"))?;
    let text = std::fs::read_to_string(anchor_log(&nas))?;
    let left = counts.iter().filter(|count| **count <= cut).count();
    let left: String = text.lines().take(left).map(|line| format!("{line}\n")).collect();
    std::fs::write(anchor_log(&nas), left)?;

    nas.boot()?;
    assert_eq!(status(&nas)?.level, "none");
    assert!(verify(&nas, None)?.ok, "the box has no other witness than its anchor");
    let verified = verify(&nas, Some(&kept))?;
    assert!(!verified.ok, "the head that was kept is not in the chain, and nobody says so");
    assert_eq!(verified.first_bad, Some(kept.seq));
    assert_eq!(verified.anchor, Some(kept));
    Ok(())
}

/// Goal: a box whose ledger came back from an older copy can go on: its owner accepts the loss, which is recorded, ends the
/// leases that may have been revoked in what is lost, and is told by every verification for ever after (SPEC REC-3).
#[test]
fn a_lost_end_can_be_accepted() -> Result<()> {
    let mut nas = box_with_records()?;
    let accept = |nas: &TestBox| {
        let why = Some("the disk died".to_owned());
        nas.as_owner(&RecordAcceptLoss { passphrase: passphrase(), why })
    };
    assert_eq!(accept(&nas).unwrap_err().code, "state", "nothing is lost");
    let older = nas.full_lease("/shared/x").map_err(refused)?;
    nas.stop()?;
    let ledger = nas.data().join("ledger.db");
    let copy = std::fs::read(&ledger)?;
    nas.boot()?;
    // Nothing here moves main: a store that is ahead of its ledger would refuse to start.
    nas.full_lease("/shared/x").map_err(refused)?;
    for _ in 0..3 {
        nas.call(None, &OwnerLogin { passphrase: passphrase() }).map_err(refused)?;
    }
    let kept = nas.as_owner(&RecordHead {}).map_err(refused)?;
    nas.stop()?;
    std::fs::write(&ledger, copy)?;

    nas.boot()?;
    assert_eq!(status(&nas)?.level, "sealed");
    let left = nas.as_owner(&RecordList::default()).map_err(refused)?.records;
    assert!(left[0].seq < kept.seq, "what is left can be read");
    assert_eq!(nas.as_owner(&BoxResume { passphrase: passphrase() }).unwrap_err().code, "state");
    let guessed = RecordAcceptLoss { passphrase: Secret::new("a guess".to_owned()), why: None };
    assert_eq!(nas.as_owner(&guessed).unwrap_err().code, "wrong_passphrase");
    let loss = accept(&nas).map_err(refused)?;
    assert!(loss.lost.seq >= kept.seq && loss.kept.seq < kept.seq && loss.kept.seq > 0, "{loss:?}");
    assert_eq!(accept(&nas).unwrap_err().code, "state", "it is accepted once");
    assert_eq!(nas.full_lease("/shared/x").map(|_| ()).unwrap_err().code, "degraded", "sealed until it is resumed");
    nas.as_owner(&BoxResume { passphrase: passphrase() }).map_err(refused)?;
    assert_eq!(status(&nas)?.level, "none");
    let ended = nas.as_owner(&LeaseShow { lease: Some(older.info.lease) }).map_err(refused)?;
    assert_eq!(ended.state, "revoked");

    let run = nas.full_lease("/shared/x").map_err(refused)?;
    nas.mount(&run, "/shared/x")?.write_file("a.txt", b"after\n")?;
    let proposed = nas.propose(&run).map_err(refused)?;
    nas.approve(&nas.card(&proposed).map_err(refused)?).map_err(refused)?;
    for without_anchor in [false, false, true] {
        let verified = verify(&nas, None)?;
        assert!(verified.ok, "{:?}", verified.because);
        assert_eq!(verified.losses, std::slice::from_ref(&loss));
        let verified = verify(&nas, Some(&kept))?;
        assert!(!verified.ok && verified.because.is_some_and(|why| why.contains("accepted the loss")));
        nas.stop()?;
        if without_anchor {
            std::fs::remove_file(anchor_log(&nas))?;
        }
        nas.boot()?;
        assert_eq!(status(&nas)?.level, "none");
    }
    assert_eq!(verify(&nas, None)?.losses, [loss], "the records tell of it too");
    Ok(())
}
