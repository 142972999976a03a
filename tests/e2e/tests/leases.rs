//! What a lease gives, and when it stops giving it: SPEC L1.2, L1.3, LEASE-1 to 3, MOUNT-5.

use nas_e2e::ops::{Handles, Outcome, every_procedure};
use nas_e2e::{Answer, Leased, PATIENCE, TestBox, refused};
use nas_nfsclient::{Client, Status};
use nas_testkit::{Scratch, wait_until};
use nas_types::lease::{Action, View};
use nas_types::verb::{BranchShow, LeaseCreate, LeaseRevoke, LeaseShow, RecordList};

/// Asks for a child of `parent`.
fn child(nas: &TestBox, parent: &Leased, paths: &[&str], actions: &[Action], ttl: Option<u64>) -> Answer<Leased> {
    let create = LeaseCreate {
        role: None,
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        actions: actions.to_vec(),
        ttl_seconds: ttl,
        purpose: None,
        quota_bytes: None,
        tree: None,
    };
    let created = nas.call(Some(&parent.token), &create)?;
    Ok(Leased { info: created.lease, token: created.token })
}

fn with_tree() -> Scratch {
    let source = Scratch::new("source");
    source.write("a/one.txt", "one\n");
    source.write("b/two.txt", "two\n");
    source
}

fn refusal_is_recorded(nas: &TestBox, rule: &str) -> bool {
    let refusals = RecordList { kind: Some("refusal".to_owned()), limit: Some(1000), ..RecordList::default() };
    wait_until(PATIENCE, || {
        nas.as_owner(&refusals)
            .is_ok_and(|found| found.records.iter().any(|record| record.rule.as_deref() == Some(rule)))
    })
}

/// Goal: a child within its parent is issued, a wider one is refused and that is recorded: by paths, compared as sets
/// and not as text, by actions, and by time (SPEC L1.2, LEASE-2).
#[test]
fn a_child_only_narrows() -> anyhow::Result<()> {
    use Action::{List, Propose, Read, Write};
    let nas = TestBox::start()?;
    nas.import(with_tree().path(), "/shared/x").map_err(refused)?;
    let parent = nas.lease(&["/shared/x/a/**", "/shared/x/b/two.txt"], &[Read, Write], Some(600)).map_err(refused)?;
    let within: [(&[&str], &[Action]); 5] = [
        (&["/shared/x/a/**"], &[Read, Write]),
        (&["/shared/x/b/two.txt", "/shared/x/a/deep/down/**"], &[Read]),
        // Reading implies listing.
        (&["/shared/x/a/one.txt"], &[List]),
        (&["/shared/x/a/**", "/shared/x/a/one.txt"], &[Write]),
        (&["/shared/x/a/**", "/shared/x/b/two.txt"], &[List, Read, Write]),
    ];
    for (paths, actions) in within {
        let narrower = child(&nas, &parent, paths, actions, None).map_err(refused)?;
        assert_eq!(narrower.info.parent, Some(parent.info.lease));
        assert_eq!(narrower.info.run, parent.info.run);
    }
    let wider: [(&[&str], &[Action]); 10] = [
        (&["/**"], &[Read]),
        (&["/shared/**"], &[Read]),
        (&["/shared/x/**"], &[Read]),
        (&["/shared/x/a/**", "/shared/x/b/**"], &[Read]),
        (&["/shared/x/b/two.txt/**"], &[Read]),
        (&["/shared/x/ab/**"], &[Read]),
        (&["/shared/x/a"], &[Read, Propose]),
        (&["/shared/x/a/**"], &[Read, Write, Propose]),
        (&["/shared/x/a/**"], &[Propose]),
        (&["/elsewhere"], &[List]),
    ];
    for (paths, actions) in wider {
        let error = child(&nas, &parent, paths, actions, None).map(|_| ()).unwrap_err();
        assert_eq!(error.code, "denied", "{paths:?} {actions:?}: {}", error.message);
    }
    assert!(refusal_is_recorded(&nas, "lease-subset"));

    // Time: never past the parent, and never past what any lease gets.
    let longer = child(&nas, &parent, &["/shared/x/a/**"], &[Read], Some(3600)).map_err(refused)?;
    assert!(longer.info.expires_at <= parent.info.expires_at);
    let shorter = child(&nas, &parent, &["/shared/x/a/**"], &[Read], Some(60)).map_err(refused)?;
    assert!(shorter.info.expires_at < parent.info.expires_at);
    assert_eq!(
        child(&nas, &parent, &["/shared/x/a/**"], &[Read], Some(90_000)).map(|_| ()).unwrap_err().code,
        "invalid"
    );
    // A grandchild is compared with the child.
    assert_eq!(child(&nas, &shorter, &["/shared/x/a/**"], &[Write], None).map(|_| ()).unwrap_err().code, "denied");
    let grandchild = child(&nas, &shorter, &["/shared/x/a/**"], &[Read], Some(3600)).map_err(refused)?;
    assert!(grandchild.info.expires_at <= shorter.info.expires_at);
    Ok(())
}

struct Mount {
    client: Client,
    on: Handles,
}

fn mounts(nas: &TestBox, leases: &[&Leased]) -> anyhow::Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for lease in leases {
        let mut client = nas.mount(lease, "/shared/x")?;
        let on = Handles::find(&mut client)?;
        mounts.push(Mount { client, on });
    }
    Ok(mounts)
}

fn changing(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|outcome| outcome.changes)
}

fn reading(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|outcome| !outcome.changes)
}

