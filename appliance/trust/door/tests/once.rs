//! Idempotency keys on a real Door (SPEC, HTTP API row).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod world;

use std::path::Path;

use nas_door::{DoorError, Once};
use nas_ledger::{AnswerState, KeptAnswerRow, Ledger, LedgerError};
use nas_types::lease::Action;
use nas_types::verb::{CheckpointCreate, LeaseCreate, LeaseList, RecordHead, RunEnd, TreeShow};
use world::World;

fn once(token: &str, key: &str) -> Once {
    Once::new(token, key).unwrap()
}

fn lease(role: &str) -> LeaseCreate {
    LeaseCreate {
        role: Some(role.parse().unwrap()),
        tree: None,
        paths: vec!["/a/**".to_owned()],
        actions: vec![Action::Read],
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
    }
}

/// Goal: the same call under the same key is done once and answered alike, also after a restart; another request under it,
/// and the same one under another key or token, are other calls.
#[test]
fn done_once() {
    let world = World::new(&[("a/x", "x\n")]);
    let held = world.run(&["/a/**"], &Action::ALL, None);
    let token = held.token.reveal();
    let call = |world: &World, name: &str, key: &str| {
        let caller = world.caller(Some(&held.token));
        world.door.call_once(&caller, CheckpointCreate { name: name.to_owned() }, &once(token, key))
    };
    let first = call(&world, "one", "k").unwrap();
    assert!(!first.replayed);
    let head = |world: &World| world.as_owner(RecordHead::default()).unwrap();
    let before = head(&world);
    let again = call(&world, "one", "k").unwrap();
    assert!(again.replayed);
    assert_eq!(again.answer, first.answer);
    assert_eq!(head(&world), before, "a repeated call was done again");
    assert!(matches!(call(&world, "two", "k"), Err(DoorError::Key(_))));
    assert!(!call(&world, "two", "k2").unwrap().replayed);

    let world = world.reopened(|_| {});
    assert!(call(&world, "one", "k").unwrap().replayed, "a restart forgot the answer");
}

/// Changes what is kept, while the box is stopped.
fn edit(dir: &Path, change: impl Fn(&mut KeptAnswerRow) -> Vec<KeptAnswerRow>) {
    let ledger = Ledger::open(&dir.join("ledger.db"), nas_ledger::Options { ballast_bytes: 64 << 10 }).unwrap();
    ledger
        .write(|tx| {
            for mut row in tx.all::<KeptAnswerRow>()? {
                for changed in change(&mut row) {
                    tx.put(&changed)?;
                }
            }
            Ok::<_, LedgerError>(())
        })
        .unwrap();
}

/// Goal: what was begun and has no answer because the box stopped is neither done again nor claimed to be done; and a
/// token cannot fill the ledger with answers.
#[test]
fn unknown_and_bounded() {
    let world = World::new(&[("a/x", "x\n")]);
    let held = world.run(&["/a/**"], &Action::ALL, None);
    let token = held.token.reveal();
    let call = |world: &World, name: &str, key: &str| {
        let caller = world.caller(Some(&held.token));
        world.door.call_once(&caller, CheckpointCreate { name: name.to_owned() }, &once(token, key))
    };
    call(&world, "one", "k").unwrap();
    let world = world.reopened(|dir| {
        edit(dir, |row| {
            row.state = AnswerState::Begun;
            row.answer = None;
            vec![row.clone()]
        });
    });
    let unknown = call(&world, "one", "k").unwrap_err();
    assert!(matches!(unknown, DoorError::Key(_)) && unknown.to_string().contains("nobody knows"), "{unknown}");
    let world = world.reopened(|dir| {
        edit(dir, |row| {
            let another = |n: u32| {
                let mut id = row.id;
                id[..4].copy_from_slice(&n.to_be_bytes());
                KeptAnswerRow { id, ..row.clone() }
            };
            (0..1000).map(another).collect()
        });
    });
    let full = call(&world, "two", "k2").unwrap_err();
    assert!(matches!(full, DoorError::Key(_)) && full.to_string().contains("as many answers"), "{full}");
    let caller = world.caller(Some(&world.owner));
    assert!(
        world.door.call_once(&caller, lease("cleo"), &once(world.owner.reveal(), "k")).is_ok(),
        "another token is full"
    );
}

/// Goal: a secret is shown once and is nowhere in the ledger; the repeated call tells which lease it was.
#[test]
fn secrets_are_not_kept() {
    let world = World::new(&[("a/x", "x\n")]);
    let owner = world.owner.reveal().to_owned();
    let caller = world.caller(Some(&world.owner));
    let first = world.door.call_once(&caller, lease("cleo"), &once(&owner, "k")).unwrap().answer;
    let leases = || world.as_owner(LeaseList::default()).unwrap().leases.len();
    let before = leases();
    let Err(DoorError::DoneBefore { answer }) = world.door.call_once(&caller, lease("cleo"), &once(&owner, "k")) else {
        panic!("the lease was issued again, or its token given out again");
    };
    assert_eq!(answer["lease"]["lease"], first.lease.lease.to_string());
    assert!(!answer.to_string().contains(first.token.reveal()));
    assert_eq!(leases(), before);
    let _ = world.reopened(|dir| {
        let needle = first.token.reveal().as_bytes();
        for file in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            let bytes = std::fs::read(&file).unwrap();
            assert!(!bytes.windows(needle.len()).any(|part| part == needle), "the token is in {}", file.display());
        }
    });
}

/// Goal: a call that failed and did nothing can be made again under its key; one that reads takes none.
#[test]
fn failures_are_not_kept() {
    let world = World::new(&[("a/x", "x\n")]);
    let owner = world.owner.reveal().to_owned();
    let caller = world.caller(Some(&world.owner));
    let missing = RunEnd { run: Some(nas_types::id::RunId::random()) };
    for _ in 0..2 {
        let outcome = world.door.call_once(&caller, missing.clone(), &once(&owner, "k"));
        assert!(matches!(outcome, Err(DoorError::NotFound { .. })), "{outcome:?}");
    }
    assert!(!world.door.call_once(&caller, lease("cleo"), &once(&owner, "k2")).unwrap().replayed);
    let read = world.door.call_once(&caller, TreeShow::default(), &once(&owner, "k3"));
    assert!(matches!(read, Err(DoorError::Invalid { field: "idempotency_key", .. })));
}

/// Goal: the key of a bearer whose lease is over opens nothing, and of many callers at once one does it.
#[test]
fn revoked_and_concurrent() {
    let world = World::new(&[("a/x", "x\n")]);
    let held = world.run(&["/a/**"], &Action::ALL, None);
    let token = held.token.reveal();
    let done = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let caller = world.caller(Some(&held.token));
                    loop {
                        let checkpoint = CheckpointCreate { name: "one".to_owned() };
                        match world.door.call_once(&caller, checkpoint, &once(token, "k")) {
                            Err(DoorError::Busy { .. }) => std::thread::yield_now(),
                            outcome => return outcome.unwrap().replayed,
                        }
                    }
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).filter(|replayed| !replayed).count()
    });
    assert_eq!(done, 1, "a call under one key was done {done} times");
    world.as_owner(nas_types::verb::LeaseRevoke { lease: held.info.lease, why: None }).unwrap();
    let caller = world.caller(Some(&held.token));
    let over = world.door.call_once(&caller, CheckpointCreate { name: "one".to_owned() }, &once(token, "k"));
    assert!(matches!(over, Err(DoorError::LeaseOver(_))));
}
