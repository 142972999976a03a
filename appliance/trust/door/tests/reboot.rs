//! Time across reboots (DESIGN §4): on clocks of the test's own.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use nas_door::{Caller, Clocks, Door, DoorError, DoorOptions};
use nas_ledger::{Anchor, Ledger};
use nas_store::{Options, Reserve, Store};
use nas_testkit::Scratch;
use nas_trust_core::clock::BootId;
use nas_types::lease::Action;
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use nas_types::verb::{BoxStatus, BoxTrustClock, LeaseCreate, LeaseShow, OwnerInit, TreeList};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HOUR: i64 = 3_600_000;
/// Some moment in 2026.
const NOON: i64 = 1_790_000_000_000;

/// Clocks that stand still.
#[derive(Debug)]
struct Still {
    wall: i64,
    boottime_ms: i64,
    boot: u128,
    synced: bool,
}

impl Clocks for Still {
    fn wall(&self) -> Timestamp {
        Timestamp(self.wall)
    }
    fn boottime_ms(&self) -> i64 {
        self.boottime_ms
    }
    fn boot_id(&self) -> BootId {
        BootId(self.boot)
    }
    fn synchronised(&self) -> bool {
        self.synced
    }
}

fn passphrase() -> Secret {
    Secret::new("correct horse battery staple".to_owned())
}

fn open(dir: &Path, clocks: Still) -> Door {
    let pool = dir.join("pool");
    std::fs::create_dir_all(&pool).unwrap();
    let ledger = Ledger::open(&dir.join("ledger.db"), nas_ledger::Options { ballast_bytes: 64 << 10 }).unwrap();
    let anchor = Anchor::open(&dir.join("anchor.log")).unwrap();
    let options = Options { reserve: Reserve { percent: 1, bytes_min: 1 << 20 }, ..Options::default() };
    let store = Store::open(&pool, nas_door::pointer(&ledger).unwrap(), options).unwrap();
    let options = DoorOptions::new(SocketAddr::new(PEER, 2049), dir.join("owner.bootstrap"));
    Door::open_with_clocks(ledger, anchor, store, options, Arc::new(clocks)).unwrap()
}

fn caller(door: &Door, token: &Secret) -> Caller {
    door.authenticate(Some(token.reveal()), PEER).unwrap()
}

fn lease(door: &Door, owner: &Secret) -> Secret {
    let create = LeaseCreate {
        role: Some("cleo".parse().unwrap()),
        paths: vec!["/shared/**".to_owned()],
        actions: vec![Action::List, Action::Read, Action::Write],
        ttl_seconds: Some(4 * 3600),
        purpose: None,
        quota_bytes: None,
        tree: None,
    };
    door.call(&caller(door, owner), create).unwrap().token
}

fn list() -> TreeList {
    serde_json::from_value(serde_json::json!({ "path": "/shared", "view": "main" })).unwrap()
}

fn show(door: &Door, token: &Secret) -> (String, u64) {
    let info = door.call(&caller(door, token), LeaseShow { lease: None }).unwrap();
    (info.state, info.remaining_seconds)
}

/// Goal: after a reboot a lease waits until the owner confirms the clock, gets the smaller of what was left, and after a
/// restart in the same boot the confirmation still stands. A clock behind the ledger takes no new runs.
#[test]
fn a_lease_waits_for_the_clock() {
    let scratch = Scratch::new("reboot");
    let door = open(scratch.path(), Still { wall: NOON, boottime_ms: HOUR, boot: 1, synced: true });
    let bootstrap = std::fs::read_to_string(door.offer_bootstrap().unwrap().unwrap()).unwrap();
    let init = OwnerInit { bootstrap: Secret::new(bootstrap.trim().to_owned()), passphrase: passphrase() };
    let owner = door.call(&door.authenticate(None, PEER).unwrap(), init).unwrap().token;
    let token = lease(&door, &owner);
    assert_eq!(show(&door, &token), ("active".to_owned(), 4 * 3600));
    drop(door);

    // The battery is empty: 1970.
    let door = open(scratch.path(), Still { wall: 0, boottime_ms: 1000, boot: 2, synced: false });
    assert_eq!(door.call(&caller(&door, &owner), BoxStatus {}).unwrap().level, "no_new_runs");
    assert_eq!(show(&door, &token).0, "suspended");
    drop(door);

    // Three hours later by a clock that nobody vouches for.
    let door = open(scratch.path(), Still { wall: NOON + 3 * HOUR, boottime_ms: 1000, boot: 3, synced: false });
    assert_eq!(show(&door, &token).0, "suspended");
    assert!(matches!(door.call(&caller(&door, &token), list()), Err(DoorError::LeaseOver(_))));
    let status = door.call(&caller(&door, &owner), BoxTrustClock { passphrase: passphrase() }).unwrap();
    assert!(status.details.unwrap().clock_trusted);
    assert_eq!(show(&door, &token), ("active".to_owned(), 3600));
    drop(door);

    // nasd restarts within that boot; then the wall clock counts no more, only CLOCK_BOOTTIME.
    let door =
        open(scratch.path(), Still { wall: NOON + 3 * HOUR + 60_000, boottime_ms: 61_000, boot: 3, synced: false });
    assert_eq!(show(&door, &token), ("active".to_owned(), 3540));
    drop(door);

    // The confirmation was for that boot: the next one starts in doubt again.
    let door =
        open(scratch.path(), Still { wall: NOON + 3 * HOUR + 90_000, boottime_ms: 1000, boot: 4, synced: false });
    assert_eq!(show(&door, &token).0, "suspended");
}
