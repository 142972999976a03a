//! What changed on a branch since its last commit, and the durable mark that something did.
//!
//! The *dirty set* is the list of changed paths plus the moves of whole entries, in order: a commit costs
//! O(changed), never a scan. It lives in memory. So that a crash loses none of it, a branch gets one durable
//! "dirty since X" mark before its first write after a commit; after a crash only marked branches are scanned.
//!
//! On a disk full to the last byte no mark can be made, and yet one must be able to delete. An unlink still goes through
//! there, so each clean branch keeps a second, empty file, `room`: its absence means "dirty since ever".

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nas_types::fs::FsError;
use nas_types::path::TreePath;
use parking_lot::{Mutex, MutexGuard};

/// Paths changed, and moves of entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirtySet {
    /// Paths whose entry may differ from the last commit, by their present names.
    pub paths: BTreeSet<TreePath>,
    /// Entries moved, oldest first; what was at the new name was replaced. Applied before `paths`.
    pub moves: Vec<(TreePath, TreePath)>,
}

impl DirtySet {
    /// Nothing changed?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.moves.is_empty()
    }

    fn below(&self, dir: &TreePath) -> Vec<TreePath> {
        // `dir` itself, then what is below it: other names that start with the same bytes may lie between.
        self.paths
            .range(dir..)
            .take_while(|path| path.as_bytes().starts_with(dir.as_bytes()))
            .filter(|path| path.is_within(dir))
            .cloned()
            .collect()
    }

    /// Records that the entry `from` (and all below it) is now `to`.
    pub fn rename(&mut self, from: &TreePath, to: &TreePath) {
        for gone in self.below(to) {
            self.paths.remove(&gone);
        }
        for old in self.below(from) {
            self.paths.remove(&old);
            if let Some(new) = old.rebase(from, to) {
                self.paths.insert(new);
            }
        }
        self.moves.push((from.clone(), to.clone()));
    }

    /// Puts an older set, whose commit failed, under this newer one.
    pub fn put_back(&mut self, older: Self) {
        let newer = std::mem::replace(self, older);
        for (from, to) in &newer.moves {
            self.rename(from, to);
        }
        self.paths.extend(newer.paths);
    }
}

/// Told when a clean branch becomes dirty, and when a client asked for durability.
pub(crate) trait OnChange: Send + Sync {
    /// The first change after a commit was noted.
    fn became_dirty(&self);
    /// A client asked for durability: commit soon.
    fn wants_commit(&self);
}

/// The journal of one branch.
pub(crate) struct Journal {
    /// `None`: nothing is noted, because nothing is ever committed (an unprotected tree).
    mark: Option<PathBuf>,
    marking: Mutex<()>,
    marked: AtomicBool,
    /// Imports being received: their temporary files are found after a crash by the mark.
    incoming: AtomicUsize,
    dirty: Mutex<DirtySet>,
    last_change: Mutex<Instant>,
    on_change: Mutex<Option<Arc<dyn OnChange>>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("mark", &self.mark).field("marked", &self.marked).finish_non_exhaustive()
    }
}

impl Journal {
    pub(crate) fn new(mark: PathBuf) -> Self {
        Self::with(Some(mark))
    }

    /// Of a directory without history: every change is fine, none is noted.
    pub(crate) fn without_history() -> Self {
        Self::with(None)
    }

    pub(crate) fn keeps_nothing(&self) -> bool {
        self.mark.is_none()
    }

    fn with(mark: Option<PathBuf>) -> Self {
        Self {
            marking: Mutex::new(()),
            marked: AtomicBool::new(mark.is_none()),
            mark,
            incoming: AtomicUsize::new(0),
            dirty: Mutex::new(DirtySet::default()),
            last_change: Mutex::new(Instant::now()),
            on_change: Mutex::new(None),
        }
    }

    pub(crate) fn listen(&self, on_change: Arc<dyn OnChange>) {
        *self.on_change.lock() = Some(on_change);
    }

    /// Makes sure the durable mark is there. Called before every change, under the branch's lock.
    pub(crate) fn before_change(&self) -> Result<(), FsError> {
        if self.marked.load(Ordering::Acquire) {
            return Ok(());
        }
        self.write_mark(&self.marking.lock())
    }

