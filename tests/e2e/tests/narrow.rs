//! A lease that was handed a part of another one: it learns of that part and can end nothing but itself.

use nas_e2e::{Answer, Leased, TestBox, passphrase, path, refused};
use nas_testkit::Scratch;
use nas_types::lease::Action;
use nas_types::secret::Secret;
use nas_types::verb::{
    BranchDiff, BranchRecycle, ExplainCommit, GateList, GateShow, LeaseCreate, LeaseCreated, LeaseRevoke, OwnerInit,
    OwnerLogin, RunEnd, TreeLog,
};

fn narrow(nas: &TestBox, parent: &Leased, paths: &[&str], actions: &[Action]) -> Answer<Leased> {
    let create = LeaseCreate {
        role: None,
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        actions: actions.to_vec(),
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
        tree: None,
    };
    let LeaseCreated { lease, token } = nas.call(Some(&parent.token), &create)?;
    Ok(Leased { info: lease, token })
}

/// Goal: a child lease sees of its run's gates, commits and diffs what lies in its own paths, and no text without `read`.
#[test]
fn a_child_sees_its_part() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("open/a.txt", "a\n");
    source.write("secret/b.txt", "old secret\n");
    nas.import(source.path(), "/shared/p").map_err(refused)?;
    let parent = nas.full_lease("/shared/p").map_err(refused)?;
    let child = narrow(&nas, &parent, &["/shared/p/open/**"], &[Action::List, Action::Propose]).map_err(refused)?;
    let mut work = nas.mount(&parent, "/shared/p")?;
    work.read_file("secret/b.txt")?;
    work.write_file("secret/b.txt", b"new secret\n")?;
    work.write_file("open/a.txt", b"b\n")?;

    let diff = nas.call(Some(&child.token), &BranchDiff { run: None, text: false }).map_err(refused)?;
    assert!(diff.changes.iter().all(|change| change.path.is_within(&path("/shared/p/open"))), "{:?}", diff.changes);
    let error = nas.call(Some(&child.token), &BranchDiff { run: None, text: true }).unwrap_err();
    assert_eq!(error.code, "denied");
    // The branch holds more than the child does: it cannot propose it, and is not told what it is.
    let error = nas.propose(&child).unwrap_err();
    assert_eq!(error.code, "denied");
    assert!(!error.message.contains("secret"), "{}", error.message);

    let proposed = nas.propose(&parent).map_err(refused)?;
    assert_eq!(nas.call(Some(&child.token), &GateShow { gate: proposed.gate }).unwrap_err().code, "not_found");
    assert!(nas.call(Some(&child.token), &GateList::default()).map_err(refused)?.gates.is_empty());
    assert!(nas.call(Some(&parent.token), &GateShow { gate: proposed.gate }).is_ok());
    let card = nas.card(&proposed).map_err(refused)?;
    let merged = nas.approve(&card).map_err(refused)?.commit.ok_or_else(|| anyhow::anyhow!("not merged"))?;
    let told = nas.call(Some(&child.token), &ExplainCommit { commit: merged.to_string() }).map_err(refused)?;
    let text = serde_json::to_string(&told)?;
    assert!(!text.contains("secret") && told.gate.is_none(), "{text}");

    // The line of main is not a bearer's, however it asks for it.
    let log = TreeLog { view: nas_types::lease::View::Branch, cursor: None, limit: None };
    let shown = nas.call(Some(&parent.token), &log).map_err(refused)?;
    assert!(shown.commits.iter().all(|commit| commit.trailers.iter().any(|(_, v)| *v == parent.info.run.to_string())));
    let branch = nas.call(Some(&parent.token), &nas_types::verb::BranchShow::default()).map_err(refused)?;
    let beyond = nas.as_owner(&ExplainCommit { commit: branch.base.to_string() }).map_err(refused)?.commit.parents[0];
    let error = nas.call(Some(&parent.token), &TreeLog { cursor: Some(beyond.to_string()), ..log }).unwrap_err();
    assert_eq!(error.code, "not_found");
    Ok(())
}

/// Goal: who was handed a part cannot take the whole away; revoking the parent ends the child at once.
#[test]
fn a_child_ends_nothing() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let parent = nas.full_lease("/shared").map_err(refused)?;
    let child = narrow(&nas, &parent, &["/shared/x/**"], &Action::ALL).map_err(refused)?;
    assert_eq!(nas.call(Some(&child.token), &BranchRecycle::default()).unwrap_err().code, "denied");
    assert_eq!(nas.call(Some(&child.token), &RunEnd::default()).unwrap_err().code, "denied");
    let revoke = LeaseRevoke { lease: parent.info.lease, why: None };
    assert_eq!(nas.call(Some(&child.token), &revoke).unwrap_err().code, "not_found");
    nas.as_owner(&revoke).map_err(refused)?;
    assert_eq!(nas.call(Some(&child.token), &BranchDiff::default()).unwrap_err().code, "lease_over");
    assert_eq!(
        narrow(&nas, &parent, &["/shared/y/**"], &[Action::List]).err().map(|e| e.code).as_deref(),
        Some("lease_over")
    );
    Ok(())
}

/// Goal: children issued while the parent is being revoked are revoked too (SPEC LEASE-3).
#[test]
fn no_child_survives_a_revocation() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    for _ in 0..20 {
        let parent = nas.full_lease("/shared").map_err(refused)?;
        let children: Vec<Leased> = std::thread::scope(|scope| {
            let issuing: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        (0..6)
                            .map_while(|_| narrow(&nas, &parent, &["/shared/x/**"], &[Action::List]).ok())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            nas.as_owner(&LeaseRevoke { lease: parent.info.lease, why: None }).expect("because the owner may revoke");
            issuing.into_iter().flat_map(|thread| thread.join().expect("because it does not panic")).collect()
        });
        for child in children {
            let error = nas.call(Some(&child.token), &BranchDiff::default()).unwrap_err();
            assert_eq!(error.code, "lease_over");
        }
    }
    Ok(())
}

/// Goal: a copy of an older bootstrap token is worth nothing once there is an owner.
#[test]
fn an_old_bootstrap_token() -> anyhow::Result<()> {
    let scratch = Scratch::new("bootstrap");
    let data = scratch.join("data");
    let mut nas = TestBox::in_folder(&data, &[]);
    nas.boot()?;
    let file = data.join("owner.bootstrap");
    let old = std::fs::read_to_string(&file)?.trim().to_owned();
    std::fs::remove_file(&file)?;
    nas.restart()?;
    assert_ne!(std::fs::read_to_string(&file)?.trim(), old);
    nas.init_owner()?;
    let init =
        OwnerInit { bootstrap: Secret::new(old), passphrase: Secret::new("somebody else's passphrase".to_owned()) };
    assert_eq!(nas.call(None, &init).unwrap_err().code, "unauthenticated");
    assert!(nas.call(None, &OwnerLogin { passphrase: passphrase() }).is_ok());
    Ok(())
}
