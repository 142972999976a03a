//! The built-in rules: deny by default, few, each with its reason. `tests/policy-table.txt` shows all they say and is reviewed by people.

use std::borrow::Cow;

use crate::request::{Act, Kind, PolicyRequest, Target};
use crate::{DEFAULT_DENY, Decision, Effect, Policy, RuleId};

/// The built-in rule set.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltIn;

type Ruling = (Effect, &'static str, &'static str);

impl Policy for BuiltIn {
    fn rules(&self, request: &PolicyRequest<'_>) -> Decision {
        // What nobody may do comes first, so that no later rule can allow it.
        let ruling = never(request).or_else(|| match request.subject.kind {
            Kind::Human if request.subject.owner => owner(request),
            Kind::Human | Kind::Agent => leased(request),
            Kind::Service => service(request),
            Kind::Node | Kind::Nobody => None,
        });
        let (effect, rule, reason) = ruling.unwrap_or((
            Effect::Deny,
            "default-deny",
            "No rule allows this, and what is not allowed is refused.",
        ));
        let rule = if rule == DEFAULT_DENY.as_str() { DEFAULT_DENY } else { RuleId::builtin(rule) };
        Decision { effect, rule, reason: Cow::Borrowed(reason) }
    }
}

/// What no authority can do.
fn never(request: &PolicyRequest<'_>) -> Option<Ruling> {
    match (request.act, request.target) {
        (Act::DeleteSnapshot, _) => Some((
            Effect::Deny,
            "snapshots-out-of-reach",
            "Snapshots and backups belong to the owner and no lease or token can delete one.",
        )),
        (Act::Write, Target::Protected) => Some((
            Effect::Deny,
            "protected-only-by-merge",
            "A protected tree changes only by a merge; write on a branch and propose it.",
        )),
        (Act::Write | Act::Propose, Target::OtherBranch) => {
            Some((Effect::Deny, "own-branch-only", "A run works on its own branch only."))
        }
        (Act::Propose | Act::Merge, Target::Unprotected) => Some((
            Effect::Deny,
            "unprotected-no-merges",
            "What is written in an unprotected tree is there at once; nothing is proposed or merged there.",
        )),
        _ => None,
    }
}

/// The owner, signed in. Decisions need the passphrase: a token may lie on a disk an agent can read.
fn owner(request: &PolicyRequest<'_>) -> Option<Ruling> {
    let proved = request.subject.passphrase;
    let with_passphrase = |rule, reason| {
        Some(if proved {
            (Effect::Allow, rule, reason)
        } else {
            (Effect::Deny, "passphrase-needed", "This needs the owner's passphrase, given with the request.")
        })
    };
    match request.act {
        Act::Import if request.target == Target::Protected => {
            with_passphrase("owner-import", "The owner takes files into the tree.")
        }
        Act::OwnEdits if request.target == Target::Protected && request.touches_nas => Some((
            Effect::Deny,
            "own-edits-not-nas",
            "Files under .nas/ say what a role may do, so a change of them is looked at: take it back here, and let a run of its own propose it.",
        )),
        Act::OwnEdits if request.target == Target::Protected => {
            Some((Effect::Allow, "own-edits", "A person's own edits are their approval of them."))
        }
        Act::DecideGate => with_passphrase("owner-decides", "The owner decides gates."),
        Act::ManageTrees => with_passphrase("owner-manages-trees", "The owner makes and removes trees."),
        Act::Recover => with_passphrase("owner-recovers", "The owner repairs the box."),
        Act::Merge if request.target == Target::Protected && request.approved => {
            Some((Effect::Allow, "merge-approved", "A person approved exactly these changes."))
        }
        Act::Merge if request.target == Target::Protected => Some(ask_for_merge(request)),
        Act::OpenRun => Some((Effect::Allow, "owner-opens-runs", "The owner starts runs and issues their leases.")),
        Act::Revoke => Some((Effect::Allow, "owner-revokes", "The owner can revoke any lease at any time.")),
        Act::ReadRecords => Some((Effect::Allow, "owner-reads-records", "The owner reads all records.")),
        Act::DiscardBranch => Some((Effect::Allow, "owner-discards-branches", "The owner can discard a branch.")),
        Act::List | Act::Read => Some((Effect::Allow, "owner-reads", "The owner reads everything on the box.")),
        Act::Upkeep => Some((Effect::Allow, "owner-upkeep", "The owner can ask for a commit or a checkpoint.")),
        Act::Write | Act::Propose | Act::NarrowLease | Act::WidenLease if request.subject.lease => leased(request),
        _ => None,
    }
}

