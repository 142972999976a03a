//! Writing: edits become objects, objects become one durable pack.

use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nas_types::object::{EntryKind, KeyDomain, Oid, Provenance};
use nas_types::path::TreePath;
use nas_types::time::Timestamp;

use crate::commit::{self, CommitSpec, Trees};
use crate::edit::{Content, Edit, Leaf, Opened, Overlay, Put, Source};
use crate::error::{HistoryError, Result};
use crate::hold::Hold;
use crate::object::{self, EMPTY_TREE, Kind, Objects, Reader};
use crate::pack::{PackWriter, StreamError};
use crate::repo::History;

/// Content up to this many bytes is read, hashed and compressed in memory, many files at a time; larger content streams.
const SMALL_BYTES_MAX: u64 = 256 << 10;
/// A batch of small files is worked off when it has this many files…
const BATCH_FILES: usize = 512;
/// …or this many announced bytes.
const BATCH_BYTES: u64 = 8 << 20;
/// Below this a batch is not worth starting threads for.
const PARALLEL_BYTES_MIN: u64 = 128 << 10;
/// Most threads that hash and compress for one writer.
const THREADS_MAX: usize = 4;
/// Bits a mode can have.
const MODE_MASK: u32 = 0o1777;

/// Collects new objects into one pack. Nothing is visible before [`finish`](Self::finish); dropped without it,
/// nothing is left. While it lives, nothing is pruned.
pub struct Writer<'h> {
    history: &'h History,
    reader: Reader,
    pack: PackWriter,
    hold: Hold,
}

struct Job {
    slot: usize,
    path: TreePath,
    source: Source,
}

/// What a worker made of a job.
enum Done {
    /// The database has it already.
    Known(Oid),
    /// A new pack entry.
    New(Oid, Vec<u8>),
    /// Too large for memory: streamed by the writer itself.
    Large(TreePath, Opened),
}

impl<'h> Writer<'h> {
    pub(crate) fn new(history: &'h History) -> Result<Self> {
        let hold = history.hold();
        let pack = PackWriter::create(&history.pack_dir())?;
        Ok(Self { history, reader: history.reader(), pack, hold })
    }

