//! Unprotected trees (DESIGN §3): plain NAS space under a lease, without branch, gate or history.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use nas_e2e::{Answer, Leased, PATIENCE, TestBox, passphrase, path, refused};
use nas_nfsclient::nfs3::{sattr3, stable_how};
use nas_nfsclient::{Client, Status};
use nas_testkit::{Scratch, wait_until};
use nas_types::lease::{Action, TreeName, View};
use nas_types::verb::{
    BoxStatus, BranchCommit, LeaseCreate, LeaseRevoke, Propose, RecordList, RecordVerify, TreeCreate, TreeInfo,
    TreeList, TreeRemove, TreeRestore, TreeShow,
};

fn media() -> TreeName {
    "media".parse().expect("because it is a legal name")
}

fn create(nas: &TestBox) -> Answer<TreeInfo> {
    nas.as_owner(&TreeCreate { tree: media(), passphrase: passphrase() })
}

fn lease_on_media(nas: &TestBox, paths: &[&str], actions: &[Action], ttl_seconds: Option<u64>) -> Answer<Leased> {
    let create = LeaseCreate {
        role: Some("cleo".parse().expect("because it is a legal role")),
        tree: Some(media()),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        actions: actions.to_vec(),
        ttl_seconds,
        purpose: None,
        quota_bytes: None,
    };
    let created = nas.as_owner(&create)?;
    Ok(Leased { info: created.lease, token: created.token })
}

const ALL: [Action; 3] = [Action::List, Action::Read, Action::Write];

/// Goal: what is written on an unprotected tree is there at once, for every lease on it and after `kill -9`; handles go on;
/// main, and the leases on the two trees, know nothing of each other.
#[test]
fn plain_space() -> anyhow::Result<()> {
    plain_space_in(TestBox::start()?)
}

/// Goal: the same without an image of its own: with the engine that copies, unless the folder of the tests is on btrfs.
#[test]
fn plain_space_in_a_folder() -> anyhow::Result<()> {
    let scratch = Scratch::new("box");
    let mut nas = TestBox::on_btrfs(&scratch.join("data"), &["--no-image"]);
    nas.boot()?;
    nas.init_owner()?;
    plain_space_in(nas)
}

fn plain_space_in(mut nas: TestBox) -> anyhow::Result<()> {
    assert_eq!(create(&nas).map_err(refused)?.state, "live");
    let before = nas.as_owner(&BoxStatus {}).map_err(refused)?.details.map(|details| details.commit);

    let whole = lease_on_media(&nas, &["/**"], &ALL, None).map_err(refused)?;
    assert_eq!((whole.info.tree.as_str(), &whole.info.branch), ("media", &None));
    let mut client = nas.mount(&whole, "/")?;
    client.make_dirs("films")?;
    client.make_dirs("private")?;
    let made = client.write_file("films/a.mkv", b"moving pictures")?;
    client.write_file("private/diary", b"dear diary")?;
    client.rename_path("films/a.mkv", "films/b.mkv")?;

    // Another lease sees it at once, and only its own paths.
    let part = lease_on_media(&nas, &["/films/**"], &[Action::Read], None).map_err(refused)?;
    let mut other = nas.mount(&part, "/")?;
    assert_eq!(other.list("")?, [b"films".to_vec()]);
    assert_eq!(other.find("private").map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_NOENT));
    assert_eq!(other.read_file("films/b.mkv")?, b"moving pictures");

    nas.kill();
    nas.boot()?;
    let mut client = client.reconnect()?;
    client.write(&made, 0, b"MOVING", stable_how::FILE_SYNC)?;
    assert_eq!(client.read_all(&made)?, b"MOVING pictures");
    client.remove_path("films/b.mkv")?;
    assert_eq!(client.list("films")?, Vec::<Vec<u8>>::new());

    // The protected tree has nothing of it and did not move.
    let after = nas.as_owner(&BoxStatus {}).map_err(refused)?.details.map(|details| details.commit);
    assert_eq!(before, after);
    let main = nas.full_lease("/").map_err(refused)?;
    let mut branch = nas.mount(&main, "/")?;
    assert_eq!(branch.find("films").map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_NOENT));
    let list = TreeList { path: path("/films"), view: View::Main, commit: None, cursor: None, limit: None };
    assert_eq!(nas.as_owner(&list).unwrap_err().code, "not_found");
    // Nor can its lease look at main, by a mount or by a list.
    assert!(nas.mount_view(&whole, "/", View::Main).is_err());
    let root = TreeList { path: path("/"), ..list };
    assert_eq!(nas.call(Some(&whole.token), &root).unwrap_err().code, "denied");
    let listed = nas.call(Some(&whole.token), &TreeList { view: View::Branch, ..root }).map_err(refused)?;
    let listed: Vec<_> = listed.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(listed, ["/films", "/private"]);
    Ok(())
}

