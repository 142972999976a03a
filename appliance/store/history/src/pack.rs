//! Our own pack writer: gix and git's defaults do not make a pack durable before a ref points into it.
//!
//! Entries are whole objects, never deltas, so that packs can be joined by copying bytes and an object can be
//! streamed. Order of effects: pack and index written under `tmp_` names, both synced, pack renamed, index
//! renamed (from now on readers see it), directory synced. A crash leaves at most `tmp_` files or a pack
//! without index, which [`clean`] removes at the next start.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nas_types::failpoint;
use nas_types::object::Oid;

use crate::error::{HistoryError, Result};
use crate::object::{Hasher, Kind};

/// Bytes collected before they are written to the file.
const BUFFER_BYTES: usize = 1 << 20;
/// Prefix of files that no reader looks at.
const TMP: &str = "tmp_";
/// Makes names of temporary files unique within the process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

struct Placed {
    offset: u64,
    crc: u32,
}

/// A pack being written. Dropped without [`finish`](Self::finish), it leaves nothing.
pub(crate) struct PackWriter {
    dir: PathBuf,
    tmp: PathBuf,
    file: File,
    /// Bytes in `file`; `buffer` comes after them.
    flushed: u64,
    buffer: Vec<u8>,
    placed: HashMap<Oid, Placed>,
}

