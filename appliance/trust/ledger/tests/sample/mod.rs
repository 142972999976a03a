//! One of each row, consistent with one another.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses its part")]

use std::path::Path;

use nas_ledger::{
    BranchRow, BranchState, GateRow, LeaseRow, LeaseState, Ledger, LedgerError, MountRow, Options, PrincipalKind,
    PrincipalRow, RunRow, RunState, TokenKind, TokenRow, Tx,
};
use nas_trust_core::ActionSet;
use nas_trust_core::clock::BootId;
use nas_trust_core::gate::{GateDigest, GateState};
use nas_types::id::{GateId, LeaseId, MountId, RunId};
use nas_types::lease::{BranchName, View};
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::time::Timestamp;

pub const T: Timestamp = Timestamp(1_796_000_000_000);

pub fn oid(n: u8) -> Oid {
    Oid([n; 20])
}

pub fn open(dir: &Path) -> Ledger {
    Ledger::open(&dir.join("ledger.db"), Options { ballast_bytes: 64 << 10 }).unwrap()
}

pub struct World {
    pub owner: PrincipalRow,
    pub agent: PrincipalRow,
    pub token: TokenRow,
    pub run: RunRow,
    pub lease: LeaseRow,
    pub mount: MountRow,
    pub gate: GateRow,
    pub branch: BranchRow,
}

impl World {
    pub fn new(n: u8) -> Self {
        let principal = |id: &str, kind| PrincipalRow {
            id: format!("{id}{n}"),
            kind,
            created_at: T,
            passphrase_hash: None,
            disabled_at: None,
        };
        let (owner, agent) =
            (principal("human:owner", PrincipalKind::Human), principal("agent:cleo", PrincipalKind::Agent));
        let token = TokenRow {
            token_hash: [n; 32],
            kind: TokenKind::Owner,
            principal: owner.id.clone(),
            created_at: T,
            expires_at: Some(T.plus_ms(1)),
            revoked_at: None,
        };
        let run = RunRow {
            id: RunId::random(),
            role: "cleo".parse().unwrap(),
            principal: agent.id.clone(),
            on_behalf_of: Some(owner.id.clone()),
            purpose: Some("draft".into()),
            started_at: T,
            ended_at: None,
            state: RunState::Active,
            tree: None,
        };
        let branch = BranchName { role: "cleo".parse().unwrap(), run: run.id };
        let lease = LeaseRow {
            id: LeaseId::random(),
            token_hash: [n.wrapping_add(50); 32],
            run: run.id,
            principal: agent.id.clone(),
            on_behalf_of: Some(owner.id.clone()),
            parent: None,
            purpose: None,
            paths: vec!["/shared/launch/**".into(), "/a%5B".into()],
            actions: ActionSet::ALL,
            branch: branch.clone(),
            read_only: false,
            created_at: T,
            expires_at: T.plus_ms(14_400_000),
            remaining_ms: 14_400_000,
            boot_id: BootId(3),
            boottime_ms: 12,
            state: LeaseState::Active,
            revoked_at: None,
        };
        let mount = MountRow {
            commit_oid: None,
            id: MountId::random(),
            lease: lease.id,
            view: View::Main,
            root: TreePath::parse("/shared/launch").unwrap(),
            peer: "127.0.0.1".into(),
            uid: u32::MAX,
            gid: 1000,
            read_only: true,
            created_at: T,
            ended_at: None,
        };
        let gate = GateRow {
            id: GateId::random(),
            run: run.id,
            lease: lease.id,
            branch: branch.clone(),
            target: "main".into(),
            base: oid(1),
            pin: oid(2),
            digest: GateDigest([n; 32]),
            changes: 4,
            why: Some("release notes".into()),
            card: serde_json::json!({"op": "merge"}),
            state: GateState::Pending,
            created_at: T,
            expires_at: T.plus_ms(1),
            decided_at: None,
            decided_by: None,
            reason: None,
            merge_commit: None,
            successor: None,
        };
        let branch = BranchRow {
            name: branch,
            run: run.id,
            base: oid(1),
            fork_generation: 0,
            created_at: T,
            expires_at: T.plus_ms(1),
            quota_bytes: Some(1 << 40),
            state: BranchState::Live,
        };
        Self { owner, agent, token, run, lease, mount, gate, branch }
    }

    pub fn insert(&self, tx: &mut Tx<'_>) -> Result<(), LedgerError> {
        tx.insert(&self.owner)?;
        tx.insert(&self.agent)?;
        tx.insert(&self.token)?;
        tx.insert(&self.run)?;
        tx.insert(&self.lease)?;
        tx.insert(&self.mount)?;
        tx.insert(&self.gate)?;
        tx.insert(&self.branch)
    }
}
