//! Rows as plain structs. What each field means is decided elsewhere; here it is only kept.

use nas_trust_core::ActionSet;
use nas_trust_core::clock::BootId;
use nas_trust_core::gate::{GateDigest, GateState};
use nas_trust_core::lease_time::LeaseClock;
use nas_types::id::{GateId, LeaseId, MountId, RunId};
use nas_types::lease::{BranchName, RoleName, TreeName, View};
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::time::Timestamp;

pub use crate::column::{Column, Row};
use crate::column::{row, words};

words! {
    /// Kind of a principal (SPEC noun Principal).
    PrincipalKind {
        /// A person.
        Human = "human",
        /// An agent, by its role.
        Agent = "agent",
        /// A background job of the box.
        Service = "service",
        /// Another box.
        Node = "node",
    }
}

words! {
    /// What a token is for.
    TokenKind {
        /// Consumed at the owner's first sign-in.
        Bootstrap = "bootstrap",
        /// A signed-in owner.
        Owner = "owner",
    }
}

words! {
    /// Where a run stands.
    RunState {
        /// Under way.
        Active = "active",
        /// Over.
        Ended = "ended",
        /// Stopped: its branch takes no more writes (SPEC LEASE-3).
        Frozen = "frozen",
    }
}

words! {
    /// Where a lease stands, time aside.
    LeaseState {
        /// In force as far as its time goes.
        Active = "active",
        /// Revoked, itself or with an ancestor.
        Revoked = "revoked",
    }
}

words! {
    /// Where a branch stands.
    BranchState {
        /// Takes writes.
        Live = "live",
        /// Takes no more writes.
        Frozen = "frozen",
        /// Gone; its history may remain.
        Recycled = "recycled",
    }
}

words! {
    /// How far a call with an idempotency key came.
    AnswerState {
        /// It may have happened: nobody knows unless the answer was kept.
        Begun = "begun",
        /// It happened.
        Done = "done",
    }
}

row! {
    /// A call with an idempotency key, and its answer. Id, holder and request are keyed hashes whose key is only in the caller's
    /// token: whoever reads the ledger can guess neither the key nor what was sent.
    KeptAnswerRow in "kept_answers", key id: [u8; 32] {
        /// Hash of the verb and its key.
        id: [u8; 32],
        /// Hash of the token.
        holder: [u8; 32],
        /// Hash of the request.
        request: [u8; 32],
        /// When the call began.
        made_at: Timestamp,
        /// How far it came.
        state: AnswerState,
        /// The answer without its secrets, as JSON; none when it is not kept.
        answer: Option<String>,
    }
}

row! {
    /// Who can be held to account.
    PrincipalRow in "principals", key id: String {
        /// E.g. `human:owner`, `agent:cleo`.
        id: String,
        /// Kind.
        kind: PrincipalKind,
        /// When it was made.
        created_at: Timestamp,
        /// Passphrase hash of a person, in PHC form; never the passphrase.
        passphrase_hash: Option<String>,
        /// Since when it can do nothing.
        disabled_at: Option<Timestamp>,
    }
}

row! {
    /// A token other than a lease's, by its hash (DESIGN §4 "Tokens").
    TokenRow in "tokens", key token_hash: [u8; 32] {
        /// Hash of the token; the token itself is nowhere.
        token_hash: [u8; 32],
        /// What it is for.
        kind: TokenKind,
        /// Who it speaks for.
        principal: String,
        /// When it was made.
        created_at: Timestamp,
        /// When it ends.
        expires_at: Option<Timestamp>,
        /// Used up or revoked.
        revoked_at: Option<Timestamp>,
    }
}

row! {
    /// One execution (SPEC noun Run).
    RunRow in "runs", key id: RunId {
        /// Its id.
        id: RunId,
        /// Role it works for.
        role: RoleName,
        /// Who runs.
        principal: String,
        /// For whom.
        on_behalf_of: Option<String>,
        /// Why, as stated.
        purpose: Option<String>,
        /// Start.
        started_at: Timestamp,
        /// End.
        ended_at: Option<Timestamp>,
        /// Where it stands.
        state: RunState,
        /// The unprotected tree it works on; `None`: on a branch of the protected one.
        tree: Option<TreeName>,
    }
}

row! {
    /// An unprotected tree (DESIGN §3). The protected one has no row.
    TreeRow in "trees", key name: TreeName {
        /// Its name.
        name: TreeName,
        /// When it was made.
        created_at: Timestamp,
        /// Since when it is removed; its files go with the trash.
        removed_at: Option<Timestamp>,
    }
}

