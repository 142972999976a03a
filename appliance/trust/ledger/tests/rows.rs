//! Rows and records through the public face of the ledger.

#![allow(clippy::unwrap_used, reason = "a test")]

mod sample;

use nas_ledger::{
    Advanced, GateFilter, GateRow, GenerationRow, Head, LeaseRow, LeaseState, Ledger, LedgerError, NewRecord, Options,
    PrincipalRow, ReadManifestRow, RefusalCount, RingEntry, RunRow, TokenKind, TokenRow,
};
use nas_trust_core::clock::BootId;
use nas_trust_core::gate::GateState;
use nas_trust_core::lease_time::LeaseClock;
use nas_trust_core::read_manifest::{ReadManifest, Version};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::path::TreePath;
use nas_types::time::Timestamp;
use sample::{T, World, oid, open};

type Done = Result<(), LedgerError>;

/// Goal: every kind of row comes back as it was written, also after the ledger is closed and opened again.
#[test]
fn rows_survive() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(7);
    let ledger = open(dir.path());
    ledger.write(|tx| world.insert(tx)).unwrap();
    check(&ledger, &world);
    drop(ledger);
    check(&open(dir.path()), &world);
}

fn check(ledger: &Ledger, w: &World) {
    let pending = GateFilter { state: Some(GateState::Pending), run: None };
    ledger
        .read(|r| -> Done {
            assert_eq!(r.get::<PrincipalRow>(&w.agent.id)?.as_ref(), Some(&w.agent));
            assert_eq!(r.get::<TokenRow>(&w.token.token_hash)?.as_ref(), Some(&w.token));
            assert_eq!(r.get::<RunRow>(&w.run.id)?.as_ref(), Some(&w.run));
            assert_eq!(r.lease_by_token(&w.lease.token_hash)?.as_ref(), Some(&w.lease));
            assert_eq!(r.leases_of_run(w.run.id)?, std::slice::from_ref(&w.lease));
            assert_eq!(r.mounts_live()?, std::slice::from_ref(&w.mount));
            assert_eq!(r.mounts_of_lease(w.lease.id)?, std::slice::from_ref(&w.mount));
            assert_eq!(r.gates(pending, None, 10)?, std::slice::from_ref(&w.gate));
            assert_eq!(r.gates_of_run(w.run.id)?, r.gates(GateFilter::default(), None, 10)?);
            assert_eq!(r.branches_kept()?, std::slice::from_ref(&w.branch));
            assert_eq!(r.runs(None, None, 10)?, std::slice::from_ref(&w.run));
            Ok(())
        })
        .unwrap();
}

/// Goal: what has to see every gate that waits sees them all, also more than one listing returns, and no gate that was decided.
#[test]
fn more_gates_wait_than_a_listing_returns() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(3);
    let total = u64::from(nas_ledger::LIST_ROWS_MAX) + 5;
    let at = |n: u64| Timestamp(w.gate.created_at.0 + 1 + i64::try_from(n).unwrap());
    let made: Vec<GateRow> =
        (0..total).map(|n| GateRow { id: GateId::random(), created_at: at(n), ..w.gate.clone() }).collect();
    ledger
        .write(|tx| -> Done {
            w.insert(tx)?;
            made.iter().try_for_each(|gate| tx.insert(gate))?;
            let denied = GateRow { state: GateState::Denied, ..w.gate.clone() };
            assert!(tx.decide_gate(&denied)?);
            Ok(())
        })
        .unwrap();
    let expected: Vec<_> = made.iter().map(|gate| (gate.id, gate.lease)).collect();
    ledger
        .read(|r| -> Done {
            assert_eq!(r.gates_waiting()?, expected);
            assert_eq!(r.gates_waiting_count()?, total);
            Ok(())
        })
        .unwrap();
}