/// Goal: after expiry a mount turns read-only (STALE once for each handle, then ROFS), reads go on for the grace period, then
/// everything is STALE; a child's mount goes the same way at the same time; HTTP gives the bearer nothing but the look at
/// its own lease (SPEC L1.3, MOUNT-5).
#[test]
fn after_expiry() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&["--read-grace-ms", "5000"])?;
    nas.import(with_tree().path(), "/shared/x").map_err(refused)?;
    let parent = nas.lease(&["/shared/x/**"], &Action::ALL, Some(3)).map_err(refused)?;
    let narrower = child(&nas, &parent, &["/shared/x/**"], &Action::ALL, Some(3600)).map_err(refused)?;
    Handles::make(&mut nas.mount(&parent, "/shared/x")?)?;
    let mut mounts = mounts(&nas, &[&parent, &narrower])?;
    let export = nas.export(&parent, "/shared/x", View::Branch)?;

    for lease in [&parent, &narrower] {
        let expired = wait_until(PATIENCE, || {
            nas.call(Some(&lease.token), &LeaseShow::default()).is_ok_and(|shown| shown.state == "expired")
        });
        assert!(expired);
        assert_eq!(nas.call(Some(&lease.token), &BranchShow::default()).unwrap_err().code, "lease_over");
    }
    for Mount { client, on } in &mut mounts {
        let outcomes = every_procedure(client, on)?;
        for outcome in reading(&outcomes) {
            assert_eq!(outcome.status, Status::NFS3_OK, "{outcome:?}");
        }
        // Two handles are changed, the file and the directory: each is told STALE once.
        let told: Vec<_> = changing(&outcomes).map(|outcome| outcome.status).collect();
        assert_eq!(told.iter().filter(|status| **status == Status::NFS3ERR_STALE).count(), 2, "{outcomes:?}");
        assert_eq!(told.iter().filter(|status| **status == Status::NFS3ERR_ROFS).count(), told.len() - 2);
        for outcome in changing(&every_procedure(client, on)?) {
            assert_eq!(outcome.status, Status::NFS3ERR_ROFS, "{outcome:?}");
        }
    }
    assert!(refusal_is_recorded(&nas, "lease-expired"));
    for Mount { client, on } in &mut mounts {
        let over = wait_until(PATIENCE, || client.getattr(&client.root()).is_err());
        assert!(over, "reads go on after the grace period");
        for outcome in every_procedure(client, on)? {
            let expected = if outcome.changes { Status::NFS3ERR_ROFS } else { Status::NFS3ERR_STALE };
            assert_eq!(outcome.status, expected, "{outcome:?}");
        }
    }
    // A ticket got in time opens nothing now.
    assert!(Client::mount(nas.nfs(), &export, mounts[0].client.credential()).is_err());
    // Nothing was changed by all that.
    let reader = nas.full_lease("/shared/x").map_err(refused)?;
    assert!(nas.mount_view(&reader, "/shared/x", View::Main)?.find("ops").is_err());
    Ok(())
}

/// Goal: revocation takes effect at once, for every operation of every mount of the lease and of those that descend from it,
/// and for every call (SPEC L1.3, LEASE-3). A restart does not bring it back.
#[test]
fn revoked_at_once() -> anyhow::Result<()> {
    let mut nas = TestBox::start()?;
    nas.import(with_tree().path(), "/shared/x").map_err(refused)?;
    let parent = nas.full_lease("/shared/x").map_err(refused)?;
    let middle = child(&nas, &parent, &["/shared/x/**"], &Action::ALL, None).map_err(refused)?;
    let last = child(&nas, &middle, &["/shared/x/**"], &Action::ALL, None).map_err(refused)?;
    let bystander = child(&nas, &parent, &["/shared/x/**"], &Action::ALL, None).map_err(refused)?;
    Handles::make(&mut nas.mount(&parent, "/shared/x")?)?;
    let mut revoked = mounts(&nas, &[&middle, &last])?;
    let mut others = mounts(&nas, &[&parent, &bystander])?;

    // The bearer of a lease may give it up, not that of another.
    let give_up = LeaseRevoke { lease: middle.info.lease, why: None };
    assert_eq!(nas.call(Some(&bystander.token), &give_up).unwrap_err().code, "not_found");
    let answer = nas.call(Some(&middle.token), &give_up).map_err(refused)?;
    assert_eq!(answer.revoked.len(), 2);
    let check = |nas: &TestBox, revoked: &mut Vec<Mount>| -> anyhow::Result<()> {
        for Mount { client, on } in revoked {
            for outcome in every_procedure(client, on)? {
                assert_eq!(outcome.status, Status::NFS3ERR_STALE, "{outcome:?}");
            }
        }
        for lease in [&middle, &last] {
            assert_eq!(nas.call(Some(&lease.token), &BranchShow::default()).unwrap_err().code, "lease_over");
            let shown = nas.call(Some(&lease.token), &LeaseShow::default()).map_err(refused)?;
            assert_eq!(shown.state, "revoked");
        }
        Ok(())
    };
    check(&nas, &mut revoked)?;
    assert!(refusal_is_recorded(&nas, "lease-revoked"));
    for Mount { client, on } in &mut others {
        for outcome in reading(&every_procedure(client, on)?) {
            let gone = matches!(outcome.procedure, "LOOKUP" | "GETATTR" | "ACCESS" | "READ" | "COMMIT" | "READLINK");
            assert!(outcome.status == Status::NFS3_OK || gone, "{outcome:?}");
        }
    }
    nas.restart()?;
    for mount in &mut revoked {
        mount.client = mount.client.reconnect()?;
    }
    check(&nas, &mut revoked)
}
