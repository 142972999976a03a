//! Making, finding and ending mounts. They are kept in the ledger, so that handles go on after a restart (DESIGN §5).

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use nas_ledger::{LedgerError, MountRow, NewRecord};
use nas_types::fs::FsError;
use nas_types::id::MountId;
use nas_types::path::TreePath;

use crate::file::{MountFacts, Mounted};
use crate::inner::Inner;
use crate::lease::Standing;
use crate::{Door, DoorError};

/// Mounts of one lease at a time.
const MOUNTS_PER_LEASE_MAX: usize = 64;

impl Door {
    /// MNT: consumes `ticket` and makes a mount of `path` for `peer`, owned by `owner` (uid, gid). `path` is the path inside
    /// the tree, i.e. the export path without its first component (the ticket).
    ///
    /// NotFound: no such ticket, used, late, or the path is hidden. NotDir: the path is no directory. Access: the lease is
    /// over.
    pub fn mount(
        &self,
        ticket: &str,
        path: &TreePath,
        peer: IpAddr,
        owner: (u32, u32),
    ) -> Result<Arc<Mounted>, FsError> {
        let peer = peer.to_canonical();
        let Some(found) = self.inner.tickets.lock().consume(ticket, self.inner.clocks.boottime_ms()) else {
            self.refuse_unauthenticated("mount", "ticket", peer);
            return Err(FsError::NotFound);
        };
        let lease = self.inner.leases.read().get(&found.lease).cloned().ok_or(FsError::NotFound)?;
        // A ticket that was got in time gives no more than its lease does now.
        match lease.standing(self.inner.clocks.boottime_ms()) {
            Standing::Live => {}
            Standing::Suspended => return Err(FsError::Later),
            Standing::Over { .. } | Standing::Revoked => {
                self.inner.refused(&lease, "mount-lease-over", path);
                return Err(FsError::Access);
            }
        }
        let mounts = self.inner.mounts.read().values().filter(|mount| mount.lease() == lease.id).count();
        if mounts >= MOUNTS_PER_LEASE_MAX {
            return Err(FsError::Later);
        }
        let facts = MountFacts {
            id: MountId::random(),
            view: found.view,
            commit: found.commit,
            root_path: path.clone(),
            peer,
            owner,
            read_only: found.read_only,
        };
        let _known_in_time = facts.commit.map(|_| self.inner.mounting_commit.lock());
        let mounted = Mounted::open(Arc::clone(&self.inner), Arc::clone(&lease), facts.clone())?;
        let now = self.inner.clocks.wall();
        let row = MountRow {
            id: facts.id,
            lease: lease.id,
            view: facts.view,
            commit_oid: facts.commit,
            root: facts.root_path,
            peer: peer.to_string(),
            uid: owner.0,
            gid: owner.1,
            read_only: facts.read_only,
            created_at: now,
            ended_at: None,
        };
        let detail = serde_json::json!({ "mount": row.id, "view": row.view, "commit": row.commit_oid, "peer": row.peer, "read_only": row.read_only });
        let record = NewRecord { path: Some(path.clone()), detail, ..NewRecord::event("mount", now) };
        let written = self.inner.ledger.write(|tx| {
            tx.insert(&row)?;
            tx.append(&self.inner.by_lease(record, &lease))
        });
        written.map_err(|error| ledger_failed("mounting", &error))?;
        self.inner.mounts.write().insert(mounted.id(), Arc::clone(&mounted));
        self.inner.mounts_by_ticket.lock().put(*blake3::hash(ticket.as_bytes()).as_bytes(), mounted.id());
        Ok(mounted)
    }

    /// The mount with this id, also one made before a restart. `BadRef`: there is none, or it is another peer's.
    /// That its lease is over is no error here: each operation says so.
    pub fn mounted(&self, id: MountId, peer: IpAddr) -> Result<Arc<Mounted>, FsError> {
        let known = self.inner.mounts.read().get(&id).cloned();
        let mounted = match known {
            Some(mounted) => mounted,
            None => self.reopen(id)?,
        };
        if mounted.peer() == peer.to_canonical() { Ok(mounted) } else { Err(FsError::BadRef) }
    }

    fn reopen(&self, id: MountId) -> Result<Arc<Mounted>, FsError> {
        let row = self.inner.ledger.read(|reader| reader.get::<MountRow>(&id));
        let row = row.map_err(|error| ledger_failed("finding a mount", &error))?.ok_or(FsError::BadRef)?;
        if row.ended_at.is_some() {
            return Err(FsError::Stale);
        }
        let lease = self.inner.leases.read().get(&row.lease).cloned().ok_or(FsError::Stale)?;
        let facts = MountFacts {
            id,
            view: row.view,
            commit: row.commit_oid,
            root_path: row.root,
            peer: row.peer.parse().map_err(|_| FsError::BadRef)?,
            owner: (row.uid, row.gid),
            read_only: row.read_only,
        };
        let mounted = Mounted::open(Arc::clone(&self.inner), lease, facts).map_err(|_| FsError::Stale)?;
        // Two requests may come at once: one of the two values stays.
        Ok(Arc::clone(self.inner.mounts.write().entry(id).or_insert(mounted)))
    }

    /// UMNT of the mount whose ticket was `ticket`. A client that just goes away says nothing; then the mount ends with its
    /// lease or its branch.
    pub fn unmount(&self, ticket: &str, peer: IpAddr) {
        let key = *blake3::hash(ticket.as_bytes()).as_bytes();
        let Some(id) = self.inner.mounts_by_ticket.lock().pop(&key) else { return };
        let Some(mounted) = self.inner.mounts.read().get(&id).filter(|m| m.peer() == peer.to_canonical()).cloned()
        else {
            return;
        };
        mounted.end();
        let now = self.inner.clocks.wall();
        let ended = self.inner.ledger.write(|tx| {
            let row = tx.need::<MountRow>(&id)?;
            tx.update(&MountRow { ended_at: Some(now), ..row })?;
            let detail = serde_json::json!({ "mount": id });
            tx.append(&self.inner.by_lease(NewRecord { detail, ..NewRecord::event("unmount", now) }, &mounted.lease))
        });
        match ended {
            Ok(_) => drop(self.inner.mounts.write().remove(&id)),
            Err(error) => drop(ledger_failed("unmounting", &error)),
        }
    }
}

impl Inner {
    /// Commits that nobody looks at any more are given up.
    pub(crate) fn drop_views(&self) -> Result<(), DoorError> {
        let _one_at_a_time = self.mounting_commit.lock();
        let rows = self.ledger.read(|reader| reader.mounts_live()).map_err(DoorError::Ledger)?;
        let boottime_ms = self.clocks.boottime_ms();
        let (leases, grace_ms) = (self.leases.read(), self.options.read_grace_ms);
        let looked_at = rows.into_iter().filter(|row| {
            leases.get(&row.lease).is_some_and(|lease| match lease.standing(boottime_ms) {
                Standing::Live | Standing::Suspended => true,
                Standing::Over { since_ms } => since_ms < grace_ms,
                Standing::Revoked => false,
            })
        });
        let wanted: HashSet<_> = looked_at.filter_map(|row| row.commit_oid).collect();
        self.store.drop_views(|commit| wanted.contains(&commit)).map_err(|e| crate::store_error("giving up a view", e))
    }
}

fn ledger_failed(doing: &'static str, error: &LedgerError) -> FsError {
    tracing::error!(%error, doing, "the ledger failed");
    if error.is_full() { FsError::NoSpace } else { FsError::Io }
}