/// Goal: pages hold every row once, newest first, also when many rows have the same time and when a row changes its state
/// between two pages.
#[test]
fn listings_page_through_everything() {
    const MANY: i64 = 2_300;
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(1);
    let many = |tx: &mut nas_ledger::Tx<'_>| -> Done {
        w.insert(tx)?;
        for n in 0..MANY {
            let at = T.plus_ms(n / 7);
            let role = if n % 2 == 0 { "cleo" } else { "ada" };
            tx.insert(&RunRow { id: RunId::random(), role: role.parse().unwrap(), started_at: at, ..w.run.clone() })?;
            let token_hash = *blake3::hash(&n.to_le_bytes()).as_bytes();
            tx.insert(&LeaseRow { id: LeaseId::random(), token_hash, created_at: at, ..w.lease.clone() })?;
            tx.insert(&GateRow { id: GateId::random(), created_at: at, ..w.gate.clone() })?;
        }
        Ok(())
    };
    ledger.write(many).unwrap();
    let total = MANY as usize + 1;
    let ada = "ada".parse().unwrap();
    let of_role = paged(|after| ledger.read(|r| r.runs(Some(&ada), after, 100)).unwrap());
    assert_eq!((of_role.len(), of_role.iter().all(|run| run.role == ada)), (MANY as usize / 2, true));
    let runs = paged(|after| ledger.read(|r| r.runs(None, after, u32::MAX)).unwrap());
    assert!(
        runs.len() == total
            && runs.windows(2).all(|w| (w[0].started_at, w[0].id.to_string()) > (w[1].started_at, w[1].id.to_string()))
    );
    let leases = paged(|after| ledger.read(|r| r.leases(true, after, 999)).unwrap());
    assert_eq!((leases.len(), ledger.read(|r| r.leases(false, None, 5)).unwrap()), (total, leases[..5].to_vec()));

    let pending = GateFilter { state: Some(GateState::Pending), run: Some(w.run.id) };
    let gates = paged(|after| {
        let page = ledger.read(|r| r.gates(pending, after, 700)).unwrap();
        // The one the next page begins after, and one of an earlier page, are decided in between.
        for gate in page.last().into_iter().chain(page.first()) {
            let decided = GateRow { state: GateState::Denied, decided_at: Some(T), ..gate.clone() };
            ledger.write(|tx| tx.decide_gate(&decided)).unwrap();
        }
        page
    });
    assert!(gates.len() == total && gates.windows(2).all(|w| w[0].created_at >= w[1].created_at));
    let unknown = ledger.read(|r| r.gates(GateFilter::default(), Some(GateId::random()), 9)).unwrap_err();
    assert!(matches!(unknown, LedgerError::Missing { table: "gates" }), "{unknown:?}");
}

/// All pages of a listing, each row once.
fn paged<R: nas_ledger::Row>(mut page: impl FnMut(Option<R::Key>) -> Vec<R>) -> Vec<R>
where
    R::Key: Copy + Ord,
{
    let mut rows = Vec::new();
    loop {
        let next = page(rows.last().map(|row: &R| *row.key()));
        if next.is_empty() {
            let distinct: std::collections::BTreeSet<_> = rows.iter().map(|row| *row.key()).collect();
            assert_eq!(distinct.len(), rows.len(), "a row is on two pages");
            return rows;
        }
        rows.extend(next);
    }
}

/// Goal: keys are unique, references exist, rows to change are there, and each refusal says which table.
#[test]
fn constraints() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(1);
    let dangling = ledger.write(|tx| tx.insert(&w.run)).unwrap_err();
    assert!(matches!(dangling, LedgerError::Dangling { table: "runs" }), "{dangling:?}");
    ledger.write(|tx| w.insert(tx)).unwrap();
    let exists = ledger.write(|tx| tx.insert(&w.lease)).unwrap_err();
    assert!(matches!(exists, LedgerError::Exists { table: "leases" }), "{exists:?}");
    let twin = LeaseRow { id: LeaseId::random(), ..w.lease.clone() };
    assert!(matches!(ledger.write(|tx| tx.insert(&twin)), Err(LedgerError::Exists { table: "leases" })));
    let missing = ledger.write(|tx| tx.update(&World::new(2).run)).unwrap_err();
    assert!(matches!(missing, LedgerError::Missing { table: "runs" }), "{missing:?}");
    ledger.write(|tx| tx.put(&TokenRow { kind: TokenKind::Bootstrap, ..w.token.clone() })).unwrap();
    assert_eq!(ledger.read(|r| r.need::<TokenRow>(&w.token.token_hash)).unwrap().kind, TokenKind::Bootstrap);
}

