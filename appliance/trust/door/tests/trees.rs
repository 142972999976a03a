//! Leases on unprotected trees: what they may know of main (nothing), what needs a branch, what is recorded, and what a start
//! finds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod world;

use std::time::Duration;

use nas_door::{DoorError, DoorVerb};
use nas_testkit::wait_until;
use nas_types::fs::FsError;
use nas_types::lease::{Action, TreeName, View};
use nas_types::path::TreePath;
use nas_types::verb::*;
use world::{Held, PEER, World, passphrase};

fn tree(name: &str) -> TreeName {
    name.parse().unwrap()
}

/// A world with `a/x.txt` in main and the empty tree `media`.
fn world() -> World {
    let world = World::new(&[("a/x.txt", "x\n")]);
    world.as_owner(TreeCreate { tree: tree("media"), passphrase: passphrase() }).unwrap();
    world
}

fn lease_on(world: &World, name: &str, paths: &[&str], actions: &[Action]) -> Result<Held, DoorError> {
    let create = LeaseCreate {
        role: Some("cleo".parse().unwrap()),
        tree: Some(tree(name)),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        actions: actions.to_vec(),
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
    };
    let created = world.as_owner(create)?;
    Ok(Held { info: created.lease, token: created.token })
}

fn call<V: DoorVerb>(world: &World, held: &Held, verb: V) -> Result<V::Answer, DoorError> {
    world.door.call(&world.caller(Some(&held.token)), verb)
}

fn list(path: &str, view: View) -> TreeList {
    TreeList { path: TreePath::parse(path).unwrap(), view, commit: None, cursor: None, limit: None }
}

const ALL: [Action; 3] = [Action::List, Action::Read, Action::Write];

/// Goal: `/**` of an unprotected tree is nothing of main, by whatever verb it is asked for (SPEC MOUNT-3).
#[test]
fn main_is_another_tree() {
    let world = world();
    let held = lease_on(&world, "media", &["/**"], &ALL).unwrap();
    world.write(&held, "/", "film", "moving pictures");
    for refused in [
        call(&world, &held, list("/", View::Main)).map(drop),
        call(&world, &held, list("/a", View::Main)).map(drop),
        call(&world, &held, MountTicket { view: View::Main, read_only: true, commit: None }).map(drop),
    ] {
        assert!(matches!(&refused, Err(DoorError::Denied { rule, .. }) if rule == "lease-tree"), "{refused:?}");
    }
    let names = |view: View, held: &Held| -> Vec<String> {
        let listing = call(&world, held, list("/", view)).unwrap();
        listing.entries.into_iter().map(|entry| entry.path.to_string()).collect()
    };
    assert_eq!(names(View::Branch, &held), ["/film"]);
    // Nor does a lease on main learn of the tree, whatever its paths.
    let main = world.run(&["/**"], &Action::ALL, None);
    assert_eq!(names(View::Main, &main), ["/a", "/agents", "/humans", "/shared"]);
    assert_eq!(names(View::Branch, &main), names(View::Main, &main));
    let shown = call(&world, &main, TreeShow { tree: None }).unwrap().trees;
    assert_eq!(shown.into_iter().map(|tree| tree.tree).collect::<Vec<_>>(), [TreeName::protected()]);
    assert!(matches!(call(&world, &main, TreeShow { tree: Some(tree("media")) }), Err(DoorError::NotFound { .. })));
}

/// Goal: a listing of an unprotected tree shows what the lease holds, in pages, and is not for a lease without `list`.
#[test]
fn listed_as_it_is_now() {
    let world = world();
    let whole = lease_on(&world, "media", &["/**"], &ALL).unwrap();
    for name in ["c", "a", "b", "secret"] {
        world.write(&whole, "/", name, name);
    }
    let part = lease_on(&world, "media", &["/a", "/b", "/c"], &[Action::List]).unwrap();
    let first = call(&world, &part, TreeList { limit: Some(2), ..list("/", View::Branch) }).unwrap();
    let more = TreeList { cursor: first.cursor.clone(), limit: Some(2), ..list("/", View::Branch) };
    let second = call(&world, &part, more).unwrap();
    let names: Vec<_> = first.entries.iter().chain(&second.entries).map(|entry| entry.path.to_string()).collect();
    assert_eq!((names.join(" ").as_str(), second.cursor), ("/a /b /c", None));
    assert!(matches!(call(&world, &part, list("/secret", View::Branch)), Err(DoorError::NotFound { .. })));
    let blind = lease_on(&world, "media", &["/**"], &[Action::Write]).unwrap();
    let answer = call(&world, &blind, list("/", View::Branch));
    assert!(matches!(&answer, Err(DoorError::Denied { rule, .. }) if rule == "lease-action"), "{answer:?}");
}

