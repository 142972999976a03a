//! What a hostile or odd NFS client may try on files, names and handles: right answers, none of them a panic. The wire
//! below it (records, arguments, HTTP) is in `attack_wire`.

use anyhow::{Result, ensure};
use nas_e2e::attack::{CLEO, refusal, refusals, sound, start, unchecked};
use nas_e2e::{PATIENCE, refused};
use nas_nfsclient::client::{handle_of, mode};
use nas_nfsclient::nfs3::*;
use nas_nfsclient::{Client, Connection, Credential, Handle, Status};
use nas_testkit::{Scratch, wait_until};
use nas_types::lease::{Action, View};

/// Goal: no symbolic link is ever followed by the server, and `..`, odd paths and look-alikes lead nowhere.
#[test]
fn nothing_leads_out() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let root = work.root();
    for (name, target) in [("etc", "/etc"), ("passwd", "/etc/passwd"), ("up", ".."), ("key", "../secret/key")] {
        let link = work.symlink(&root, name.as_bytes(), target.as_bytes())?.handle;
        assert_eq!(work.readlink(&link)?, target.as_bytes());
        assert_eq!(refusal(work.read(&link, 0, 100)), Status::NFS3ERR_INVAL);
        assert_eq!(refusal(work.write(&link, 0, b"x", stable_how::UNSTABLE)), Status::NFS3ERR_INVAL);
        // As a directory: a symlinked parent of a file, new or there.
        assert_eq!(refusal(work.lookup(&link, b"passwd")), Status::NFS3ERR_NOTDIR);
        assert_eq!(refusal(work.create(&link, b"new", unchecked())), Status::NFS3ERR_NOTDIR);
        assert_eq!(refusal(work.mkdir(&link, b"new", mode(0o755))), Status::NFS3ERR_NOTDIR);
        assert_eq!(refusal(work.readdir(&link, 0, 4096)), Status::NFS3ERR_NOTDIR);
        assert_eq!(refusal(work.rename(&root, b"notes.md", &link, b"x")), Status::NFS3ERR_NOTDIR);
        // A new file of the same name does not go through it.
        assert!(matches!(refusal(work.create(&root, name.as_bytes(), unchecked())), Status::NFS3ERR_EXIST));
        assert!(work.setattr(&link, mode(0o600), None).is_ok(), "a symlink's mode is ignored");
        assert_eq!(refusal(work.truncate(&link, 0)), Status::NFS3ERR_INVAL);
    }
    ensure!(std::fs::read_to_string("/etc/passwd")?.contains("root"), "the server's own file was changed");
    // `..` stops at the root of the mount, and is no name to make, move or remove.
    assert_eq!(work.lookup(&root, b"..")?.attr.map(|a| a.fileid), work.lookup(&root, b".")?.attr.map(|a| a.fileid));
    let dir = work.find("dir")?.handle;
    assert_eq!(work.lookup(&dir, b"..")?.attr.map(|a| a.fileid), Some(work.getattr(&root)?.fileid));
    for name in [&b".."[..], b".", b"", b"../secret", b"a/b", b"/etc/passwd", b"nul\0nul"] {
        for dir in [&root, &dir] {
            if !matches!(name, b"." | b"..") {
                odd(refusal(work.lookup(dir, name)));
            }
            odd(refusal(work.create(dir, name, unchecked())));
            odd(refusal(work.mkdir(dir, name, mode(0o755))));
            odd(refusal(work.symlink(dir, name, b"x")));
            odd(refusal(work.remove(dir, name)));
            odd(refusal(work.rmdir(dir, name)));
            odd(refusal(work.rename(dir, name, &root, b"x")));
            odd(refusal(work.rename(&root, b"notes.md", dir, name)));
            let file = work.find("notes.md")?.handle;
            odd(refusal(work.link(&file, dir, name)));
        }
    }
    for path in [
        "/shared/launch/..",
        "/shared/launch/../secret",
        "/../..",
        "/shared//launch",
        "/shared/launch-evil",
        "/shared/secret",
        "/shared/launch/etc",
        "/shared/launch/notes.md",
        "/shared/nothing",
        "/shared/launch/\0",
    ] {
        let Err(error) = nas.mount(&cleo, path) else { anyhow::bail!("{path} was mounted") };
        ensure!(error.to_string().contains("refused the mount"), "{path}: {error}");
    }
    assert_eq!(work.read_file("notes.md")?, b"notes\n");
    sound(&mut nas)
}

