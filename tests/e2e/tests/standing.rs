//! A person's standing branch (DESIGN §3): their own edits are merged by themselves after a time of quiet.

use std::fmt::Debug;

use nas_e2e::{Leased, PATIENCE, TestBox, passphrase, path, refused};
use nas_nfsclient::{Client, Status};
use nas_testkit::{Scratch, wait_until};
use nas_types::lease::View;
use nas_types::object::Oid;
use nas_types::verb::{
    ExplainCommit, LeaseRevoke, RecordList, StandingClose, StandingInfo, StandingOpen, StandingShow, TrashList,
};

const QUICK: [&str; 2] = ["--standing-quiet-ms", "400"];

fn with_tree(nas: &TestBox) -> anyhow::Result<()> {
    let source = Scratch::new("source");
    source.write("kept.txt", "kept\n");
    source.write("edited.txt", "one\ntwo\n");
    source.write("gone.txt", "gone\n");
    nas.import(source.path(), "/shared/x").map_err(refused)?;
    Ok(())
}

fn open(nas: &TestBox) -> anyhow::Result<Leased> {
    let opened = nas.as_owner(&StandingOpen { paths: None, passphrase: passphrase() }).map_err(refused)?;
    assert_eq!(opened.standing.branch, opened.lease.branch.clone().expect("because it is a branch"));
    Ok(Leased { info: opened.lease, token: opened.token })
}

fn show(nas: &TestBox) -> anyhow::Result<StandingInfo> {
    nas.as_owner(&StandingShow {}).map_err(refused)
}

/// Waits until the branch is as the test wants it.
fn until(nas: &TestBox, wanted: impl Fn(&StandingInfo) -> bool) -> anyhow::Result<StandingInfo> {
    let there = wait_until(PATIENCE, || show(nas).is_ok_and(|info| wanted(&info)));
    let info = show(nas)?;
    assert!(there, "{info:?}\n{}", nas.log());
    Ok(info)
}

/// Waits for the next merge after `before`.
fn merged_after(nas: &TestBox, before: Option<Oid>) -> anyhow::Result<Oid> {
    let info = until(nas, |info| info.merged != before && info.waiting == 0)?;
    Ok(info.merged.expect("because it differs from before or is the first"))
}

/// What main holds, seen by a lease of its own.
fn main_view(nas: &TestBox) -> anyhow::Result<Client> {
    let reader = nas.full_lease("/").map_err(refused)?;
    nas.mount_view(&reader, "/shared/x", View::Main)
}

fn not_found<T: Debug>(found: Result<T, nas_nfsclient::Error>) -> bool {
    found.is_err_and(|error| error.status() == Some(Status::NFS3ERR_NOENT))
}

/// Goal: edits, a new file and a deletion reach main by themselves, with the person as author and the rule as decision; what
/// was deleted is in the trash; a second round of edits of the same file goes in too; main's other merges show up.
#[test]
fn own_edits_are_merged() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&QUICK)?;
    with_tree(&nas)?;
    let lease = open(&nas)?;
    let mut mine = nas.mount(&lease, "/shared/x")?;
    let kept = mine.find("kept.txt")?;
    mine.write_file("edited.txt", b"one\nTWO\n")?;
    mine.write_file("new.txt", b"new\n")?;
    mine.remove_path("gone.txt")?;
    let first = merged_after(&nas, None)?;

    let mut main = main_view(&nas)?;
    assert_eq!(main.read_file("edited.txt")?, b"one\nTWO\n");
    assert_eq!(main.read_file("new.txt")?, b"new\n");
    assert!(not_found(main.find("gone.txt")));
    let explained = nas.as_owner(&ExplainCommit { commit: first.to_string() }).map_err(refused)?;
    assert_eq!(explained.run.map(|run| run.run), Some(lease.info.run));
    assert_eq!(explained.changes.len(), 3);
    let outcome = explained.records.iter().find(|record| record.kind.starts_with("merge") && record.rule.is_some());
    let outcome = outcome.expect("because a merge has a record");
    assert_eq!(outcome.rule.as_deref(), Some("own-edits"));
    assert_eq!(outcome.principal.as_deref(), Some("human:owner"));
    let trash = nas.as_owner(&TrashList::default()).map_err(refused)?;
    assert!(trash.entries.iter().any(|entry| entry.path == path("/shared/x/gone.txt")));

    // Again the same file: what was merged is where it goes on from.
    mine.write_file("edited.txt", b"ONE\nTWO\n")?;
    let second = merged_after(&nas, Some(first))?;
    assert_ne!(first, second);
    assert_eq!(main_view(&nas)?.read_file("edited.txt")?, b"ONE\nTWO\n");

    // A run's merge shows up on the mount; a handle of a file that nobody touched goes on.
    let run = nas.full_lease("/shared/x").map_err(refused)?;
    nas.mount(&run, "/shared/x")?.write_file("from-a-run.txt", b"run\n")?;
    let proposed = nas.propose(&run).map_err(refused)?;
    let card = nas.card(&proposed).map_err(refused)?;
    assert_eq!(nas.approve(&card).map_err(refused)?.state, "approved");
    assert!(wait_until(PATIENCE, || mine.read_file("from-a-run.txt").is_ok_and(|text| text == b"run\n")));
    assert_eq!(mine.read_all(&kept.handle)?, b"kept\n");
    mine.write_file("from-a-run.txt", b"run, then me\n")?;
    merged_after(&nas, Some(second))?;
    assert_eq!(main_view(&nas)?.read_file("from-a-run.txt")?, b"run, then me\n");
    Ok(())
}

