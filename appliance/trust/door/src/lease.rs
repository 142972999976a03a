//! The hot part of leases and runs: what every file operation checks, in memory and mostly in atomics. The ledger holds
//! the durable part; [`crate::authority`] keeps the two together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use nas_trust_core::clock::Now;
use nas_trust_core::lease_time::{LeaseClock, LeaseTime};
use nas_trust_core::read_manifest::Version;
use nas_trust_core::{ActionSet, PathSet, ReadManifest};
use nas_types::id::{LeaseId, RunId};
use nas_types::lease::{BranchName, TreeName};
use nas_types::object::{Oid, Provenance};
use nas_types::path::TreePath;
use nas_types::time::Timestamp;
use parking_lot::Mutex;

/// A run: what its leases share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    /// The unprotected tree it works on; `None`: its branch of the protected one.
    pub(crate) tree: Option<TreeName>,
    /// Its name as `<role>/<run>`; there is such a branch unless the run works on an unprotected tree.
    pub(crate) branch: BranchName,
    pub(crate) principal: String,
    pub(crate) on_behalf_of: Option<String>,
    pub(crate) purpose: Option<String>,
    /// What it read (SPEC REC-2). Written to the ledger each minute and at each propose.
    pub(crate) manifest: Mutex<ReadManifest>,
    /// The manifest has lines that the ledger does not have.
    pub(crate) manifest_dirty: AtomicBool,
}

impl Run {
    /// The tree it works on.
    pub(crate) fn tree_name(&self) -> TreeName {
        self.tree.clone().unwrap_or_else(TreeName::protected)
    }

    /// Adds the tree to the detail of a record, where it is not the protected one.
    pub(crate) fn in_detail(&self, detail: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        let Some(tree) = &self.tree else { return detail };
        match detail {
            Value::Null => serde_json::json!({ "tree": tree }),
            Value::Object(mut fields) => {
                fields.insert("tree".to_owned(), serde_json::json!(tree));
                Value::Object(fields)
            }
            other => other,
        }
    }

    /// Its branch as the API shows it.
    pub(crate) fn branch_name(&self) -> Option<BranchName> {
        self.tree.is_none().then(|| self.branch.clone())
    }

    /// Notes files that were read as a whole other than through a mount (SPEC REC-2).
    pub(crate) fn read_whole<'a>(&self, files: impl Iterator<Item = (&'a TreePath, Oid, Oid)>) {
        let mut manifest = self.manifest.lock();
        for (path, commit, content) in files {
            manifest.note_whole(path, Version { commit: Some(commit), content: Some(content) });
            self.manifest_dirty.store(true, Ordering::Release);
        }
    }
}

/// Does a lease still give authority?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Yes.
    Live,
    /// Not until the clock can be trusted again (DESIGN §4, time).
    Suspended,
    /// Its time is over since this many milliseconds.
    Over { since_ms: i64 },
    /// It was revoked.
    Revoked,
}

/// A lease.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) run: Arc<Run>,
    pub(crate) parent: Option<LeaseId>,
    pub(crate) paths: PathSet,
    pub(crate) actions: ActionSet,
    pub(crate) created_at: Timestamp,
    /// Its purpose: a child may state its own.
    pub(crate) purpose: Option<String>,
    clock: Mutex<LeaseClock>,
    stored: Mutex<LeaseClock>,
    /// Where CLOCK_BOOTTIME ends it; [`SUSPENDED`] while that cannot be said.
    ends_boottime_ms: AtomicI64,
    revoked: AtomicBool,
}

const SUSPENDED: i64 = i64::MAX;

impl Lease {
    #[allow(clippy::too_many_arguments, reason = "a row of the ledger, made in two places")]
    pub(crate) fn new(
        id: LeaseId,
        run: Arc<Run>,
        parent: Option<LeaseId>,
        (paths, actions): (PathSet, ActionSet),
        created_at: Timestamp,
        purpose: Option<String>,
        clock: LeaseClock,
        revoked: bool,
        now: &Now,
    ) -> Self {
        let lease = Self {
            id,
            run,
            parent,
            paths,
            actions,
            created_at,
            purpose,
            clock: Mutex::new(clock),
            stored: Mutex::new(clock),
            ends_boottime_ms: AtomicI64::new(SUSPENDED),
            revoked: AtomicBool::new(revoked),
        };
        lease.refresh(now);
        lease
    }

    /// What the lease is worth at this CLOCK_BOOTTIME.
    pub(crate) fn standing(&self, boottime_ms: i64) -> Standing {
        if self.revoked.load(Ordering::Acquire) {
            return Standing::Revoked;
        }
        match self.ends_boottime_ms.load(Ordering::Acquire) {
            SUSPENDED => Standing::Suspended,
            ends if boottime_ms < ends => Standing::Live,
            ends => Standing::Over { since_ms: boottime_ms.saturating_sub(ends) },
        }
    }

    /// The lease's own state machine, for its stored form and for children.
    pub(crate) fn clock(&self) -> LeaseClock {
        *self.clock.lock()
    }

    /// Counts the time used so far into the stored form: called each minute, and when trust in the clock changes.
    pub(crate) fn refresh(&self, now: &Now) -> LeaseClock {
        let mut clock = self.clock.lock();
        *clock = clock.rebased(now);
        let ends = clock.ends_at_boottime_ms(now).unwrap_or(SUSPENDED);
        // Once over, the moment it ended stays known: reads go on for a grace period after it.
        if ends != i64::MIN || self.ends_boottime_ms.load(Ordering::Acquire) == SUSPENDED {
            self.ends_boottime_ms.store(ends, Ordering::Release);
        }
        *clock
    }

    /// Its time as the ledger has it.
    pub(crate) fn stored(&self) -> LeaseClock {
        *self.stored.lock()
    }

    /// The ledger has this now.
    pub(crate) fn was_stored(&self, clock: LeaseClock) {
        *self.stored.lock() = clock;
    }

    /// Ends it before its time, as time would (its proposals stay to be decided).
    pub(crate) fn expire(&self, now: &Now) -> LeaseClock {
        let mut clock = self.clock.lock();
        *clock = LeaseClock { remaining_ms: 0, ..clock.rebased(now) };
        self.ends_boottime_ms.fetch_min(now.boottime_ms, Ordering::AcqRel);
        *clock
    }

    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    /// The revocation could not be recorded and so did not happen (SPEC REC-1).
    pub(crate) fn unrevoke(&self) {
        self.revoked.store(false, Ordering::Release);
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Milliseconds left, 0 when over, the stored remainder while suspended.
    pub(crate) fn remaining_ms(&self, now: &Now) -> i64 {
        let clock = self.clock.lock();
        match clock.at(now) {
            LeaseTime::Live { remaining_ms } => remaining_ms,
            LeaseTime::Suspended => clock.remaining_ms,
            LeaseTime::Expired => 0,
        }
    }

    /// The word of the API for its state.
    pub(crate) fn state(&self, boottime_ms: i64) -> &'static str {
        match self.standing(boottime_ms) {
            Standing::Live => "active",
            Standing::Suspended => "suspended",
            Standing::Over { .. } => "expired",
            Standing::Revoked => "revoked",
        }
    }

    /// What commits made under this lease carry (SPEC GIT-1).
    pub(crate) fn provenance(&self) -> Provenance {
        Provenance {
            principal: self.run.principal.clone(),
            on_behalf_of: self.run.on_behalf_of.clone(),
            run: self.run.id,
            lease: self.id,
            purpose: self.purpose.clone().or_else(|| self.run.purpose.clone()),
            read_manifest: None,
        }
    }
}
