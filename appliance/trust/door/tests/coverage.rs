//! Authorisation coverage: every control verb × every caller who must be refused, generated from the list of verbs. A new
//! verb without a line here fails the test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use nas_door::{Caller, Door, DoorError};
use nas_testkit::wait_until;
use nas_types::lease::Action;
use nas_types::secret::Secret;
use nas_types::verb::*;
use serde_json::{Value, json};
use world::{Held, PEER, World, passphrase};

/// Calls a verb by its name.
macro_rules! by_name {
    ($($verb:ident)*) => {
        fn call(door: &Door, caller: &Caller, name: &str, body: Value) -> Result<Value, DoorError> {
            match name {
                $(<$verb as Verb>::NAME => {
                    let verb: $verb = serde_json::from_value(body).expect("because the sample fits the verb");
                    door.call(caller, verb).map(|answer| serde_json::to_value(answer).unwrap())
                })*
                _ => panic!("{name} is a new verb: name it here and in `sample`"),
            }
        }
    };
}

by_name! {
    BoxStatus BoxTrustClock BoxResume OwnerInit OwnerLogin OwnerLogout TreeList TreeLog TreeCreate TreeShow TreeRemove TreeRestore LeaseCreate LeaseList LeaseShow
    LeaseRevoke RunList RunShow RunEnd StandingOpen StandingShow StandingClose MountTicket MountList BranchList BranchShow BranchDiff BranchCommit BranchRecycle
    BranchRestore CheckpointCreate CheckpointList TrashList TrashRestore Propose GateList GateShow GateApprove GateDeny
    ExplainCommit RecordList RecordHead RecordVerify RecordAcceptLoss
}

/// A run that the caller has nothing to do with.
struct Other {
    held: Held,
    gate: GateCard,
}

impl Other {
    fn new(world: &World) -> Self {
        let held = world.run(&["/b/**"], &Action::ALL, None);
        world.write(&held, "/b", "secret.txt", "secret\n");
        let propose = Propose { into: "main".to_owned(), why: Some("hidden reason".to_owned()) };
        let proposed = world.door.call(&world.caller(Some(&held.token)), propose).unwrap();
        let gate = world.as_owner(GateShow { gate: proposed.gate }).unwrap();
        Self { held, gate }
    }

    /// Everything that only this run and the owner may know.
    fn secrets(&self) -> Vec<String> {
        let info = &self.held.info;
        vec![
            info.run.to_string(),
            info.lease.to_string(),
            self.gate.gate.to_string(),
            self.gate.action.commit.to_string(),
            self.gate.action.digest.clone(),
            "secret.txt".to_owned(),
            "hidden reason".to_owned(),
        ]
    }
}

/// A request that would do something if it were allowed, aimed at the other run wherever a verb can be aimed.
fn sample(name: &str, other: &Other) -> Value {
    let (run, lease) = (other.held.info.run, other.held.info.lease);
    let (gate, commit) = (other.gate.gate, other.gate.action.commit);
    let secret = passphrase().reveal().to_owned();
    match name {
        "box/status" | "owner/logout" | "run/list" | "lease/list" | "mount/list" | "branch/list" | "record/head"
        | "record/list" | "record/verify" | "trash/list" | "branch/commit" | "mount/ticket" => json!({}),
        "box/trust-clock" | "box/resume" | "record/accept-loss" => json!({ "passphrase": secret }),
        "owner/init" => json!({ "bootstrap": "nas_bootstrap_guessed", "passphrase": secret }),
        "standing/show" => json!({}),
        "standing/open" | "standing/close" => json!({ "passphrase": secret }),
        "owner/login" => json!({ "passphrase": "a guessed passphrase" }),
        "tree/create" => json!({ "tree": "made", "passphrase": secret }),
        "tree/show" => json!({ "tree": "hidden" }),
        "tree/remove" | "tree/restore" => json!({ "tree": "hidden", "passphrase": secret }),
        "tree/list" => json!({ "path": "/b" }),
        "tree/log" => json!({ "cursor": commit, "view": "branch" }),
        "lease/create" => json!({ "paths": ["/b/secret.txt"], "actions": ["read"] }),
        "lease/show" | "lease/revoke" => json!({ "lease": lease }),
        "run/show" | "run/end" | "branch/show" | "branch/recycle" | "checkpoint/list" => json!({ "run": run }),
        "branch/diff" => json!({ "run": run, "text": true }),
        "branch/restore" => json!({ "to": commit }),
        "checkpoint/create" => json!({ "name": "mine" }),
        "trash/restore" => json!({ "path": "/a/x.txt", "commit": commit, "passphrase": secret }),
        "gate/propose" => json!({ "into": "main" }),
        "gate/list" => json!({ "all": true }),
        "gate/show" => json!({ "gate": gate }),
        "gate/approve" => json!({ "gate": gate, "digest": other.gate.action.digest, "passphrase": secret }),
        "gate/deny" => json!({ "gate": gate, "passphrase": secret }),
        "explain/commit" => json!({ "commit": commit }),
        _ => panic!("{name} is a new verb: give it a sample"),
    }
}

