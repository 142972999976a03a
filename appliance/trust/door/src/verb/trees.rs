//! `tree/create`, `tree/show`, `tree/remove`, `tree/restore`: the trees themselves. What is in the protected one is in
//! [`super::tree`].

use std::collections::HashSet;

use nas_ledger::{LedgerError, NewRecord, RunRow, TreeRow};
use nas_policy::{Act, Effect, PolicyRequest, Subject, Target};
use nas_trust_core::degradation::VerbClass;
use nas_types::id::LeaseId;
use nas_types::lease::TreeName;
use nas_types::secret::Secret;
use nas_types::verb::{TreeCreate, TreeInfo, TreeRemove, TreeRestore, TreeShow, Trees};

use crate::caller::Who;
use crate::inner::Inner;
use crate::lease::Standing;
use crate::{Caller, Door, DoorError, DoorVerb};

/// Unprotected trees of one box, removed ones included.
const TREES_MAX: usize = 256;

impl DoorVerb for TreeCreate {
    const CLASS: VerbClass = VerbClass::OpenRun;

    fn run(self, door: &Door, caller: &Caller) -> Result<TreeInfo, DoorError> {
        let decision = door.may_manage_trees(caller, &self.passphrase)?;
        let _one_at_a_time = door.inner.trees.lock();
        let known = door.inner.ledger.read(|reader| reader.all::<TreeRow>()).map_err(DoorError::Ledger)?;
        if let Some(row) = known.iter().find(|row| row.name == self.tree) {
            return Err(DoorError::State(if row.removed_at.is_some() {
                format!("a removed tree {} is kept: 'nas tree restore {0}' brings it back", self.tree)
            } else {
                format!("the tree {} exists already", self.tree)
            }));
        }
        if self.tree.is_protected() {
            return Err(DoorError::State(format!("the tree {} is the protected one: it is always there", self.tree)));
        }
        if known.len() >= TREES_MAX {
            return Err(DoorError::State(format!("there are {TREES_MAX} trees, as many as a box keeps")));
        }
        let inner = &door.inner;
        let now = inner.clocks.wall();
        let record = |record: NewRecord| {
            let detail = serde_json::json!({ "tree": self.tree, "protected": false });
            Inner::by_rule(NewRecord { principal: Some(caller.name()), detail, ..record }, &decision)
        };
        let intent = NewRecord::intent("tree.create", now);
        let intent = inner.ledger.write(|tx| tx.append(&record(intent))).map_err(DoorError::Ledger)?;
        if let Err(error) = inner.store.create_tree(&self.tree) {
            inner.aborted("tree.create", intent.seq, &error.to_string());
            return Err(crate::store_error("making a tree", error));
        }
        nas_types::failpoint::hit("door.tree.made");
        let row = TreeRow { name: self.tree.clone(), created_at: now, removed_at: None };
        let written = inner.ledger.write(|tx| {
            tx.insert(&row)?;
            tx.append(&record(NewRecord::outcome("tree.create", now, intent.seq)))
        });
        if let Err(error) = written {
            // Nobody knows of it yet.
            if let Err(error) = inner.store.discard_empty_tree(&self.tree) {
                tracing::error!(%error, tree = %self.tree, "a tree that was not recorded could not be removed");
            }
            inner.aborted("tree.create", intent.seq, &error.to_string());
            return Err(DoorError::Ledger(error));
        }
        Ok(door.tree_info(row))
    }
}

impl DoorVerb for TreeShow {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Trees, DoorError> {
        let rows = door.inner.ledger.read(|reader| reader.all::<TreeRow>()).map_err(DoorError::Ledger)?;
        let protected = TreeInfo {
            tree: TreeName::protected(),
            protected: true,
            engine: door.inner.store.engine_name().to_owned(),
            state: "live".to_owned(),
            created_at: None,
            gone_at: None,
        };
        let known = |tree: &TreeName| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(lease) => *tree == lease.run.tree_name() || tree.is_protected(),
            Who::Anonymous { .. } => false,
        };
        let infos = [protected].into_iter().chain(rows.into_iter().map(|row| door.tree_info(row)));
        let wanted = |info: &TreeInfo| known(&info.tree) && self.tree.as_ref().is_none_or(|tree| *tree == info.tree);
        let trees: Vec<_> = infos.filter(wanted).collect();
        match self.tree {
            Some(tree) if trees.is_empty() => Err(door.not_known_to(caller, "tree", tree.to_string())),
            _ => Ok(Trees { trees }),
        }
    }
}

