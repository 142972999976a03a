use super::*;
use nas_types::object::Oid;
use nas_types::path::TreePath;
use proptest::prelude::*;

fn change(path: &str, old: Option<Entry>, new: Option<Entry>) -> Change {
    Change { path: TreePath::parse(path).unwrap(), old, new }
}
fn file(n: u8) -> Entry {
    Entry {
        kind: EntryKind::File,
        mode: 0o644,
        oid: Some(Oid([n; 20])),
        size: 5,
        mtime: None,
        key_domain: KeyDomain::Box,
    }
}
fn lease() -> LeaseId {
    "lse_222222222222".parse().unwrap()
}

/// Goal: every part is bound. One changed part, another digest.
#[test]
fn digest_binds_every_part() {
    let base = vec![change("/a", None, Some(file(1))), change("/b", Some(file(1)), Some(file(2)))];
    let with = |edit: &dyn Fn(&mut Vec<Change>)| {
        let mut changes = base.clone();
        edit(&mut changes);
        digest("main", lease(), &changes)
    };
    let new = |c: &mut Change, edit: &dyn Fn(&mut Entry)| edit(c.new.as_mut().unwrap());
    let all = [
        digest("main", lease(), &base),
        digest("main2", lease(), &base),
        digest("main", "lse_222222222223".parse().unwrap(), &base),
        with(&|c| c[0].path = TreePath::parse("/aa").unwrap()),
        with(&|c| new(&mut c[0], &|e| e.oid = Some(Oid([9; 20])))),
        with(&|c| new(&mut c[0], &|e| e.oid = None)),
        with(&|c| new(&mut c[0], &|e| e.mode = 0o755)),
        with(&|c| new(&mut c[0], &|e| e.kind = EntryKind::Symlink)),
        with(&|c| new(&mut c[0], &|e| e.size = 6)),
        with(&|c| c[1].old = None),
        with(&|c| c[1].new = None),
        with(&|c| c[1].old = Some(file(7))),
        with(&|c| c.truncate(1)),
        with(&|c| c.push(change("/c", Some(file(1)), None))),
        digest("main", lease(), &[]),
    ];
    for (at, a) in all.iter().enumerate() {
        for b in &all[at + 1..] {
            assert_ne!(a, b);
        }
    }
    assert_eq!(with(&|c| c.reverse()), all[0], "the order in which changes were found is not bound");
    assert_eq!(all[0].to_string().parse(), Ok(all[0]));
    assert!("zz".parse::<GateDigest>().is_err());
}

/// Goal: the encoding never changes by accident; gates that wait for an answer across an update depend on it.
#[test]
fn digest_is_fixed() {
    let changes = [change("/a", None, Some(file(1))), change("/b", Some(file(1)), None)];
    assert_eq!(
        digest("main", lease(), &changes).to_string(),
        "283fbe456f2393900269319dc83f4dbbf35dd14074d9126dd061e04b05d6b797"
    );
}

/// Goal: moving bytes between neighbouring fields never gives the same digest (length prefixes).
#[test]
fn digest_is_not_confused_by_boundaries() {
    let a = digest("main", lease(), &[change("/ab", None, None), change("/c", None, None)]);
    let b = digest("main", lease(), &[change("/a", None, None), change("/bc", None, None)]);
    assert_ne!(a, b);
}

const D: GateDigest = GateDigest([1; 32]);
const OTHER: GateDigest = GateDigest([2; 32]);

fn gate(state: GateState) -> Gate {
    Gate { state, digest: D, expires_at: Timestamp(1000) }
}
fn approve(seen: GateDigest, recomputed: Option<GateDigest>, lease: LeaseStanding) -> GateEvent {
    GateEvent::Approve { seen, recomputed, lease }
}

/// Goal: the mornings of issue "overnight run": same digest merges, another does not, revoked voids, late is denied.
#[test]
fn next_morning() {
    use LeaseStanding::{LiveOrExpired, Revoked};
    let pending = gate(GateState::Pending);
    let at = |now, event| decide(&pending, Timestamp(now), true, event);
    assert_eq!(at(999, approve(D, Some(D), LiveOrExpired)), Ruling::Approve);
    assert_eq!(at(1000, approve(D, Some(D), LiveOrExpired)), Ruling::Expire);
    assert_eq!(at(0, approve(D, Some(OTHER), LiveOrExpired)), Ruling::Void(VoidReason::ResultChanged));
    assert_eq!(at(0, approve(D, None, LiveOrExpired)), Ruling::Void(VoidReason::Conflict));
    assert_eq!(at(0, approve(D, Some(D), Revoked)), Ruling::Void(VoidReason::LeaseRevoked));
    assert_eq!(at(0, GateEvent::LeaseRevoked), Ruling::Void(VoidReason::LeaseRevoked));
    // A card for another digest approves nothing, even when the recomputed merge equals what the person saw.
    assert_eq!(at(0, approve(OTHER, Some(OTHER), LiveOrExpired)), Ruling::WrongCard);
    assert_eq!(at(999, GateEvent::Tick), Ruling::Stay);
    assert_eq!(at(1000, GateEvent::Tick), Ruling::Expire);
    assert_eq!(decide(&pending, Timestamp(9999), false, GateEvent::Tick), Ruling::Stay, "nothing ends by age");
    assert!(VoidReason::ResultChanged.asks_again() && !VoidReason::LeaseRevoked.asks_again());
}

fn digests() -> impl Strategy<Value = GateDigest> {
    prop::sample::select(vec![D, OTHER])
}
fn events() -> impl Strategy<Value = GateEvent> {
    let standing = prop::sample::select(vec![LeaseStanding::LiveOrExpired, LeaseStanding::Revoked]);
    prop_oneof![
        (digests(), prop::option::of(digests()), standing).prop_map(|(s, r, l)| approve(s, r, l)),
        Just(GateEvent::Deny),
        Just(GateEvent::LeaseRevoked),
        Just(GateEvent::Tick),
    ]
}

proptest! {
    /// Goal: over any history a gate is approved at most once, only for its own digest, only before its end, never for
    /// a revoked lease, and never leaves a final state.
    #[test]
    fn any_history(steps in prop::collection::vec((events(), 0i64..1500, any::<bool>()), 1..30)) {
        let mut g = gate(GateState::Pending);
        let mut approvals = 0;
        for (event, now, trusted) in steps {
            let before = g.state;
            let ruling = decide(&g, Timestamp(now), trusted, event);
            g.state = match ruling {
                Ruling::Stay | Ruling::WrongCard | Ruling::Decided(_) => g.state,
                Ruling::Approve => GateState::Approved,
                Ruling::Deny => GateState::Denied,
                Ruling::Expire => GateState::Expired,
                Ruling::Void(_) => GateState::Void,
            };
            if before != GateState::Pending {
                prop_assert_eq!(g.state, before);
            }
            if ruling == Ruling::Approve {
                approvals += 1;
                prop_assert_eq!(event, approve(D, Some(D), LeaseStanding::LiveOrExpired));
                prop_assert!(now < 1000 || !trusted);
            }
        }
        prop_assert!(approvals <= 1);
    }
}