impl PackWriter {
    /// A new, empty pack in `dir` (`objects/pack`).
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let tmp = dir.join(format!("{TMP}pack_{}_{n}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&tmp)
            .map_err(HistoryError::io("create", &tmp))?;
        let mut buffer = Vec::with_capacity(4096);
        buffer.extend_from_slice(b"PACK\0\0\0\x02\0\0\0\0");
        Ok(Self { dir: dir.to_path_buf(), tmp, file, flushed: 0, buffer, placed: HashMap::new() })
    }

    pub(crate) fn contains(&self, oid: Oid) -> bool {
        self.placed.contains_key(&oid)
    }

    pub(crate) fn count(&self) -> usize {
        self.placed.len()
    }

    /// Bytes of all entries so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Appends a whole entry (see [`crate::object::entry_bytes`]). Twice the same object is written once.
    pub(crate) fn add(&mut self, oid: Oid, entry: &[u8]) -> Result<()> {
        if self.contains(oid) {
            return Ok(());
        }
        let mut crc = flate2::Crc::new();
        crc.update(entry);
        let offset = self.bytes();
        self.buffer.extend_from_slice(entry);
        self.placed.insert(oid, Placed { offset, crc: crc.sum() });
        self.flush_if(BUFFER_BYTES)
    }

    /// Streams one object of exactly `size` bytes from `reader`. `known` says whether it need not be kept.
    /// `Ok(Err(n))`: the reader gave `n` bytes, not `size`; nothing was added.
    pub(crate) fn add_stream(
        &mut self,
        kind: Kind,
        size: u64,
        reader: &mut dyn Read,
        known: impl FnOnce(Oid) -> bool,
    ) -> std::result::Result<Result<Oid, u64>, StreamError> {
        let start = self.bytes();
        match self.stream_entry(kind, size, reader) {
            Ok(Ok((oid, crc))) => {
                if self.contains(oid) || known(oid) {
                    self.truncate(start)?;
                } else {
                    self.placed.insert(oid, Placed { offset: start, crc });
                }
                Ok(Ok(oid))
            }
            Ok(Err(found)) => {
                self.truncate(start)?;
                Ok(Err(found))
            }
            Err(err) => {
                self.truncate(start)?;
                Err(err)
            }
        }
    }

    fn stream_entry(
        &mut self,
        kind: Kind,
        size: u64,
        reader: &mut dyn Read,
    ) -> std::result::Result<Result<(Oid, u32), u64>, StreamError> {
        let mut hasher = Hasher::object(kind, size);
        let mut crc = flate2::Crc::new();
        let mut head = Vec::new();
        crate::object::entry_head(kind, size, &mut head);
        crc.update(&head);
        self.buffer.extend_from_slice(&head);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), crate::object::compression());
        let mut chunk = vec![0; 256 << 10];
        let mut seen = 0u64;
        loop {
            let n = match reader.read(&mut chunk) {
                Ok(n) => n,
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(err) => return Err(StreamError::Source(err)),
            };
            seen += n as u64;
            if seen > size || (n == 0 && seen < size) {
                return Ok(Err(seen));
            }
            let write = |zlib: &mut flate2::write::ZlibEncoder<Vec<u8>>| std::io::Write::write_all(zlib, &chunk[..n]);
            write(&mut zlib).expect("because writing to a Vec cannot fail");
            hasher.update(&chunk[..n]);
            if n == 0 {
                let rest = zlib.finish().expect("because writing to a Vec cannot fail");
                crc.update(&rest);
                self.buffer.extend_from_slice(&rest);
                // All of it to the file, or its tail would stay in the buffer and `read` would not find it.
                self.flush_if(0)?;
                return Ok(Ok((hasher.finish()?, crc.sum())));
            }
            crc.update(zlib.get_ref());
            self.buffer.append(zlib.get_mut());
            self.flush_if(BUFFER_BYTES)?;
        }
    }

    fn truncate(&mut self, to: u64) -> Result<()> {
        if to >= self.flushed {
            self.buffer.truncate(usize::try_from(to - self.flushed).expect("because the buffer is in memory"));
        } else {
            self.buffer.clear();
            self.file.set_len(to).map_err(HistoryError::io("truncate", &self.tmp))?;
            self.flushed = to;
        }
        Ok(())
    }

    fn flush_if(&mut self, above: usize) -> Result<()> {
        if self.buffer.len() > above {
            let written = self.file.write_all_at(&self.buffer, self.flushed);
            written.map_err(HistoryError::io("write", &self.tmp))?;
            self.flushed += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Reads back an object of this pack, if it is in it.
    pub(crate) fn read(&self, oid: Oid) -> Result<Option<(Kind, Vec<u8>)>> {
        let Some(placed) = self.placed.get(&oid) else { return Ok(None) };
        let entry: Box<dyn Read> = if placed.offset >= self.flushed {
            let at = usize::try_from(placed.offset - self.flushed).expect("because the buffer is in memory");
            Box::new(&self.buffer[at..])
        } else {
            // An entry never straddles: the buffer is only ever flushed at the end of one.
            Box::new(std::io::BufReader::new(ReadAt { file: &self.file, at: placed.offset }))
        };
        read_entry(entry, oid).map(Some)
    }

    /// Makes everything durable and visible. Returns the path of the pack, or `None` when nothing was added.
    pub(crate) fn finish(mut self) -> Result<Option<PathBuf>> {
        if self.placed.is_empty() {
            return Ok(None);
        }
        self.flush_if(0)?;
        let count = u32::try_from(self.placed.len()).map_err(|_| HistoryError::TooLarge {
            what: "objects of one pack",
            found: self.placed.len() as u64,
            max: u64::from(u32::MAX),
        })?;
        self.file.write_all_at(&count.to_be_bytes(), 8).map_err(HistoryError::io("write", &self.tmp))?;
        let checksum = self.checksum()?;
        self.file.write_all_at(&checksum.0, self.flushed).map_err(HistoryError::io("write", &self.tmp))?;
        failpoint::hit("history.pack.written");

        let index = self.index(checksum)?;
        let idx_tmp = self.tmp.with_extension("idx");
        let idx = write_new(&idx_tmp, &index)?;
        // Two files to sync: side by side they often share one commit of the file system's journal.
        let synced = std::thread::scope(|scope| {
            let pack = scope.spawn(|| self.file.sync_data());
            let idx = idx.sync_data();
            pack.join().unwrap_or_else(|_| Err(std::io::Error::other("the syncing thread panicked"))).and(idx)
        });
        if let Err(err) = synced {
            let _ = std::fs::remove_file(&idx_tmp);
            return Err(HistoryError::io("sync", &self.tmp)(err));
        }
        failpoint::hit("history.pack.synced");

        let pack_path = self.dir.join(format!("pack-{checksum}.pack"));
        let idx_path = self.dir.join(format!("pack-{checksum}.idx"));
        std::fs::rename(&self.tmp, &pack_path).map_err(HistoryError::io("rename", &self.tmp))?;
        failpoint::hit("history.pack.renamed");
        std::fs::rename(&idx_tmp, &idx_path).map_err(HistoryError::io("rename", &idx_tmp))?;
        failpoint::hit("history.idx.renamed");
        sync_dir(&self.dir)?;
        failpoint::hit("history.pack.durable");
        Ok(Some(pack_path))
    }

    fn checksum(&self) -> Result<Oid> {
        let mut hasher = Hasher::raw();
        let mut chunk = vec![0; BUFFER_BYTES];
        let mut reader = ReadAt { file: &self.file, at: 0 };
        loop {
            let n = reader.read(&mut chunk).map_err(HistoryError::io("read", &self.tmp))?;
            if n == 0 {
                return hasher.finish();
            }
            hasher.update(&chunk[..n]);
        }
    }

    /// Index version 2 (Git, Documentation/gitformat-pack).
    fn index(&self, pack_checksum: Oid) -> Result<Vec<u8>> {
        let mut sorted: Vec<_> = self.placed.iter().collect();
        sorted.sort_unstable_by_key(|(oid, _)| **oid);
        let mut out = Vec::with_capacity(8 + 1024 + sorted.len() * 28 + 40);
        out.extend_from_slice(b"\xfftOc\0\0\0\x02");
        let mut below = 0;
        for first in 0..=255u8 {
            while below < sorted.len() && sorted[below].0.0[0] <= first {
                below += 1;
            }
            out.extend_from_slice(&u32::try_from(below).expect("because finish checked the count").to_be_bytes());
        }
        sorted.iter().for_each(|(oid, _)| out.extend_from_slice(&oid.0));
        sorted.iter().for_each(|(_, placed)| out.extend_from_slice(&placed.crc.to_be_bytes()));
        let mut large = Vec::new();
        for (_, placed) in &sorted {
            // The top bit says that the offset is in the table of 8-byte offsets.
            let small = u32::try_from(placed.offset).ok().filter(|offset| offset >> 31 == 0);
            out.extend_from_slice(&small.unwrap_or(0x8000_0000 | large.len() as u32).to_be_bytes());
            if small.is_none() {
                large.push(placed.offset);
            }
        }
        large.iter().for_each(|offset| out.extend_from_slice(&offset.to_be_bytes()));
        out.extend_from_slice(&pack_checksum.0);
        let mut hasher = Hasher::raw();
        hasher.update(&out);
        out.extend_from_slice(&hasher.finish()?.0);
        Ok(out)
    }
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        // After `finish` the name is gone; otherwise nobody needs it. A leftover goes at the next start.
        let _ = std::fs::remove_file(&self.tmp);
    }
}

