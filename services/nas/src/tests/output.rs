//! What people read, word by word.

use std::path::Path;

use jiff::tz::TimeZone;
use nas_types::id::RunId;
use nas_types::object::{Change, Conflict, ConflictKind, Entry, EntryKind, KeyDomain, Oid};
use nas_types::path::TreePath;
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use nas_types::verb::*;
use serde_json::json;

use crate::failure::Failure;
use crate::mount;
use crate::run::broken;
use crate::show::Show;
use crate::text::Here;

/// 2026-11-30 12:00 UTC.
const NOON: Timestamp = Timestamp(1_796_040_000_000);
const FOUR_HOURS_MS: i64 = 4 * 3600 * 1000;

fn here() -> Here {
    Here { now: NOON, zone: TimeZone::UTC }
}

fn run() -> RunId {
    "run_23456789abcd".parse().unwrap()
}

fn commit() -> Oid {
    "91ce3a7000000000000000000000000000000001".parse().unwrap()
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

#[test]
fn times() {
    assert_eq!(here().time(NOON.plus_ms(FOUR_HOURS_MS)), "16:00");
    assert_eq!(here().time(NOON.plus_ms(4 * FOUR_HOURS_MS)), "2026-12-01 04:00");
    let zone = TimeZone::get("Asia/Tokyo").unwrap_or(TimeZone::UTC);
    let elsewhere = Here { now: NOON, zone };
    assert!(["21:00", "12:00"].contains(&elsewhere.time(NOON).as_str()));
    assert_eq!(here().time(Timestamp(i64::MAX)), format!("{} ms since 1970", i64::MAX));
}

/// Goal: the lines of the transcript.
#[test]
fn the_transcript() {
    let lease: LeaseCreated = serde_json::from_value(json!({
        "token": "nas_lease_secret",
        "lease": {
            "lease": "lse_23456789abcd", "run": run(), "tree": "nas", "branch": "cleo/run_23456789abcd", "principal": "agent:cleo",
            "on_behalf_of": "human:owner", "parent": null, "purpose": null, "paths": ["/shared/launch/**"],
            "actions": ["list", "read"], "state": "active", "created_at": NOON,
            "expires_at": NOON.plus_ms(FOUR_HOURS_MS), "remaining_seconds": 14400
        }
    }))
    .unwrap();
    assert_eq!(
        lease.show(&here()),
        "lease lse_23456789abcd · run run_23456789abcd · branch cleo/run_23456789abcd · expires 16:00\n"
    );
    let mut proposed = Proposed {
        gate: "gt_23456789abcd".parse().unwrap(),
        branch: "cleo/run_23456789abcd".parse().unwrap(),
        into: "main".to_owned(),
        files_changed: 4,
        commit: commit(),
        already_there: false,
        expires_at: NOON,
    };
    assert_eq!(
        proposed.show(&here()),
        "gate gt_23456789abcd waiting for approval: merge cleo/run_23456789abcd into main (4 files)\n"
    );
    proposed.files_changed = 1;
    assert!(proposed.show(&here()).ends_with("(1 file)\n"));
    assert_eq!(decided("approved").show(&here()), "merged · commit 91ce3a7 · record 18211\n");
    assert_eq!(decided("denied").show(&here()), "denied · record 18211\n");
}

fn decided(state: &str) -> GateDecided {
    GateDecided {
        gate: "gt_23456789abcd".parse().unwrap(),
        state: state.to_owned(),
        commit: (state == "approved").then(commit),
        record: 18211,
        because: (state == "void").then(|| "main changed\x1b[2J".to_owned()),
        successor: (state == "void").then(|| "gt_bcdefghjkmnp".parse().unwrap()),
        conflicts: Vec::new(),
        already_there: false,
    }
}

#[test]
fn a_void_gate_names_its_successor() {
    let mut void = decided("void");
    void.conflicts.push(Conflict { path: path("/a"), kind: ConflictKind::BothAdded });
    let failure = Failure::Void(Box::new(void));
    assert_eq!(failure.exit_code(), 6);
    assert_eq!(
        failure.to_string(),
        "gt_23456789abcd is void, and nothing was merged: main changed\\u{001b}[2J\n  \
         /a: both sides added it, with different content\n\
         A fresh card waits: nas gate show gt_bcdefghjkmnp"
    );
}

fn card() -> GateCard {
    let entry = |size, mode| Entry {
        kind: EntryKind::File,
        mode,
        oid: Some(commit()),
        size,
        mtime: None,
        key_domain: KeyDomain::Box,
    };
    serde_json::from_value(json!({
        "gate": "gt_23456789abcd", "state": "pending", "run": run(), "lease": "lse_23456789abcd",
        "principal": "agent:cleo", "on_behalf_of": "human:owner",
        "action": {
            "op": "merge", "from": "cleo/run_23456789abcd", "commit": commit(), "into": "main",
            "files_changed": 3, "digest": "d1d2"
        },
        "why": "Draft\u{202e} it\nrisk\n  nothing: deleted",
        "risk": {
            "session_taint": "unknown", "deletions": ["/old"], "mode_changes": ["/tool"], "symlinks": [],
            "binaries": [], "invisible": ["/a%E2%80%AEb"], "runs_by_itself": [], "not_kept": []
        },
        "read": [{ "path": "/in", "commit": commit(), "content": null, "ranges": [[0, 10]] }],
        "read_more": 2,
        "changes": [
            Change { path: path("/a%E2%80%AEb"), old: None, new: Some(entry(12, 0o644)) },
            Change { path: path("/old"), old: Some(entry(2048, 0o644)), new: None },
            Change { path: path("/tool"), old: Some(entry(5, 0o644)), new: Some(entry(7, 0o755)) },
        ],
        "diff": "--- a/tool\n+++ b/tool\n+x\u{1b}[0m\n", "options": ["approve", "deny"], "default": "deny",
        "created_at": NOON, "expires_at": NOON.plus_ms(FOUR_HOURS_MS), "decision": null, "successor": null,
        "head": { "seq": 41, "hash": "abcd" }
    }))
    .unwrap()
}

/// Goal: the whole card; the run's words cannot pose as the box's (SPEC GATE-1).
#[test]
fn the_gate_card() {
    assert_eq!(card().show(&here()), include_str!("gate_card.txt"));
}

/// Goal: what this machine saw counts, whatever the box says (SPEC L1.6: also when the last records are cut).
#[test]
fn verification_compares_with_what_was_seen() {
    let head = |seq, hash: &str| Head { seq, hash: hash.to_owned() };
    let mut answer = RecordVerified {
        ok: true,
        head: head(10, "aa"),
        days: 1,
        first_bad: None,
        because: None,
        anchor: None,
        losses: Vec::new(),
    };
    assert_eq!(broken(&answer, None), None);
    assert_eq!(broken(&answer, Some(&head(9, "99"))), None);
    assert_eq!(broken(&answer, Some(&head(10, "AA"))), None);
    assert!(broken(&answer, Some(&head(10, "bb"))).is_some());
    assert!(broken(&answer, Some(&head(11, "bb"))).unwrap().contains("cut off"));
    answer.ok = false;
    answer.because = Some("record 3 was changed".to_owned());
    assert_eq!(broken(&answer, None).unwrap(), "record 3 was changed");
}

#[test]
fn mount_arguments() {
    let answer = MountTicketAnswer {
        ticket: Secret::new("t1ck".to_owned()),
        port: 12049,
        root: path("/shared/la unch"),
        expires_at: NOON,
        seconds: 60,
    };
    let arguments = mount::arguments("10.0.0.2", &answer, true, Path::new("/w"), (0, 0));
    let options = "vers=3,tcp,mountvers=3,mountproto=tcp,nolock,nosuid,nodev,port=12049,mountport=12049,ro";
    assert_eq!(arguments, ["-t", "nfs", "-o", options, "10.0.0.2:/t1ck/shared/la unch", "/w"]);
    assert_eq!(
        mount::command_line(&arguments),
        format!("sudo mount -t nfs -o {options} $'10.0.0.2:/t1ck/shared/la unch' /w")
    );
    let arguments = mount::arguments("10.0.0.2", &answer, false, Path::new("/w"), (1000, 100));
    assert_eq!(arguments[4], "10.0.0.2:/t1ck+1000+100/shared/la unch");
}

/// Goal: after a logout, what only the owner may do says how to sign in; any other refusal stays as it is.
#[test]
fn owner_only_says_how() {
    let refused = |rule: &str| nas_types::verb::ErrorInfo {
        code: "denied".to_owned(),
        message: "only the owner may do this".to_owned(),
        retryable: false,
        request_id: String::new(),
        details: serde_json::json!({ "rule": rule }),
    };
    assert!(crate::run::sign_in(refused("owner-only")).message.contains("nas owner login"));
    assert_eq!(crate::run::sign_in(refused("lease-subset")), refused("lease-subset"));
}

/// Goal: exit codes are part of the interface.
#[test]
fn exit_codes() {
    let refused = |code: &str, retryable| {
        let info = ErrorInfo {
            code: code.to_owned(),
            message: String::new(),
            retryable,
            request_id: String::new(),
            details: json!(null),
        };
        Failure::Refused(Box::new(info)).exit_code()
    };
    for (code, retryable, exit) in [
        ("unauthenticated", false, 3),
        ("lease_over", false, 3),
        ("wrong_passphrase", false, 3),
        ("denied", false, 4),
        ("not_found", false, 5),
        ("state", false, 6),
        ("conflicts", false, 6),
        ("busy", true, 7),
        ("degraded", true, 7),
        ("no_space", true, 7),
        ("quota", false, 1),
        ("invalid", false, 2),
        ("store", false, 1),
    ] {
        assert_eq!(refused(code, retryable), exit, "{code}");
    }
}