row! {
    /// The authority of a run (SPEC LEASE).
    LeaseRow in "leases", key id: LeaseId {
        /// Its id.
        id: LeaseId,
        /// Hash of its token.
        token_hash: [u8; 32],
        /// The run.
        run: RunId,
        /// Who acts.
        principal: String,
        /// For whom.
        on_behalf_of: Option<String>,
        /// The lease it was narrowed from.
        parent: Option<LeaseId>,
        /// Why, as stated.
        purpose: Option<String>,
        /// Paths, as globs.
        paths: Vec<String>,
        /// Actions.
        actions: ActionSet,
        /// The branch it works on.
        branch: BranchName,
        /// Files can only be read.
        read_only: bool,
        /// When it was issued.
        created_at: Timestamp,
        /// When it ends by the wall clock at issue.
        expires_at: Timestamp,
        /// What was left as of `boottime_ms` of boot `boot_id`.
        remaining_ms: i64,
        /// Which boot `boottime_ms` counts from.
        boot_id: BootId,
        /// `CLOCK_BOOTTIME` when `remaining_ms` was persisted.
        boottime_ms: i64,
        /// Where it stands, time aside.
        state: LeaseState,
        /// When it was revoked.
        revoked_at: Option<Timestamp>,
    }
}

impl LeaseRow {
    /// Its time, for decisions.
    #[must_use]
    pub fn clock(&self) -> LeaseClock {
        LeaseClock {
            expires_at: self.expires_at,
            remaining_ms: self.remaining_ms,
            boot_id: self.boot_id,
            boottime_ms: self.boottime_ms,
        }
    }
}

row! {
    /// One mount of one view (SPEC MOUNT-1).
    MountRow in "mounts", key id: MountId {
        /// Its id.
        id: MountId,
        /// Under which lease.
        lease: LeaseId,
        /// Of which view.
        view: View,
        /// The commit that it shows, instead of what the view is now.
        commit_oid: Option<Oid>,
        /// Directory that is its root.
        root: TreePath,
        /// Peer address it is bound to.
        peer: String,
        /// Owner everything appears to have.
        uid: u32,
        /// Group everything appears to have.
        gid: u32,
        /// Mounted read-only.
        read_only: bool,
        /// When it was made.
        created_at: Timestamp,
        /// When it ended.
        ended_at: Option<Timestamp>,
    }
}

row! {
    /// A question to a person (SPEC GATE).
    GateRow in "gates", key id: GateId {
        /// Its id.
        id: GateId,
        /// Who asks.
        run: RunId,
        /// Under which lease.
        lease: LeaseId,
        /// What is to be merged.
        branch: BranchName,
        /// Into what.
        target: String,
        /// Main when it was asked.
        base: Oid,
        /// The pinned commit of the branch.
        pin: Oid,
        /// What an approval is bound to.
        digest: GateDigest,
        /// Number of changes.
        changes: u64,
        /// Why, as stated.
        why: Option<String>,
        /// The Gate Card as it was computed, JSON.
        card: serde_json::Value,
        /// Where it stands.
        state: GateState,
        /// When it was asked.
        created_at: Timestamp,
        /// When it ends unanswered.
        expires_at: Timestamp,
        /// When it was decided.
        decided_at: Option<Timestamp>,
        /// By whom.
        decided_by: Option<String>,
        /// Why.
        reason: Option<String>,
        /// What the merge made.
        merge_commit: Option<Oid>,
        /// The fresh card that took its place.
        successor: Option<GateId>,
    }
}

row! {
    /// One state of main (DESIGN §3). The current one has the highest number.
    GenerationRow in "generations", key number: u64 {
        /// Its number, without gaps.
        number: u64,
        /// Its commit.
        commit_oid: Oid,
        /// When it became current.
        made_at: Timestamp,
        /// When the next one did.
        retired_at: Option<Timestamp>,
    }
}

row! {
    /// A run's branch (SPEC BRANCH-6).
    BranchRow in "branches", key name: BranchName {
        /// Its name.
        name: BranchName,
        /// The run that owns it.
        run: RunId,
        /// The commit of main it was forked from.
        base: Oid,
        /// The generation it was forked from.
        fork_generation: u64,
        /// When.
        created_at: Timestamp,
        /// When it is recycled, unless a pending gate pins it.
        expires_at: Timestamp,
        /// Bytes it may hold.
        quota_bytes: Option<u64>,
        /// Where it stands.
        state: BranchState,
    }
}

row! {
    /// The read manifest of a run as a whole (SPEC REC-2); its lines are kept beside it.
    ReadManifestRow in "read_manifests", key run: RunId {
        /// The run.
        run: RunId,
        /// Digest over all lines.
        digest: [u8; 32],
        /// Number of lines.
        entries: u64,
        /// Reads beyond the limit of lines.
        unlisted: u64,
        /// When it was last stored.
        updated_at: Timestamp,
    }
}

/// A refusal by a caller that proved nothing, in its slot of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingEntry {
    /// Slot; the oldest entry is overwritten.
    pub slot: u16,
    /// When.
    pub time: Timestamp,
    /// Where from.
    pub source: String,
    /// Rule that refused.
    pub rule: String,
    /// Path, printable.
    pub path: Option<String>,
}

/// Counted refusals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalCount {
    /// Start of the minute.
    pub minute: Timestamp,
    /// Who, by printed id; empty for callers that proved nothing.
    pub source: String,
    /// Rule.
    pub rule: String,
    /// Path prefix, printable.
    pub prefix: String,
    /// How many.
    pub count: u64,
}
