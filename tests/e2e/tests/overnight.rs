//! The overnight run through real sockets: SPEC L0.1, L0.2, L1.1, L1.3, L1.5, L1.6, L1.7.

use nas_e2e::ops::{Handles, every_procedure};
use nas_e2e::{PATIENCE, TestBox, passphrase, path, refused};
use nas_nfsclient::{Client, Credential, Error, Status};
use nas_testkit::{Scratch, wait_until};
use nas_types::lease::{Action, View};
use nas_types::object::Oid;
use nas_types::secret::Secret;
use nas_types::verb::{
    BoxStatus, BranchShow, ExplainCommit, MountTicket, Propose, RecordInfo, RecordList, RecordVerify, TreeImport,
};

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
    assert!(committed, "no automatic commit after quiet; the log of nasd:\n{}", nas.log());

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

/// Goal: no credential and no interface writes to main: not the view of main over NFS, by any procedure, not a verb of
/// HTTP, not the owner's token, not a proposal into another name (SPEC L0.2, BRANCH-1).
#[test]
fn main_is_written_by_nobody() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("ops/file", "content");
    std::os::unix::fs::symlink("file", source.join("ops/link"))?;
    std::fs::create_dir(source.join("ops/dir"))?;
    nas.import(source.path(), "/shared/launch").map_err(refused)?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let everything = nas.lease(&["/**"], &Action::ALL, None).map_err(refused)?;
    let commit = || -> anyhow::Result<Option<String>> {
        Ok(nas.as_owner(&BoxStatus {}).map_err(refused)?.details.map(|details| details.commit))
    };
    let before = commit()?;

    for lease in [&cleo, &everything] {
        let mut main = nas.mount_view(lease, "/shared/launch", View::Main)?;
        let on = Handles::find(&mut main)?;
        for outcome in every_procedure(&mut main, &on)? {
            let expected = if outcome.changes { Status::NFS3ERR_ROFS } else { Status::NFS3_OK };
            assert_eq!(outcome.status, expected, "{outcome:?}");
        }
        assert_eq!(main.read_file("ops/file")?, b"content");
    }
    let into = |into: &str| Propose { into: into.to_owned(), why: None };
    nas.mount(&cleo, "/shared/launch")?.write_file("ops/file", b"changed")?;
    for name in ["", "Main", "main ", "main/", "refs/heads/main", "../main", "other", "main\0", "HEAD"] {
        assert_eq!(nas.call(Some(&cleo.token), &into(name)).unwrap_err().code, "invalid", "{name:?}");
    }
    let branch = cleo.branch().to_string();
    assert_eq!(nas.call(Some(&everything.token), &into(&branch)).unwrap_err().code, "invalid");
    // The owner's token looks and issues leases; it has no branch, and so nothing to write or to propose.
    assert_eq!(nas.as_owner(&into("main")).unwrap_err().code, "denied");
    assert_eq!(
        nas.as_owner(&MountTicket { view: View::Main, read_only: false, commit: None }).unwrap_err().code,
        "denied"
    );
    for verb in ["tree/write", "tree/put", "tree/commit", "tree/merge", "branch/merge", "branch/push", "main/write"] {
        let body = serde_json::json!({ "path": "/shared/launch/ops/file", "content": "x" });
        assert_eq!(nas.call_json(verb, Some(nas.owner()), &body).unwrap_err().code, "unknown_verb", "{verb}");
    }
    // An import is a merge that the owner decides with the passphrase.
    let archive = tar_of("ops/file", b"imported")?;
    for (token, passphrase, code) in [
        (None, passphrase(), "unauthenticated"),
        (Some(&everything.token), passphrase(), "denied"),
        (Some(nas.owner()), Secret::new("not the passphrase".to_owned()), "wrong_passphrase"),
    ] {
        let head = TreeImport { into: path("/shared/launch"), why: None, passphrase };
        assert_eq!(nas.import_as(token, &head, &archive).unwrap_err().code, code);
    }
    assert_eq!(commit()?, before);
    assert!(records_of_rule(&nas, "main-is-protected").is_some(), "the refusal is not in the records");
    Ok(())
}

fn tar_of(name: &str, content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, content)?;
    Ok(archive.into_inner()?)
}

/// The newest refusal by `rule`, waited for.
fn records_of_rule(nas: &TestBox, rule: &str) -> Option<RecordInfo> {
    let refusals = RecordList { kind: Some("refusal".to_owned()), limit: Some(1000), ..RecordList::default() };
    let mut found = None;
    wait_until(PATIENCE, || {
        let records = nas.as_owner(&refusals).map(|found| found.records).unwrap_or_default();
        found = records.into_iter().find(|record| record.rule.as_deref() == Some(rule));
        found.is_some()
    });
    found
}