    /// Number of new objects so far.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.pack.count()
    }

    /// Bytes of the pack so far: what this commit adds to the branch's quota.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pack.bytes()
    }

    /// Applies `edits` in order to the trees of the commit `base` (`None`: to nothing).
    pub fn apply(&mut self, base: Option<Oid>, edits: impl IntoIterator<Item = Edit>) -> Result<Trees> {
        let trees = match base {
            Some(commit) => commit::read(self, commit)?.trees,
            None => Trees::default(),
        };
        self.apply_to(trees, edits)
    }

    /// Applies `edits` in order to `trees`.
    pub fn apply_to(&mut self, trees: Trees, edits: impl IntoIterator<Item = Edit>) -> Result<Trees> {
        let mut overlay = Overlay::new(trees.into());
        let mut oids = Vec::new();
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        for edit in edits {
            let (path, kind, mode, mtime, source) = match edit {
                Edit::Remove { path } => {
                    overlay.remove(self, &path)?;
                    continue;
                }
                Edit::Move { from, to } => {
                    overlay.rename(self, &from, &to)?;
                    continue;
                }
                Edit::Put { path, put: Put::Dir { mode } } => {
                    overlay.put_dir(self, &path, mode & MODE_MASK)?;
                    continue;
                }
                Edit::Put { path, put: Put::File { mode, mtime, source } } => {
                    (path, EntryKind::File, mode & MODE_MASK, mtime, source)
                }
                Edit::Put { path, put: Put::Symlink { mtime, source } } => {
                    (path, EntryKind::Symlink, 0o777, mtime, source)
                }
            };
            let content = if let Source::Existing(oid) = source {
                self.require_blob(oid)?;
                Content::Known(oid)
            } else {
                Content::Pending(oids.len())
            };
            let leaf = Leaf { kind, mode, mtime, content, key_domain: KeyDomain::default() };
            overlay.put_leaf(self, &path, leaf)?;
            if let Content::Pending(slot) = content {
                oids.push(EMPTY_TREE);
                batch_bytes += source.size_hint();
                batch.push(Job { slot, path, source });
            }
            if batch.len() >= BATCH_FILES || batch_bytes >= BATCH_BYTES {
                self.work_off(std::mem::take(&mut batch), batch_bytes, &mut oids)?;
                batch_bytes = 0;
            }
        }
        self.work_off(batch, batch_bytes, &mut oids)?;
        let root = overlay.write(&mut |kind, bytes| self.add(kind, bytes), &oids)?;
        Ok(root.into())
    }

    /// Stores the commit and the meta commit it names. Returns the content commit.
    pub fn commit(&mut self, spec: &CommitSpec<'_>) -> Result<Oid> {
        if spec.trees.content.is_none() || spec.trees.meta.is_none() {
            self.add(Kind::Tree, b"")?;
        }
        let mut meta_parents = Vec::with_capacity(spec.parents.len());
        for parent in spec.parents {
            meta_parents.extend(commit::read(self, *parent)?.meta_commit);
        }
        let meta = self.add(Kind::Commit, &commit::encode_meta(spec, &meta_parents))?;
        self.add(Kind::Commit, &commit::encode_content(spec, meta))
    }

    /// One commit on `base` with the trees of `tip`: what lies between is left out of history.
    pub fn squash(
        &mut self,
        base: Oid,
        tip: Oid,
        provenance: &Provenance,
        message: &str,
        time: Timestamp,
    ) -> Result<Oid> {
        let trees = commit::read(self, tip)?.trees;
        self.commit(&CommitSpec { parents: &[base], trees, provenance, message, time })
    }

    /// Stores a blob.
    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Oid> {
        self.add(Kind::Blob, bytes)
    }

    /// Makes everything durable and visible: only now may a ref point at it. Keep the [`Hold`] until one does.
    pub fn finish(self) -> Result<Hold> {
        if self.pack.finish()?.is_some() {
            // A lookup that misses makes gix list the directory, so that the next reader knows the new pack.
            self.reader.has(Oid([0; 20]));
        }
        Ok(self.hold)
    }

    pub(crate) fn add(&mut self, kind: Kind, bytes: &[u8]) -> Result<Oid> {
        let oid = object::hash(kind, bytes)?;
        if !self.pack.contains(oid) && !self.reader.has_known(oid) {
            self.pack.add(oid, &object::entry_bytes(kind, bytes))?;
        }
        Ok(oid)
    }

    fn require_blob(&self, oid: Oid) -> Result<()> {
        match self.header(oid)?.0 {
            Kind::Blob => Ok(()),
            found => Err(HistoryError::WrongKind { oid, found: found.as_str(), expected: "blob" }),
        }
    }

    fn work_off(&mut self, batch: Vec<Job>, bytes: u64, oids: &mut [Oid]) -> Result<()> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX);
        let done = if threads == 1 || batch.len() < 2 || bytes < PARALLEL_BYTES_MIN {
            batch.into_iter().map(|job| (job.slot, work(&self.reader, job))).collect()
        } else {
            self.work_parallel(batch, threads)
        };
        for (slot, done) in done {
            oids[slot] = match done? {
                Done::Known(oid) => oid,
                Done::New(oid, entry) => {
                    self.pack.add(oid, &entry)?;
                    oid
                }
                Done::Large(path, (mut reader, size)) => self.stream(path, size, &mut *reader)?,
            };
        }
        Ok(())
    }

    fn work_parallel(&self, batch: Vec<Job>, threads: usize) -> Vec<(usize, Result<Done>)> {
        let count = batch.len();
        let jobs = Mutex::new(VecDeque::from(batch));
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(count));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let reader = self.history.reader();
                    let mut mine = Vec::new();
                    while next.fetch_add(1, Ordering::Relaxed) < count {
                        let job = jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
                        let Some(job) = job else { break };
                        mine.push((job.slot, work(&reader, job)));
                    }
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&mut mine);
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The pack has the order of the edits, whichever thread was faster.
        results.sort_unstable_by_key(|(slot, _)| *slot);
        results
    }

    fn stream(&mut self, path: TreePath, size: u64, reader: &mut dyn std::io::Read) -> Result<Oid> {
        let known = |oid| self.reader.has_known(oid);
        match self.pack.add_stream(Kind::Blob, size, reader, known) {
            Ok(Ok(oid)) => Ok(oid),
            Ok(Err(found)) => Err(HistoryError::SourceSize { path, expected: size, found: found.min(size + 1) }),
            Err(StreamError::Source(source)) => Err(HistoryError::Source { path, source }),
            Err(StreamError::History(err)) => Err(err),
        }
    }
}

fn work(reader: &Reader, job: Job) -> Result<Done> {
    let Job { path, source, .. } = job;
    let (mut content, size): Opened = match source {
        Source::Bytes(bytes) if bytes.len() as u64 > SMALL_BYTES_MAX => {
            let size = bytes.len() as u64;
            (Box::new(std::io::Cursor::new(bytes)), size)
        }
        Source::Bytes(bytes) => return small(reader, &bytes),
        Source::File { file, size } => (Box::new(file), size),
        Source::Open { open, .. } => match open() {
            Ok(opened) => opened,
            Err(source) => return Err(HistoryError::Source { path, source }),
        },
        Source::Existing(oid) => return Ok(Done::Known(oid)),
    };
    if size > SMALL_BYTES_MAX {
        return Ok(Done::Large(path, (content, size)));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    // One byte more than announced shows a file that grew, and lets the source report at its end.
    match content.by_ref().take(size + 1).read_to_end(&mut bytes) {
        Ok(n) if n as u64 == size => small(reader, &bytes),
        Ok(n) => Err(HistoryError::SourceSize { path, expected: size, found: n as u64 }),
        Err(source) => Err(HistoryError::Source { path, source }),
    }
}

fn small(reader: &Reader, bytes: &[u8]) -> Result<Done> {
    let oid = object::hash(Kind::Blob, bytes)?;
    if reader.has_known(oid) {
        return Ok(Done::Known(oid));
    }
    Ok(Done::New(oid, object::entry_bytes(Kind::Blob, bytes)))
}

/// A writer also sees what it has not finished yet.
impl Objects for Writer<'_> {
    fn load(&self, oid: Oid) -> Result<(Kind, Vec<u8>)> {
        match self.pack.read(oid)? {
            Some(found) => Ok(found),
            None => self.reader.load(oid),
        }
    }

    fn header(&self, oid: Oid) -> Result<(Kind, u64)> {
        match self.pack.read(oid)? {
            Some((kind, bytes)) => Ok((kind, bytes.len() as u64)),
            None => self.reader.header(oid),
        }
    }
}