/// Goal: where main changed the same lines nothing is merged and nobody loses anything; the paths are named, and once the
/// person has brought the two together it goes on.
#[test]
fn a_conflict_waits_for_the_person() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&["--standing-quiet-ms", "3000"])?;
    with_tree(&nas)?;
    let lease = open(&nas)?;
    let run = nas.full_lease("/shared/x").map_err(refused)?;
    nas.mount(&run, "/shared/x")?.write_file("edited.txt", b"one\nRUN\n")?;
    let card = nas.card(&nas.propose(&run).map_err(refused)?).map_err(refused)?;
    let mut mine = nas.mount(&lease, "/shared/x")?;
    mine.write_file("edited.txt", b"one\nMINE\n")?;
    assert_eq!(nas.approve(&card).map_err(refused)?.state, "approved");
    let info = until(&nas, |info| info.stuck.is_some())?;
    let stuck = info.stuck.expect("because it was waited for");
    assert_eq!(stuck.paths, [path("/shared/x/edited.txt")]);
    assert_eq!(main_view(&nas)?.read_file("edited.txt")?, b"one\nRUN\n");
    assert_eq!(mine.read_file("edited.txt")?, b"one\nMINE\n");
    mine.write_file("edited.txt", b"one\nRUN\n")?;
    mine.write_file("mine.txt", b"MINE\n")?;
    let info = until(&nas, |info| info.stuck.is_none() && info.merged.is_some())?;
    assert_eq!(info.stuck, None);
    let mut main = main_view(&nas)?;
    assert_eq!(main.read_file("edited.txt")?, b"one\nRUN\n");
    assert_eq!(main.read_file("mine.txt")?, b"MINE\n");
    let stuck = RecordList { kind: Some("standing.stuck".to_owned()), limit: Some(10), ..RecordList::default() };
    assert_eq!(nas.as_owner(&stuck).map_err(refused)?.records.len(), 1);
    Ok(())
}

/// Goal: what says what a role may do is not changed without a look at it.
#[test]
fn not_below_dot_nas() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&QUICK)?;
    let lease = open(&nas)?;
    let mut mine = nas.mount(&lease, "/")?;
    mine.make_dirs("agents/cleo/.nas")?;
    mine.write_file("agents/cleo/.nas/limits.yaml", b"everything: allowed\n")?;
    let info = until(&nas, |info| info.stuck.is_some())?;
    let stuck = info.stuck.expect("because it was waited for");
    assert!(stuck.because.contains("propose"), "{}", stuck.because);
    assert_eq!((stuck.paths.is_empty(), info.merged), (false, None));
    Ok(())
}

