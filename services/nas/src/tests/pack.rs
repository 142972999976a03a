//! Directories as streams.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use tar::EntryType;

use crate::pack::{pack, with_stream};

type Entries = BTreeMap<Vec<u8>, (EntryType, u32, u64, Vec<u8>)>;

/// Path → kind, mode, mtime, content or target.
fn unpack(stream: &[u8]) -> Entries {
    let mut entries = BTreeMap::new();
    for entry in tar::Archive::new(stream).entries().unwrap() {
        let mut entry = entry.unwrap();
        let kind = entry.header().entry_type();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if let Some(target) = entry.link_name_bytes() {
            content = target.into_owned();
        }
        let header = entry.header();
        let value = (kind, header.mode().unwrap(), header.mtime().unwrap(), content);
        assert!(entries.insert(entry.path_bytes().into_owned(), value).is_none(), "listed twice");
    }
    entries
}

/// Goal: odd names, links, modes and times arrive as they are; nothing behind a link does.
#[test]
fn an_odd_tree() {
    let base = tempfile::tempdir().unwrap();
    let outside = base.path().join("outside");
    let top = base.path().join("top");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let long = "l".repeat(255);
    let deep = top.join(&long).join(&long);
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("x"), vec![7; 200_000]).unwrap();
    let odd = OsStr::from_bytes(b"odd\xff\n name\\");
    fs::write(top.join(odd), "odd").unwrap();
    fs::write(top.join("tool"), "#!").unwrap();
    fs::set_permissions(top.join("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    let file = fs::File::options().write(true).open(top.join("tool")).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::set_permissions(top.join("empty"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink(&outside, top.join("link")).unwrap();
    let far = format!("../{}", "t".repeat(200));
    symlink(&far, top.join("far")).unwrap();
    symlink("./a//b/../c/", top.join("literal")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        top.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();

    let mut stream = Vec::new();
    let packed = pack(&top, &mut stream).unwrap();
    let entries = unpack(&stream);
    let get = |name: &[u8]| entries.get(name).unwrap_or_else(|| panic!("no {:?}", OsStr::from_bytes(name)));
    assert_eq!(get(odd.as_bytes()).3, b"odd");
    assert_eq!((get(b"tool").1, get(b"tool").2), (0o4755, 1_000_000_000));
    assert_eq!((get(b"empty").0, get(b"empty").1), (EntryType::Directory, 0o750));
    assert_eq!((get(b"link").0, get(b"link").3.as_slice()), (EntryType::Symlink, outside.as_os_str().as_bytes()));
    assert_eq!(get(b"far").3, far.as_bytes());
    assert_eq!(get(b"literal").3, b"./a//b/../c/");
    let x = get(format!("{long}/{long}/x").as_bytes());
    assert_eq!(x.3, vec![7; 200_000]);
    assert_eq!(entries.len(), 9, "{:?}", entries.keys().map(|k| OsStr::from_bytes(k)).collect::<Vec<_>>());
    assert!(entries.values().all(|e| e.3 != b"secret"));
    assert_eq!(packed.skipped.len(), 2, "{:?}", packed.skipped);
}

/// Goal: times below a second and before 1970 are told as pax tells them, and only those.
#[test]
fn exact_times() {
    let top = tempfile::tempdir().unwrap();
    for (name, secs, nanos) in [("after", 1_000_000_000, 123_456_789), ("before", -2, 750_000_000), ("whole", 5, 0)] {
        fs::write(top.path().join(name), "").unwrap();
        let time = rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, top.path().join(name), &times, rustix::fs::AtFlags::empty()).unwrap();
    }
    let mut stream = Vec::new();
    pack(top.path(), &mut stream).unwrap();
    let mut told = Vec::new();
    for entry in tar::Archive::new(stream.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let extensions = entry.pax_extensions().unwrap().into_iter().flatten();
        told.push(extensions.map(|one| one.unwrap().value().unwrap().to_owned()).collect::<Vec<_>>());
    }
    assert_eq!(told, [vec!["1000000000.123456789".to_owned()], vec!["-1.250000000".to_owned()], vec![]]);
}

/// Cuts a file while the stream is being made.
struct Shrinker<'a> {
    file: &'a Path,
    done: bool,
}

impl io::Write for Shrinker<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.done {
            self.done = true;
            fs::File::options().write(true).open(self.file)?.set_len(10)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let top = tempfile::tempdir().unwrap();
    let file = top.path().join("file");
    fs::write(&file, vec![1; 1_000_000]).unwrap();
    let error = pack(top.path(), Shrinker { file: &file, done: false }).unwrap_err();
    assert!(error.to_string().contains("changed while it was read"), "{error}");
}

#[test]
fn the_line_comes_first() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("a"), "content").unwrap();
    let (sent, _) = with_stream(b"{\"x\":1}".to_vec(), top.path(), |reader| {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    })
    .unwrap();
    let all = sent.unwrap();
    let stream = all.strip_prefix(b"{\"x\":1}\n").unwrap();
    assert_eq!(unpack(stream)[&b"a"[..]].3, b"content");
}

/// Goal: what could not be read whole never looks complete to the sender.
#[test]
fn a_broken_directory_is_no_clean_end() {
    let top = tempfile::tempdir().unwrap();
    let outcome = with_stream(b"{}".to_vec(), &top.path().join("absent"), |reader| {
        let mut all = Vec::new();
        let read = reader.read_to_end(&mut all);
        assert!(read.is_err());
        read
    });
    assert!(outcome.unwrap_err().to_string().contains("absent"));
}

/// Goal: a sender that stops in the middle ends the packer, and its own error is the one that is told.
#[test]
fn a_sender_that_stops() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("big"), vec![1; 8_000_000]).unwrap();
    let (sent, _) = with_stream(b"{}".to_vec(), top.path(), |_| Err::<(), _>("refused")).unwrap();
    assert_eq!(sent, Err("refused"));
}
