//! The overnight run through real sockets: SPEC L0.1, L0.2, L1.1, L1.3, L1.5, L1.6, L1.7.

use nas_e2e::{PATIENCE, TestBox, refused};
use nas_nfsclient::Status;
use nas_testkit::{Scratch, wait_until};
use nas_types::lease::View;
use nas_types::verb::{BranchShow, ExplainCommit, RecordList, RecordVerify};

/// Goal: an agent's work on its branch leaves main alone until a person approves exactly that diff; then main has it,
/// and the commit explains itself (SPEC L0.1, L0.2, L1.5, L1.7).
#[test]
fn from_import_to_explain() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("notes.md", "# Notes\n\nold line\n");
    source.write("drop.txt", "to be deleted\n");
    nas.import(source.path(), "/shared/launch").map_err(refused)?;

    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    assert_eq!(work.read_file("notes.md")?, b"# Notes\n\nold line\n");
    work.write_file("notes.md", b"# Notes\n\nnew line\n")?;
    work.make_dirs("draft")?;
    work.write_file("draft/release.md", b"ready\n")?;
    work.remove_path("drop.txt")?;

    // Protected main is as it was, also to those who hold credentials (L0.1, L0.2).
    let mut main = nas.mount_view(&cleo, "/shared/launch", View::Main)?;
    assert_eq!(main.read_file("notes.md")?, b"# Notes\n\nold line\n");
    let refused_write = main.write_file("notes.md", b"direct\n").unwrap_err();
    assert_eq!(refused_write.status(), Some(Status::NFS3ERR_ROFS));

    // The quiet branch commits itself (MOUNT-2).
    let committed = wait_until(PATIENCE, || {
        nas.call(Some(&cleo.token), &BranchShow::default())
            .is_ok_and(|branch| branch.tip != branch.base && branch.dirty_paths == 0)
    });
    assert!(committed, "no automatic commit after quiet");

    let proposed = nas.propose(&cleo).map_err(refused)?;
    assert_eq!(proposed.files_changed, 3);
    let card = nas.card(&proposed).map_err(refused)?;
    assert!(card.diff.contains("-old line") && card.diff.contains("+new line"), "{}", card.diff);
    assert_eq!(card.risk.deletions.len(), 1);
    assert!(card.read.iter().any(|line| line.path.to_string() == "/shared/launch/notes.md"));
    let decided = nas.approve(&card).map_err(refused)?;
    assert_eq!(decided.state, "approved");
    let commit = decided.commit.ok_or_else(|| anyhow::anyhow!("no commit"))?;

    assert_eq!(main.read_file("notes.md")?, b"# Notes\n\nnew line\n");
    assert_eq!(main.read_file("draft/release.md")?, b"ready\n");
    assert_eq!(main.find("drop.txt").unwrap_err().status(), Some(Status::NFS3ERR_NOENT));

    let explained = nas.as_owner(&ExplainCommit { commit: commit.short() }).map_err(refused)?;
    assert_eq!(explained.run.map(|run| run.run), Some(cleo.info.run));
    assert_eq!(explained.lease.map(|lease| lease.lease), Some(cleo.info.lease));
    assert_eq!(explained.gate.map(|gate| gate.gate), Some(card.gate));
    assert!(explained.read.iter().any(|line| line.path.to_string() == "/shared/launch/notes.md"));
    assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok);
    Ok(())
}

/// Goal: without a token nothing is answered, and that is recorded (SPEC L1.1).
#[test]
fn no_lease_no_answer() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let error = nas.call(None, &BranchShow::default()).unwrap_err();
    assert_eq!(error.code, "unauthenticated");
    let recorded = wait_until(PATIENCE, || {
        let refusals = RecordList { kind: Some("refusal".to_owned()), ..RecordList::default() };
        nas.as_owner(&refusals)
            .is_ok_and(|found| found.records.iter().any(|record| record.rule.as_deref() == Some("no-token")))
    });
    assert!(recorded, "the refusal is not in the records");
    Ok(())
}
