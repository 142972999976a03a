//! Gates (SPEC GATE, DESIGN §4 "Gate"): the digest an approval is bound to, and what an event does to a gate.
//!
//! The Door recomputes the merge on current main and asks [`decide`]; nothing here looks at bytes or clocks.

use std::fmt;
use std::str::FromStr;

use nas_types::id::LeaseId;
use nas_types::object::{Change, Entry, EntryKind, KeyDomain};
use nas_types::time::Timestamp;

/// How long a gate waits for an answer: 72 h. Then it is denied (SPEC GATE-3).
pub const GATE_TTL_MS: i64 = 72 * 3_600_000;

const DIGEST_CONTEXT: &str = "agent-nas 2026-11 gate digest v2";

/// What an approval is bound to (SPEC GATE-2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateDigest(pub [u8; 32]);

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a gate digest: expected 64 hexadecimal digits")]
pub struct GateDigestError;

impl fmt::Display for GateDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GateDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for GateDigest {
    type Err = GateDigestError;
    fn from_str(text: &str) -> Result<Self, GateDigestError> {
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes())).map_err(|_| GateDigestError)
    }
}

/// Digest over (target, lease, sorted changes: path, old and new kind, mode, content, key domain, length, time). Every part is length-prefixed or of
/// fixed size and the hash has its own domain, so no two different inputs encode alike. The order of `changes` does not matter.
#[must_use]
pub fn digest(target: &str, lease: LeaseId, changes: &[Change]) -> GateDigest {
    let mut sorted: Vec<&Change> = changes.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut hasher = blake3::Hasher::new_derive_key(DIGEST_CONTEXT);
    put(&mut hasher, target.as_bytes());
    put(&mut hasher, lease.to_string().as_bytes());
    hasher.update(&(sorted.len() as u64).to_le_bytes());
    for change in sorted {
        put(&mut hasher, change.path.as_bytes());
        put_entry(&mut hasher, change.old.as_ref());
        put_entry(&mut hasher, change.new.as_ref());
    }
    GateDigest(*hasher.finalize().as_bytes())
}

fn put(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn put_entry(hasher: &mut blake3::Hasher, entry: Option<&Entry>) {
    let Some(entry) = entry else {
        hasher.update(&[0]);
        return;
    };
    let kind = match entry.kind {
        EntryKind::File => 1,
        EntryKind::Symlink => 2,
        EntryKind::Dir => 3,
    };
    hasher.update(&[1, kind]);
    hasher.update(&entry.mode.to_le_bytes());
    hasher.update(&entry.size.to_le_bytes());
    match &entry.oid {
        Some(oid) => hasher.update(&[1]).update(&oid.0),
        None => hasher.update(&[0]),
    };
    let KeyDomain::Box = entry.key_domain;
    hasher.update(&[1]);
    match entry.mtime {
        Some(mtime) => hasher.update(&[1]).update(&mtime.secs.to_le_bytes()).update(&mtime.nanos.to_le_bytes()),
        None => hasher.update(&[0]),
    };
}

/// Where a gate stands. Only `Pending` ever changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// Waits for a person.
    Pending,
    /// Approved, and what it asked for was done.
    Approved,
    /// A person said no.
    Denied,
    /// Nobody answered in time: denied.
    Expired,
    /// What it asked for no longer exists: the result changed, or the lease was revoked.
    Void,
}

impl GateState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Approved, Self::Denied, Self::Expired, Self::Void];

    /// The word kept in the ledger.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Void => "void",
        }
    }
}

/// What a decision needs to know of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// Where it stands.
    pub state: GateState,
    /// What it is bound to.
    pub digest: GateDigest,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
}

/// Where the lease that proposed stands. An expired lease is no obstacle: the *approver's* authority merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStanding {
    /// In force, suspended, or over by time.
    LiveOrExpired,
    /// Revoked, itself or an ancestor, or its run frozen.
    Revoked,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateEvent {
    /// A person with the authority to do so approves.
    Approve {
        /// Digest the person was shown.
        seen: GateDigest,
        /// Digest of the merge recomputed on current main; `None` when it no longer merges cleanly.
        recomputed: Option<GateDigest>,
        /// The lease that proposed.
        lease: LeaseStanding,
    },
    /// A person denies.
    Deny,
    /// The lease that proposed was revoked.
    LeaseRevoked,
    /// Time went on.
    Tick,
}

/// Why a gate became void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoidReason {
    /// Main moved under these changes: the merge would no longer do what the card showed.
    ResultChanged,
    /// Main moved so that the merge conflicts.
    Conflict,
    /// The lease that proposed was revoked.
    LeaseRevoked,
}

impl VoidReason {
    /// A sentence for people.
    #[must_use]
    pub fn as_sentence(self) -> &'static str {
        match self {
            Self::ResultChanged => "main changed in the same places, so the merge would differ from what was shown",
            Self::Conflict => "main changed in the same places, so the merge conflicts",
            Self::LeaseRevoked => "the lease that proposed it was revoked",
        }
    }

    /// Does a fresh card take its place? After a conflict or a revocation there is nothing to ask for.
    #[must_use]
    pub fn asks_again(self) -> bool {
        matches!(self, Self::ResultChanged)
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// Nothing.
    Stay,
    /// Merge, in the transaction that moves the gate to `Approved`.
    Approve,
    /// Move to `Denied`.
    Deny,
    /// Move to `Expired`.
    Expire,
    /// Move to `Void`.
    Void(VoidReason),
    /// The person approved another card than this one: nothing changes, show the right one.
    WrongCard,
    /// It was decided before; an approval is never replayed (SPEC GATE-2).
    Decided(GateState),
}

/// Decides. `clock_trusted` is false while the wall clock is in doubt: then nothing ends by age.
#[must_use]
pub fn decide(gate: &Gate, now: Timestamp, clock_trusted: bool, event: GateEvent) -> Ruling {
    if gate.state != GateState::Pending {
        return if event == GateEvent::Tick { Ruling::Stay } else { Ruling::Decided(gate.state) };
    }
    // Time first: an approval that comes too late is a denial (SPEC GATE-3).
    if clock_trusted && now >= gate.expires_at {
        return Ruling::Expire;
    }
    match event {
        GateEvent::Tick => Ruling::Stay,
        GateEvent::Deny => Ruling::Deny,
        GateEvent::LeaseRevoked => Ruling::Void(VoidReason::LeaseRevoked),
        GateEvent::Approve { lease: LeaseStanding::Revoked, .. } => Ruling::Void(VoidReason::LeaseRevoked),
        GateEvent::Approve { seen, .. } if seen != gate.digest => Ruling::WrongCard,
        GateEvent::Approve { recomputed: None, .. } => Ruling::Void(VoidReason::Conflict),
        GateEvent::Approve { recomputed: Some(found), .. } if found != gate.digest => {
            Ruling::Void(VoidReason::ResultChanged)
        }
        GateEvent::Approve { .. } => Ruling::Approve,
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
