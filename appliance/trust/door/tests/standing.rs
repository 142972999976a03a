//! The envelope of a standing branch on clocks of the test's own: a mount goes on over the ends of its leases, each of which is as
//! short as any other (SPEC LEASE-1, LEASE-4).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use nas_door::{Caller, Clocks, Door, DoorError, DoorOptions, DoorVerb};
use nas_ledger::{Anchor, Ledger};
use nas_store::{Options, Reserve, Store};
use nas_testkit::{Scratch, wait_until};
use nas_trust_core::clock::BootId;
use nas_types::fs::{FsError, NodeRef, SetAttr};
use nas_types::id::MountId;
use nas_types::lease::{Action, View};
use nas_types::path::TreePath;
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use nas_types::verb::{
    LeaseCreate, LeaseInfo, LeaseList, LeaseRevoke, LeaseShow, MountTicket, OwnerInit, StandingClose, StandingOpen,
    StandingOpened,
};

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

struct World {
    door: Door,
    clocks: Arc<Moved>,
    owner: Secret,
    _scratch: Scratch,
}

impl World {
    fn new() -> Self {
        let (scratch, clocks) = (Scratch::new("standing"), Arc::new(Moved::default()));
        let dir = scratch.path();
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
        Self { door, clocks, owner, _scratch: scratch }
    }

    fn caller(&self, token: &Secret) -> Caller {
        self.door.authenticate(Some(token.reveal()), PEER).unwrap()
    }

    fn as_owner<V: DoorVerb>(&self, verb: V) -> V::Answer {
        self.door.call(&self.caller(&self.owner), verb).unwrap()
    }

    fn open(&self) -> StandingOpened {
        self.as_owner(StandingOpen { paths: None, passphrase: passphrase() })
    }

    /// A mount and its root.
    fn mount(&self, token: &Secret) -> (MountId, NodeRef) {
        let ticket = MountTicket { view: View::Branch, read_only: false, commit: None };
        let ticket = self.door.call(&self.caller(token), ticket).unwrap().ticket;
        let mount = self.door.mount(ticket.reveal(), &TreePath::root(), PEER, (1000, 1000)).unwrap();
        (mount.id(), mount.root())
    }

    fn write(&self, (id, root): (MountId, NodeRef), name: &str) -> Result<(), FsError> {
        let mount = self.door.mounted(id, PEER)?;
        mount.mkdir(root, name.as_bytes(), SetAttr::default()).map(drop)
    }

    fn leases(&self) -> Vec<LeaseInfo> {
        self.as_owner(LeaseList { all: true, ..LeaseList::default() }).leases
    }
}

/// Goal: a mounted standing branch works for days, under leases of four hours one after the other; closed, it ends at once.
#[test]
fn leases_follow_one_another() {
    let world = World::new();
    let opened = world.open();
    let mount = world.mount(&opened.token);
    world.write(mount, "day-0").unwrap();
    for step in 1i64..=12 {
        // 3 h 45 min: less than half an hour of the lease is left.
        world.clocks.0.store(step * (3 * 60 + 45) * 60_000, Ordering::Relaxed);
        let followed = wait_until(PATIENCE, || world.leases().len() as i64 == step + 1);
        assert!(followed, "lease {step} was not followed by another");
        world.write(mount, &format!("step-{step}")).unwrap();
    }
    let all = world.leases();
    assert!(all.iter().all(|lease| lease.expires_at.0 - lease.created_at.0 <= 4 * 3_600_000));
    assert!(all.iter().all(|lease| lease.run == opened.lease.run && lease.parent.is_none()));
    // The first one ended when its time was over, like any lease.
    assert_eq!(world.as_owner(LeaseShow { lease: Some(opened.lease.lease) }).state, "expired");

    world.as_owner(StandingClose { passphrase: passphrase() });
    let count = world.leases().len();
    assert_eq!(world.write(mount, "late"), Err(FsError::Stale));
    world.clocks.0.fetch_add(5 * 3_600_000, Ordering::Relaxed);
    assert_eq!(world.leases().len(), count);
}

/// Goal: revoking any lease of the envelope ends every mount of the branch, and a later one brings none of them back.
#[test]
fn a_revocation_means_the_branch() {
    let world = World::new();
    let first = world.open();
    let mount = world.mount(&first.token);
    let second = world.open();
    world.write(mount, "moved-to-the-second").unwrap();
    let revoked = world.as_owner(LeaseRevoke { lease: first.lease.lease, why: None }).revoked;
    assert!(revoked.contains(&first.lease.lease) && revoked.contains(&second.lease.lease));
    assert_eq!(world.write(mount, "revoked"), Err(FsError::Stale));
    let third = world.open();
    assert_eq!(world.write(mount, "still-revoked"), Err(FsError::Stale));
    world.write(world.mount(&third.token), "fresh").unwrap();
}

/// Goal: nobody else writes as the person: the lease of a standing branch is not handed on.
#[test]
fn it_is_not_handed_on() {
    let world = World::new();
    let opened = world.open();
    let child = LeaseCreate {
        role: None,
        tree: None,
        paths: vec!["/**".to_owned()],
        actions: vec![Action::Read],
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
    };
    let refused = world.door.call(&world.caller(&opened.token), child).map(|_| ());
    assert!(matches!(&refused, Err(DoorError::Denied { rule, .. }) if rule == "standing-is-personal"), "{refused:?}");
    assert_eq!(world.leases().len(), 1);
}
