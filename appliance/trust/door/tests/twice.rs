//! An act asked for a second time is a success that says so, and names the record of the first.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod world;

use nas_types::lease::Action;
use nas_types::lease::View;
use nas_types::path::TreePath;
use nas_types::verb::{
    GateApprove, GateDeny, GateShow, LeaseCreate, LeaseRevoke, Propose, RecordHead, TrashRestore, TreeList,
};
use world::{Held, World, passphrase};

fn proposed(world: &World, held: &Held) -> (nas_types::id::GateId, String) {
    let propose = Propose { into: "main".to_owned(), why: None };
    let gate = world.door.call(&world.caller(Some(&held.token)), propose).unwrap().gate;
    (gate, world.as_owner(GateShow { gate }).unwrap().action.digest)
}

/// Goal: a second revocation writes no record, and tells of the first; also of a child that went with its parent.
#[test]
fn revoked_once() {
    let world = World::new(&[("a/x", "x\n")]);
    let head = || world.as_owner(RecordHead::default()).unwrap().seq;
    let held = world.run(&["/a/**"], &Action::ALL, None);
    let revoke = |lease| world.as_owner(LeaseRevoke { lease, why: None }).unwrap();
    let first = revoke(held.info.lease);
    assert_eq!((first.revoked.as_slice(), first.already_there), (&[held.info.lease][..], false));
    let before = head();
    let second = revoke(held.info.lease);
    assert!(second.already_there && second.revoked.is_empty());
    assert_eq!((second.record, second.revoked_at), (first.record, first.revoked_at));
    assert_eq!(head(), before, "a second revocation was recorded");

    let parent = world.run(&["/a/**"], &Action::ALL, None);
    let narrower = LeaseCreate {
        role: None,
        tree: None,
        paths: vec!["/a/**".to_owned()],
        actions: vec![Action::Read],
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
    };
    let child = world.door.call(&world.caller(Some(&parent.token)), narrower).unwrap().lease.lease;
    let both = revoke(parent.info.lease);
    assert!(both.revoked.contains(&child));
    let again = revoke(child);
    assert!(again.already_there);
    assert_eq!((again.record, again.revoked_at), (both.record, both.revoked_at));
}

/// Goal: a second approval or denial names the record of the first.
#[test]
fn decided_once() {
    let world = World::new(&[("a/x", "x\n")]);
    let held = world.run(&["/a/**"], &Action::ALL, None);
    world.write(&held, "/a", "y", "y\n");
    let (gate, digest) = proposed(&world, &held);
    let approve = || GateApprove { gate, digest: digest.clone(), passphrase: passphrase(), reason: None };
    let first = world.as_owner(approve()).unwrap();
    let again = world.as_owner(approve()).unwrap();
    assert!(first.record > 0 && !first.already_there && again.already_there);
    assert_eq!((again.record, again.commit), (first.record, first.commit));

    world.write(&held, "/a", "z", "z\n");
    let (gate, _) = proposed(&world, &held);
    let deny = || GateDeny { gate, passphrase: passphrase(), reason: None };
    let first = world.as_owner(deny()).unwrap();
    let again = world.as_owner(deny()).unwrap();
    assert!(first.record > 0 && again.already_there);
    assert_eq!(again.record, first.record);
}

/// Goal: every verb that takes a commit takes the beginning of its id, at least 7 digits of it.
#[test]
fn commits_by_their_first_digits() {
    let world = World::new(&[("a/x", "x\n")]);
    let held = world.run(&["/a/**"], &Action::ALL, None);
    world.write(&held, "/a", "y", "y\n");
    let (gate, digest) = proposed(&world, &held);
    let approve = GateApprove { gate, digest, passphrase: passphrase(), reason: None };
    let commit = world.as_owner(approve).unwrap().commit.unwrap().to_string();
    let list = |commit: &str| {
        let path = TreePath::parse("/a").unwrap();
        world.as_owner(TreeList { path, view: View::Main, commit: Some(commit.to_owned()), cursor: None, limit: None })
    };
    for digits in [7, 12, 40] {
        assert_eq!(list(&commit[..digits]).unwrap().entries.len(), 2, "{digits} digits");
    }
    assert_eq!(list(&commit[..6]).unwrap_err().code(), "invalid");
    assert_eq!(list("0000000").unwrap_err().code(), "not_found");
    // It deleted nothing: known by its first digits, but not in the trash.
    let restore = |commit: &str| {
        let path = TreePath::parse("/a/y").unwrap();
        world.as_owner(TrashRestore { path, commit: commit.to_owned(), passphrase: passphrase() })
    };
    assert_eq!(restore(&commit[..7]).unwrap_err().code(), "not_found");
    assert_eq!(restore(&commit[..3]).unwrap_err().code(), "invalid");
}
