//! What hostile bytes do on the two wires: RPC records, arguments of every procedure, HTTP requests, archives. Nothing
//! outside the protocol gets anything but a refusal or a closed connection, and nasd goes on.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use anyhow::{Result, ensure};
use nas_e2e::attack::{refusals, sound, start};
use nas_e2e::{PATIENCE, TestBox, refused};
use nas_nfsclient::Client;
use nas_testkit::wait_until;
use nas_types::verb::BranchShow;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// XDR by hand.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = words(&[u32::try_from(bytes.len()).unwrap_or(u32::MAX)]);
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A call as AUTH_SYS 1000:1000, without its record mark.
fn call(program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let head = words(&[7, 0, 2, program, version, procedure, 1, 20, 0, 0, 1000, 1000, 0, 0, 0]);
    [&head[..], args].concat()
}

fn marked(record: &[u8]) -> Vec<u8> {
    let len = u32::try_from(record.len()).unwrap_or(u32::MAX >> 1);
    [&(len | 1 << 31).to_be_bytes()[..], record].concat()
}

/// Sends bytes, ends the stream, returns all that comes back until the server ends it too.
fn exchange(server: SocketAddr, bytes: &[u8]) -> Result<Vec<u8>> {
    send(server, bytes, true)
}

fn send(server: SocketAddr, bytes: &[u8], end: bool) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The server may have closed already: it owes no answer to what it does not understand.
    if stream.write_all(bytes).is_ok() && end {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => ensure!(error.kind() == std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    Ok(answer)
}

/// Goal: records that lie about themselves, garbage, and calls of other programs, versions and procedures.
#[test]
fn records() -> Result<()> {
    let mut nas = start()?;
    let nfs = nas.nfs();
    let null = call(NFS, 3, 0, &[]);
    ensure!(!exchange(nfs, &marked(&null))?.is_empty(), "NULL is answered");
    let two_gib = (u32::MAX).to_be_bytes();
    let endless: Vec<u8> = std::iter::repeat_n([0; 4], 100_000).flatten().collect();
    let noise: Vec<u8> = (0..200_000_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    let cut = &marked(&null)[..20];
    for bytes in [
        &two_gib[..],
        &endless,
        &noise,
        cut,
        b"GET / HTTP/1.1\r\n\r\n",
        &marked(b""),
        &marked(b"abc"),
        &marked(&[0; 24]),
        &[0x80],
    ] {
        ensure!(exchange(nfs, bytes)?.len() < 1024, "a long answer to garbage");
    }
    // In one-byte fragments it is still a call.
    let mut pieces: Vec<u8> = null.iter().flat_map(|byte| [0, 0, 0, 1, *byte]).collect();
    pieces.extend([0x80, 0, 0, 0]);
    ensure!(!exchange(nfs, &pieces)?.is_empty(), "fragments are joined");
    let accept = |reply: &[u8]| reply.get(24..28).map(|word| word.to_vec());
    for (program, version, procedure, status) in [
        (1, 3, 0, 1),
        (100_000, 2, 3, 1),
        (NFS, 2, 0, 2),
        (NFS, 4, 1, 2),
        (NFS, 3, 22, 3),
        (NFS, 3, u32::MAX, 3),
        (MOUNT, 1, 1, 2),
        (MOUNT, 3, 6, 3),
    ] {
        let reply = exchange(nfs, &marked(&call(program, version, procedure, &[])))?;
        assert_eq!(accept(&reply), Some(words(&[status])), "{program} {version} {procedure}");
    }
    // Odd credentials: lengths that lie, unknown flavors, another RPC version.
    for head in [
        vec![7, 0, 2, NFS, 3, 1, 1, u32::MAX],
        vec![7, 0, 2, NFS, 3, 1, 1, 400],
        vec![7, 0, 2, NFS, 3, 1, 99, 0, 0, 0],
        vec![7, 0, 3, NFS, 3, 0, 0, 0, 0, 0],
        vec![7, 1, 0, 0, 0],
        vec![7, 0, 2, NFS, 3, 1, 1, 4, 1, 0, 0],
    ] {
        ensure!(exchange(nfs, &marked(&words(&head)))?.len() < 1024);
    }
    sound(&mut nas)
}

/// Arguments of every procedure of NFS, well formed.
fn arguments(handle: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let handle = opaque(handle);
    let place = [&handle[..], &opaque(b"fresh-name")].concat();
    let attr = words(&[1, 0o644, 0, 0, 0, 0, 0]);
    let with = |tail: &[u8]| [&handle[..], tail].concat();
    let at = |tail: &[u8]| [&place[..], tail].concat();
    vec![
        (1, handle.clone()),
        (2, with(&[&attr[..], &words(&[0])].concat())),
        (3, place.clone()),
        (4, with(&words(&[0x3f]))),
        (5, handle.clone()),
        (6, with(&words(&[0, 0, 4096]))),
        (7, with(&[words(&[0, 0, 4, 0]), opaque(b"data")].concat())),
        (8, at(&[&words(&[0])[..], &attr].concat())),
        (9, at(&attr)),
        (10, at(&[&attr[..], &opaque(b"target")].concat())),
        (11, at(&[&words(&[7])[..], &attr].concat())),
        (12, place.clone()),
        (13, place.clone()),
        (14, at(&place)),
        (15, with(&place)),
        (16, with(&words(&[0, 0, 0, 0, 4096]))),
        (17, with(&words(&[0, 0, 0, 0, 4096, 4096]))),
        (18, handle.clone()),
        (19, handle.clone()),
        (20, handle.clone()),
        (21, with(&words(&[0, 0, 0]))),
    ]
}

/// Goal: arguments cut at any word, with any word at its largest, or with bytes after them, get an answer each, and
/// never one that says success for less than all of them.
#[test]
fn arguments_of_every_procedure() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work: Client = nas.mount(&cleo, "/shared/launch")?;
    let handle = work.root().data.to_vec();
    let mut ask = |procedure: u32, args: &[u8]| -> Result<Vec<u8>> {
        let connection = work.connection();
        connection.send_raw(&marked(&call(NFS, 3, procedure, args)))?;
        Ok(connection.receive_raw()?)
    };
    for (procedure, args) in arguments(&handle) {
        ensure!(ask(procedure, &args)?.get(20..24) == Some(&[0; 4]), "{procedure} is not accepted");
        for end in (0..args.len()).step_by(4) {
            let reply = ask(procedure, &args[..end])?;
            ensure!(
                reply.get(20..24) == Some(&words(&[4])[..]),
                "{procedure}: {end} of {} bytes were taken",
                args.len()
            );
        }
        let longer = ask(procedure, &[&args[..], &[0; 4]].concat())?;
        ensure!(longer.get(20..24) == Some(&words(&[4])[..]), "{procedure}: bytes after the arguments were taken");
        for at in (0..args.len()).step_by(4) {
            for value in [u32::MAX, 1 << 31, u32::MAX >> 1] {
                let mut wrong = args.clone();
                let len = 4.min(wrong.len() - at);
                wrong[at..at + len].copy_from_slice(&value.to_be_bytes()[..len]);
                ensure!(ask(procedure, &wrong)?.len() >= 24, "{procedure}: no answer");
            }
        }
    }
    // A WRITE whose count is not the length of its data.
    for count in [0, 3, 5, u32::MAX] {
        let args = [opaque(&handle), words(&[0, 0, count, 0]), opaque(b"data")].concat();
        let reply = ask(7, &args)?;
        ensure!(reply.get(24..28) != Some(&[0; 4]), "count {count} was written");
    }
    for path in [vec![b'/'; 1024], vec![0; 1024], vec![b'x'; 1025], b"/\xff\xfe/x".to_vec()] {
        ensure!(exchange(nas.nfs(), &marked(&call(MOUNT, 3, 1, &opaque(&path))))?.len() < 200);
    }
    sound(&mut nas)
}

fn status(answer: &[u8]) -> Option<u16> {
    std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
}

fn post(nas: &TestBox, verb: &str, headers: &str, body: &[u8]) -> Result<Option<u16>> {
    let head =
        format!("POST /v1/{verb} HTTP/1.1\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n", body.len());
    // An HTTP server may take the end of the stream for the end of the client.
    Ok(status(&send(nas.http(), &[head.as_bytes(), body].concat(), false)?))
}

/// Goal: HTTP requests of any shape get an error of 4xx or a closed connection.
#[test]
fn http() -> Result<()> {
    let mut nas = start()?;
    let token = nas.owner().reveal().to_owned();
    let host = format!("host: {}\r\n", nas.http());
    let usual = format!("{host}content-type: application/json\r\nauthorization: Bearer {token}\r\n");
    assert_eq!(post(&nas, "box/status", &usual, b"{}")?, Some(200));
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let deep_field = [&br#"{"cursor":"#[..], &b"[".repeat(50_000)].concat();
    let huge = vec![b' '; 1 << 20];
    for body in [
        &b""[..],
        b"{",
        b"[]",
        b"null",
        b"\"x\"",
        b"{\"unknown\":1}",
        b"{\"limit\":-1}",
        b"{\"limit\":1e999}",
        b"\xff\xfe",
        b"{\"cursor\":\"\\ud800\"}",
        &deep,
        &deep_field,
        &huge,
    ] {
        let answered = post(&nas, "record/list", &usual, body)?;
        ensure!(
            answered.is_none_or(|status| (400..500).contains(&status)),
            "{answered:?} to {:?}",
            &body[..body.len().min(30)]
        );
    }
    let refused_to = |headers: &str| -> Result<bool> {
        let answered = post(&nas, "record/list", headers, b"{}")?;
        Ok(answered.is_none_or(|status| (400..500).contains(&status)))
    };
    let auth = format!("authorization: Bearer {token}\r\n");
    let json = "content-type: application/json\r\n";
    ensure!(refused_to(&format!("{host}{auth}content-type: text/plain\r\n"))?, "another content type");
    ensure!(refused_to(&format!("{host}{auth}"))?, "no content type");
    ensure!(refused_to(&format!("host: evil.example\r\n{auth}{json}"))?, "another host (DNS rebinding)");
    ensure!(refused_to(&format!("{auth}{json}"))?, "no host");
    ensure!(refused_to(&format!("{usual}origin: http://evil.example\r\n"))?, "a page of another site");
    ensure!(refused_to(&format!("{usual}origin: null\r\n"))?, "a page of no site");
    ensure!(refused_to(&format!("{host}{json}"))?, "no token");
    ensure!(refused_to(&format!("{host}{json}authorization: Basic {token}\r\n"))?, "another scheme");
    ensure!(refused_to(&format!("{host}{json}authorization: Bearer {}\r\n", "x".repeat(30_000)))?, "a long token");
    ensure!(refused_to(&format!("{usual}x: {}\r\n", "y".repeat(1 << 20)))?, "a large header");
    ensure!(refused_to(&format!("{usual}{}", "a: b\r\n".repeat(1000)))?, "many headers");
    for verb in [
        "",
        "..",
        "../owner/init",
        "record/../record/list",
        "record/list/",
        "%2e%2e/x",
        "record%2flist",
        "nothing/there",
    ] {
        let answered = post(&nas, verb, &usual, b"{}")?;
        ensure!(answered.is_none_or(|status| (400..500).contains(&status)), "{verb}: {answered:?}");
    }
    for raw in [
        &b"\0\0\0\0"[..],
        b"GET",
        b"POST /v1/box/status HTTP/9.9\r\n\r\n",
        b"POST /v1/box/status HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /v1/box/status HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = exchange(nas.http(), raw)?;
        ensure!(
            status(&answer).is_none_or(|status| (400..600).contains(&status)),
            "{:?}",
            String::from_utf8_lossy(&answer)
        );
    }
    let nobody = nas_types::secret::Secret::new("nobody".to_owned());
    assert_eq!(nas.call(Some(&nobody), &BranchShow::default()).unwrap_err().code, "unauthenticated");
    ensure!(wait_until(PATIENCE, || !refusals(&nas, "no-token").is_empty()), "not in the records");
    sound(&mut nas)
}

/// Goal: an archive cannot lead out of where it is imported to, and a refused one changes nothing.
#[test]
fn archives() -> Result<()> {
    let mut nas = start()?;
    let entry = |kind: tar::EntryType, name: &[u8], link: &[u8], mode: u32| {
        let mut header = tar::Header::new_gnu();
        // Written as bytes: the library itself would refuse such names.
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name);
        old.linkname[..link.len()].copy_from_slice(link);
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(if kind == tar::EntryType::Regular { 4 } else { 0 });
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        if kind == tar::EntryType::Regular {
            bytes.extend_from_slice(b"evil");
            bytes.resize(1024, 0);
        }
        bytes
    };
    let file = |name: &[u8]| entry(tar::EntryType::Regular, name, b"", 0o644);
    let through_link = [entry(tar::EntryType::Symlink, b"out", b"/tmp", 0o777), file(b"out/through-a-link")].concat();
    let cases: [(&str, Vec<u8>); 9] = [
        ("..", file(b"../outside")),
        ("inner ..", file(b"a/../../outside")),
        ("absolute", file(b"/etc/nas-evil")),
        ("through a symlink", through_link),
        ("hard link out", entry(tar::EntryType::Link, b"passwd", b"/etc/passwd", 0o644)),
        ("device", entry(tar::EntryType::Char, b"device", b"", 0o666)),
        ("setuid", entry(tar::EntryType::Regular, b"suid", b"", 0o4755)),
        ("garbage", vec![0x41; 4096]),
        ("cut", file(b"file")[..700].to_vec()),
    ];
    for (what, mut archive) in cases {
        if what != "cut" {
            archive.resize(archive.len() + 1024, 0);
        }
        let imported = nas.import_tar(&archive, "/shared/in");
        let reader = nas.full_lease("/shared").map_err(refused)?;
        let mut seen = nas.mount(&reader, "/shared")?;
        let outside = ["outside", "launch/outside", "in/suid/x"].iter().any(|path| seen.find(path).is_ok());
        ensure!(!outside && !std::path::Path::new("/tmp/through-a-link").exists(), "{what}: it led out: {imported:?}");
        ensure!(!std::path::Path::new("/etc/nas-evil").exists(), "{what}: it led out");
        for walked in seen.walk("in").unwrap_or_default() {
            ensure!(walked.attr.mode & 0o6000 == 0, "{what}: a mode came in");
            ensure!(seen.read_all(&walked.handle).map_or(true, |bytes| !bytes.starts_with(b"root:")), "{what}");
        }
        sound(&mut nas)?;
    }
    Ok(())
}
