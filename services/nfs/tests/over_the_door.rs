//! The gateway over a real Door and store, spoken to by a client of another implementation.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use nas_door::{Door, DoorOptions};
use nas_ledger::{Anchor, Ledger};
use nas_nfs::{NfsServer, Options};
use nas_nfsclient::client::{at, mode};
use nas_nfsclient::nfs3::*;
use nas_nfsclient::{Client, Credential, Error, Status};
use nas_store::Store;
use nas_types::lease::Action;
use nas_types::secret::Secret;
use nas_types::verb::{LeaseCreate, MountTicket, OwnerInit};
use tokio::sync::watch;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ME: Credential = Credential::Sys { uid: 1000, gid: 100 };

struct Served {
    address: SocketAddr,
    door: Arc<Door>,
    lease: Secret,
    stop: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&dir.path().join("ledger"), nas_ledger::Options::default()).unwrap();
        let anchor = Anchor::open(&dir.path().join("anchor")).unwrap();
        let pool = dir.path().join("pool");
        std::fs::create_dir(&pool).unwrap();
        let store = Store::open(&pool, nas_door::pointer(&ledger).unwrap(), nas_store::Options::default()).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind((LOCAL, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let options = DoorOptions::new(address, dir.path().join("owner.bootstrap"));
        let door = Arc::new(Door::open(ledger, anchor, store, options).unwrap());
        let bootstrap = std::fs::read_to_string(door.offer_bootstrap().unwrap().unwrap()).unwrap();
        let anonymous = door.authenticate(None, LOCAL).unwrap();
        let init = OwnerInit {
            bootstrap: Secret::new(bootstrap.trim().to_owned()),
            passphrase: Secret::new("correct horse battery staple".to_owned()),
        };
        let token = door.call(&anonymous, init).unwrap().token;
        let owner = door.authenticate(Some(token.reveal()), LOCAL).unwrap();
        let create = LeaseCreate {
            role: Some("cleo".parse().unwrap()),
            paths: vec!["/agents/**".to_owned()],
            actions: Action::ALL.to_vec(),
            ttl_seconds: None,
            purpose: None,
            quota_bytes: None,
            tree: None,
        };
        let lease = door.call(&owner, create).unwrap().token;
        let (stop, stopped) = watch::channel(false);
        let serving = Arc::clone(&door);
        let server = std::thread::spawn(move || {
            tell.send(()).unwrap();
            runtime.block_on(NfsServer::serve(listener, serving, Options::default(), stopped)).unwrap();
        });
        told.recv().unwrap();
        Self { address, door, lease, stop, server: Some(server), _dir: dir }
    }

    fn ticket(&self) -> String {
        let caller = self.door.authenticate(Some(self.lease.reveal()), LOCAL).unwrap();
        self.door.call(&caller, MountTicket::default()).unwrap().ticket.reveal().to_owned()
    }

    fn mount(&self) -> Client {
        Client::mount(self.address, &format!("/{}/agents", self.ticket()), ME).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }
}

/// Goal: a ticket mounts once, and only for who says who it is.
#[test]
fn a_ticket_mounts_once() {
    let served = Served::start();
    let export = format!("/{}/agents", served.ticket());
    assert!(matches!(Client::mount(served.address, &export, Credential::None), Err(Error::Mount(_))));
    let mut client = Client::mount(served.address, &export, ME).unwrap();
    let root = client.root();
    let attr = client.getattr(&root).unwrap();
    assert_eq!((attr.uid, attr.gid), (1000, 100));
    assert!(matches!(Client::mount(served.address, &export, ME), Err(Error::Mount(_))));
    let mut stranger = client.reconnect_as(Credential::Sys { uid: 7, gid: 7 }).unwrap();
    assert_eq!(stranger.getattr(&root).unwrap_err().status(), Some(Status::NFS3ERR_ACCES));
    client.reconnect_as(Credential::Sys { uid: 0, gid: 0 }).unwrap().getattr(&root).unwrap();
}