/// Why streaming an object failed: our side or the source.
pub(crate) enum StreamError {
    History(HistoryError),
    Source(std::io::Error),
}

impl From<HistoryError> for StreamError {
    fn from(err: HistoryError) -> Self {
        Self::History(err)
    }
}

/// Reads a file from an offset without moving its cursor.
pub(crate) struct ReadAt<'a> {
    pub(crate) file: &'a File,
    pub(crate) at: u64,
}

impl Read for ReadAt<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read_at(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Type number and inflated size at the head of a pack entry.
pub(crate) fn read_entry_head(reader: &mut dyn Read) -> std::io::Result<(u8, u64)> {
    let mut byte = [0];
    reader.read_exact(&mut byte)?;
    let kind = (byte[0] >> 4) & 7;
    let mut size = u64::from(byte[0] & 0x0f);
    let mut shift = 4;
    while byte[0] & 0x80 != 0 {
        reader.read_exact(&mut byte)?;
        if shift > 57 {
            return Err(std::io::Error::other("the size of a pack entry does not fit 64 bits"));
        }
        size |= u64::from(byte[0] & 0x7f) << shift;
        shift += 7;
    }
    Ok((kind, size))
}

/// Kind of a type number; `None` for deltas.
pub(crate) fn whole_kind(number: u8) -> Option<Kind> {
    [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag].into_iter().find(|kind| *kind as u8 == number)
}

fn read_entry(mut entry: Box<dyn Read + '_>, oid: Oid) -> Result<(Kind, Vec<u8>)> {
    let damaged = |err: std::io::Error| HistoryError::corrupt(oid, err);
    let (number, size) = read_entry_head(&mut entry).map_err(damaged)?;
    let kind = whole_kind(number).ok_or_else(|| HistoryError::corrupt(oid, "our packs hold no deltas"))?;
    let mut bytes = Vec::new();
    let mut zlib = flate2::read::ZlibDecoder::new(entry);
    zlib.read_to_end(&mut bytes).map_err(damaged)?;
    if bytes.len() as u64 != size {
        return Err(HistoryError::corrupt(oid, "its size differs from its head"));
    }
    Ok((kind, bytes))
}

/// Creates `path` with `bytes`, not yet synced.
fn write_new(path: &Path, bytes: &[u8]) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(HistoryError::io("create", path))?;
    file.write_all_at(bytes, 0).map_err(HistoryError::io("write", path))?;
    Ok(file)
}

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(HistoryError::io("sync", dir))
}

/// Removes what a crash left: temporary files and packs without index.
pub(crate) fn clean(dir: &Path) -> Result<()> {
    let listing = std::fs::read_dir(dir).map_err(HistoryError::io("list", dir))?;
    for entry in listing {
        let path = entry.map_err(HistoryError::io("list", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let half = path.extension().is_some_and(|ext| ext == "pack") && !path.with_extension("idx").exists();
        if name.starts_with(TMP) || half {
            std::fs::remove_file(&path).map_err(HistoryError::io("remove", &path))?;
        }
    }
    Ok(())
}