/// Goal: each verb that needs a branch says why there is none, to the bearer and to the owner.
#[test]
fn what_needs_a_branch() {
    let world = world();
    let held = lease_on(&world, "media", &["/**"], &ALL).unwrap();
    let run = Some(held.info.run);
    let answers = [
        call(&world, &held, BranchShow { run: None }).map(drop),
        call(&world, &held, BranchDiff { run: None, text: false }).map(drop),
        call(&world, &held, BranchCommit { message: None }).map(drop),
        call(&world, &held, BranchRecycle { run: None }).map(drop),
        call(&world, &held, BranchRestore { to: "x".to_owned() }).map(drop),
        call(&world, &held, CheckpointCreate { name: "x".to_owned() }).map(drop),
        call(&world, &held, CheckpointList { run: None }).map(drop),
        call(&world, &held, TreeLog { view: View::Branch, cursor: None, limit: None }).map(drop),
        world.as_owner(BranchShow { run }).map(drop),
        world.as_owner(BranchDiff { run, text: true }).map(drop),
        world.as_owner(BranchRecycle { run }).map(drop),
        world.as_owner(CheckpointList { run }).map(drop),
    ];
    for answer in answers {
        let Err(DoorError::State(sentence)) = &answer else { panic!("{answer:?}") };
        assert!(sentence.contains("media") && sentence.contains("keeps no history"), "{sentence}");
    }
    // The run ends like any other, and with it its lease.
    let ended = call(&world, &held, RunEnd { run: None }).unwrap();
    assert_eq!((ended.state.as_str(), ended.branch), ("ended", None));
    assert_eq!(call(&world, &held, LeaseShow::default()).unwrap().state, "expired");
}

/// Goal: records of what is done on an unprotected tree name it (SPEC REC).
#[test]
fn records_name_the_tree() {
    let world = world();
    let held = lease_on(&world, "media", &["/films/**"], &ALL).unwrap();
    let ticket =
        call(&world, &held, MountTicket { view: View::Branch, read_only: false, commit: None }).unwrap().ticket;
    let mount = world.door.mount(ticket.reveal(), &TreePath::root(), PEER, (1000, 1000)).unwrap();
    let refused = mount.mkdir(mount.root(), b"private", nas_types::fs::SetAttr::default()).map(drop);
    assert_eq!(refused, Err(FsError::Access));
    let mounts = call(&world, &held, MountList {}).unwrap().mounts;
    assert_eq!(mounts.into_iter().map(|mount| mount.tree).collect::<Vec<_>>(), [tree("media")]);
    world.as_owner(LeaseRevoke { lease: held.info.lease, why: None }).unwrap();
    for kind in ["lease.issue", "mount", "refusal", "lease.revoke"] {
        let wanted =
            RecordList { run: Some(held.info.run), kind: Some(kind.to_owned()), limit: None, ..RecordList::default() };
        let named = wait_until(Duration::from_secs(60), || {
            let records = world.as_owner(wanted.clone()).unwrap().records;
            !records.is_empty() && records.iter().all(|record| record.detail["tree"] == "media")
        });
        assert!(named, "{kind}: {:?}", world.as_owner(wanted).unwrap().records);
    }
}

/// Goal: a start removes the directory of a tree whose making was cut short, and never one that holds something; what the
/// ledger does not know is not served.
#[test]
fn what_a_crash_leaves() {
    let world = world();
    let held = lease_on(&world, "media", &["/**"], &ALL).unwrap();
    world.write(&held, "/", "film", "moving pictures");
    let world = world.reopened(|dir| {
        let trees = dir.join("pool/tree");
        std::fs::create_dir(trees.join("half-made")).unwrap();
        std::fs::create_dir_all(trees.join("unknown/dir")).unwrap();
        std::fs::write(trees.join("unknown/dir/file"), b"somebody's").unwrap();
    });
    let shown = world.as_owner(TreeShow { tree: None }).unwrap().trees;
    assert_eq!(shown.into_iter().map(|tree| tree.tree.to_string()).collect::<Vec<_>>(), ["nas", "media"]);
    for name in ["half-made", "unknown"] {
        assert!(matches!(lease_on(&world, name, &["/**"], &ALL), Err(DoorError::NotFound { .. })), "{name}");
    }
    // The name of the one is free again; what is in the other is still there.
    world.as_owner(TreeCreate { tree: tree("half-made"), passphrase: passphrase() }).unwrap();
    assert!(world.as_owner(TreeCreate { tree: tree("unknown"), passphrase: passphrase() }).is_err());
    let world = world.reopened(|dir| {
        assert_eq!(std::fs::read(dir.join("pool/tree/unknown/dir/file")).unwrap(), b"somebody's");
    });
    assert_eq!(call(&world, &held, list("/", View::Branch)).unwrap().entries.len(), 1);
}
