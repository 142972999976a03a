//! What is in a tree: `tree/list` and `tree/log`. (`tree/import` is in [`super::import`].)

use std::collections::BTreeMap;

use nas_history::CommitInfo as HistoryCommit;
use nas_trust_core::Visibility;
use nas_trust_core::degradation::VerbClass;
use nas_types::fs::{Attr, FileKind, FsError};
use nas_types::lease::{Action, View};
use nas_types::object::{EntryKind, Oid};
use nas_types::path::Name;
use nas_types::verb::{CommitInfo, TreeEntry, TreeList, TreeListing, TreeLog, TreeLogAnswer};

use super::{page, page_rows};
use crate::caller::Who;
use crate::lease::Lease;
use crate::{Caller, Door, DoorError, DoorVerb, card};

/// Entries of a live directory that are read at a time.
const READDIR_ENTRIES: usize = 1024;
/// Commits of one page when nothing is said.
const LOG_ROWS_DEFAULT: u32 = 50;

impl DoorVerb for TreeList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<TreeListing, DoorError> {
        if let (View::Branch, Who::Lease(lease)) = (self.view, &caller.0)
            && lease.run.tree.is_some()
        {
            return list_unprotected(&self, door, lease);
        }
        let head = door.head_of(caller, self.view)?;
        let commit = match self.commit {
            None => head,
            Some(commit) => door.reachable(door.commit_named(&commit)?, head)?,
        };
        let hidden = || DoorError::NotFound { what: "directory", name: self.path.to_string() };
        let history = door.inner.store.history();
        let listed = history.list_dir(commit, &self.path).map_err(card::history_error("listing a directory"))?;
        let visible = |path: &nas_types::path::TreePath| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(lease) => lease.paths.visibility(path) != Visibility::Hidden,
            Who::Anonymous { .. } => false,
        };
        if !visible(&self.path) {
            return Err(hidden());
        }
        let entries = listed.ok_or_else(hidden)?.into_iter().filter_map(|(name, entry)| {
            let path = self.path.join(Name::new(&name).ok()?).ok()?;
            visible(&path).then(|| {
                let row = TreeEntry { path, kind: entry.kind, mode: entry.mode, size: entry.size };
                (row.path.to_string(), row)
            })
        });
        let (entries, cursor) = page(entries, self.cursor.as_deref(), self.limit)?;
        Ok(TreeListing { entries, cursor })
    }
}

/// Lists a directory of the unprotected tree that a run works on, as it is now.
fn list_unprotected(request: &TreeList, door: &Door, lease: &Lease) -> Result<TreeListing, DoorError> {
    let hidden = || DoorError::NotFound { what: "directory", name: request.path.to_string() };
    let Some(live) = lease.run.tree.as_ref().and_then(|tree| door.inner.store.tree(tree)) else {
        return Err(hidden());
    };
    if request.commit.is_some() {
        super::branch::run_has_branch(&lease.run)?;
    }
    if !lease.actions.contains(Action::List) {
        door.inner.refused(lease, "lease-action", &request.path);
        return Err(DoorError::Denied {
            rule: "lease-action".into(),
            reason: "the lease does not allow 'list'".to_owned(),
        });
    }
    if lease.paths.visibility(&request.path) == Visibility::Hidden {
        return Err(hidden());
    }
    let failed = |error| match error {
        FsError::NotFound | FsError::NotDir | FsError::Stale => hidden(),
        FsError::Later => DoorError::Busy { retry_after_seconds: 1 },
        error => DoorError::Store { doing: "listing a directory", source: Box::new(error) },
    };
    let at = live.locate_path(&request.path).map_err(failed)?;
    let mut visible = |name: &[u8]| lease.paths.child_visible(at.path.as_bytes(), name);
    let mut found = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let part = live.readdir(&at, cookie, READDIR_ENTRIES, true, &mut visible).map_err(failed)?;
        cookie = part.entries.last().map_or(cookie, |entry| entry.cookie);
        for entry in part.entries {
            let Some((name, node)) = Name::new(&entry.name).ok().zip(entry.node) else { continue };
            let Some(kind) = kind_of(&node.attr) else { continue };
            let Ok(path) = request.path.join(name) else { continue };
            let row = TreeEntry { path, kind, mode: node.attr.mode, size: node.attr.size };
            found.insert(row.path.to_string(), row);
        }
        if part.eof {
            break;
        }
    }
    let (entries, cursor) = page(found.into_iter(), request.cursor.as_deref(), request.limit)?;
    Ok(TreeListing { entries, cursor })
}