/// What an illegal name may be answered with.
#[track_caller]
fn odd(status: Status) {
    let legal = [
        Status::NFS3ERR_INVAL,
        Status::NFS3ERR_NOENT,
        Status::NFS3ERR_EXIST,
        Status::NFS3ERR_ACCES,
        Status::NFS3ERR_NOTEMPTY,
        Status::NFS3ERR_ISDIR,
    ];
    assert!(legal.contains(&status), "{status}");
}

/// Goal: only a handle that this mount was given opens anything: no bit may differ, no byte be missing, and no other
/// mount, user or lease may use it.
#[test]
fn forged_and_foreign_handles() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let wide = nas.full_lease("/shared").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let mut other = nas.mount(&wide, "/shared")?;
    let file = work.find("notes.md")?.handle;
    let bytes = file.data.to_vec();
    let handle = |bytes: Vec<u8>| handle_of(&bytes);
    for byte in 0..bytes.len() {
        for bit in 0..8 {
            let mut forged = bytes.clone();
            forged[byte] ^= 1 << bit;
            assert_eq!(refusal(work.getattr(&handle(forged))), Status::NFS3ERR_BADHANDLE, "byte {byte}");
        }
    }
    let cut = |len: usize| bytes[..len].to_vec();
    let longer = [&bytes[..], &[0; 4]].concat();
    for odd in [cut(0), cut(1), cut(bytes.len() - 1), longer, vec![0; 64], vec![0xff; 53]] {
        assert_eq!(refusal(work.getattr(&handle(odd.clone()))), Status::NFS3ERR_BADHANDLE);
        assert_eq!(refusal(work.write(&handle(odd), 0, b"x", stable_how::UNSTABLE)), Status::NFS3ERR_BADHANDLE);
    }
    // Body of one handle with the MAC of another.
    let hidden = other.find("secret/key")?.handle;
    let mixed = [&bytes[..bytes.len() - 16], &hidden.data[hidden.data.len() - 16..]].concat();
    assert_eq!(refusal(work.getattr(&handle(mixed))), Status::NFS3ERR_BADHANDLE);
    // Two mounts in one call.
    let foreign = other.root();
    assert_eq!(refusal(work.rename(&work.root(), b"notes.md", &foreign, b"x")), Status::NFS3ERR_XDEV);
    assert_eq!(refusal(work.link(&file, &foreign, b"x")), Status::NFS3ERR_XDEV);
    // Another user of the client's machine, and nobody.
    for credential in [Credential::Sys { uid: 1001, gid: 1000 }, Credential::None] {
        assert_eq!(refusal(work.reconnect_as(credential)?.getattr(&file)), Status::NFS3ERR_ACCES);
    }
    let forged = wait_until(PATIENCE, || {
        !refusals(&nas, "handle.mac").is_empty() && !refusals(&nas, "credential.uid").is_empty()
    });
    ensure!(forged, "refusals are not in the records");
    assert_eq!(work.read_all(&file)?, b"notes\n");
    sound(&mut nas)
}

