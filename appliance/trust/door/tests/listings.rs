//! Listings have no end that is not the end: more rows than one page can hold come page by page, each once, newest first.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod world;

use std::collections::BTreeSet;

use nas_door::Door;
use nas_ledger::{GateRow, LeaseRow, Ledger, LedgerError, NewRecord, RunRow};
use nas_trust_core::gate::{GateDigest, GateState};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::Action;
use nas_types::object::Oid;
use nas_types::verb::{BoxStatus, GateList, LeaseList, LeaseRevoke, RecordList, RunList};
use world::{Held, World};

/// More than two of the largest pages.
const MANY: i64 = 2_050;

/// What this many further runs, leases and proposals of one run would have left in the ledger.
fn fill(ledger: &Ledger, held: &Held) {
    let written = ledger.write(|tx| {
        let run: RunRow = tx.need(&held.info.run)?;
        let lease: LeaseRow = tx.need(&held.info.lease)?;
        let gate = GateRow {
            id: GateId::random(),
            run: run.id,
            lease: lease.id,
            branch: lease.branch.clone(),
            target: "main".to_owned(),
            base: Oid([1; 20]),
            pin: Oid([2; 20]),
            digest: GateDigest([3; 32]),
            changes: 1,
            why: None,
            card: serde_json::Value::Null,
            state: GateState::Pending,
            created_at: lease.created_at,
            expires_at: lease.expires_at,
            decided_at: None,
            decided_by: None,
            reason: None,
            merge_commit: None,
            successor: None,
        };
        for n in 1..=MANY {
            // Some in the same millisecond.
            let at = run.started_at.plus_ms(n / 3);
            tx.insert(&RunRow { id: RunId::random(), started_at: at, ..run.clone() })?;
            let token_hash = *blake3::hash(&n.to_le_bytes()).as_bytes();
            tx.insert(&LeaseRow { id: LeaseId::random(), token_hash, created_at: at, ..lease.clone() })?;
            tx.insert(&GateRow { id: GateId::random(), created_at: at, ..gate.clone() })?;
            tx.append(&NewRecord::event("filler", at))?;
        }
        Ok::<_, LedgerError>(())
    });
    written.unwrap();
}

/// Follows the cursors to the end. Returns how many rows there are; each must be there once.
fn count<K: Ord>(mut page: impl FnMut(Option<String>) -> (Vec<K>, Option<String>)) -> usize {
    let (mut seen, mut cursor) = (BTreeSet::new(), None);
    loop {
        let (rows, next) = page(cursor);
        assert!(!rows.is_empty() || next.is_none(), "an empty page says that more follow");
        for row in rows {
            assert!(seen.insert(row), "a row is on two pages");
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return seen.len(),
        }
    }
}

/// Goal: every listing pages through everything at the largest page and at a small one, for the owner and for a bearer; the
/// count of pending gates and a revocation reach all of them; a cursor that names nothing is refused.
#[test]
fn pages_reach_the_end() {
    let world = World::new(&[("a/x.txt", "x\n")]);
    let held = world.run(&["/a/**"], &Action::ALL, None);
    let world = world.reopened(|dir| {
        let ledger = Ledger::open(&dir.join("ledger.db"), nas_ledger::Options { ballast_bytes: 64 << 10 }).unwrap();
        fill(&ledger, &held);
    });
    let many = MANY as usize;
    for limit in [Some(1000), Some(999), None] {
        let runs = count(|cursor| {
            let page = world.as_owner(RunList { role: Some("cleo".parse().unwrap()), cursor, limit }).unwrap();
            (page.runs.into_iter().map(|run| run.run).collect(), page.cursor)
        });
        assert_eq!(runs, many + 1, "{limit:?}");
        let leases = count(|cursor| {
            let page = world.as_owner(LeaseList { all: false, cursor, limit }).unwrap();
            (page.leases.into_iter().map(|lease| lease.lease).collect(), page.cursor)
        });
        assert_eq!(leases, many + 1, "{limit:?}");
        let records = count(|cursor| {
            let page =
                world.as_owner(RecordList { run: None, kind: Some("filler".to_owned()), cursor, limit }).unwrap();
            (page.records.into_iter().map(|record| record.seq).collect(), page.cursor)
        });
        assert_eq!(records, many, "{limit:?}");
        let caller = world.caller(Some(&held.token));
        for by in [&caller, &world.caller(Some(&world.owner))] {
            assert_eq!(gates(&world.door, by, false, limit), many, "{limit:?}");
        }
    }
    let pending = |world: &World| world.as_owner(BoxStatus {}).unwrap().details.unwrap().gates_pending;
    assert_eq!(pending(&world), MANY as u64);
    for cursor in [GateId::random().to_string(), "yesterday".to_owned()] {
        let refused = world.as_owner(GateList { cursor: Some(cursor), ..GateList::default() });
        assert_eq!(refused.unwrap_err().code(), "invalid");
    }

    world.as_owner(LeaseRevoke { lease: held.info.lease, why: None }).unwrap();
    assert_eq!(pending(&world), 0);
    let owner = world.caller(Some(&world.owner));
    assert_eq!((gates(&world.door, &owner, false, None), gates(&world.door, &owner, true, None)), (0, many));
}

fn gates(door: &Door, by: &nas_door::Caller, all: bool, limit: Option<u32>) -> usize {
    count(|cursor| {
        let page = door.call(by, GateList { all, cursor, limit }).unwrap();
        (page.gates.into_iter().map(|gate| gate.gate).collect(), page.cursor)
    })
}
