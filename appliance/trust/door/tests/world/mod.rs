//! A Door on a real store and a real ledger in a folder of its own, with an owner and runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use nas_door::{Caller, Door, DoorError, DoorOptions, DoorVerb, Mounted};
use nas_ledger::{Anchor, Ledger};
use nas_store::{Options, Reserve, Store};
use nas_testkit::Scratch;
use nas_types::fs::{CreateHow, SetAttr, Stability};
use nas_types::lease::{Action, View};
use nas_types::path::TreePath;
use nas_types::secret::Secret;
use nas_types::verb::{LeaseCreate, LeaseInfo, MountTicket, OwnerInit, TreeImport};

/// Where every caller comes from.
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The Door and its owner.
pub(crate) struct World {
    pub(crate) door: Door,
    pub(crate) owner: Secret,
    _scratch: Scratch,
}

/// A lease with its token.
#[allow(dead_code, reason = "not every test starts a run")]
pub(crate) struct Held {
    pub(crate) info: LeaseInfo,
    pub(crate) token: Secret,
}

pub(crate) fn passphrase() -> Secret {
    Secret::new("correct horse battery staple".to_owned())
}

fn open(dir: &Path) -> Door {
    let pool = dir.join("pool");
    std::fs::create_dir_all(&pool).unwrap();
    let ledger = Ledger::open(&dir.join("ledger.db"), nas_ledger::Options { ballast_bytes: 64 << 10 }).unwrap();
    let anchor = Anchor::open(&dir.join("anchor.log")).unwrap();
    let options = Options { reserve: Reserve { percent: 1, bytes_min: 1 << 20 }, ..Options::default() };
    let store = Store::open(&pool, nas_door::pointer(&ledger).unwrap(), options).unwrap();
    let nfs = SocketAddr::new(PEER, 2049);
    Door::open(ledger, anchor, store, DoorOptions::new(nfs, dir.join("owner.bootstrap"))).unwrap()
}

impl World {
    /// A fresh one, with these files in main.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new("door");
        let door = open(scratch.path());
        let bootstrap = std::fs::read_to_string(door.offer_bootstrap().unwrap().unwrap()).unwrap();
        let init = OwnerInit { bootstrap: Secret::new(bootstrap.trim().to_owned()), passphrase: passphrase() };
        let anyone = door.authenticate(None, PEER).unwrap();
        let owner = door.call(&anyone, init).unwrap().token;
        let world = Self { door, owner, _scratch: scratch };
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let archive = archive.into_inner().unwrap();
        let request = TreeImport { into: TreePath::root(), why: None, passphrase: passphrase() };
        world.door.tree_import(&world.caller(Some(&world.owner)), request, &mut archive.as_slice()).unwrap();
        world
    }

    /// Who holds this token.
    pub(crate) fn caller(&self, token: Option<&Secret>) -> Caller {
        self.door.authenticate(token.map(Secret::reveal), PEER).unwrap()
    }

    /// Stops the box and starts it again; `meanwhile` is done in its folder.
    #[allow(dead_code, reason = "not every test stops the box")]
    pub(crate) fn reopened(self, meanwhile: impl FnOnce(&Path)) -> Self {
        let Self { door, owner, _scratch } = self;
        drop(door);
        meanwhile(_scratch.path());
        Self { door: open(_scratch.path()), owner, _scratch }
    }

    /// Calls a verb as the owner.
    pub(crate) fn as_owner<V: DoorVerb>(&self, verb: V) -> Result<V::Answer, DoorError> {
        self.door.call(&self.caller(Some(&self.owner)), verb)
    }

    /// Starts a run.
    #[allow(dead_code, reason = "not every test has one")]
    pub(crate) fn run(&self, paths: &[&str], actions: &[Action], ttl_seconds: Option<u64>) -> Held {
        let create = LeaseCreate {
            role: Some("cleo".parse().unwrap()),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            actions: actions.to_vec(),
            ttl_seconds,
            purpose: None,
            quota_bytes: None,
            tree: None,
        };
        let created = self.as_owner(create).unwrap();
        Held { info: created.lease, token: created.token }
    }

    /// Writes a file on the branch of a run, in the directory of the mount.
    #[allow(dead_code, reason = "not every test writes")]
    pub(crate) fn write(&self, held: &Held, dir: &str, name: &str, content: &str) {
        let ticket = MountTicket { view: View::Branch, read_only: false, commit: None };
        let ticket = self.door.call(&self.caller(Some(&held.token)), ticket).unwrap().ticket;
        let dir = TreePath::parse(dir).unwrap();
        let mount: std::sync::Arc<Mounted> = self.door.mount(ticket.reveal(), &dir, PEER, (1000, 1000)).unwrap();
        let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
        let made = mount.create(mount.root(), name.as_bytes(), how).unwrap();
        mount.write(made.node.node, 0, content.as_bytes(), Stability::FileSync).unwrap();
    }
}
