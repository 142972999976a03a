//! `mount/…`.

use nas_trust_core::degradation::VerbClass;
use nas_types::lease::{TreeName, View};
use nas_types::object::Oid;
use nas_types::path::{Name, TreePath};
use nas_types::verb::{MountInfo, MountList, MountTicket, MountTicketAnswer, Mounts};

use crate::caller::Who;
use crate::lease::Lease;
use crate::ticket::TICKET_MS;
use crate::{Caller, Door, DoorError, DoorVerb};

impl DoorVerb for MountTicket {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<MountTicketAnswer, DoorError> {
        let lease = caller.lease()?;
        if self.view == View::Main {
            door.may_look_at_main(lease)?;
        }
        let commit = self.commit.as_deref().map(|text| door.commit_to_mount(lease, text)).transpose()?;
        let read_only = self.read_only || self.view == View::Main || commit.is_some();
        let boottime_ms = door.inner.clocks.boottime_ms();
        let ticket = door.inner.tickets.lock().issue(lease.id, self.view, read_only, commit, boottime_ms);
        Ok(MountTicketAnswer {
            ticket,
            port: door.inner.options.nfs.port(),
            root: common_dir(&lease.paths),
            expires_at: door.inner.clocks.wall().plus_ms(TICKET_MS),
            seconds: u64::try_from(TICKET_MS / 1000).unwrap_or(0),
        })
    }
}

impl Door {
    /// A commit of main, or of the run's own branch. Others are not to be reached from it.
    fn commit_to_mount(&self, lease: &Lease, text: &str) -> Result<Oid, DoorError> {
        let branch = self.branch(&lease.run)?;
        let commit = self.commit_named(text)?;
        let main = self.inner.store.main().pointer().commit;
        self.reachable(commit, main).or_else(|_| self.reachable(commit, branch.tip()))
    }
}

/// The deepest directory that holds all paths of a lease: what one wants to see as the root of the mount.
fn common_dir(paths: &nas_trust_core::PathSet) -> TreePath {
    let parents = paths.exact().iter().filter_map(|path| path.split_last().map(|(dir, _)| dir));
    let mut dirs = paths.subtrees().iter().cloned().chain(parents);
    let first = dirs.next().unwrap_or_default();
    dirs.fold(first, |common, dir| {
        let both = common.components().zip(dir.components()).take_while(|(a, b)| a == b);
        both.fold(TreePath::root(), |path, (part, _)| {
            let name = Name::new(part).expect("because it is a component of a legal path");
            path.join(name).expect("because it is a prefix of a legal path")
        })
    })
}

impl DoorVerb for MountList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Mounts, DoorError> {
        let rows = door.inner.ledger.read(|reader| reader.mounts_live()).map_err(DoorError::Ledger)?;
        let mine = rows.into_iter().filter(|row| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(lease) => row.lease == lease.id,
            Who::Anonymous { .. } => false,
        });
        let leases = door.inner.leases.read();
        let tree_of = |row: &nas_ledger::MountRow| {
            leases.get(&row.lease).map_or_else(TreeName::protected, |lease| lease.run.tree_name())
        };
        let mounts = mine.map(|row| MountInfo {
            tree: tree_of(&row),
            mount: row.id,
            lease: row.lease,
            view: row.view,
            commit: row.commit_oid,
            root: row.root,
            peer: row.peer,
            read_only: row.read_only,
            created_at: row.created_at,
        });
        Ok(Mounts { mounts: mounts.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nas_trust_core::PathSet;

    #[test]
    fn root_of_a_mount() {
        let root = |globs: &[&str]| common_dir(&PathSet::from_globs(globs).unwrap()).to_string();
        assert_eq!(root(&["/shared/launch/**"]), "/shared/launch");
        assert_eq!(root(&["/shared/launch/**", "/shared/launch-2/**"]), "/shared");
        assert_eq!(root(&["/agents/cleo/AGENTS.md"]), "/agents/cleo");
        assert_eq!(root(&["/a/**", "/b/c"]), "/");
        assert_eq!(root(&["/**"]), "/");
    }
}