/// Goal: what needs a branch says that there is none; a lease on the tree narrows, ends and is revoked like any other.
#[test]
fn no_branch_and_no_history() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let unknown = lease_on_media(&nas, &["/**"], &ALL, None).map(|_| ()).unwrap_err();
    assert_eq!(unknown.code, "not_found");
    create(&nas).map_err(refused)?;
    let again = create(&nas).unwrap_err();
    assert!(again.message.contains("exists already"), "{}", again.message);
    let wrong = TreeCreate { tree: "other".parse()?, passphrase: nas_types::secret::Secret::new("wrong".to_owned()) };
    assert_eq!(nas.as_owner(&wrong).unwrap_err().code, "wrong_passphrase");

    let proposing = lease_on_media(&nas, &["/**"], &Action::ALL, None).map(|_| ()).unwrap_err();
    assert!(proposing.message.contains("there at once"), "{}", proposing.message);
    let lease = lease_on_media(&nas, &["/**"], &ALL, None).map_err(refused)?;
    let committed = nas.call(Some(&lease.token), &BranchCommit { message: None }).unwrap_err();
    assert!(committed.message.contains("keeps no history"), "{}", committed.message);
    let proposed = nas.call(Some(&lease.token), &Propose { into: "main".to_owned(), why: None }).unwrap_err();
    assert_eq!(proposed.code, "denied");

    let narrower = LeaseCreate {
        role: None,
        tree: None,
        paths: vec!["/films/**".to_owned()],
        actions: vec![Action::Read],
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
    };
    let child = nas.call(Some(&lease.token), &narrower).map_err(refused)?;
    assert_eq!(child.lease.tree, media());
    let elsewhere = LeaseCreate { tree: Some(TreeName::protected()), ..narrower };
    assert_eq!(nas.call(Some(&lease.token), &elsewhere).map(|_| ()).unwrap_err().code, "invalid");

    let mut client = nas.mount(&lease, "/")?;
    client.write_file("kept", b"kept")?;
    nas.as_owner(&LeaseRevoke { lease: lease.info.lease, why: None }).map_err(refused)?;
    assert_eq!(client.write_file("late", b"late").map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_STALE));
    Ok(())
}

/// Goal: a lease on a tree that is over turns its mount read-only, then stale (SPEC MOUNT-5).
#[test]
fn a_lease_ends_there_too() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&["--read-grace-ms", "1000"])?;
    create(&nas).map_err(refused)?;
    let short = lease_on_media(&nas, &["/**"], &ALL, Some(2)).map_err(refused)?;
    let mut client = nas.mount(&short, "/")?;
    let root = client.root();
    let read_only = Some(Status::NFS3ERR_ROFS);
    let created =
        |client: &mut Client| client.mkdir(&root, b"d", sattr3::default()).err().and_then(|error| error.status());
    assert!(wait_until(PATIENCE, || created(&mut client) == read_only));
    assert!(wait_until(PATIENCE, || client.getattr(&root).is_err_and(|e| e.status() == Some(Status::NFS3ERR_STALE))));
    Ok(())
}

