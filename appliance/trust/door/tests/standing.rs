//! The envelope of a standing branch on clocks of the test's own: a mount goes on over the ends of its leases, each of which is as
//! short as any other (SPEC LEASE-1, LEASE-4).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use nas_door::{Clocks, Door, DoorOptions};
use nas_ledger::{Anchor, Ledger};
use nas_store::{Options, Reserve, Store};
use nas_testkit::{Scratch, wait_until};
use nas_trust_core::clock::BootId;
use nas_types::fs::FsError;
use nas_types::lease::View;
use nas_types::path::TreePath;
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use nas_types::verb::{LeaseList, LeaseShow, MountTicket, OwnerInit, StandingClose, StandingOpen};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NOON: i64 = 1_790_000_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Both clocks, moved together by the test.
#[derive(Debug, Default)]
struct Moved(AtomicI64);

impl Clocks for Moved {
    fn wall(&self) -> Timestamp {
        Timestamp(NOON + self.0.load(Ordering::Relaxed))
    }
    fn boottime_ms(&self) -> i64 {
        1000 + self.0.load(Ordering::Relaxed)
    }
    fn boot_id(&self) -> BootId {
        BootId(1)
    }
    fn synchronised(&self) -> bool {
        true
    }
}

fn passphrase() -> Secret {
    Secret::new("correct horse battery staple".to_owned())
}

/// Goal: a mounted standing branch works for days, under leases of four hours one after the other; closed, it ends at once.
#[test]
fn leases_follow_one_another() {
    let scratch = Scratch::new("standing");
    let (dir, clocks) = (scratch.path(), Arc::new(Moved::default()));
    std::fs::create_dir_all(dir.join("pool")).unwrap();
    let ledger = Ledger::open(&dir.join("ledger.db"), nas_ledger::Options { ballast_bytes: 64 << 10 }).unwrap();
    let anchor = Anchor::open(&dir.join("anchor.log")).unwrap();
    let options = Options { reserve: Reserve { percent: 1, bytes_min: 1 << 20 }, ..Options::default() };
    let store = Store::open(&dir.join("pool"), None, options).unwrap();
    let options = DoorOptions::new(SocketAddr::new(PEER, 2049), dir.join("owner.bootstrap"));
    let door = Door::open_with_clocks(ledger, anchor, store, options, Arc::clone(&clocks) as Arc<_>).unwrap();
    let bootstrap = std::fs::read_to_string(door.offer_bootstrap().unwrap().unwrap()).unwrap();
    let init = OwnerInit { bootstrap: Secret::new(bootstrap.trim().to_owned()), passphrase: passphrase() };
    let owner = door.call(&door.authenticate(None, PEER).unwrap(), init).unwrap().token;
    let as_owner = || door.authenticate(Some(owner.reveal()), PEER).unwrap();

    let opened = door.call(&as_owner(), StandingOpen { paths: None, passphrase: passphrase() }).unwrap();
    let bearer = door.authenticate(Some(opened.token.reveal()), PEER).unwrap();
    let ticket = door.call(&bearer, MountTicket { view: View::Branch, read_only: false }).unwrap().ticket;
    let mount = door.mount(ticket.reveal(), &TreePath::root(), PEER, (1000, 1000)).unwrap();
    let (id, root) = (mount.id(), mount.root());
    drop(mount);
    let leases = || door.call(&as_owner(), LeaseList { all: true, ..LeaseList::default() }).unwrap().leases;
    let write = |name: &str| {
        let mount = door.mounted(id, PEER).unwrap();
        mount.mkdir(root, name.as_bytes(), nas_types::fs::SetAttr::default()).map(drop)
    };
    write("day-0").unwrap();
    for step in 1i64..=12 {
        // 3 h 45 min: less than half an hour of the lease is left.
        clocks.0.store(step * (3 * 60 + 45) * 60_000, Ordering::Relaxed);
        assert!(wait_until(PATIENCE, || leases().len() as i64 == step + 1), "lease {step} was not followed by another");
        write(&format!("step-{step}")).unwrap();
    }
    let all = leases();
    assert!(all.iter().all(|lease| lease.expires_at.0 - lease.created_at.0 <= 4 * 3_600_000));
    assert!(all.iter().all(|lease| lease.run == opened.lease.run && lease.parent.is_none()));
    // The first one ended when its time was over, like any lease.
    let first = door.call(&as_owner(), LeaseShow { lease: Some(opened.lease.lease) }).unwrap();
    assert_eq!(first.state, "expired");

    door.call(&as_owner(), StandingClose { passphrase: passphrase() }).unwrap();
    let count = leases().len();
    assert_eq!(write("late"), Err(FsError::Stale));
    clocks.0.fetch_add(5 * 3_600_000, Ordering::Relaxed);
    assert_eq!(leases().len(), count);
}