/// What main and the other run are; must be the same after all that was refused.
fn untouched(world: &World, other: &Other) -> Value {
    let status = world.as_owner(BoxStatus {}).unwrap().details.unwrap();
    let lease = world.as_owner(LeaseShow { lease: Some(other.held.info.lease) }).unwrap();
    let run = world.as_owner(RunShow { run: Some(other.held.info.run) }).unwrap();
    let branch = world.as_owner(BranchShow { run: Some(other.held.info.run) }).unwrap();
    let gate = world.as_owner(GateShow { gate: other.gate.gate }).unwrap();
    json!([status.commit, status.generation, lease.state, run.state, branch.state, branch.tip, gate.state])
}

/// A world with the other run, and the changes that make one worth hiding.
fn world() -> (World, Other) {
    let world = World::new(&[("a/x.txt", "x\n"), ("b/y.txt", "y\n")]);
    let other = Other::new(&world);
    (world, other)
}

/// Calls every verb and compares each answer's code with what the audience demands; those in `exceptions` answer
/// something else, and all of them must.
fn refused(
    world: &World,
    other: &Other,
    caller: &Caller,
    expected: impl Fn(Audience) -> Option<&'static str>,
    exceptions: &[(&str, &str)],
) {
    let before = untouched(world, other);
    let mut met = BTreeSet::new();
    for (name, audience) in VERBS {
        let answer = call(&world.door, caller, name, sample(name, other));
        let code = answer.as_ref().map_or_else(DoorError::code, |_| "ok");
        match exceptions.iter().find(|(exception, _)| exception == name) {
            Some((_, allowed)) => {
                assert_eq!(code, *allowed, "{name}");
                met.insert(*name);
            }
            None => {
                let Some(expected) = expected(*audience) else { continue };
                assert_eq!(code, expected, "{name}: {answer:?}");
            }
        }
    }
    assert_eq!(met.len(), exceptions.len(), "an exception is no longer one: take it out");
    assert_eq!(untouched(world, other), before);
}

/// What anyone may ask before proving anything. These lists only shrink.
const ANYONE: [(&str, &str); 3] =
    [("box/status", "ok"), ("owner/init", "unauthenticated"), ("owner/login", "wrong_passphrase")];

/// Goal: without a token, or with one that nobody issued, nothing is answered but how the box is (SPEC L1.1).
#[test]
fn without_a_token() {
    let (world, other) = world();
    let anyone = world.caller(None);
    refused(&world, &other, &anyone, |_| Some("unauthenticated"), &ANYONE);
    for made_up in ["", "x", "nas_lease_x", "nas_owner_x", "nas_bootstrap_x"] {
        let unknown = world.door.authenticate(Some(made_up), PEER).map(|_| ());
        assert!(matches!(unknown, Err(DoorError::Unauthenticated(_))), "{made_up:?}");
    }
    is_recorded(&world, &["no-token", "unknown-token", "wrong-passphrase"]);
}

/// What a lease's bearer may still ask once it is over, and what nobody's authority is asked for.
fn when_over(audience: Audience) -> Option<&'static str> {
    match audience {
        Audience::Anyone => None,
        Audience::Owner => Some("denied"),
        Audience::Lease | Audience::LeaseOrOwner => Some("lease_over"),
    }
}

/// Goal: a lease that is over by time or by revocation gives nothing but a look at itself (SPEC L1.3).
#[test]
fn with_a_lease_that_is_over() {
    let (world, other) = world();
    let expired = world.run(&["/a/**"], &Action::ALL, Some(1));
    let revoked = world.run(&["/a/**"], &Action::ALL, None);
    world.as_owner(LeaseRevoke { lease: revoked.info.lease, why: None }).unwrap();
    let state = |held: &Held| world.door.call(&world.caller(Some(&held.token)), LeaseShow::default()).unwrap().state;
    assert!(wait_until(Duration::from_secs(60), || state(&expired) == "expired"));
    assert_eq!(state(&revoked), "revoked");
    // Another lease's state it does not learn.
    let exceptions = [ANYONE[0], ANYONE[1], ANYONE[2], ("lease/show", "not_found")];
    for held in [&expired, &revoked] {
        refused(&world, &other, &world.caller(Some(&held.token)), when_over, &exceptions);
    }
    is_recorded(&world, &["lease-over", "owner-only"]);
}

