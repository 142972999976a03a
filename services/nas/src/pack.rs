//! A directory of this machine as a tar stream, made while it is sent.
//!
//! Files, directories and symbolic links, by name in byte order, with modes and times; names of any bytes
//! and length (GNU long names). Directories are opened one below the other without following links, so a link
//! that is put in the way while we read leads nowhere. The stream ends only when everything was read whole.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use tar::{Builder, EntryType, Header};

/// Bytes in one message to the sender.
const PIECE_BYTES: usize = 64 * 1024;
/// Messages that may wait.
const PIECES_MAX: usize = 16;

/// What was put in the stream.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// What a tree cannot hold, one sentence each.
    pub(crate) skipped: Vec<String>,
}

/// Runs `send` with a reader of: `line`, a newline, and `dir` as a tar stream. The reader fails when the directory
/// cannot be read whole; that error is the one that is returned.
pub(crate) fn with_stream<T, E>(
    line: Vec<u8>,
    dir: &Path,
    send: impl FnOnce(&mut dyn Read) -> Result<T, E>,
) -> Result<(Result<T, E>, Packed), io::Error> {
    let (sender, receiver) = sync_channel(PIECES_MAX);
    std::thread::scope(|scope| {
        let packer = scope.spawn(move || pack_into(line, dir, sender));
        let mut reader = StreamReader { pieces: receiver, current: io::Cursor::default(), ended: false };
        let sent = send(&mut reader);
        drop(reader);
        match packer.join() {
            Ok(Ok(packed)) => Ok((sent, packed)),
            // The sender stopped listening: it has the better explanation.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe && sent.is_err() => {
                Ok((sent, Packed::default()))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the packer panicked")),
        }
    })
}

enum Piece {
    Data(Vec<u8>),
    End,
}

fn pack_into(mut line: Vec<u8>, dir: &Path, sender: SyncSender<Piece>) -> io::Result<Packed> {
    line.push(b'\n');
    let mut out = PieceWriter { sender, buffer: line };
    let packed = pack(dir, &mut out)?;
    out.flush()?;
    out.sender.send(Piece::End).map_err(|_| io::ErrorKind::BrokenPipe)?;
    Ok(packed)
}

/// Collects bytes into pieces.
struct PieceWriter {
    sender: SyncSender<Piece>,
    buffer: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE_BYTES * 2));
            self.sender.send(Piece::Data(piece)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        Ok(())
    }
}

/// The other end. A packer that failed sends no end, and that is an error here.
struct StreamReader {
    pieces: Receiver<Piece>,
    current: io::Cursor<Vec<u8>>,
    ended: bool,
}

impl Read for StreamReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.current.read(out)?;
            if len > 0 || self.ended || out.is_empty() {
                return Ok(len);
            }
            match self.pieces.recv() {
                Ok(Piece::Data(bytes)) => self.current = io::Cursor::new(bytes),
                Ok(Piece::End) => self.ended = true,
                Err(_) => return Err(io::Error::other("the directory could not be read whole")),
            }
        }
    }
}

/// Writes `dir` as a tar stream.
pub(crate) fn pack(dir: &Path, out: impl Write) -> io::Result<Packed> {
    let top = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| told(dir, "opening it", e))?;
    let mut packer = Packer { shown: dir.to_owned(), tar: Builder::new(out), packed: Packed::default() };
    packer.directory(top.as_fd(), Path::new(""))?;
    packer.tar.into_inner()?.flush()?;
    Ok(packer.packed)
}

struct Packer<W: Write> {
    /// The directory as it was named, for messages.
    shown: PathBuf,
    tar: Builder<W>,
    packed: Packed,
}

