//! Refs: loose files, moved the way git moves them (`<ref>.lock` made exclusively, synced, renamed), plus the
//! directory sync that git leaves out. `packed-refs` is read, and rewritten when a ref in it is deleted.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nas_types::failpoint;
use nas_types::id::GateId;
use nas_types::lease::BranchName;
use nas_types::object::Oid;

use crate::error::{HistoryError, Result};
use crate::pack::sync_dir;

/// The protected tree's line of commits.
pub const MAIN: &str = "refs/heads/main";
const META: &str = "refs/nas/meta/";
/// Where [`pin`] puts its refs.
pub const PINS: &str = "refs/nas/pin/";
/// Where [`merged`] puts its refs.
pub const MERGED: &str = "refs/nas/merged/";

/// The ref of a run's branch.
#[must_use]
pub fn branch(name: &BranchName) -> String {
    format!("refs/heads/{name}")
}

/// The ref of a named checkpoint of a branch.
#[must_use]
pub fn checkpoint(branch: &BranchName, name: &str) -> String {
    format!("refs/nas/checkpoint/{branch}/{name}")
}

/// The ref that pins what a gate decides on.
#[must_use]
pub fn pin(gate: GateId) -> String {
    format!("{PINS}{gate}")
}

/// The ref that keeps what merging by line made for a gate, as long as it waits.
#[must_use]
pub fn merged(gate: GateId) -> String {
    format!("{MERGED}{gate}")
}

/// The ref that keeps the meta of `name` reachable for stock git: `refs/nas/meta/<branch>` for a branch,
/// `refs/nas/meta/nas/…` for our other refs.
pub(crate) fn meta_of(name: &str) -> Option<String> {
    if name.starts_with(META) {
        return None;
    }
    let rest = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/"))?;
    Some(format!("{META}{rest}"))
}

/// What a ref must hold for a move to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Anything or nothing.
    Any,
    /// It does not exist.
    Absent,
    /// Exactly this.
    At(Oid),
}

impl Expect {
    fn allows(self, found: Option<Oid>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::At(oid) => found == Some(oid),
        }
    }
}

/// A legal, unambiguous ref name under `refs/`: letters, digits and `._+-`, no part that git would refuse.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let legal_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && !part.ends_with(".lock")
            && !part.contains("..")
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b))
    };
    let legal = name.len() <= 255
        && name.starts_with("refs/")
        && name.split('/').count() >= 3
        && name.split('/').all(legal_part);
    if legal { Ok(()) } else { Err(HistoryError::RefName(name.to_owned())) }
}

/// Reads one ref.
pub(crate) fn get(repo: &Path, name: &str) -> Result<Option<Oid>> {
    check_name(name)?;
    let path = repo.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let parsed = text.trim_end().parse();
            let damaged = |_| HistoryError::io("parse", &path)(std::io::Error::from(ErrorKind::InvalidData));
            parsed.map(Some).map_err(damaged)
        }
        Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory) => {
            Ok(packed(repo)?.remove(name))
        }
        Err(err) => Err(HistoryError::io("read", &path)(err)),
    }
}

fn packed(repo: &Path) -> Result<BTreeMap<String, Oid>> {
    let path = repo.join("packed-refs");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(err) => return Err(HistoryError::io("read", &path)(err)),
    };
    let pairs = text.lines().filter(|line| !line.starts_with(['#', '^'])).filter_map(|line| line.split_once(' '));
    Ok(pairs.filter_map(|(oid, name)| Some((name.to_owned(), oid.parse().ok()?))).collect())
}

/// All refs whose name starts with `prefix`, sorted.
pub(crate) fn list(repo: &Path, prefix: &str) -> Result<BTreeMap<String, Oid>> {
    let mut found = packed(repo)?;
    let mut dirs = vec![repo.join("refs")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).map_err(HistoryError::io("list", &dir))? {
            let entry = entry.map_err(HistoryError::io("list", &dir))?;
            let path = entry.path();
            if entry.file_type().map_err(HistoryError::io("stat", &path))?.is_dir() {
                dirs.push(path);
                continue;
            }
            let name = path.strip_prefix(repo).ok().and_then(Path::to_str).unwrap_or_default();
            if check_name(name).is_ok()
                && let Some(oid) = get(repo, name)?
            {
                found.insert(name.to_owned(), oid);
            }
        }
    }
    found.retain(|name, _| name.starts_with(prefix));
    Ok(found)
}

/// A ref about to move: its lock is written and synced.
struct Locked {
    path: PathBuf,
    /// `None` once renamed: from then on a lock of that name is someone else's.
    lock: Option<PathBuf>,
    name: String,
}

impl Locked {
    fn rename(&mut self) -> Result<()> {
        let Some(lock) = self.lock.take() else { return Ok(()) };
        let renamed = std::fs::rename(&lock, &self.path);
        if renamed.is_err() {
            self.lock = Some(lock);
        }
        renamed.map_err(|err| match err.kind() {
            // Other refs live below a directory of this name.
            ErrorKind::IsADirectory | ErrorKind::DirectoryNotEmpty => {
                HistoryError::RefLocked { name: self.name.clone() }
            }
            _ => HistoryError::io("rename to", &self.path)(err),
        })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            let _ = std::fs::remove_file(lock);
        }
    }
}