impl DoorVerb for TreeRemove {
    const CLASS: VerbClass = VerbClass::Narrow;

    fn run(self, door: &Door, caller: &Caller) -> Result<TreeInfo, DoorError> {
        let decision = door.may_manage_trees(caller, &self.passphrase)?;
        let (inner, now) = (&door.inner, door.inner.clocks.wall());
        let _one_at_a_time = inner.trees.lock();
        let row = door.tree_row(&self.tree)?;
        if row.removed_at.is_some() {
            return Err(DoorError::State(format!("the tree {} is removed already", self.tree)));
        }
        let over = inner.leases_over();
        let row = TreeRow { removed_at: Some(now), ..row };
        let detail = serde_json::json!({ "tree": self.tree });
        let event = NewRecord { principal: Some(caller.name()), detail, ..NewRecord::event("tree.remove", now) };
        let written = inner.ledger.write_essential(|tx| {
            // In the transaction: a lease that is being issued is in the ledger already, or finds the tree removed.
            let mut leases = 0;
            for lease in tx.leases_usable()?.into_iter().filter(|lease| !over.contains(&lease.id)) {
                leases += usize::from(tx.need::<RunRow>(&lease.run)?.tree.as_ref() == Some(&self.tree));
            }
            if leases > 0 {
                return Ok(Err(leases));
            }
            tx.update(&row)?;
            tx.append(&Inner::by_rule(event.clone(), &decision))?;
            Ok::<_, LedgerError>(Ok(()))
        });
        written.map_err(DoorError::Ledger)?.map_err(|leases| {
            DoorError::State(format!(
                "{leases} lease(s) give access to the tree {}: revoke them first ('nas lease list')",
                self.tree
            ))
        })?;
        // Those of leases that are over still read for a while.
        for mount in inner.mounts.read().values() {
            if mount.lease.run.tree.as_ref() == Some(&self.tree) {
                mount.end();
            }
        }
        inner.store.close_tree(&self.tree);
        Ok(door.tree_info(row))
    }
}

impl DoorVerb for TreeRestore {
    const CLASS: VerbClass = VerbClass::OpenRun;

    fn run(self, door: &Door, caller: &Caller) -> Result<TreeInfo, DoorError> {
        let decision = door.may_manage_trees(caller, &self.passphrase)?;
        let (inner, now) = (&door.inner, door.inner.clocks.wall());
        let _one_at_a_time = inner.trees.lock();
        let row = door.tree_row(&self.tree)?;
        if row.removed_at.is_none() {
            return Err(DoorError::State(format!("the tree {} is not removed", self.tree)));
        }
        inner.store.open_tree(&self.tree).map_err(|error| crate::store_error("opening a tree", error))?;
        let row = TreeRow { removed_at: None, ..row };
        let detail = serde_json::json!({ "tree": self.tree });
        let event = NewRecord { principal: Some(caller.name()), detail, ..NewRecord::event("tree.restore", now) };
        let written = inner.ledger.write(|tx| {
            tx.update(&row)?;
            tx.append(&Inner::by_rule(event.clone(), &decision))
        });
        if let Err(error) = written {
            inner.store.close_tree(&self.tree);
            return Err(DoorError::Ledger(error));
        }
        Ok(door.tree_info(row))
    }
}

impl Door {
    fn may_manage_trees(&self, caller: &Caller, passphrase: &Secret) -> Result<nas_policy::Decision, DoorError> {
        let owner = caller.owner()?;
        self.check_passphrase(passphrase)?;
        let subject = Subject::owner(owner).with_passphrase();
        let decision = self.inner.policy.evaluate(&PolicyRequest::new(subject, Act::ManageTrees, Target::Box));
        if decision.effect == Effect::Allow { Ok(decision) } else { Err(crate::denied(&decision)) }
    }

    fn tree_row(&self, tree: &TreeName) -> Result<TreeRow, DoorError> {
        let row = self.inner.ledger.read(|reader| reader.get::<TreeRow>(tree)).map_err(DoorError::Ledger)?;
        row.ok_or_else(|| match tree.is_protected() {
            true => DoorError::State(format!("the tree {tree} is the protected one: it cannot be removed")),
            false => DoorError::NotFound { what: "tree", name: tree.to_string() },
        })
    }

