//! From a log to the images that a power cut may leave.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nas_testkit::Scratch;
use nas_testkit::disk::run;

use crate::Error;
use crate::record::{Kind, Record, read_index};
use crate::server::zero;

/// The piece that a disk writes whole or not at all.
pub const SECTOR_BYTES: u64 = 4096;

/// Which of the writes after the last flush reached the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subset {
    /// None of them.
    Nothing,
    /// All of them.
    Everything,
    /// Each one wholly, partly or not at all, as drawn from this seed.
    Random(u64),
}

/// A moment at which the power may go: `flushes` flushes are complete, the next one is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// How many flushes are complete; 0 is before the first.
    pub flushes: usize,
    /// What became of the writes since.
    pub subset: Subset,
}

/// A complete flush of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushPoint {
    /// Its number, from 1: the value for [`CrashPoint::flushes`].
    pub index: usize,
    /// How many writes and discards came between it and the one before.
    pub writes: usize,
    /// How many markers had been put before the *next* flush: what must survive a cut up to then.
    pub markers: usize,
}

/// Something the test said while it recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// What it said.
    pub text: String,
    /// How many flushes were complete then.
    pub flushes: usize,
}

/// A finished recording.
#[derive(Debug)]
pub struct Log {
    file: File,
    records: Vec<Record>,
    /// Positions in `records` of every flush.
    flushes: Vec<usize>,
    markers: Vec<Marker>,
    base: PathBuf,
    scratch: Scratch,
}

impl Log {
    pub(crate) fn open(scratch: Scratch) -> Result<Self, Error> {
        let path = scratch.join("log");
        let file = File::open(&path).map_err(Error::file("cannot open", &path))?;
        let records = read_index(&file).map_err(|error| Error::Log(error.to_string()))?;
        let (mut flushes, mut markers) = (Vec::new(), Vec::new());
        for (at, record) in records.iter().enumerate() {
            match record.kind {
                Kind::Flush => flushes.push(at),
                Kind::Marker => {
                    let bytes = payload(&file, record).map_err(Error::file("cannot read", &path))?;
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    markers.push(Marker { text, flushes: flushes.len() });
                }
                Kind::Write | Kind::Discard => {}
            }
        }
        Ok(Self { file, records, flushes, markers, base: scratch.join("base"), scratch })
    }

    /// Every complete flush, in order.
    pub fn flush_points(&self) -> Vec<FlushPoint> {
        let mut before = 0;
        let mut points = Vec::with_capacity(self.flushes.len());
        for (number, at) in self.flushes.iter().enumerate() {
            let between = &self.records[before..*at];
            let writes = between.iter().filter(|r| matches!(r.kind, Kind::Write | Kind::Discard)).count();
            points.push(FlushPoint { index: number + 1, writes, markers: self.promised(number + 1).len() });
            before = at + 1;
        }
        points
    }

    /// Every marker, in order.
    pub fn markers(&self) -> &[Marker] {
        &self.markers
    }

    /// What had been promised when the power went between flush number `flushes` and the next one, at the latest.
    pub fn promised(&self, flushes: usize) -> &[Marker] {
        let count = self.markers.partition_point(|marker| marker.flushes <= flushes);
        &self.markers[..count]
    }

    /// How many writes the log holds, and how many bytes they carried.
    pub fn written(&self) -> (usize, u64) {
        let writes = self.records.iter().filter(|record| record.kind == Kind::Write);
        writes.fold((0, 0), |(count, bytes), record| (count + 1, bytes + record.length))
    }

    /// Builds one image from the beginning. For many images use a [`Replayer`], which goes on from where it was.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn image_at(&self, flushes: usize, unflushed: Subset, out: &Path) -> Result<(), Error> {
        self.replayer()?.image(CrashPoint { flushes, subset: unflushed }, out)
    }

    /// Starts a replay at the state right after mkfs.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn replayer(&self) -> Result<Replayer<'_>, Error> {
        let scratch = Scratch::new("replay");
        let path = scratch.join("current");
        copy_sparse(&self.base, &path)?;
        let current = File::options().read(true).write(true).open(&path).map_err(Error::file("cannot open", &path))?;
        Ok(Replayer { log: self, current, path, done: 0, flushes: 0, scratch })
    }

    /// Where the log's files are.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// May something between nothing and everything survive of what was written after flush number `flushes`?
    pub(crate) fn has_subsets(&self, flushes: usize) -> bool {
        let between = &self.records[self.after_flush(flushes)..self.after_flush(flushes + 1)];
        let mut writes = between.iter().filter(|record| matches!(record.kind, Kind::Write | Kind::Discard));
        writes.next().is_some_and(|first| first.length > SECTOR_BYTES) || writes.next().is_some()
    }

    /// The position in `records` after flush number `flushes`.
    fn after_flush(&self, flushes: usize) -> usize {
        match flushes.checked_sub(1) {
            None => 0,
            Some(last) => self.flushes.get(last).map_or(self.records.len(), |at| at + 1),
        }
    }

    fn apply(&self, record: &Record, image: &File, bytes_max: u64) -> io::Result<()> {
        match record.kind {
            Kind::Write => {
                let mut bytes = payload(&self.file, record)?;
                bytes.truncate(usize::try_from(bytes_max).unwrap_or(usize::MAX));
                image.write_all_at(&bytes, record.offset)
            }
            Kind::Discard => zero(image, record.offset, record.length.min(bytes_max)),
            Kind::Flush | Kind::Marker => Ok(()),
        }
    }
}

fn payload(log: &File, record: &Record) -> io::Result<Vec<u8>> {
    let length = usize::try_from(record.length).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    log.read_exact_at(&mut bytes, record.payload)?;
    Ok(bytes)
}