/// Goal: it goes on after `kill -9`, on the same mount; opening again gives a fresh lease on the same branch.
#[test]
fn it_stands_after_a_crash() -> anyhow::Result<()> {
    let mut nas = TestBox::start_with(&QUICK)?;
    with_tree(&nas)?;
    let lease = open(&nas)?;
    let mut mine = nas.mount(&lease, "/shared/x")?;
    let file = mine.write_file("new.txt", b"first\n")?;
    nas.kill();
    nas.boot()?;
    let mut mine = mine.reconnect()?;
    assert_eq!(mine.read_all(&file)?, b"first\n");
    let first = merged_after(&nas, None)?;
    let again = open(&nas)?;
    assert_eq!((again.info.run, again.info.lease == lease.info.lease), (lease.info.run, false));
    mine.write_file("new.txt", b"second\n")?;
    merged_after(&nas, Some(first))?;
    assert_eq!(main_view(&nas)?.read_file("new.txt")?, b"second\n");
    Ok(())
}

/// Goal: a kill at each step of following main and of merging leaves a branch that goes on, and main with what was written.
#[test]
fn killed_between_the_steps() -> anyhow::Result<()> {
    let following = ["store.follow.applied", "store.follow.state"];
    let merging = ["door.merge.intent", "door.merge.staged", "door.merge.pointer", "door.merge.published"];
    for failpoint in following.into_iter().chain(merging) {
        let mut nas = TestBox::start_with(&QUICK)?;
        with_tree(&nas)?;
        let lease = open(&nas)?;
        nas.mount(&lease, "/shared/x")?.write_file("first.txt", b"first\n")?;
        let first = merged_after(&nas, None)?;
        nas.stop()?;
        nas.boot_with(&[("NAS_FAILPOINT", failpoint)])?;
        if failpoint.starts_with("store.follow.") {
            // In following what a run merged.
            let run = nas.full_lease("/shared/x").map_err(refused)?;
            nas.mount(&run, "/shared/x")?.write_file("run.txt", b"run\n")?;
            let card = nas.card(&nas.propose(&run).map_err(refused)?).map_err(refused)?;
            nas.approve(&card).map_err(refused)?;
        } else {
            // In merging these edits.
            nas.mount(&open(&nas)?, "/shared/x")?.write_file("edit.txt", b"edit\n")?;
        }
        nas.wait_for_end()?;
        nas.boot()?;
        let again = open(&nas)?;
        let mut mine = nas.mount(&again, "/shared/x")?;
        mine.write_file("second.txt", b"second\n")?;
        merged_after(&nas, Some(first)).map_err(|error| error.context(failpoint))?;
        let mut main = main_view(&nas)?;
        assert_eq!(main.read_file("first.txt")?, b"first\n", "{failpoint}");
        assert_eq!(main.read_file("second.txt")?, b"second\n", "{failpoint}");
        assert_eq!(main.read_file("kept.txt")?, b"kept\n", "{failpoint}");
        let more: &[u8] = if failpoint.starts_with("store.follow.") { b"run.txt" } else { b"edit.txt" };
        assert!(main.list("")?.iter().any(|name| name == more), "{failpoint}");
    }
    Ok(())
}

/// Goal: what a killed follow had put in place is main's and not the person's: when main takes it back, it stays taken back.
#[test]
fn a_killed_follow_takes_nothing_back() -> anyhow::Result<()> {
    for failpoint in ["store.follow.applied", "store.follow.state"] {
        let mut nas = TestBox::start_with(&["--standing-quiet-ms", "2500"])?;
        with_tree(&nas)?;
        let lease = open(&nas)?;
        let run = nas.full_lease("/shared/x").map_err(refused)?;
        let approved = |nas: &TestBox, text: &[u8]| -> anyhow::Result<()> {
            nas.mount(&run, "/shared/x")?.write_file("edited.txt", text)?;
            let card = nas.card(&nas.propose(&run).map_err(refused)?).map_err(refused)?;
            assert_eq!(nas.approve(&card).map_err(refused)?.state, "approved");
            Ok(())
        };
        nas.stop()?;
        nas.boot_with(&[("NAS_FAILPOINT", failpoint)])?;
        approved(&nas, b"RUN\n")?;
        nas.wait_for_end()?;
        nas.boot()?;
        approved(&nas, b"one\ntwo\n")?;
        let mut mine = nas.mount(&lease, "/shared/x")?;
        mine.write_file("mine.txt", b"mine\n")?;
        until(&nas, |info| info.merged.is_some() && info.waiting == 0)?;
        let mut main = main_view(&nas)?;
        assert_eq!(main.read_file("edited.txt")?, b"one\ntwo\n", "{failpoint}");
        assert_eq!(main.read_file("mine.txt")?, b"mine\n", "{failpoint}");
        assert!(wait_until(PATIENCE, || mine.read_file("edited.txt").is_ok_and(|text| text == b"one\ntwo\n")));
    }
    Ok(())
}