/// Goal: a ticket is good once, for its own peer's mount, and a made-up one never.
#[test]
fn tickets() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let export = nas.export(&cleo, "/shared/launch", View::Branch)?;
    let mut first = Client::mount(nas.nfs(), &export, CLEO)?;
    let refused_mount = |export: &str| Client::mount(nas.nfs(), export, CLEO).map(drop).unwrap_err().to_string();
    assert!(refused_mount(&export).contains("NOENT"), "{}", refused_mount(&export));
    for made_up in
        ["", "/", "//", "/tkt_", "/tkt_0/shared/launch", "shared", "/+1+1/shared", "/tkt_x+1/shared", &"/x".repeat(500)]
    {
        assert!(!refused_mount(made_up).is_empty());
    }
    // Nobody else's owner, no AUTH_NONE, no late path: none of it spends the ticket.
    let export = nas.export(&cleo, "/shared/launch", View::Branch)?;
    let (ticket, path) = export[1..].split_once('/').unwrap_or_default();
    assert!(refused_mount(&format!("/{ticket}+0+0/{path}")).contains("PERM"));
    assert!(Client::mount(nas.nfs(), &export, Credential::None).is_err());
    assert!(refused_mount(&format!("/{ticket}/{path}/..")).contains("INVAL"));
    let mut second = Client::mount(nas.nfs(), &export, CLEO)?;
    // A restart voids tickets and keeps mounts.
    let unused = nas.export(&cleo, "/shared/launch", View::Branch)?;
    nas.restart()?;
    assert!(Client::mount(nas.nfs(), &unused, CLEO).is_err());
    for mount in [&mut first, &mut second] {
        assert_eq!(mount.reconnect()?.read_file("notes.md")?, b"notes\n");
    }
    // A mount belongs to its peer: from another address of this machine the same handle is nothing.
    if let Some(mut elsewhere) = from_other_address(&first, nas.nfs())? {
        assert_eq!(refusal(elsewhere.getattr(&first.root())), Status::NFS3ERR_BADHANDLE);
    }
    // UMNT ends the mount for good.
    let mut second = second.reconnect()?;
    let export = nas.export(&cleo, "/shared/launch", View::Branch)?;
    let mut third = Client::mount(nas.nfs(), &export, CLEO)?;
    third.unmount(&export)?;
    assert_eq!(refusal(third.getattr(&third.root())), Status::NFS3ERR_STALE);
    assert!(second.getattr(&second.root()).is_ok(), "another mount of the lease goes on");
    sound(&mut nas)
}

/// The same mount from 127.0.0.2, where this machine has all of 127.0.0.0/8.
fn from_other_address(client: &Client, server: std::net::SocketAddr) -> Result<Option<Client>> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let here = std::net::SocketAddr::from(([127, 0, 0, 2], 0));
    if bind(&socket, &here).is_err() {
        return Ok(None);
    }
    connect(&socket, &server)?;
    Ok(Some(Client::on(Connection::on(socket.into())?, client.root(), client.credential())?))
}

/// Goal: names are bytes, 1 to 255 of them, and a path is at most 4,096 long.
#[test]
fn names_and_their_limits() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let root = work.root();
    let long = [b'x'; 255];
    let names: [&[u8]; 7] =
        [b"caf\xe9", "caf\u{e9}".as_bytes(), "cafe\u{301}".as_bytes(), b"\xff\xfe\n\x01", b" ", b"-rf", &long];
    for name in names {
        let file = work.create(&root, name, unchecked())?.handle;
        work.write(&file, 0, name, stable_how::FILE_SYNC)?;
    }
    for name in names {
        assert_eq!(work.read_file(name)?, name, "{name:?}");
        assert_eq!(work.list("")?.iter().filter(|listed| *listed == name).count(), 1);
    }
    for len in [256, 257, 1000] {
        let longer = vec![b'x'; len];
        assert_eq!(refusal(work.lookup(&root, &longer)), Status::NFS3ERR_NAMETOOLONG);
        assert_eq!(refusal(work.create(&root, &longer, unchecked())), Status::NFS3ERR_NAMETOOLONG);
        assert_eq!(refusal(work.rename(&root, b"notes.md", &root, &longer)), Status::NFS3ERR_NAMETOOLONG);
    }
    let part = [b'd'; 255];
    let mut dir = root.clone();
    let mut depth = 0;
    let status = loop {
        match work.mkdir(&dir, &part, mode(0o755)) {
            Ok(made) => dir = made.handle,
            Err(error) => break error.status(),
        }
        depth += 1;
        ensure!(depth < 100, "paths have no end");
    };
    assert!(matches!(status, Some(Status::NFS3ERR_NAMETOOLONG)), "{status:?}");
    assert_eq!(depth, 15, "directories of 255 bytes below /shared/launch in 4,096 bytes");
    // A directory that would bring what is in it over the limit.
    let deep = work.create(&dir, b"leaf", unchecked())?.handle;
    work.write(&deep, 0, b"deep", stable_how::FILE_SYNC)?;
    work.mkdir(&root, &[b'y'; 255], mode(0o755))?;
    let below = work.lookup(&root, &[b'y'; 255])?.handle;
    if work.rename(&root, &part, &below, &part).is_ok() {
        // What is too deep now cannot be reached; it is there again when it is moved back.
        assert!(work.read_all(&deep).is_err());
        work.rename(&below, &part, &root, &part)?;
    }
    assert_eq!(work.read_all(&deep)?, b"deep");
    sound(&mut nas)
}