/// Goal: root mounts for another user of its machine; nobody else does.
#[test]
fn root_mounts_for_another() {
    let served = Served::start();
    let export = format!("/{}+5+6/agents", served.ticket());
    assert!(matches!(Client::mount(served.address, &export, ME), Err(Error::Mount(_))));
    let mut client = Client::mount(served.address, &export, Credential::Sys { uid: 0, gid: 0 }).unwrap();
    let root = client.root();
    let attr = client.getattr(&root).unwrap();
    assert_eq!((attr.uid, attr.gid), (5, 6));
}

/// Goal: what is written is read, made, renamed, linked and removed as it was asked for.
#[test]
fn files_work() {
    let served = Served::start();
    let mut client = served.mount();
    let root = client.root();
    let content: Vec<u8> = (0..1_500_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    client.make_dirs("x/y").unwrap();
    let file = client.write_file("x/y/big", &content).unwrap();
    assert!(client.read_file("x/y/big").unwrap() == content);
    client.truncate(&file, 3).unwrap();
    assert_eq!(client.read_all(&file).unwrap(), content[..3]);
    let link = client.symlink(&root, b"l", b"/etc/passwd").unwrap();
    assert_eq!(client.readlink(&link.handle).unwrap(), b"/etc/passwd");
    client.rename_path("x/y/big", "x/moved").unwrap();
    assert_eq!(client.read_all(&file).unwrap(), content[..3], "the handle survives the rename");
    let device = devicedata3 { dev_attributes: mode(0o600), spec: specdata3::default() };
    let made = client.mknod(&root, b"dev", mknoddata3::NF3CHR(device));
    assert_eq!(made.unwrap_err().status(), Some(Status::NFS3ERR_PERM));
    let missing = client.lookup(&root, b"missing");
    assert_eq!(missing.unwrap_err().status(), Some(Status::NFS3ERR_NOENT));
    client.remove_path("x/moved").unwrap();
    client.rmdir_path("x/y").unwrap();
    assert!(client.list("x").unwrap().is_empty());
}

/// Goal: a retransmission on another connection gets the reply of its original, not EEXIST.
#[test]
fn a_retransmission_gets_its_reply() {
    let served = Served::start();
    let mut client = served.mount();
    let root = client.root();
    let args = MKDIR3args { where_: at(&root, b"once"), attributes: mode(0o755) };
    let xid = client.connection().fresh_xid();
    let mut made = Vec::new();
    for mut connection in [client.reconnect().unwrap(), client.reconnect().unwrap()] {
        let result: MKDIR3res = connection.raw_with_xid(xid, NFS_PROGRAM::NFSPROC3_MKDIR, &args).unwrap();
        made.push(result.expect("both are told that it was made").obj.unwrap());
    }
    assert_eq!(made[0], made[1]);
    let new = client.mkdir(&root, b"once", mode(0o755));
    assert_eq!(new.unwrap_err().status(), Some(Status::NFS3ERR_EXIST));
}

/// Goal: a large directory is listed once each, whatever the size of the replies.
#[test]
fn a_large_directory_is_listed_once_each() {
    let served = Served::start();
    let mut client = served.mount();
    let root = client.root();
    let dir = client.mkdir(&root, b"many", mode(0o755)).unwrap().handle;
    for number in 0..400 {
        let name = format!("file-{number:05}");
        client.create(&dir, name.as_bytes(), createhow3::GUARDED(mode(0o644))).unwrap();
    }
    assert_eq!(client.list("many").unwrap().into_iter().collect::<BTreeSet<_>>().len(), 400);
    for count in [200, 4096, 65536] {
        let (mut cookie, mut seen, mut eof) = (0, Vec::new(), false);
        while !eof {
            let (entries, end) = client.readdir(&dir, cookie, count).unwrap();
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            seen.extend(entries.into_iter().map(|entry| entry.name.0.into_owned()));
            eof = end;
        }
        assert_eq!(seen.len(), 402, "with {count} bytes each");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 402);
    }
    assert_eq!(client.readdir(&dir, 0, 100).unwrap_err().status(), Some(Status::NFS3ERR_TOOSMALL));
}