/// Goal: without a lease nothing is answered, on any interface, and that is recorded (SPEC L1.1).
#[test]
fn no_lease_no_answer() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("secret.txt", "secret\n");
    nas.import(source.path(), "/shared/launch").map_err(refused)?;
    let refusal = |rule: &str| {
        let record = records_of_rule(&nas, rule);
        let record = record.ok_or_else(|| anyhow::anyhow!("the refusal by '{rule}' is not in the records"))?;
        anyhow::ensure!(record.effect.as_deref() == Some("deny") && record.run.is_none(), "{record:?}");
        anyhow::Ok(())
    };

    assert_eq!(nas.call(None, &BranchShow::default()).unwrap_err().code, "unauthenticated");
    refusal("no-token")?;
    let unknown = Secret::new(format!("nas_lease_{}", "a".repeat(52)));
    assert_eq!(nas.call(Some(&unknown), &BranchShow::default()).unwrap_err().code, "unauthenticated");
    refusal("unknown-token")?;

    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let credential = Credential::Sys { uid: 1000, gid: 1000 };
    let used = nas.export(&cleo, "/shared/launch", View::Branch)?;
    let mut work = Client::mount(nas.nfs(), &used, credential)?;
    for export in [used.as_str(), "/tkt_made_up/shared/launch", "/shared/launch", "/", ""] {
        assert!(matches!(Client::mount(nas.nfs(), export, credential), Err(Error::Mount(_))), "{export}");
    }
    refusal("ticket")?;

    // A handle with one bit changed, anywhere, opens nothing.
    let file = work.find("secret.txt")?.handle;
    let sealed = file.data.as_ref().to_vec();
    for at in 0..sealed.len() {
        let mut forged = sealed.clone();
        forged[at] ^= 1;
        let forged = nas_nfsclient::nfs3::nfs_fh3 { data: forged.into() };
        assert_eq!(work.read(&forged, 0, 10).unwrap_err().status(), Some(Status::NFS3ERR_BADHANDLE), "byte {at}");
    }
    refusal("handle.mac")?;
    // The handle itself, for another user of that machine.
    let mut other = work.reconnect_as(Credential::Sys { uid: 1001, gid: 1001 })?;
    assert_eq!(other.read(&file, 0, 10).unwrap_err().status(), Some(Status::NFS3ERR_ACCES));
    refusal("credential.uid")?;
    assert_eq!(work.read_all(&file)?, b"secret\n");
    assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok);
    Ok(())
}

/// Goal: every commit explains itself: an automatic one of a branch, an import's, and those that a merge was made from
/// (SPEC L1.5, REC-4); to a bearer only those of its own run.
#[test]
fn every_commit_explains_itself() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("read.md", "read me\n");
    let imported = nas.import(source.path(), "/shared/launch").map_err(refused)?;
    let explain = |commit: Oid| nas.as_owner(&ExplainCommit { commit: commit.to_string() }).map_err(refused);
    let explained = explain(imported.commit)?;
    assert_eq!(explained.run.as_ref().map(|run| run.principal.as_str()), Some("human:owner"));
    assert!(explained.lease.is_some() && explained.gate.is_none());
    assert!(explained.changes.iter().any(|change| change.path == path("/shared/launch/read.md")));
    assert!(explained.records.iter().any(|r| r.kind == "merge.outcome" && r.rule.is_some()), "{:?}", explained.records);

    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    work.read_file("read.md")?;
    work.write_file("written.md", b"one\n")?;
    let shown = || nas.call(Some(&cleo.token), &BranchShow::default());
    assert!(wait_until(PATIENCE, || shown().is_ok_and(|branch| branch.tip != branch.base)), "{}", nas.log());
    let automatic = shown().map_err(refused)?.tip;
    let explained = explain(automatic)?;
    assert_eq!(explained.run.map(|run| run.run), Some(cleo.info.run));
    assert_eq!(explained.lease.map(|lease| lease.lease), Some(cleo.info.lease));
    assert!(explained.gate.is_none());
    assert!(explained.records.iter().any(|record| record.kind == "commit"), "{:?}", explained.records);
    assert!(explained.read.iter().any(|line| line.path == path("/shared/launch/read.md")), "{:?}", explained.read);
    let trailer = |name: &str| explained.commit.trailers.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    assert_eq!(trailer("Run"), Some(&cleo.info.run.to_string()));
    assert_eq!(trailer("Lease"), Some(&cleo.info.lease.to_string()));
    assert_eq!(trailer("Principal"), Some(&"agent:cleo".to_owned()));

    let proposed = nas.propose(&cleo).map_err(refused)?;
    let decided = nas.approve(&nas.card(&proposed).map_err(refused)?).map_err(refused)?;
    let merged = decided.commit.ok_or_else(|| anyhow::anyhow!("not merged"))?;
    let explained = explain(merged)?;
    assert_eq!(explained.gate.as_ref().map(|gate| gate.gate), Some(proposed.gate));
    assert_eq!(explained.gate.map(|gate| gate.decision.by), Some("human:owner".to_owned()));
    for from in explained.from {
        assert_eq!(explain(from)?.run.map(|run| run.run), Some(cleo.info.run));
    }
    // Another run's commits do not exist for a bearer.
    let other = nas.full_lease("/shared/launch").map_err(refused)?;
    for commit in [imported.commit, automatic, merged] {
        let asked = ExplainCommit { commit: commit.to_string() };
        assert_eq!(nas.call(Some(&other.token), &asked).unwrap_err().code, "not_found");
    }
    assert!(nas.call(Some(&cleo.token), &ExplainCommit { commit: merged.to_string() }).is_ok());
    Ok(())
}