/// Goal: SPEC LEASE-3. Revocation reaches every descendant, once, and no sibling.
#[test]
fn revoking_reaches_descendants() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(1);
    let child = |parent: LeaseId, n: u8| LeaseRow {
        id: LeaseId::random(),
        parent: Some(parent),
        token_hash: [n; 32],
        ..w.lease.clone()
    };
    let a = child(w.lease.id, 100);
    let (b, aa) = (child(w.lease.id, 101), child(a.id, 102));
    let add = |tx: &mut nas_ledger::Tx<'_>| -> Done {
        w.insert(tx)?;
        [&a, &b, &aa].into_iter().try_for_each(|row| tx.insert(row))
    };
    ledger.write(add).unwrap();
    let order: Vec<_> = ledger.read(|r| r.lease_and_descendants(w.lease.id)).unwrap().iter().map(|l| l.id).collect();
    assert_eq!((order[0], order[3]), (w.lease.id, aa.id), "ancestors come first");
    let mut revoked = ledger.write(|tx| tx.revoke_lease(a.id, Timestamp(9))).unwrap();
    let mut want = vec![a.id, aa.id];
    revoked.sort();
    want.sort();
    assert_eq!(revoked, want);
    assert_eq!(ledger.write(|tx| tx.revoke_lease(a.id, Timestamp(10))).unwrap(), []);
    let state = |id| ledger.read(|r| r.need::<LeaseRow>(&id)).unwrap().state;
    assert_eq!(
        (state(b.id), state(w.lease.id), state(aa.id)),
        (LeaseState::Active, LeaseState::Active, LeaseState::Revoked)
    );
    assert_eq!(ledger.read(|r| r.leases_usable()).unwrap().len(), 2);
}

/// Goal: main moves only from the generation that was expected, by one.
#[test]
fn generations_compare_and_swap() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let generation = |number| GenerationRow { number, commit_oid: oid(1), made_at: T, retired_at: None };
    let advance = |expected, number| ledger.write(|tx| tx.advance_generation(expected, &generation(number))).unwrap();
    assert_eq!(advance(Some(0), 1), Advanced::Lost { current: None });
    assert_eq!(advance(None, 0), Advanced::Moved);
    assert_eq!(advance(None, 0), Advanced::Lost { current: Some(0) });
    assert_eq!(advance(Some(0), 2), Advanced::Lost { current: Some(0) });
    assert_eq!(advance(Some(0), 1), Advanced::Moved);
    assert_eq!(advance(Some(0), 1), Advanced::Lost { current: Some(1) });
    let all = ledger.read(|r| r.generations()).unwrap();
    assert_eq!(all.iter().map(|g| g.retired_at).collect::<Vec<_>>(), [Some(T), None]);
    assert!(ledger.write(|tx| tx.forget_generation(1)).is_err(), "the current one stays");
    ledger.write(|tx| tx.forget_generation(0)).unwrap();
}

/// Goal: GATE-2. A decided gate never changes again, by any method.
#[test]
fn gates_are_decided_once() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(1);
    ledger.write(|tx| w.insert(tx)).unwrap();
    let with = |state| GateRow { state, decided_at: Some(T), ..w.gate.clone() };
    assert!(ledger.write(|tx| tx.decide_gate(&with(GateState::Void))).unwrap());
    assert!(!ledger.write(|tx| tx.decide_gate(&with(GateState::Approved))).unwrap());
    assert!(ledger.write(|tx| tx.update(&with(GateState::Approved))).is_err());
    let fresh = GateRow { id: nas_types::id::GateId::random(), ..w.gate.clone() };
    let follow = |tx: &mut nas_ledger::Tx<'_>| -> Done {
        tx.insert(&fresh)?;
        tx.set_successor(w.gate.id, fresh.id)
    };
    ledger.write(follow).unwrap();
    let stored = ledger.read(|r| r.need::<GateRow>(&w.gate.id)).unwrap();
    assert_eq!((stored.state, stored.successor), (GateState::Void, Some(fresh.id)));
}