/// Reads a whole directory with small replies; `step` runs after each.
fn list(
    client: &mut Client,
    dir: &Handle,
    plus: bool,
    mut step: impl FnMut(&mut Client, &[Vec<u8>]) -> Result<()>,
) -> Result<Vec<Vec<u8>>> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (some, eof): (Vec<(u64, Vec<u8>)>, bool) = if plus {
            let (entries, eof) = client.readdirplus(dir, cookie, 512, 2048)?;
            (entries.into_iter().map(|entry| (entry.cookie, entry.name.0.into_owned())).collect(), eof)
        } else {
            let (entries, eof) = client.readdir(dir, cookie, 512)?;
            (entries.into_iter().map(|entry| (entry.cookie, entry.name.0.into_owned())).collect(), eof)
        };
        ensure!(eof || !some.is_empty(), "an empty reply before the end");
        cookie = some.last().map_or(cookie, |(cookie, _)| *cookie);
        let fresh: Vec<Vec<u8>> =
            some.into_iter().map(|(_, name)| name).filter(|name| name != b"." && name != b"..").collect();
        step(client, &fresh)?;
        names.extend(fresh);
        if eof {
            return Ok(names);
        }
    }
}

/// Goal: 2,500 entries come once each whatever the size of a reply, also when they are removed meanwhile, and a hidden
/// one among them never (nfsserve 50).
#[test]
fn long_listings() -> Result<()> {
    const MANY: usize = 2_500;
    let mut nas = start()?;
    let source = Scratch::new("many");
    for number in 0..MANY {
        source.write(format!("file-{number:04}"), "");
    }
    nas.import(source.path(), "/shared/launch/many").map_err(refused)?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let dir = work.find("many")?.handle;
    for plus in [false, true] {
        let mut names = list(&mut work, &dir, plus, |_, _| Ok(()))?;
        names.sort();
        let expected: Vec<Vec<u8>> = (0..MANY).map(|number| format!("file-{number:04}").into_bytes()).collect();
        assert_eq!(names, expected, "plus: {plus}");
    }
    // One that sees two of them only.
    let two = ["/shared/launch/many/file-0007", "/shared/launch/many/file-2499"];
    let few = nas.lease(&two, &Action::ALL, None).map_err(refused)?;
    let mut narrow = nas.mount(&few, "/shared/launch/many")?;
    for plus in [false, true] {
        let root = narrow.root();
        let mut names = list(&mut narrow, &root, plus, |_, _| Ok(()))?;
        names.sort();
        assert_eq!(names, [b"file-0007".to_vec(), b"file-2499".to_vec()]);
    }
    // Removing what was just listed, as `rm -rf` does: the rest still comes, once.
    let mut names = list(&mut work, &dir, false, |client, fresh| {
        fresh.iter().step_by(2).try_for_each(|name| client.remove(&dir, name).map_err(Into::into))
    })?;
    names.sort();
    names.dedup();
    assert_eq!(names.len(), MANY);
    assert!(list(&mut work, &dir, true, |_, _| Ok(()))?.len() <= MANY / 2 + 200);
    // Absurd sizes and cookies.
    for count in [0, 1, 16, u32::MAX] {
        let listed = work.readdir(&dir, 0, count);
        assert!(listed.is_ok() || refusal(listed) == Status::NFS3ERR_TOOSMALL);
        let listed = work.readdirplus(&dir, 0, count, count);
        assert!(listed.is_ok() || refusal(listed) == Status::NFS3ERR_TOOSMALL);
    }
    for cookie in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 2, i64::MAX as u64] {
        let listed = work.readdir(&dir, cookie, 4096);
        assert!(
            listed.as_ref().is_ok_and(|(entries, eof)| entries.is_empty() && *eof)
                || refusal(listed) == Status::NFS3ERR_BAD_COOKIE
        );
    }
    sound(&mut nas)
}