/// Goal: what was written and answered before the end is in main after closing, however busy the mount is.
#[test]
fn closing_loses_no_answered_write() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&["--standing-quiet-ms", "3600000"])?;
    with_tree(&nas)?;
    let lease = open(&nas)?;
    let mut mine = nas.mount(&lease, "/shared/x")?;
    let answered = std::sync::atomic::AtomicU32::new(0);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = Vec::new();
            loop {
                let name = format!("w{}", written.len());
                if mine.write_file(&name, b"written\n").is_err() {
                    return written;
                }
                written.push(name);
                answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let busy = wait_until(PATIENCE, || answered.load(std::sync::atomic::Ordering::Relaxed) > 20);
        let closed = nas.as_owner(&StandingClose { passphrase: passphrase() }).map_err(refused);
        (busy, closed, writer.join())
    });
    let (busy, closed, written) = written;
    assert!(busy && closed?.stuck.is_none());
    let main = main_view(&nas)?.list("")?;
    for name in written.unwrap_or_default() {
        assert!(main.contains(&name.clone().into_bytes()), "{name} was answered and is not in main");
    }
    Ok(())
}

/// Goal: what was written under a lease that was revoked is not merged by opening again; other paths than those of the open
/// branch are refused, not ignored.
#[test]
fn opened_again() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&["--standing-quiet-ms", "3000"])?;
    with_tree(&nas)?;
    let lease = open(&nas)?;
    let narrower = StandingOpen { paths: Some(vec!["/shared/x/**".to_owned()]), passphrase: passphrase() };
    let error = nas.as_owner(&narrower).map(|_| ()).unwrap_err();
    assert!(error.message.contains("standing close"), "{}", error.message);
    let again = nas.full_lease("/shared/x").map_err(refused)?;
    // Written and revoked within the time of quiet.
    nas.mount(&lease, "/shared/x")?.write_file("intruder.txt", b"intruder\n")?;
    nas.as_owner(&LeaseRevoke { lease: lease.info.lease, why: None }).map_err(refused)?;
    assert_eq!(show(&nas)?.state, "over");
    let fresh = open(&nas)?;
    assert_ne!(fresh.info.run, lease.info.run);
    nas.mount(&fresh, "/shared/x")?.write_file("mine.txt", b"mine\n")?;
    merged_after(&nas, None)?;
    let mut main = nas.mount_view(&again, "/shared/x", View::Main)?;
    assert_eq!(main.read_file("mine.txt")?, b"mine\n");
    assert!(not_found(main.find("intruder.txt")));
    Ok(())
}

/// Goal: closing merges what is there and ends the mount; nothing is open then; a revoked lease merges nothing.
#[test]
fn closed_and_revoked() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&["--standing-quiet-ms", "3600000"])?;
    with_tree(&nas)?;
    assert!(nas.as_owner(&StandingShow {}).unwrap_err().message.contains("standing open"));
    let wrong = StandingOpen { paths: None, passphrase: nas_types::secret::Secret::new("wrong".to_owned()) };
    assert_eq!(nas.as_owner(&wrong).map(|_| ()).unwrap_err().code, "wrong_passphrase");
    let lease = open(&nas)?;
    let mut mine = nas.mount(&lease, "/shared/x")?;
    mine.write_file("new.txt", b"new\n")?;
    let closed = nas.as_owner(&StandingClose { passphrase: passphrase() }).map_err(refused)?;
    assert_eq!((closed.state.as_str(), closed.merged.is_some(), closed.waiting), ("closed", true, 0));
    assert_eq!(main_view(&nas)?.read_file("new.txt")?, b"new\n");
    assert!(mine.write_file("late.txt", b"late\n").is_err());

    let lease = open(&nas)?;
    let mut mine = nas.mount(&lease, "/shared/x")?;
    mine.write_file("never.txt", b"never\n")?;
    nas.as_owner(&LeaseRevoke { lease: lease.info.lease, why: None }).map_err(refused)?;
    assert_eq!(mine.find("never.txt").map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_STALE));
    nas.as_owner(&StandingClose { passphrase: passphrase() }).map_err(refused)?;
    assert!(not_found(main_view(&nas)?.find("never.txt")));
    Ok(())
}