/// Goal: REC-1. An intent has exactly one outcome; those without are listed at start.
#[test]
fn intents_and_outcomes() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let append = |new: NewRecord| ledger.write(move |tx| tx.append(&new));
    let one = append(NewRecord::intent("merge.intent", T)).unwrap();
    let two = append(NewRecord::intent("merge.intent", T)).unwrap();
    let event = append(NewRecord::event("run.open", T)).unwrap();
    append(NewRecord::outcome("merge.done", T, one.seq)).unwrap();
    for bad in [
        NewRecord::outcome("merge.done", T, one.seq),
        NewRecord::outcome("merge.done", T, event.seq),
        NewRecord::outcome("merge.done", T, 99),
        NewRecord { intent: Some(two.seq), ..NewRecord::event("merge.done", T) },
    ] {
        assert!(append(bad.clone()).is_err(), "{bad:?}");
    }
    drop(ledger);
    let ledger = open(dir.path());
    let open_intents = ledger.read(|r| r.open_intents()).unwrap();
    assert_eq!(open_intents.iter().map(|r| r.seq).collect::<Vec<_>>(), [two.seq]);
    assert_eq!(ledger.read(|r| r.outcome_of(one.seq)).unwrap().unwrap().fields.kind, "merge.done");
    assert!(ledger.verify(None).unwrap().is_ok());
}

/// Goal: a record keeps every field of SPEC REC, and can be found by run, kind and commit.
#[test]
fn record_fields() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(1);
    let full = NewRecord {
        run: Some(w.run.id),
        principal: Some("agent:cleo".into()),
        on_behalf_of: Some("human:owner".into()),
        lease: Some(w.lease.id),
        purpose: Some("notes\nwith a line".into()),
        path: Some(TreePath::from_relative(b"a/\xff/b").unwrap()),
        commit: Some(oid(9)),
        read_manifest: Some([3; 32]),
        effect: Some("allow".into()),
        rule: Some("owner-import".into()),
        detail: serde_json::json!({"b": 1, "a": [null, "x"]}),
        ..NewRecord::event("merge", T)
    };
    ledger.write(|tx| tx.append(&NewRecord::event("other", T))).unwrap();
    let head = ledger.write(|tx| tx.append(&full)).unwrap();
    assert_eq!(ledger.head().unwrap(), head);
    let found = ledger.read(|r| r.record(2)).unwrap().unwrap();
    assert_eq!((found.fields, found.hash), (full, head.hash));
    let seqs = |run, kind| -> Vec<u64> {
        ledger.read(|r| r.records_before(None, run, kind, 10)).unwrap().iter().map(|r| r.seq).collect()
    };
    assert_eq!(seqs(None, None), [2, 1]);
    assert_eq!(seqs(Some(w.run.id), None), [2]);
    assert_eq!(seqs(None, Some("other")), [1]);
    assert_eq!(seqs(Some(w.run.id), Some("other")), [0u64; 0]);
    assert_eq!(ledger.read(|r| r.records_of_commit(oid(9))).unwrap().len(), 1);
    assert_eq!(ledger.read(|r| r.last_time()).unwrap(), Some(T));
    assert_eq!(Head::from_hex(2, &head.hash_hex()), Some(head));
}