impl<W: Write> Packer<W> {
    fn directory(&mut self, dir: BorrowedFd<'_>, below: &Path) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir).map_err(|e| self.failed(below, "listing it", e))? {
            let entry = entry.map_err(|e| self.failed(below, "listing it", e))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable();
        for name in names {
            let path = below.join(&name);
            self.entry(dir, &name, &path)?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: BorrowedFd<'_>, name: &OsStr, path: &Path) -> io::Result<()> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| self.failed(path, "looking at it", e))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let child = openat(dir, name, flags, Mode::empty()).map_err(|e| self.failed(path, "opening it", e))?;
                let mut header = header_of(&stat, EntryType::Directory, 0);
                self.tar.append_data(&mut header, path, io::empty())?;
                self.directory(child.as_fd(), path)
            }
            FileType::RegularFile => self.file(dir, name, path),
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new()).map_err(|e| self.failed(path, "reading the link", e))?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                self.link(&stat, path, &target)
            }
            other => {
                let what = match other {
                    FileType::Socket => "a socket",
                    FileType::Fifo => "a pipe",
                    FileType::CharacterDevice | FileType::BlockDevice => "a device",
                    _ => "of an unknown kind",
                };
                self.packed.skipped.push(format!("{} is {what}", shown(&self.shown.join(path))));
                Ok(())
            }
        }
    }

    fn link(&mut self, stat: &Stat, path: &Path, target: &Path) -> io::Result<()> {
        self.exact_time(stat)?;
        let mut header = header_of(stat, EntryType::Symlink, 0);
        // Not append_link: it rewrites the target, and a target may be any bytes.
        let target = target.as_os_str().as_bytes();
        if header.set_link_name_literal(target).is_err() {
            let mut long = Header::new_gnu();
            long.as_mut_bytes()[..13].copy_from_slice(b"././@LongLink");
            long.set_mode(0o644);
            long.set_uid(0);
            long.set_gid(0);
            long.set_mtime(0);
            long.set_size(target.len() as u64 + 1);
            long.set_entry_type(EntryType::GNULongLink);
            long.set_cksum();
            self.tar.append(&long, target.chain(&[0][..]))?;
        }
        self.tar.append_data(&mut header, path, io::empty())
    }

    /// Says the time of the next entry where its header cannot: below a second, and before 1970.
    fn exact_time(&mut self, stat: &Stat) -> io::Result<()> {
        match pax_time(stat) {
            Some(text) => self.tar.append_pax_extensions([("mtime", text.as_bytes())]),
            None => Ok(()),
        }
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &OsStr, path: &Path) -> io::Result<()> {
        // NONBLOCK: should a pipe have taken the file's place, opening it must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(dir, name, flags, Mode::empty()).map_err(|e| self.failed(path, "opening it", e))?;
        let before = fstat(&fd).map_err(|e| self.failed(path, "looking at it", e))?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return Err(self.changed(path));
        }
        let size = u64::try_from(before.st_size).unwrap_or(0);
        self.exact_time(&before)?;
        let mut header = header_of(&before, EntryType::Regular, size);
        let mut content = Exactly { file: File::from(fd), left: size };
        match self.tar.append_data(&mut header, path, &mut content) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(self.changed(path)),
            Err(e) => return Err(e),
        }
        let after = fstat(&content.file).map_err(|e| self.failed(path, "looking at it", e))?;
        let state = |s: &Stat| (s.st_size, s.st_mtime, s.st_mtime_nsec);
        if state(&before) == state(&after) { Ok(()) } else { Err(self.changed(path)) }
    }

    fn failed(&self, path: &Path, doing: &str, error: rustix::io::Errno) -> io::Error {
        told(&self.shown.join(path), doing, error)
    }

    fn changed(&self, path: &Path) -> io::Error {
        let path = shown(&self.shown.join(path));
        io::Error::other(format!("{path} changed while it was read; nothing was imported, try again when it is quiet"))
    }
}

fn header_of(stat: &Stat, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header
}

/// Its time as a decimal number (POSIX pax, "pax Extended Header File Times"), where whole seconds since 1970 do not say it.
fn pax_time(stat: &Stat) -> Option<String> {
    // The kernel counts nanoseconds up from the second before, also before 1970.
    match (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec)) {
        (0.., 0) => None,
        (secs, nanos) => {
            let all = secs * 1_000_000_000 + nanos;
            let (sign, all) = (if all < 0 { "-" } else { "" }, all.unsigned_abs());
            Some(format!("{sign}{}.{:09}", all / 1_000_000_000, all % 1_000_000_000))
        }
    }
}

fn told(path: &Path, doing: &str, error: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{}: {doing} failed: {error}", shown(path)))
}

/// A path of this machine, safe to print.
fn shown(path: &Path) -> String {
    let mut text = String::new();
    let _ = nas_types::path::write_escaped(path.as_os_str().as_bytes(), &mut text);
    text
}

/// Exactly the bytes that were announced: fewer are an error, more are left.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(0);
        }
        let read = self.file.read(&mut out[..len])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}