    /// Keeps the mark, also over commits, until what is returned is dropped.
    pub(super) fn incoming(&self) -> Result<Incoming<'_>, FsError> {
        let one = self.marking.lock();
        self.write_mark(&one)?;
        self.incoming.fetch_add(1, Ordering::AcqRel);
        Ok(Incoming(self))
    }

    fn write_mark(&self, _one: &MutexGuard<'_, ()>) -> Result<(), FsError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        if !self.marked.load(Ordering::Acquire) {
            let marked = write_mark(mark).or_else(|e| match e.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => remove_room(mark),
                _ => Err(e),
            });
            marked.map_err(|e| {
                tracing::error!(error = %e, "the dirty mark could not be written");
                e.raw_os_error()
                    .map_or(FsError::Io, |n| crate::error::fs_error(rustix::io::Errno::from_raw_os_error(n)))
            })?;
            nas_types::failpoint::hit("store.mark.written");
            self.marked.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Notes changed paths.
    pub(crate) fn changed(&self, paths: impl IntoIterator<Item = TreePath>) {
        if self.keeps_nothing() {
            return;
        }
        let mut dirty = self.dirty.lock();
        let was_clean = dirty.is_empty();
        dirty.paths.extend(paths);
        drop(dirty);
        self.noted(was_clean);
    }

    /// Notes a rename.
    pub(crate) fn renamed(&self, from: &TreePath, to: &TreePath) {
        if self.keeps_nothing() {
            return;
        }
        let mut dirty = self.dirty.lock();
        let was_clean = dirty.is_empty();
        dirty.rename(from, to);
        drop(dirty);
        self.noted(was_clean);
    }

    fn noted(&self, was_clean: bool) {
        *self.last_change.lock() = Instant::now();
        if was_clean && let Some(on_change) = self.on_change.lock().clone() {
            on_change.became_dirty();
        }
    }

    pub(crate) fn wants_commit(&self) {
        if let Some(on_change) = self.on_change.lock().clone() {
            on_change.wants_commit();
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.lock().is_empty()
    }

    /// Was anything renamed since the set was last taken?
    pub(crate) fn has_moves(&self) -> bool {
        !self.dirty.lock().moves.is_empty()
    }

    /// Does it hold changes of this very path that no commit has?
    pub(crate) fn holds(&self, path: &TreePath) -> bool {
        self.dirty.lock().paths.contains(path)
    }

    /// Paths changed since the last commit, sorted.
    pub(crate) fn dirty_paths(&self) -> Vec<TreePath> {
        self.dirty.lock().paths.iter().cloned().collect()
    }

    pub(crate) fn last_change(&self) -> Instant {
        *self.last_change.lock()
    }

    /// Takes the dirty set. Called under the branch's write lock, so no change is half in it.
    ///
    /// The mark is *re-armed*: the next change writes a new one, durable, beside the old, which stays until the
    /// commit is done.
    pub(crate) fn take(&self) -> DirtySet {
        self.marked.store(false, Ordering::Release);
        std::mem::take(&mut *self.dirty.lock())
    }

    /// The commit of `older` failed: its paths are dirty again.
    pub(crate) fn put_back(&self, older: DirtySet) {
        self.dirty.lock().put_back(older);
        // Changes that follow find it dirty already: whoever listens must be told now.
        if let Some(on_change) = self.on_change.lock().clone() {
            on_change.became_dirty();
        }
    }

    /// The commit of everything before the last [`take`](Self::take) is durable: without newer changes the branch is clean.
    pub(crate) fn committed(&self) -> io::Result<()> {
        let _one = self.marking.lock();
        if self.marked.load(Ordering::Acquire) || self.is_dirty() || self.incoming.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        // First: a power cut between the two must leave a branch that is one or the other.
        let Some(mark) = &self.mark else { return Ok(()) };
        make_room(mark);
        remove_mark(mark)
    }
}

fn room(mark: &Path) -> PathBuf {
    mark.with_file_name("room")
}

/// Puts the file `room` beside the mark, where it is missing. Without it the next start scans the branch, nothing more.
pub(crate) fn make_room(mark: &Path) {
    if let Err(e) = File::options().write(true).create_new(true).open(room(mark))
        && e.kind() != io::ErrorKind::AlreadyExists
    {
        tracing::warn!(mark = %mark.display(), error = %e, "a clean branch could not be noted as clean");
    }
}

/// The mark of a full disk.
fn remove_room(mark: &Path) -> io::Result<()> {
    match fs::remove_file(room(mark)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => File::open(mark.parent().unwrap_or(Path::new("/")))?.sync_all(),
    }
}

/// See [`Journal::incoming`].
pub(super) struct Incoming<'a>(&'a Journal);

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.0.incoming.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Writes "dirty since now". An older mark is left: its time is earlier, so it covers more.
fn write_mark(mark: &Path) -> io::Result<()> {
    let mut file = match File::options().write(true).create_new(true).open(mark) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(e) => return Err(e),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    let durable = writeln!(file, "dirty since {now}")
        .and_then(|()| file.sync_all())
        .and_then(|()| File::open(mark.parent().unwrap_or(Path::new("/")))?.sync_all());
    if durable.is_err() {
        // The next try must not take it for a durable one.
        let _ = fs::remove_file(mark);
    }
    durable
}

fn remove_mark(mark: &Path) -> io::Result<()> {
    match fs::remove_file(mark) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        // Not synced: a mark that comes back after a power cut only costs a scan.
        _ => Ok(()),
    }
}

/// Is the branch marked? The time is when it was, in milliseconds; 0 when that is not known.
pub(crate) fn read_mark(mark: &Path) -> io::Result<Option<i64>> {
    if !room(mark).try_exists()? {
        return Ok(Some(0));
    }
    match fs::read_to_string(mark) {
        Ok(text) => Ok(Some(text.trim().strip_prefix("dirty since ").and_then(|ms| ms.parse().ok()).unwrap_or(0))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    /// Goal: a rename carries what is dirty below it, replaces what was dirty at the target, and leaves look-alikes.
    #[test]
    fn rename_rebases() {
        let mut set = DirtySet::default();
        set.paths.extend([p("/a"), p("/a-x"), p("/a/b"), p("/a/c/d"), p("/z/old")]);
        set.rename(&p("/a"), &p("/z"));
        assert_eq!(set.paths, [p("/a-x"), p("/z"), p("/z/b"), p("/z/c/d")].into());
        assert_eq!(set.moves, [(p("/a"), p("/z"))]);
    }

    /// Goal: after a failed commit nothing is forgotten, and older paths follow newer moves.
    #[test]
    fn put_back_keeps_order() {
        let mut older = DirtySet::default();
        older.paths.insert(p("/d/f"));
        let mut now = DirtySet::default();
        now.rename(&p("/d"), &p("/e"));
        now.paths.insert(p("/e/g"));
        now.put_back(older);
        assert_eq!(now.paths, [p("/e/f"), p("/e/g")].into());
    }
}