/// Moves or creates refs, durably when this returns, in the order given; each must hold what is expected of it.
/// The syncs of all of them run side by side. The caller holds the process's ref lock.
pub(crate) fn set(repo: &Path, moves: &[(&str, Oid, Expect)]) -> Result<()> {
    for (name, _, _) in moves {
        check_name(name)?;
    }
    let mut locked = side_by_side(moves, |(name, new, _)| {
        let path = repo.join(name);
        make_dirs(repo, &path)?;
        let lock = take_lock(&path, name, Some(*new))?;
        Ok(Locked { path, lock: Some(lock), name: (*name).to_owned() })
    })?;
    failpoint::hit("history.ref.synced");
    for (name, _, expect) in moves {
        check_expected(repo, name, *expect)?;
    }
    for locked in &mut locked {
        locked.rename()?;
        failpoint::hit("history.ref.renamed");
    }
    side_by_side(&locked, |locked| sync_dir(locked.path.parent().unwrap_or(repo)))?;
    failpoint::hit("history.ref.durable");
    Ok(())
}

/// Calls `act` for all items at once, one thread each (there are two at most), and returns the first failure.
fn side_by_side<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let [first, rest @ ..] = items else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let act = &act;
        let others: Vec<_> = rest.iter().map(|item| scope.spawn(move || act(item))).collect();
        let mut results = vec![act(first)];
        for other in others {
            results.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results.into_iter().collect()
    })
}

/// Does the ref hold what the caller expects?
pub(crate) fn check_expected(repo: &Path, name: &str, expect: Expect) -> Result<()> {
    let found = get(repo, name)?;
    if expect.allows(found) {
        return Ok(());
    }
    let show = |oid: Option<Oid>| oid.map_or("absent".to_owned(), |oid| format!("at {oid}"));
    let expected = if let Expect::At(oid) = expect { Some(oid) } else { None };
    Err(HistoryError::RefMoved { name: name.to_owned(), expected: show(expected), found: show(found) })
}

/// Deletes a ref, durably, if it holds what is expected. Absent is fine when anything is.
pub(crate) fn delete(repo: &Path, name: &str, expect: Expect) -> Result<()> {
    check_name(name)?;
    check_expected(repo, name, expect)?;
    let path = repo.join(name);
    let mut all = packed(repo)?;
    if all.remove(name).is_some() {
        // First out of packed-refs: the other way round a crash would bring an old value back.
        let target = repo.join("packed-refs");
        let lock = take_lock(&target, name, None)?;
        let text: String = all.iter().map(|(name, oid)| format!("{oid} {name}\n")).collect();
        let written = std::fs::write(&lock, text).and_then(|()| std::fs::File::open(&lock)?.sync_all());
        written.and_then(|()| std::fs::rename(&lock, &target)).map_err(HistoryError::io("write", &lock))?;
        sync_dir(repo)?;
    }
    match std::fs::remove_file(&path) {
        Ok(()) => {
            failpoint::hit("history.ref.removed");
            sync_dir(path.parent().unwrap_or(repo))
        }
        Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory) => {
            Ok(())
        }
        Err(err) => Err(HistoryError::io("remove", &path)(err)),
    }
}

/// Makes the directories above a ref, each durable in its parent.
fn make_dirs(repo: &Path, path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(repo);
    let missing: Vec<_> = dir.ancestors().take_while(|dir| *dir != repo && !dir.is_dir()).collect();
    for dir in missing.into_iter().rev() {
        match std::fs::create_dir(dir) {
            // The other ref of the same move made it.
            Err(err) if err.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(HistoryError::io("create", dir))?,
        }
        sync_dir(dir.parent().unwrap_or(repo))?;
    }
    Ok(())
}

fn take_lock(path: &Path, name: &str, content: Option<Oid>) -> Result<PathBuf> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let lock = PathBuf::from(lock);
    let mut file = match OpenOptions::new().write(true).create_new(true).open(&lock) {
        Ok(file) => file,
        Err(err) if err.kind() == ErrorKind::AlreadyExists => {
            return Err(HistoryError::RefLocked { name: name.to_owned() });
        }
        Err(err) => return Err(HistoryError::io("create", &lock)(err)),
    };
    if let Some(oid) = content
        && let Err(err) = writeln!(file, "{oid}").and_then(|()| file.sync_all())
    {
        let _ = std::fs::remove_file(&lock);
        return Err(HistoryError::io("write", &lock)(err));
    }
    Ok(lock)
}

/// Removes locks that a crash left.
pub(crate) fn clean(repo: &Path) -> Result<()> {
    let mut dirs = vec![repo.join("refs")];
    let _ = std::fs::remove_file(repo.join("packed-refs.lock"));
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).map_err(HistoryError::io("list", &dir))? {
            let path = entry.map_err(HistoryError::io("list", &dir))?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|ext| ext == "lock") {
                std::fs::remove_file(&path).map_err(HistoryError::io("remove", &path))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no name that is an option, a lock, or leaves the refs directory.
    #[test]
    fn names() {
        for good in ["refs/heads/main", "refs/heads/cleo/run_23456789abcd", "refs/nas/pin/gt_23456789abcd"] {
            check_name(good).unwrap();
        }
        for bad in [
            "main",
            "refs/heads",
            "refs/heads/../x",
            "refs/heads/--exec=x",
            "refs/heads/a.lock",
            "refs/heads//a",
            "refs/heads/a b",
            "/refs/heads/a",
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