/// Goal: a read manifest is stored by changed lines and comes back with the same digest.
#[test]
fn read_manifest_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(1);
    ledger.write(|tx| w.insert(tx)).unwrap();
    let mut manifest = ReadManifest::default();
    let versions = [Version { commit: Some(oid(1)), content: Some(oid(2)) }, Version { commit: None, content: None }];
    for version in versions {
        manifest.note(&TreePath::parse("/a/b").unwrap(), version, 5, 10);
    }
    manifest.note_whole(&TreePath::parse("/c").unwrap(), versions[0]);
    let store = |manifest: &ReadManifest| {
        let totals = ReadManifestRow {
            run: w.run.id,
            digest: manifest.digest(),
            entries: manifest.len() as u64,
            unlisted: manifest.unlisted(),
            updated_at: T,
        };
        let lines: Vec<_> = manifest.entries().collect();
        ledger.write(|tx| tx.put_read_manifest(&totals, &lines)).unwrap();
    };
    store(&manifest);
    manifest.note(&TreePath::parse("/a/b").unwrap(), versions[0], 100, 1);
    store(&manifest);
    let mut again = ReadManifest::default();
    ledger.read(|r| r.read_entries(w.run.id)).unwrap().into_iter().for_each(|entry| again.restore(entry));
    assert_eq!(again, manifest);
    let totals = ledger.read(|r| r.need::<ReadManifestRow>(&w.run.id)).unwrap();
    assert_eq!((totals.digest, totals.entries), (again.digest(), 3));
}

/// Goal: counters add up, the ring stays a ring, values by name and lease times are replaced.
#[test]
fn small_tables() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let w = World::new(1);
    ledger.write(|tx| w.insert(tx)).unwrap();
    let count = RefusalCount { minute: T, source: "run".into(), rule: "r".into(), prefix: "/a".into(), count: 3 };
    let slot =
        |n: i64| RingEntry { slot: 5, time: Timestamp(n), source: "::1".into(), rule: "no-lease".into(), path: None };
    let clock = LeaseClock { remaining_ms: 5, boot_id: BootId(9), boottime_ms: 77, expires_at: w.lease.expires_at };
    let all = |tx: &mut nas_ledger::Tx<'_>| -> Done {
        tx.add_refusals(&count)?;
        tx.add_refusals(&count)?;
        tx.put_ring(&slot(1))?;
        tx.put_ring(&slot(2))?;
        tx.put_kv("k", b"1")?;
        tx.put_kv("k", b"2")?;
        tx.store_lease_time(w.lease.id, &clock)
    };
    ledger.write(all).unwrap();
    let read = |r: &nas_ledger::Reader<'_>| -> Done {
        assert_eq!(r.refusal_counts(T)?, [RefusalCount { count: 6, ..count.clone() }]);
        assert_eq!(r.refusal_counts(T.plus_ms(1))?, []);
        assert_eq!(r.refusal_ring()?, [slot(2)]);
        assert_eq!(r.kv("k")?, Some(b"2".to_vec()));
        assert_eq!(r.need::<LeaseRow>(&w.lease.id)?.clock(), clock);
        Ok(())
    };
    ledger.read(read).unwrap();
    assert!(ledger.write(|tx| tx.delete_kv("k")).unwrap());
    assert!(!ledger.write(|tx| tx.delete_kv("k")).unwrap());
}

/// Goal: a second opener is told plainly, and a foreign file is left alone.
#[test]
fn opening() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    ledger.write(|tx| tx.append(&NewRecord::event("e", T))).unwrap();
    let second = Ledger::open(ledger.path(), Options { ballast_bytes: 0 }).unwrap_err();
    assert!(matches!(second, LedgerError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains("in use"));
    assert!(matches!(nas_ledger::verify_file(ledger.path(), None), Err(LedgerError::InUse { .. })));
    assert!(!dir.path().join("ledger.db-shm").exists(), "no shared-memory file (FINDINGS §1)");
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("ledger.db"), mode("ledger.db-wal")), (0o600, 0o600), "it holds hashes of secrets");
    let head = ledger.head().unwrap();
    let path = ledger.path().to_owned();
    drop(ledger);
    let report = nas_ledger::verify_file(&path, Some(head)).unwrap();
    assert!(report.is_ok() && report.head == head);
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be looked at as one. ".repeat(40)).unwrap();
    assert!(matches!(Ledger::open(&text, Options { ballast_bytes: 0 }), Err(LedgerError::NotALedger { .. })));
}