/// How a live file is listed; pipes and sockets are in no listing.
fn kind_of(attr: &Attr) -> Option<EntryKind> {
    match attr.kind {
        FileKind::File => Some(EntryKind::File),
        FileKind::Dir => Some(EntryKind::Dir),
        FileKind::Symlink => Some(EntryKind::Symlink),
        FileKind::Fifo | FileKind::Socket => None,
    }
}

impl DoorVerb for TreeLog {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<TreeLogAnswer, DoorError> {
        // Messages of main tell of other runs: a bearer sees its own branch, and nothing of where it was forked.
        let base = match (self.view, &caller.0) {
            (View::Main, _) => {
                caller.owner()?;
                None
            }
            (View::Branch, Who::Lease(lease)) => Some(door.branch(&lease.run)?.base()),
            (View::Branch, Who::Owner { .. } | Who::Anonymous { .. }) => None,
        };
        let most = page_rows(Some(self.limit.unwrap_or(LOG_ROWS_DEFAULT)))?;
        let head = door.head_of(caller, self.view)?;
        let from = match self.cursor.as_deref() {
            None => head,
            Some(text) => {
                let commit = text.parse().map_err(|_| DoorError::Invalid {
                    field: "cursor",
                    reason: "it is from an earlier answer".to_owned(),
                })?;
                let commit = door.reachable(commit, head)?;
                if let Some(base) = base {
                    // Not past the fork: main's line is not this bearer's.
                    door.reachable(base, commit)?;
                }
                commit
            }
        };
        // The first parents: on main one merge after the other, without the lines that were merged.
        let mut commits = Vec::new();
        let mut at = Some(from);
        while let Some(oid) = at.filter(|oid| commits.len() < most && Some(*oid) != base) {
            let commit = door.inner.store.history().commit_info(oid).map_err(card::history_error("reading the log"))?;
            at = commit.parents.first().copied();
            commits.push(info(commit));
        }
        let cursor = at.filter(|oid| Some(*oid) != base).map(|oid| oid.to_string());
        Ok(TreeLogAnswer { commits, cursor })
    }
}

/// A commit as the API shows it.
pub(super) fn info(commit: HistoryCommit) -> CommitInfo {
    CommitInfo {
        commit: commit.oid,
        summary: commit.message.lines().next().unwrap_or_default().to_owned(),
        time: commit.time,
        parents: commit.parents,
        trailers: commit.trailers,
    }
}

impl Door {
    /// The paths of a lease on an unprotected tree are paths of that tree: of main it may know nothing.
    pub(super) fn may_look_at_main(&self, lease: &Lease) -> Result<(), DoorError> {
        let Some(tree) = &lease.run.tree else { return Ok(()) };
        self.inner.refused(lease, "lease-tree", &nas_types::path::TreePath::root());
        Err(DoorError::Denied {
            rule: "lease-tree".into(),
            reason: format!("this lease is for the tree {tree}: it gives nothing of main"),
        })
    }

    /// The newest commit of what the caller may look at.
    fn head_of(&self, caller: &Caller, view: View) -> Result<Oid, DoorError> {
        match (view, &caller.0) {
            (View::Main, who) => {
                if let Who::Lease(lease) = who {
                    self.may_look_at_main(lease)?;
                }
                Ok(self.inner.store.main().pointer().commit)
            }
            (View::Branch, Who::Lease(lease)) => Ok(self.branch(&lease.run)?.tip()),
            (View::Branch, Who::Owner { .. } | Who::Anonymous { .. }) => Err(DoorError::Invalid {
                field: "view",
                reason: "the owner has no branch of its own: look at 'main', or use 'branch diff' with a run"
                    .to_owned(),
            }),
        }
    }

    /// `commit`, if `head` grew from it.
    pub(super) fn reachable(&self, commit: Oid, head: Oid) -> Result<Oid, DoorError> {
        let history = self.inner.store.history();
        let known = history.commit_info(commit).is_ok();
        if known && history.is_ancestor(commit, head).map_err(card::history_error("looking for a commit"))? {
            Ok(commit)
        } else {
            Err(DoorError::NotFound { what: "commit", name: commit.to_string() })
        }
    }
}