/// Goal: a live lease gives nothing of another run, neither to do nor to know (SPEC LEASE-2, MOUNT-3).
#[test]
fn with_the_lease_of_another_run() {
    let (world, other) = world();
    let mine = world.run(&["/a/**"], &Action::ALL, None);
    let caller = world.caller(Some(&mine.token));
    let secrets = other.secrets();
    let before = untouched(&world, &other);
    for (name, audience) in VERBS {
        let body = sample(name, &other);
        let aimed = secrets.iter().find(|secret| body.to_string().contains(*secret));
        match (call(&world.door, &caller, name, body.clone()), audience) {
            (Err(DoorError::Denied { .. }), Audience::Owner) => {}
            (Err(error), Audience::Lease | Audience::LeaseOrOwner) => {
                let code = error.code();
                assert!(["not_found", "denied", "state", "invalid"].contains(&code), "{name}: {code}");
                assert!(aimed.is_none() || code != "state", "{name} tells that it exists: {error}");
            }
            (Ok(answer), Audience::Lease | Audience::LeaseOrOwner) => {
                assert_eq!(aimed, None, "{name} with {body} is answered: {answer}");
                let told = secrets.iter().find(|secret| answer.to_string().contains(*secret));
                assert_eq!(told, None, "{name} tells of another run: {answer}");
            }
            (_, Audience::Anyone) => {}
            (answer, Audience::Owner) => panic!("{name}: {answer:?}"),
        }
    }
    assert_eq!(untouched(&world, &other), before);
    is_recorded(&world, &["not-its-own", "owner-only", "lease-subset"]);
}

/// Waits until refusals by these rules are in the records.
fn is_recorded(world: &World, rules: &[&str]) {
    let refusals = RecordList { kind: Some("refusal".to_owned()), limit: Some(1000), ..RecordList::default() };
    for rule in rules {
        let recorded = wait_until(Duration::from_secs(60), || {
            let records = world.as_owner(refusals.clone()).unwrap().records;
            records.iter().any(|record| record.rule.as_deref() == Some(rule))
        });
        assert!(recorded, "a refusal by '{rule}' is not in the records");
    }
}

/// Goal: the owner's token is no lease, and neither is the lease of a run the owner's: who decides does not act, who acts
/// does not decide.
#[test]
fn with_the_token_of_the_other_kind() {
    let (world, other) = world();
    let owner = world.caller(Some(&world.owner));
    for (name, _) in VERBS.iter().filter(|(_, audience)| *audience == Audience::Lease) {
        let answer = call(&world.door, &owner, name, sample(name, &other));
        assert!(matches!(answer, Err(DoorError::Denied { .. })), "{name}: {answer:?}");
    }
    // The lease that the gate is about itself, with the owner's passphrase.
    let own = world.caller(Some(&other.held.token));
    let before = untouched(&world, &other);
    for (name, _) in VERBS.iter().filter(|(_, audience)| *audience == Audience::Owner) {
        let answer = call(&world.door, &own, name, sample(name, &other));
        assert!(matches!(answer, Err(DoorError::Denied { .. })), "{name}: {answer:?}");
    }
    assert_eq!(untouched(&world, &other), before);
}

/// Goal: a lease gives the actions it names and no others.
#[test]
fn with_a_lease_for_less() {
    let (world, other) = world();
    let reader = world.run(&["/a/**"], &[Action::Read], None);
    let caller = world.caller(Some(&reader.token));
    for name in ["branch/commit", "branch/restore", "checkpoint/create", "gate/propose"] {
        let answer = call(&world.door, &caller, name, sample(name, &other));
        assert!(matches!(&answer, Err(DoorError::Denied { rule, .. }) if rule == "lease-action"), "{name}: {answer:?}");
    }
    let writer = world.run(&["/a/**"], &[Action::Read, Action::Write], None);
    let propose = call(&world.door, &world.caller(Some(&writer.token)), "gate/propose", sample("gate/propose", &other));
    assert!(matches!(&propose, Err(DoorError::Denied { rule, .. }) if rule == "lease-action"), "{propose:?}");
}

/// Goal: a token stops working when its owner signs out.
#[test]
fn signed_out() {
    let (world, other) = world();
    let anyone = world.caller(None);
    let second: Secret = world.door.call(&anyone, OwnerLogin { passphrase: passphrase() }).unwrap().token;
    world.door.call(&world.caller(Some(&second)), OwnerLogout {}).unwrap();
    let gone = world.door.authenticate(Some(second.reveal()), PEER).map(|_| ());
    assert!(matches!(gone, Err(DoorError::Unauthenticated(_))));
    assert_eq!(untouched(&world, &other)[6], "pending");
}