/// A run under a lease that covers the action and the path (the Door has checked that).
fn leased(request: &PolicyRequest<'_>) -> Option<Ruling> {
    match request.act {
        Act::DecideGate => {
            return Some((Effect::Deny, "agents-never-decide", "Only a person with authority decides a gate."));
        }
        Act::Import | Act::OpenRun | Act::ManageTrees | Act::Recover => {
            return Some((Effect::Deny, "owner-only", "Only the owner can do this."));
        }
        _ if !request.subject.lease => {
            return Some((Effect::Deny, "lease-needed", "No live lease covers this."));
        }
        _ => {}
    }
    match (request.act, request.target) {
        (Act::List, Target::OwnBranch | Target::Protected | Target::Unprotected) => {
            Some((Effect::Allow, "lease-lists", "The lease covers these names."))
        }
        (Act::Read, Target::OwnBranch | Target::Protected | Target::Unprotected) => {
            Some((Effect::Allow, "lease-reads", "The lease covers reading here."))
        }
        (Act::Write, Target::OwnBranch) => {
            Some((Effect::Allow, "lease-writes", "The lease covers writing on its branch."))
        }
        (Act::Write, Target::Unprotected) => {
            Some((Effect::Allow, "lease-writes-unprotected", "The lease covers writing in an unprotected tree."))
        }
        (Act::Upkeep, Target::OwnBranch) => Some((Effect::Allow, "lease-commits", "A run commits on its own branch.")),
        (Act::DiscardBranch, Target::OwnBranch) => {
            Some((Effect::Allow, "lease-discards", "A run can end and give up its own branch."))
        }
        (Act::Propose, Target::OwnBranch) => {
            Some((Effect::Allow, "lease-proposes", "The lease covers asking for a merge; the merge itself is gated."))
        }
        (Act::Merge, Target::Protected) if request.approved => {
            Some((Effect::Allow, "merge-approved", "A person approved exactly these changes."))
        }
        (Act::Merge, Target::Protected) => Some(ask_for_merge(request)),
        (Act::NarrowLease, Target::Box) => {
            Some((Effect::Allow, "lease-narrows", "A lease can hand on a part of itself."))
        }
        (Act::WidenLease, Target::Box) if request.approved => {
            Some((Effect::Allow, "widening-approved", "A person approved this wider lease."))
        }
        (Act::WidenLease, Target::Box) => {
            Some((Effect::Gate, "widening-gated", "A wider lease needs a person's approval."))
        }
        (Act::Revoke, Target::Box) => Some((Effect::Allow, "lease-gives-up", "A run can give up its own lease.")),
        _ => None,
    }
}

fn ask_for_merge(request: &PolicyRequest<'_>) -> Ruling {
    if request.touches_nas {
        (
            Effect::Gate,
            "widening-under-nas",
            "The change touches .nas/, which says what a role may do: a person must approve it.",
        )
    } else if request.deletes {
        (Effect::Gate, "deletion-in-protected", "A merge that deletes in a protected tree needs a person's approval.")
    } else {
        (Effect::Gate, "merge-into-protected", "A merge into a protected tree needs a person's approval.")
    }
}

/// The box's own jobs.
fn service(request: &PolicyRequest<'_>) -> Option<Ruling> {
    match (request.act, request.target) {
        (Act::Upkeep, _) => {
            Some((Effect::Allow, "service-upkeep", "The box commits, expires and recycles by its own rules."))
        }
        (Act::Merge, Target::Protected) if request.approved => {
            Some((Effect::Allow, "merge-approved", "A person approved exactly these changes."))
        }
        _ => None,
    }
}
