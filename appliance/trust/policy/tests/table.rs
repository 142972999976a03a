//! Golden table of everything the built-in rules say, reviewed by people. `NAS_GOLDEN=write cargo test -p nas-policy` rewrites it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nas_policy::request::Kind;
use nas_policy::{Act, BuiltIn, Effect, Policy, PolicyRequest, Subject, Target};

fn subjects() -> Vec<(&'static str, Subject<'static>)> {
    let agent = Subject::agent("agent:cleo");
    let owner = Subject::owner("human:owner");
    let guest = Subject { kind: Kind::Human, ..agent };
    vec![
        ("agent+lease", agent),
        ("agent", agent.without_lease()),
        ("owner", owner),
        ("owner+passphrase", owner.with_passphrase()),
        ("owner+lease", Subject { lease: true, ..owner }),
        ("guest+lease", guest),
        ("guest+passphrase", guest.without_lease().with_passphrase()),
        ("service", Subject::service("svc:upkeep")),
        ("node", Subject { kind: Kind::Node, ..agent }),
        ("nobody", Subject::nobody()),
    ]
}

/// One line for each (act, approval, effect, rule) with the same askers, targets joined; default denials are the background.
fn table() -> String {
    let mut out = String::from(
        "What the built-in rules say. Not listed: denied by default-deny.\n\n\
         act              approved  effect  rule                     on                                      asked by\n",
    );
    for act in Act::ALL {
        // (approved, effect, rule) → who → on what
        let mut found: BTreeMap<(&str, &str, String), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
        for target in Target::ALL {
            for (who, subject) in subjects() {
                for approved in [false, true] {
                    let request = PolicyRequest { approved, ..PolicyRequest::new(subject, act, target) };
                    let decision = BuiltIn.evaluate(&request);
                    if decision.rule.as_str() == "default-deny" {
                        assert_eq!(decision.effect, Effect::Deny);
                        continue;
                    }
                    // What an approval does not change is shown once.
                    let other = BuiltIn.evaluate(&PolicyRequest { approved: !approved, ..request });
                    let shown = match (decision == other, approved) {
                        (true, true) => continue,
                        (true, false) => "any",
                        (false, true) => "yes",
                        (false, false) => "no",
                    };
                    let key = (shown, decision.effect.as_str(), decision.rule.to_string());
                    found.entry(key).or_default().entry(who).or_default().push(target.as_str());
                }
            }
        }
        for ((shown, effect, rule), by) in found {
            let mut lines: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
            for (who, on) in by {
                lines.entry(on).or_default().push(who);
            }
            for (on, by) in lines {
                let on = if on.len() == Target::ALL.len() { "everything".to_owned() } else { on.join(",") };
                let by = if by.len() == subjects().len() { "anyone".to_owned() } else { by.join(", ") };
                writeln!(out, "{:<16} {shown:<9} {effect:<7} {rule:<24} {on:<39} {by}", act.as_str()).unwrap();
            }
        }
    }
    out
}

/// Goal: a change of policy shows as a change of a reviewed file.
#[test]
fn table_is_as_reviewed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policy-table.txt");
    let now = table();
    if std::env::var_os("NAS_GOLDEN").is_some_and(|v| v == "write") {
        std::fs::write(path, &now).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), now, "policy changed: review, then NAS_GOLDEN=write");
}

fn all() -> impl Iterator<Item = PolicyRequest<'static>> {
    Act::ALL.into_iter().flat_map(|act| {
        Target::ALL.into_iter().flat_map(move |target| {
            subjects().into_iter().flat_map(move |(_, subject)| {
                (0..8u8).map(move |bits| PolicyRequest {
                    approved: bits & 1 != 0,
                    touches_nas: bits & 2 != 0,
                    deletes: bits & 4 != 0,
                    ..PolicyRequest::new(subject, act, target)
                })
            })
        })
    })
}

/// Goal: the rules no table may ever loosen, over every request there is.
#[test]
fn invariants() {
    for request in all() {
        let decision = BuiltIn.evaluate(&request);
        let (effect, who) = (decision.effect, request.subject);
        assert!(decision.reason.ends_with('.') && !decision.rule.as_str().is_empty());
        match request.act {
            // BRANCH-3, BRANCH-1
            Act::DeleteSnapshot => assert_eq!(effect, Effect::Deny, "{request:?}"),
            Act::Write if !matches!(request.target, Target::OwnBranch | Target::Unprotected) => {
                assert_eq!(effect, Effect::Deny, "{request:?}");
            }
            // GATE-5: never without an approval; GATE-2: an approval is an answer, not a question.
            Act::Merge if !request.approved => assert_ne!(effect, Effect::Allow, "{request:?}"),
            Act::WidenLease if !request.approved => assert_ne!(effect, Effect::Allow, "{request:?}"),
            // DESIGN §4 "Tokens": decisions need a secret that is not on disk.
            Act::DecideGate | Act::Import | Act::Recover if effect == Effect::Allow => {
                assert!(who.owner && who.passphrase, "{request:?}");
            }
            _ => {}
        }
        if effect == Effect::Gate {
            assert!(!request.approved);
            assert_eq!(BuiltIn.evaluate(&PolicyRequest { approved: true, ..request }).effect, Effect::Allow);
        }
        if matches!(who.kind, Kind::Nobody | Kind::Node) {
            assert_eq!(effect, Effect::Deny, "{request:?}");
        }
    }
}

/// Goal: the rule of a merge says what is risky about it.
#[test]
fn merge_rules() {
    let merge = PolicyRequest::new(Subject::agent("agent:cleo"), Act::Merge, Target::Protected);
    let rule = |r: PolicyRequest<'_>| BuiltIn.evaluate(&r).rule.as_str().to_owned();
    assert_eq!(rule(merge), "merge-into-protected");
    assert_eq!(rule(PolicyRequest { deletes: true, ..merge }), "deletion-in-protected");
    assert_eq!(rule(PolicyRequest { deletes: true, touches_nas: true, ..merge }), "widening-under-nas");
}