    fn tree_info(&self, row: TreeRow) -> TreeInfo {
        let state = match (row.removed_at, self.inner.store.tree(&row.name)) {
            (Some(_), _) => "removed",
            (None, Some(_)) => "live",
            (None, None) => "missing",
        };
        TreeInfo {
            tree: row.name,
            protected: false,
            engine: self.inner.store.engine_name().to_owned(),
            state: state.to_owned(),
            created_at: Some(row.created_at),
            gone_at: row.removed_at.map(|at| at.plus_ms(self.inner.options.trash_ms)),
        }
    }
}

impl Inner {
    /// At start: what the ledger says of trees holds. A directory that it does not know was being made when the box stopped,
    /// and goes if it is empty; with something in it, it is left alone and not served.
    pub(crate) fn settle_trees(&self) -> Result<(), DoorError> {
        for name in self.store.trees() {
            let row = self.ledger.read(|reader| reader.get::<TreeRow>(&name)).map_err(DoorError::Ledger)?;
            match row {
                Some(row) if row.removed_at.is_none() => {}
                Some(_) => self.store.close_tree(&name),
                None => {
                    let gone = self.store.discard_empty_tree(&name);
                    if !gone.map_err(|error| crate::store_error("removing an unfinished tree", error))? {
                        tracing::error!(%name, "the ledger knows no such tree: its files are left as they are, and not served");
                        self.store.close_tree(&name);
                    }
                }
            }
        }
        Ok(())
    }

    /// Removed trees whose days in the trash are over go for good.
    pub(crate) fn expire_trees(&self) -> Result<(), DoorError> {
        let now = self.now();
        if !now.trusted {
            return Ok(());
        }
        let _one_at_a_time = self.trees.lock();
        for row in self.ledger.read(|reader| reader.all::<TreeRow>()).map_err(DoorError::Ledger)? {
            if row.removed_at.is_none_or(|at| now.wall < at.plus_ms(self.options.trash_ms)) {
                continue;
            }
            let record = |record: NewRecord| NewRecord {
                principal: Some("svc:upkeep".to_owned()),
                detail: serde_json::json!({ "tree": row.name }),
                ..record
            };
            let intent = NewRecord::intent("tree.expire", now.wall);
            let intent = self.ledger.write(|tx| tx.append(&record(intent))).map_err(DoorError::Ledger)?;
            if let Err(error) = self.store.delete_tree(&row.name) {
                tracing::error!(%error, tree = %row.name, "an expired tree could not be deleted; it is tried again");
                self.aborted("tree.expire", intent.seq, &error.to_string());
                continue;
            }
            // The row goes last: until then its name is taken, and a crash leaves what the next look at the time finishes.
            let written = self.ledger.write(|tx| {
                tx.delete::<TreeRow>(&row.name)?;
                tx.append(&record(NewRecord::outcome("tree.expire", now.wall, intent.seq)))
            });
            written.map_err(DoorError::Ledger)?;
        }
        Ok(())
    }