/// Walks a log forward and leaves images on its way. Asked for an earlier point it starts again.
#[derive(Debug)]
pub struct Replayer<'a> {
    log: &'a Log,
    current: File,
    path: PathBuf,
    /// Position in the records up to which `current` holds everything.
    done: usize,
    flushes: usize,
    // Keeps `path` alive.
    scratch: Scratch,
}

impl Replayer<'_> {
    /// Writes the image of one crash point to `out`.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn image(&mut self, point: CrashPoint, out: &Path) -> Result<(), Error> {
        if point.flushes < self.flushes {
            *self = self.log.replayer()?;
        }
        let (from, to) = (self.log.after_flush(point.flushes), self.log.after_flush(point.flushes + 1));
        let records = &self.log.records;
        for record in &records[self.done..from] {
            let applied = self.log.apply(record, &self.current, u64::MAX);
            applied.map_err(Error::file("cannot replay into", &self.path))?;
        }
        (self.done, self.flushes) = (from, point.flushes);
        copy_sparse(&self.path, out)?;
        let image = File::options().read(true).write(true).open(out).map_err(Error::file("cannot open", out))?;
        let mut draw = Draw::new(point);
        for record in &records[from..to] {
            let bytes_max = draw.survives(record.length);
            if bytes_max > 0 {
                self.log.apply(record, &image, bytes_max).map_err(Error::file("cannot replay into", out))?;
            }
        }
        Ok(())
    }

    /// Where this replay keeps its files; images may be put here too.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }
}

/// Decides what survives. SplitMix64: small, and the same everywhere.
struct Draw {
    subset: Subset,
    state: u64,
}

impl Draw {
    fn new(point: CrashPoint) -> Self {
        let seed = if let Subset::Random(seed) = point.subset { seed } else { 0 };
        Self { subset: point.subset, state: seed ^ (point.flushes as u64).wrapping_mul(0xd6e8_feb8_6659_fd93) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// How many leading bytes of a write of `length` survive.
    fn survives(&mut self, length: u64) -> u64 {
        match self.subset {
            Subset::Nothing => 0,
            Subset::Everything => length,
            Subset::Random(_) => match self.next() % 8 {
                0..=2 => 0,
                3..=6 => length,
                _ => (self.next() % (length / SECTOR_BYTES + 1)) * SECTOR_BYTES,
            },
        }
    }
}

/// Copies a sparse file and keeps it sparse; by reference where the file system can.
pub(crate) fn copy_sparse(from: &Path, to: &Path) -> Result<(), Error> {
    run(Command::new("cp").args(["--sparse=auto", "--reflink=auto"]).arg(from).arg(to))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Writer;

    /// A log of: write A, flush, marker, write B, write C, flush, write D.
    fn log() -> Log {
        let scratch = Scratch::new("replay-test");
        File::create(scratch.join("base")).unwrap().set_len(5 * SECTOR_BYTES).unwrap();
        let mut writer = Writer::new(File::create(scratch.join("log")).unwrap()).unwrap();
        let mut write = |sector: u64, byte: u8| {
            let bytes = vec![byte; 4096];
            writer.append(Kind::Write, sector * SECTOR_BYTES, SECTOR_BYTES, &bytes).unwrap();
            if matches!(byte, b'A' | b'C') {
                writer.append(Kind::Flush, 0, 0, &[]).unwrap();
            }
            if byte == b'A' {
                writer.append(Kind::Marker, 0, 2, b"ok").unwrap();
            }
        };
        write(0, b'A');
        write(1, b'B');
        write(2, b'C');
        write(3, b'D');
        Log::open(scratch).unwrap()
    }

    fn letters(image: &Path) -> String {
        let bytes = std::fs::read(image).unwrap();
        bytes.chunks(4096).map(|sector| if sector[0] == 0 { '.' } else { char::from(sector[0]) }).collect()
    }

    /// Goal: an image holds everything before the flush and, of the rest up to the next flush, exactly the subset.
    #[test]
    fn images_hold_what_they_must() {
        let log = log();
        let out = log.dir().join("out");
        let mut replayer = log.replayer().unwrap();
        let mut image = |flushes, subset| {
            replayer.image(CrashPoint { flushes, subset }, &out).unwrap();
            letters(&out)
        };
        assert_eq!(image(0, Subset::Nothing), ".....");
        assert_eq!(image(0, Subset::Everything), "A....");
        assert_eq!(image(1, Subset::Nothing), "A....");
        assert_eq!(image(1, Subset::Everything), "ABC..");
        assert_eq!(image(2, Subset::Nothing), "ABC..");
        assert_eq!(image(2, Subset::Everything), "ABCD.");
        assert_eq!(image(1, Subset::Nothing), "A....", "and back again");
        let drawn: std::collections::BTreeSet<String> = (0..64).map(|seed| image(1, Subset::Random(seed))).collect();
        assert_eq!(
            drawn.into_iter().collect::<Vec<_>>(),
            ["A....", "A.C..", "AB...", "ABC.."],
            "all subsets are drawn"
        );
        log.image_at(2, Subset::Everything, &out).unwrap();
        assert_eq!(letters(&out), "ABCD.");
    }

    /// Goal: a promise counts from the flush before it, and not one flush earlier.
    #[test]
    fn promises_begin_at_their_marker() {
        let log = log();
        assert!(log.promised(0).is_empty());
        assert_eq!(log.promised(1), [Marker { text: "ok".to_owned(), flushes: 1 }]);
        assert_eq!(log.written(), (4, 4 * SECTOR_BYTES));
        let points: Vec<_> = log.flush_points().iter().map(|p| (p.index, p.writes, p.markers)).collect();
        assert_eq!(points, [(1, 1, 1), (2, 2, 1)]);
    }
}