/// Goal: a tree in use is not removed; a removed one serves nothing, keeps its files, and comes back whole; its name is taken
/// meanwhile.
#[test]
fn removed_and_restored() -> anyhow::Result<()> {
    let mut nas = TestBox::start()?;
    create(&nas).map_err(refused)?;
    let lease = lease_on_media(&nas, &["/**"], &ALL, None).map_err(refused)?;
    let mut client = nas.mount(&lease, "/")?;
    client.write_file("kept", b"still here")?;
    let remove = TreeRemove { tree: media(), passphrase: passphrase() };
    let in_use = nas.as_owner(&remove).unwrap_err();
    assert!(in_use.message.contains("revoke"), "{}", in_use.message);
    nas.as_owner(&LeaseRevoke { lease: lease.info.lease, why: None }).map_err(refused)?;
    let removed = nas.as_owner(&remove).map_err(refused)?;
    assert_eq!((removed.state.as_str(), removed.gone_at.is_some()), ("removed", true));
    assert!(create(&nas).unwrap_err().message.contains("restore"));
    assert_eq!(lease_on_media(&nas, &["/**"], &ALL, None).map(|_| ()).unwrap_err().code, "not_found");
    nas.restart()?;
    let shown = nas.as_owner(&TreeShow { tree: None }).map_err(refused)?.trees;
    let shown: Vec<_> = shown.iter().map(|tree| (tree.tree.as_str(), tree.protected, tree.state.as_str())).collect();
    assert_eq!(shown, [("nas", true, "live"), ("media", false, "removed")]);
    nas.as_owner(&TreeRestore { tree: media(), passphrase: passphrase() }).map_err(refused)?;
    let again = lease_on_media(&nas, &["/**"], &ALL, None).map_err(refused)?;
    let mut client = nas.mount(&again, "/")?;
    assert_eq!(client.read_file("kept")?, b"still here");
    let protected = TreeRemove { tree: TreeName::protected(), passphrase: passphrase() };
    assert!(nas.as_owner(&protected).unwrap_err().message.contains("protected"));
    Ok(())
}

/// Goal: a pool down to its reserve takes nothing more on a tree either; deleting works, and what is there is read.
#[test]
fn within_the_reserve() -> anyhow::Result<()> {
    let scratch = Scratch::new("box");
    let data = scratch.join("data");
    let mut nas = TestBox::in_folder(&data, &[]);
    nas.boot()?;
    nas.init_owner()?;
    create(&nas).map_err(refused)?;
    let lease = lease_on_media(&nas, &["/**"], &ALL, None).map_err(refused)?;
    nas.mount(&lease, "/")?.write_file("before", b"before")?;
    nas.stop()?;
    drop(nas);
    // More is kept back than the pool has.
    let mut nas = TestBox::in_folder(&data, &["--reserve-mib", "100000000"]);
    nas.boot()?;
    let mut client = nas.mount(&lease, "/")?;
    assert_eq!(client.write_file("after", b"after").map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_NOSPC));
    assert_eq!(client.read_file("before")?, b"before");
    client.remove_path("before")?;
    assert_eq!(client.list("")?, Vec::<Vec<u8>>::new());
    Ok(())
}

/// Goal: killed after the directory is made and before the ledger knows of the tree, there is none after a start, what was begun
/// is recorded as aborted, and the tree can be made.
#[test]
fn killed_while_it_is_made() -> anyhow::Result<()> {
    let mut nas = TestBox::start()?;
    nas.stop()?;
    nas.boot_with(&[("NAS_FAILPOINT", "door.tree.made")])?;
    assert!(create(&nas).is_err());
    nas.wait_for_end()?;
    assert!(nas.data().join("pool/tree/media").exists());
    nas.boot()?;
    let shown = nas.as_owner(&TreeShow::default()).map_err(refused)?.trees;
    assert_eq!(shown.into_iter().map(|tree| tree.tree).collect::<Vec<_>>(), [TreeName::protected()]);
    assert!(!nas.data().join("pool/tree/media").exists());
    let records = nas.as_owner(&RecordList { limit: Some(20), ..RecordList::default() }).map_err(refused)?.records;
    let kinds: Vec<_> =
        records.iter().map(|record| record.kind.as_str()).filter(|kind| kind.contains("tree")).collect();
    assert_eq!(kinds[..2], ["tree.create.aborted.outcome", "tree.create.intent"], "{kinds:?}");
    assert_eq!(create(&nas).map_err(refused)?.state, "live");
    let lease = lease_on_media(&nas, &["/**"], &ALL, None).map_err(refused)?;
    nas.mount(&lease, "/")?.write_file("a", b"a")?;
    assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok);
    Ok(())
}