    /// Leases that give nothing any more: the ledger learns of it only within a minute.
    fn leases_over(&self) -> HashSet<LeaseId> {
        let boottime_ms = self.clocks.boottime_ms();
        let leases = self.leases.read();
        let over = leases
            .values()
            .filter(|lease| matches!(lease.standing(boottime_ms), Standing::Over { .. } | Standing::Revoked));
        over.map(|lease| lease.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::path::Path;
    use std::sync::Arc;

    use nas_ledger::{Anchor, Ledger};
    use nas_store::{Options, Reserve, Store};
    use nas_testkit::Scratch;
    use nas_trust_core::clock::BootId;
    use nas_types::time::Timestamp;
    use nas_types::verb::OwnerInit;

    use super::*;
    use crate::{Clocks, DoorOptions};

    /// Clocks that stand still, this many days after the first start.
    #[derive(Debug)]
    struct Day(i64);

    const DAY_MS: i64 = 24 * 3_600_000;

    impl Clocks for Day {
        fn wall(&self) -> Timestamp {
            Timestamp(1_790_000_000_000 + self.0 * DAY_MS)
        }
        fn boottime_ms(&self) -> i64 {
            DAY_MS + self.0 * DAY_MS
        }
        fn boot_id(&self) -> BootId {
            BootId(1)
        }
        fn synchronised(&self) -> bool {
            true
        }
    }

    fn open(dir: &Path, day: i64) -> Door {
        let pool = dir.join("pool");
        std::fs::create_dir_all(&pool).unwrap();
        let ledger = Ledger::open(&dir.join("ledger.db"), nas_ledger::Options { ballast_bytes: 64 << 10 }).unwrap();
        let anchor = Anchor::open(&dir.join("anchor.log")).unwrap();
        let options = Options { reserve: Reserve { percent: 1, bytes_min: 1 << 20 }, ..Options::default() };
        let store = Store::open(&pool, crate::pointer(&ledger).unwrap(), options).unwrap();
        let nfs = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);
        let options = DoorOptions::new(nfs, dir.join("owner.bootstrap"));
        Door::open_with_clocks(ledger, anchor, store, options, Arc::new(Day(day))).unwrap()
    }

    fn passphrase() -> Secret {
        Secret::new("correct horse battery staple".to_owned())
    }

    fn caller(door: &Door, token: Option<&Secret>) -> Caller {
        door.authenticate(token.map(Secret::reveal), IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()
    }

    fn states(door: &Door, owner: &Secret) -> Vec<(String, String)> {
        let shown = door.call(&caller(door, Some(owner)), TreeShow::default()).unwrap().trees;
        shown.into_iter().map(|tree| (tree.tree.to_string(), tree.state)).collect()
    }

    /// Goal: a removed tree stays as long as the trash does, then it is gone with its files and its name is free; one that was
    /// restored in between is never touched, and a deletion that a crash cut short is finished.
    #[test]
    fn removed_trees_go_with_the_trash() {
        let scratch = Scratch::new("trees");
        let door = open(scratch.path(), 0);
        let bootstrap = std::fs::read_to_string(door.offer_bootstrap().unwrap().unwrap()).unwrap();
        let init = OwnerInit { bootstrap: Secret::new(bootstrap.trim().to_owned()), passphrase: passphrase() };
        let owner = door.call(&caller(&door, None), init).unwrap().token;
        let act = |door: &Door, name: &str, verb: fn(TreeName, Secret) -> Verbs| {
            let (tree, by) = (name.parse().unwrap(), caller(door, Some(&owner)));
            match verb(tree, passphrase()) {
                Verbs::Create(verb) => door.call(&by, verb),
                Verbs::Remove(verb) => door.call(&by, verb),
                Verbs::Restore(verb) => door.call(&by, verb),
            }
            .unwrap()
        };
        for name in ["gone", "cut", "back"] {
            act(&door, name, |tree, passphrase| Verbs::Create(TreeCreate { tree, passphrase }));
            std::fs::write(scratch.path().join("pool/tree").join(name).join("file"), b"x").unwrap();
            act(&door, name, |tree, passphrase| Verbs::Remove(TreeRemove { tree, passphrase }));
        }
        act(&door, "back", |tree, passphrase| Verbs::Restore(TreeRestore { tree, passphrase }));
        door.inner.expire_trees().unwrap();
        drop(door);

        let door = open(scratch.path(), 6);
        door.inner.expire_trees().unwrap();
        let state = |name: &str, state: &str| (name.to_owned(), state.to_owned());
        let kept = [state("nas", "live"), state("back", "live"), state("cut", "removed"), state("gone", "removed")];
        assert_eq!(states(&door, &owner), kept);
        assert!(scratch.path().join("pool/tree/gone/file").exists());
        // What a crash between the files and the row leaves.
        door.inner.store.delete_tree(&"cut".parse().unwrap()).unwrap();
        drop(door);

        let door = open(scratch.path(), 8);
        door.inner.expire_trees().unwrap();
        assert_eq!(states(&door, &owner), kept[..2]);
        assert!(!scratch.path().join("pool/tree/gone").exists());
        assert!(scratch.path().join("pool/tree/back/file").exists());
        for name in ["gone", "cut"] {
            act(&door, name, |tree, passphrase| Verbs::Create(TreeCreate { tree, passphrase }));
            assert!(!scratch.path().join("pool/tree").join(name).join("file").exists());
        }
    }

    enum Verbs {
        Create(TreeCreate),
        Remove(TreeRemove),
        Restore(TreeRestore),
    }
}
